package httpapi

import (
	"maps"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/conversion/queryparams"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// connect responds to a request for a connection to a pod, a node or a service (exec, proxy, log).
func (q *request) connect(s *resource.Subresource) error {
	if err := q.checkNames(); err != nil {
		return err
	}
	if q.query().Has("dryRun") && s.Name != "log" { // a get
		return apierrors.NewBadRequest("dryRun is not supported")
	}
	values, err := q.admitConnection(s)
	if err != nil {
		return err
	}
	if err := q.mayConnect(s.Name); err != nil {
		return err
	}
	target := q.target()
	target.Subresource = ""
	if s.Name == "proxy" {
		return q.proxy(target, s, values.Get("path"))
	}
	o, err := q.h.c.Registry.Read(q.context(), target)
	if err != nil {
		return err
	}
	node, err := s.Connect(o, values)
	switch {
	case err != nil:
		return err
	case node == "":
		q.writeHeader(http.StatusNoContent)
		return nil
	}
	return q.connectTo(s.Name, o.(*corev1.Pod), node, values)
}

// mayConnect returns an error unless the user may create connections that upgrade: a WebSocket begins with a GET, and
// the right to get them is a right to read.
func (q *request) mayConnect(subresource string) error {
	switch subresource {
	case "exec", "attach", "portforward":
		if q.info.Verb != verbCreate {
			return q.alsoAllowed(verbCreate)
		}
	}
	return nil
}

// admitConnection calls the admission plugins for a connection, before it is known whether its
// object exists. It returns the parameters as the plugins leave them.
func (q *request) admitConnection(s *resource.Subresource) (url.Values, error) {
	values := q.query()
	if s.Name == "proxy" {
		values = maps.Clone(values)
		values["path"] = []string{q.proxyPath()}
	}
	if s.Options == nil || !q.h.c.Registry.AdmitsConnections(q.target(), q.info.User) {
		return values, nil
	}
	options := s.Options()
	if err := readParameters(values, options); err != nil {
		return nil, err
	}
	a, err := q.h.c.Registry.Connect(q.context(), q.target(), options, q.info.User)
	q.warn(q.target(), a.Warnings)
	q.audited.annotate(a.Annotations)
	if err != nil {
		return nil, err
	}
	return queryparams.Convert(a.Options)
}

// proxyPath returns the path that a proxy would request.
func (q *request) proxyPath() string {
	p := q.info.rest
	if p != "" && p[0] != '/' {
		p = "/" + p
	}
	if strings.HasSuffix(q.r.URL.Path, "/") && !strings.HasSuffix(p, "/") {
		p += "/"
	}
	return p
}
