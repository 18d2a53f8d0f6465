package aggregation

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/tidemark-dev/tidemark/internal/webhook"
)

const (
	idleTimeout        = 90 * time.Second
	handshakeTimeout   = 10 * time.Second
	dialTimeout        = 30 * time.Second
	maxIdleConnections = 25
	// maxHeaderBytes limits the headers of a response.
	maxHeaderBytes = 256 << 10
	// pingAfter is how long an HTTP/2 connection may be silent before it is tested with a ping; one that does not respond,
	// or to which no byte can be written, is closed.
	pingAfter, pingTimeout, writeTimeout = 30 * time.Second, 15 * time.Second, 15 * time.Second
	// streamWindow and connectionWindow are how much of responses an HTTP/2 connection buffers.
	streamWindow, connectionWindow = 256 << 10, 1 << 20
)

// errOwnAddress is the error of a Service that is this server.
var errOwnAddress = errors.New("extension servers at an address of this server itself are not called")

// newTransport returns a transport for a backend. It reports invalid certificates.
func (a *Aggregator) newTransport(e *entry) (*http.Transport, error) {
	config, err := a.tlsConfig(e)
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		TLSClientConfig: config, TLSHandshakeTimeout: handshakeTimeout, DialContext: a.dial, DisableCompression: true, ForceAttemptHTTP2: true,
		IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: maxIdleConnections, MaxResponseHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout,
			MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connectionWindow,
		},
	}, nil
}

// tlsConfig returns the TLS configuration for a backend. The name in its certificate is that of the Service, wherever the
// Service leads to.
func (a *Aggregator) tlsConfig(e *entry) (*tls.Config, error) {
	config := &tls.Config{
		ServerName: e.service.name + "." + e.service.namespace + ".svc", MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: e.insecure, //nolint:gosec // the APIService asks for it
	}
	if e.ca != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bytes.TrimSpace([]byte(e.ca))) {
			return nil, fmt.Errorf("the caBundle of the APIService %s has no certificate", e.apiService())
		}
	}
	if given := a.c.Certificate; given != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := given(); c != nil {
				return c, nil
			}
			return new(tls.Certificate), nil
		}
	}
	return config, nil
}

// dial connects to an extension server. It checks the address that is dialled.
func (a *Aggregator) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := webhook.Dialer("extension servers", a.checkOwn)
	d.Timeout = dialTimeout
	return a.limit.Dial(d.DialContext)(ctx, network, address)
}

// checkOwn refuses the addresses at which this server listens.
func (a *Aggregator) checkOwn(at netip.AddrPort) error {
	if a.c.Own != nil && a.c.Own(netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())) {
		return errOwnAddress
	}
	return nil
}
