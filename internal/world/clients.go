package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
)

// Handler returns the API of the world, with authentication. The paths of its requests begin with /api
// or the like, also in a fork.
func (w *World) Handler() http.Handler {
	if w.fork == nil {
		return w.handler
	}
	return http.HandlerFunc(w.serve)
}

// RESTConfig returns a configuration for client-go as administrator, a copy that the caller may
// change. It is InProcessConfig if the server does not listen.
func (w *World) RESTConfig() *rest.Config {
	if w.process.InProcess {
		return w.InProcessConfig()
	}
	c := w.restConfig()
	c.BearerToken = w.process.authority.AdminToken()
	return c
}

// RESTConfigFor returns a configuration for client-go as a user. It has a client certificate that is
// valid for a year, in all worlds of the server. It is InProcessConfigFor if the server does not listen.
func (w *World) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	if w.process.InProcess {
		return w.InProcessConfigFor(user, groups...)
	}
	cert, key, err := w.process.authority.IssueClient(user, groups)
	if err != nil {
		return nil, err
	}
	c := w.restConfig()
	c.CertData, c.KeyData = cert, key
	return c, nil
}

// InProcessConfig returns a configuration for client-go as administrator, whose Transport calls the
// server directly: no port, no TLS, the whole HTTP API. The caller may change it, but must not add TLS
// options, which client-go refuses beside a Transport. Watches of one configuration share their
// deliveries, like those of one HTTP/2 connection.
//
// Clients that open connections of their own cannot use it: remotecommand, port forwarding, and other
// programs. rest.AnonymousClientConfig removes the Transport.
func (w *World) InProcessConfig() *rest.Config {
	c := w.inProcess(nil)
	c.BearerToken = w.process.authority.AdminToken()
	return c
}

// InProcessConfigFor is InProcessConfig as a user. The client has a certificate that is valid for a
// year, in all worlds of the server.
func (w *World) InProcessConfigFor(user string, groups ...string) (*rest.Config, error) {
	certificate, _, err := w.process.authority.IssueClient(user, groups)
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
	// The connection state that a listener would have after the handshake. The authenticator
	// verifies the certificate.
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

// Kubeconfig returns a kubeconfig file with the administrator's credentials.
func (w *World) Kubeconfig() []byte {
	c := w.kubeconfig()
	return c.YAML()
}

func (w *World) kubeconfig() kubeconfig.Config {
	p := w.process
	return kubeconfig.Config{Server: p.advertisedURL() + w.prefix(), CA: p.authority.CertificatePEM(), TLSServerName: p.serverName, Token: p.authority.AdminToken()}
}

func (w *World) restConfig() *rest.Config {
	p := w.process
	return &rest.Config{
		Host:            w.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: p.authority.CertificatePEM(), ServerName: p.serverName},
		QPS:             clientQPS, Burst: clientBurst,
	}
}
