package httpapi

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/connect"
	"github.com/tidemark-dev/tidemark/internal/kubelet"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// kubelet returns the address of the kubelet of a node.
func (q *request) kubelet(node string) (kubelet.Address, error) {
	nodes := registry.Target{Type: q.h.c.Catalog().Lookup("", "v1", "nodes"), Name: node}
	o, err := q.h.c.Registry.Read(q.context(), nodes)
	if apierrors.IsNotFound(err) {
		return kubelet.Address{}, apierrors.NewNotFound(q.typ.GroupResource(), node) // as in kube-apiserver, of the resource of the request
	}
	if err != nil {
		return kubelet.Address{}, err
	}
	at, err := q.h.c.Connections.Kubelets().Locate(o.(*corev1.Node))
	if err != nil {
		return kubelet.Address{}, refusal(http.StatusInternalServerError, "", err.Error(), nil)
	}
	return at, nil
}

// connectTo connects the client to a container.
func (q *request) connectTo(subresource string, p *corev1.Pod, node string, options url.Values) error {
	if q.h.c.Connections == nil {
		return registry.NotImplemented("the connection to " + node)
	}
	at, err := q.kubelet(node)
	if err != nil {
		return err
	}
	to := connect.Container{Kubelet: at, Namespace: p.Namespace, Pod: p.Name, Name: options.Get("container")}
	if to.Name == "" && len(p.Spec.Containers) > 0 {
		to.Name = p.Spec.Containers[0].Name
	}
	return q.open(func(w http.ResponseWriter, r *http.Request) error {
		if subresource == "log" {
			return q.h.c.Connections.Log(w, r, to, options)
		}
		return q.h.c.Connections.Stream(w, r, connect.Stream{Container: to, Kind: subresource, Options: options})
	})
}

// open calls f, which connects the client. A connection has no seat and no deadline. It ends with the certificate of the
// client, and with the server.
func (q *request) open(f func(http.ResponseWriter, *http.Request) error) error {
	if err := q.holdConnection(); err != nil {
		return err
	}
	ctx, cancel := q.watchContext()
	defer cancel()
	if t := q.r.TLS; t != nil && len(t.PeerCertificates) > 0 {
		timer := time.AfterFunc(t.PeerCertificates[0].NotAfter.Sub(q.h.c.Now()), cancel)
		defer timer.Stop()
	}
	q.deadline = time.Time{}
	q.route = q.h.metrics.longRunning(q)
	return f(&connectionWriter{countingWriter{q.w, q}}, q.withoutCredentials(ctx))
}

// withoutCredentials returns the request without the credentials of the user: they are for this server alone.
func (q *request) withoutCredentials(ctx context.Context) *http.Request {
	r := q.r.Clone(ctx)
	for name := range r.Header {
		if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			delete(r.Header, name)
		}
	}
	for _, name := range q.h.c.UserHeaders {
		r.Header.Del(name)
	}
	for _, prefix := range q.h.c.UserHeaderPrefixes {
		for name := range r.Header {
			if prefix != "" && len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				delete(r.Header, name)
			}
		}
	}
	if offered := r.Header["Sec-Websocket-Protocol"]; offered != nil {
		if r.Header["Sec-Websocket-Protocol"] = []string{strings.Join(authn.Subprotocols(r), ", ")}; r.Header.Get("Sec-Websocket-Protocol") == "" {
			delete(r.Header, "Sec-Websocket-Protocol")
		}
	}
	return r
}

// connectionWriter is the response of a connection, whose client may be taken over.
type connectionWriter struct{ countingWriter }

// Hijack implements http.Hijacker. The response is an upgrade.
func (c *connectionWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(c.ResponseWriter).Hijack()
	if err == nil && !c.q.wrote {
		c.q.wrote, c.q.code = true, http.StatusSwitchingProtocols
		c.q.auditHeaders(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}
