package tidemark

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/netip"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/inprocess"
)

// inProcessHost is the host in the URLs of clients in the process. No name server knows it.
const inProcessHost = "tidemark.local"

// inProcessPort is the port that the Service `kubernetes` shows for a server without a listener.
const inProcessPort = 6443

// InProcessConfig returns a configuration for client-go as administrator, whose Transport calls the
// server directly: no port, no TLS, the whole HTTP API. The caller may change it, but must not add TLS
// options, which client-go refuses beside a Transport. Watches of one configuration share their
// deliveries, like those of one HTTP/2 connection.
//
// Clients that open connections of their own cannot use it: remotecommand, port forwarding, and other
// programs. rest.AnonymousClientConfig removes the Transport.
func (w *World) InProcessConfig() *rest.Config {
	c := w.inProcess(nil)
	c.BearerToken = w.running.authority.AdminToken()
	return c
}

// InProcessConfigFor is InProcessConfig as a user. The client has a certificate that is valid for a
// year, in all worlds of the server.
func (w *World) InProcessConfigFor(user string, groups ...string) (*rest.Config, error) {
	certificate, _, err := w.running.authority.IssueClient(user, groups)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, errors.New("the issued certificate is not PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	// What a listener would know after the handshake. The authenticator verifies the certificate.
	return w.inProcess(&tls.ConnectionState{
		Version: tls.VersionTLS13, HandshakeComplete: true, NegotiatedProtocol: "h2", ServerName: inProcessHost,
		PeerCertificates: []*x509.Certificate{leaf},
	}), nil
}

// inProcess returns a configuration without a token for a client with a certificate or, if state is
// nil, without one.
func (w *World) inProcess(state *tls.ConnectionState) *rest.Config {
	return &rest.Config{
		Host:      "https://" + inProcessHost,
		Transport: w.direct.Transport(authn.WithConnection(context.Background(), nil), state),
		QPS:       clientQPS, Burst: clientBurst,
	}
}

// newDirect returns what serves clients in the process with a handler.
func (w *World) newDirect(handle http.HandlerFunc) *inprocess.Server {
	return &inprocess.Server{
		Handler: handle, Host: inProcessHost, Drain: w.drain, HeaderBytes: httpapi.DefaultLimits.HeaderBytes,
		WriteTimeout: httpapi.DefaultLimits.WriteTimeout, Log: w.server.logOf(logConnections),
	}
}

// checkInProcess returns an error for options of a listener that there is not.
func (s *Server) checkInProcess() error {
	switch {
	case !s.InProcess:
	case s.Listen.Address != "" || len(s.Listen.MoreAddresses) > 0 || s.Listen.Port != 0:
		return errors.New("a server in process does not listen: want no address and no port")
	case s.ownCertificates():
		return errors.New("a server in process does not listen: want no certificates")
	}
	return nil
}

// reachedAt returns where other machines reach the server.
func (r *running) reachedAt() netip.AddrPort {
	if r.listeners == nil {
		return netip.AddrPortFrom(netip.Addr{}, inProcessPort)
	}
	at := reached(r.listeners[0])
	if a := r.root.server.Listen.AdvertiseAddress; a != "" {
		at = netip.AddrPortFrom(netip.MustParseAddr(a).Unmap(), at.Port())
	}
	return at
}
