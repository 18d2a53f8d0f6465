package httpapi

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/net"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// connect answers a request for a connection to a pod, a node or a service (exec, proxy,
// log). It refuses what kube-apiserver refuses; the connection itself is not implemented.
func (q *request) connect(s *resource.Subresource) error {
	if err := q.checkNames(); err != nil {
		return err
	}
	if q.query().Has("dryRun") && s.Name != "log" { // a get
		return apierrors.NewBadRequest("dryRun is not supported")
	}
	target := q.target()
	target.Subresource = ""
	if s.Name == "proxy" {
		_, name, _, ok := net.SplitSchemeNamePort(target.Name)
		if !ok {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", q.typ.Singular, target.Name))
		}
		target.Name = name
	}
	o, err := q.h.c.Registry.Read(q.context(), target)
	if err != nil {
		return err
	}
	host, err := s.Connect(o, q.query())
	switch {
	case err != nil:
		return err
	case host == "":
		q.writeHeader(http.StatusNoContent)
		return nil
	}
	return registry.NotImplemented("the connection to " + host)
}
