// Package kubelet connects to kubelets, and to the Pods and ports of nodes: it chooses the address of a node, presents
// the server's client certificate, verifies that of the kubelet, and refuses addresses that a user must not
// reach through the server. The files of certificates are read again when they change.
package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/reload"
	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// Config configures a Client. Its zero value connects without a certificate, and verifies no kubelet.
type Config struct {
	// ClientCertificate and ClientKey are files in PEM: the credentials of the server at kubelets. Both or none.
	ClientCertificate, ClientKey string
	// CertificateAuthority is a file in PEM with the authorities of kubelets' certificates. Empty: they are not verified.
	CertificateAuthority string
	// AddressTypes are types of the addresses of a node, the preferred one first. Empty: DefaultAddressTypes.
	AddressTypes []string
	// Timeout is the time to connect, with the handshake of TLS; zero: DefaultTimeout.
	Timeout time.Duration
	// MaxConnections is how many connections to kubelets, Pods and nodes may be open; zero: there is no limit.
	MaxConnections int
	// Own reports whether an address is one that the server listens on. No request is sent to it: the server would
	// take it for one of its own. It is safe for concurrent use. Nil: the server has none.
	Own func(netip.AddrPort) bool
	// Dial connects to an address that may be dialled, for tests of a whole server. Nil: over the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Log gets the reloads of files; nil: nothing is logged.
	Log *slog.Logger
}

// DefaultAddressTypes is the value of kube-apiserver's --kubelet-preferred-address-types.
var DefaultAddressTypes = []string{"Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"}

const (
	// DefaultPort is the port of kubelets.
	DefaultPort = 10250
	// DefaultTimeout is the value of kube-apiserver's --kubelet-timeout.
	DefaultTimeout = 5 * time.Second

	idlePerHost = 2
	idleTime    = 90 * time.Second
	bufferBytes = 4 << 10 // of a connection that is no upgrade, for each direction
	headerBytes = 64 << 10
)

// Client connects to kubelets and Pods. All methods are safe for concurrent use.
type Client struct {
	c           Config
	certificate *reload.Value[*tls.Certificate] // nil: none
	authority   *reload.Value[*x509.CertPool]   // nil: kubelets are not verified
	limit       *upgrade.Limit

	// Kubelet connects to kubelets at any address but the server's own, with the server's certificate. Unverified is the
	// same and does not verify the kubelet. Proxied is Kubelet for addresses that a user may reach through the server.
	// Backend connects to such addresses without a certificate, and verifies none.
	Kubelet, Unverified, Proxied, Backend *Route
}

// New makes a client. It returns an error if a file cannot be read.
func New(c Config) (*Client, error) {
	if len(c.AddressTypes) == 0 {
		c.AddressTypes = DefaultAddressTypes
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	k := &Client{c: c, limit: &upgrade.Limit{Most: int64(c.MaxConnections)}}
	k.limit.Relieve = k.CloseIdleConnections
	switch cert, key := c.ClientCertificate, c.ClientKey; {
	case (cert == "") != (key == ""):
		return nil, errors.New("the client certificate for kubelets needs a certificate and a key")
	case cert != "":
		v, err := reload.New(reload.Config[*tls.Certificate]{Files: []string{cert, key}, Log: c.Log, Load: func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				return nil, fmt.Errorf("the client certificate for kubelets in %s and %s: %w", cert, key, err)
			}
			return &pair, nil
		}})
		if err != nil {
			return nil, err
		}
		k.certificate = v
	}
	if file := c.CertificateAuthority; file != "" {
		v, err := reload.New(reload.Config[*x509.CertPool]{Files: []string{file}, Log: c.Log, Load: func() (*x509.CertPool, error) {
			b, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("the authority of kubelets: %w", err)
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(b) {
				return nil, fmt.Errorf("the authority of kubelets: %s has no certificate", file)
			}
			return pool, nil
		}})
		if err != nil {
			return nil, err
		}
		k.authority = v
	}
	k.Kubelet, k.Unverified = k.route(true, true, false), k.route(true, false, false)
	k.Proxied, k.Backend = k.route(true, true, true), k.route(false, false, true)
	return k, nil
}

