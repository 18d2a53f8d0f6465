package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/conversion/queryparams"
	"k8s.io/apimachinery/pkg/util/net"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// connect responds to a request for a connection to a pod, a node or a service (exec, proxy, log).
// It refuses the same requests as kube-apiserver; the connection itself is not implemented.
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
	target := q.target()
	target.Subresource = ""
	if s.Name == "proxy" {
		_, name, port, ok := net.SplitSchemeNamePort(target.Name)
		if !ok {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", q.typ.Singular, target.Name))
		}
		target.Name = name
		if target.Type.Collection == "services" {
			host, err := q.proxyService(target, port)
			if err != nil {
				return err
			}
			return registry.NotImplemented("the connection to " + host)
		}
	}
	o, err := q.h.c.Registry.Read(q.context(), target)
	if err != nil {
		return err
	}
	host, err := s.Connect(o, values)
	switch {
	case err != nil:
		return err
	case host == "":
		q.writeHeader(http.StatusNoContent)
		return nil
	}
	return registry.NotImplemented("the connection to " + host)
}

// admitConnection calls the admission plugins for a connection, before it is known whether its
// object exists. It returns the parameters as the plugins leave them.
func (q *request) admitConnection(s *resource.Subresource) (url.Values, error) {
	values := q.query()
	if s.Options == nil || !q.h.c.Registry.AdmitsConnections(q.target(), q.info.User) {
		return values, nil
	}
	if s.Name == "proxy" {
		values = maps.Clone(values)
		values["path"] = []string{q.proxyPath()}
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
