package world

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/serving"
	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// Aggregation is tidemark.Aggregation.
type Aggregation struct {
	ProxyClientCertFile, ProxyClientKeyFile string
	EndpointRouting                         bool
	ForwardRedirects                        bool
}

// newAggregator returns the aggregator of the root world; nil: it has none. Forks have none: the objects of extension servers are not part of
// them, and a user with more rights in the fork would have these there, too.
func (w *World) newAggregator() (*aggregation.Aggregator, error) {
	p := w.process
	if p.past() || p.ReadOnly { // as in a fork, the objects of extension servers are those of the present
		return nil, nil
	}
	certificate, err := p.frontProxyCertificate()
	if err != nil {
		return nil, err
	}
	h := &p.Authentication.Proxy
	return aggregation.New(aggregation.Config{
		Store: w.store, EditStatus: w.editAPIService, Writes: w.writesConditions, Endpoints: p.Aggregation.EndpointRouting,
		ForwardRedirects: p.Aggregation.ForwardRedirects, Certificate: certificate, MaxConnections: maxDialled(), Own: p.listensAt, Identity: uuid.New(),
		IdentityHeaders: slices.Concat(h.UsernameHeaders, h.UIDHeaders, h.GroupHeaders), IdentityPrefixes: h.ExtraPrefixes,
		Now: w.now, Log: p.logOf(logAggregation),
	}), nil
}

// writesConditions reports whether this server writes the conditions of APIServices. Of servers with one log, it is the one
// whose controllers work.
func (w *World) writesConditions() bool {
	if w.process.follows() {
		return false
	}
	l := w.started.Load()
	if l == nil {
		return false
	}
	paused, _ := l.Standby()
	return !paused
}

var errUnchanged = errors.New("the object stays as it is")

// editAPIService changes the status of an APIService.
func (w *World) editAPIService(ctx context.Context, name string, edit func(*apiregistrationv1.APIService) bool) error {
	t := registry.Target{Type: builtin.Catalog().Lookup(apiregistrationv1.GroupName, "v1", "apiservices"), Name: name, Subresource: "status"}
	_, err := w.verbs.Edit(registry.WithLoop(ctx, "apiservice-availability"), t, registry.ServerManager, func(o metav1.Object) error {
		if !edit(o.(*apiregistrationv1.APIService)) {
			return errUnchanged
		}
		return nil
	})
	if errors.Is(err, errUnchanged) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// issuesFrontProxy reports whether the server makes the certificate itself with which it calls extension servers.
func (p *process) issuesFrontProxy() bool {
	return p.Aggregation.ProxyClientCertFile == "" && p.Authentication.ProxyCAFile == "" && p.keepsAuthority()
}

// frontProxyCertificate returns the function for the client certificate with which the server calls extension servers; nil:
// it has none.
func (p *process) frontProxyCertificate() (func() *tls.Certificate, error) {
	c := &p.Aggregation
	if c.ProxyClientCertFile != "" {
		given, err := serving.Pair{CertFile: c.ProxyClientCertFile, KeyFile: c.ProxyClientKeyFile}.Reloaded(p.Now, p.logOf(logCertificates))
		if err != nil {
			return nil, err
		}
		return given.Get, nil
	}
	if !p.issuesFrontProxy() {
		return nil, nil
	}
	return func() *tls.Certificate {
		c, _, err := p.authority.FrontProxy()
		if err != nil {
			p.logOf(logCertificates).Error("there is no certificate for extension servers", "err", err)
		}
		return c
	}, nil
}

// listensAt reports whether the server listens at an address.
func (p *process) listensAt(at netip.AddrPort) bool {
	for _, l := range p.listeners {
		tcp, ok := l.Addr().(*net.TCPAddr)
		if !ok || tcp.AddrPort().Port() != at.Port() {
			continue
		}
		own := tcp.AddrPort().Addr().Unmap()
		if own == at.Addr() || own.IsUnspecified() && (at.Addr().IsLoopback() || isLocal(at.Addr())) {
			return true
		}
	}
	return false
}

// isLocal reports whether an address is one of this machine.
func isLocal(a netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(i net.Addr) bool {
		n, ok := i.(*net.IPNet)
		if !ok {
			return false
		}
		own, ok := netip.AddrFromSlice(n.IP)
		return ok && own.Unmap() == a
	})
}

// withExtensions returns the handler of OpenAPI with the documents of extension servers.
func (w *World) withExtensions(own http.Handler) http.Handler {
	if w.aggregator == nil {
		return own
	}
	return w.aggregator.OpenAPI(own)
}