// CloseIdleConnections closes the connections that are not in use.
func (k *Client) CloseIdleConnections() {
	for _, r := range []*Route{k.Kubelet, k.Unverified, k.Proxied, k.Backend} {
		r.Transport.(*http.Transport).CloseIdleConnections()
	}
}

// Route is a way to connect.
type Route struct {
	// Transport sends requests with HTTP/1.1, whose connections have no buffers that grow. It follows no redirect.
	Transport http.RoundTripper

	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	config *tls.Config
	limit  time.Duration
	marked bool // with the server's certificate
}

// Marker is the header of requests that are sent with the server's certificate for kubelets. An API server refuses them: it is
// no kubelet, and the address of a Node may lead to it through the translation of addresses, or to a server beside it.
const Marker = "X-Tidemark-To-Kubelet"

// Mark sets the headers of a request before it is sent.
func (r *Route) Mark(h http.Header) {
	if delete(h, Marker); r.marked {
		h[Marker] = []string{"true"}
	}
}

// Dial connects to a URL for an upgrade.
func (r *Route) Dial(ctx context.Context, target *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	return upgrade.Dial(ctx, target, r.dial, r.config)
}

// route makes a route. authenticated: the server presents its certificate. verified: that of the other side is
// verified if there is an authority. restricted: only addresses that users may reach are dialled.
func (k *Client) route(authenticated, verified, restricted bool) *Route {
	dialer := &net.Dialer{Timeout: k.c.Timeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return k.check(address, restricted)
	}}
	dial := dialer.DialContext
	if k.c.Dial != nil {
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if err := k.check(address, restricted); err != nil {
				return nil, err
			}
			return k.c.Dial(ctx, network, address)
		}
	}
	r := &Route{dial: k.limit.Dial(dial), limit: k.c.Timeout, marked: authenticated, config: &tls.Config{
		InsecureSkipVerify: true, // VerifyConnection verifies: the authority may change
	}}
	if authenticated && k.certificate != nil {
		r.config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return k.certificate.Get(), nil }
	}
	if verified && k.authority != nil {
		r.config.VerifyConnection = k.verify
	}
	r.Transport = &http.Transport{
		DialContext: r.dial, TLSClientConfig: r.config, TLSHandshakeTimeout: k.c.Timeout, DisableCompression: true,
		MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleTime, MaxResponseHeaderBytes: headerBytes,
		ReadBufferSize: bufferBytes, WriteBufferSize: bufferBytes, ExpectContinueTimeout: time.Second,
	}
	return r
}

// verify verifies the certificate of a kubelet with today's authority.
func (k *Client) verify(s tls.ConnectionState) error {
	intermediates := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: s.ServerName, Roots: k.authority.Get(), Intermediates: intermediates})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// ErrNotAllowed is the error of an address that users may not reach through the server.
var ErrNotAllowed = errors.New("address not allowed")

// check refuses an address that is about to be dialled. Names are resolved by then, and are not resolved again.
func (k *Client) check(address string, restricted bool) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	if restricted && !Allowed(at.Addr()) || k.c.Own != nil && k.c.Own(at) {
		return ErrNotAllowed
	}
	return nil
}

// Address is where a kubelet listens.
type Address struct {
	Host, Port string
	// WebSockets: the kubelet takes WebSockets with the subprotocols that the server would otherwise translate.
	WebSockets bool
}

// URL returns the URL of a path at the kubelet.
func (a Address) URL(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(a.Host, a.Port), Path: path, RawQuery: query.Encode()}
}

// Locate returns the address of the kubelet of a node.
func (k *Client) Locate(n *corev1.Node) (Address, error) {
	a := Address{Port: strconv.Itoa(DefaultPort), WebSockets: slices.Contains(n.Status.DeclaredFeatures, "ExtendWebSocketsToKubelet")}
	if port := n.Status.DaemonEndpoints.KubeletEndpoint.Port; port > 0 {
		a.Port = strconv.Itoa(int(port))
	}
	for _, t := range k.c.AddressTypes {
		for _, one := range n.Status.Addresses {
			if string(one.Type) == t {
				a.Host = one.Address
				return a, nil
			}
		}
	}
	return Address{}, fmt.Errorf("no preferred addresses found; known addresses: %v", n.Status.Addresses)
}
