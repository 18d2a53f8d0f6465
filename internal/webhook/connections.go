package webhook

import (
	"container/list"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/transport"

	"github.com/tidemark-dev/tidemark/internal/http2client"
)

const (
	// maxTransports is how many targets keep their connections for the next webhook that names
	// them. Other targets get new connections.
	maxTransports = 200
	// maxIdleConnections is how many connections to a target without HTTP/2 stay open while they
	// are not used.
	maxIdleConnections = 25
	idleTimeout        = 90 * time.Second
	handshakeTimeout   = 10 * time.Second
	// pingAfter is how long an HTTP/2 connection may be silent before it is tested with a ping;
	// a connection that does not respond, or to which no byte can be written, is closed.
	pingAfter, pingTimeout, writeTimeout = 30 * time.Second, 15 * time.Second, 15 * time.Second
	// maxHeaderBytes limits the headers of a response.
	maxHeaderBytes = 64 << 10
)

// Target is the address of a webhook, as configurations have it: a URL or a Service.
type Target struct {
	// URL is an absolute https URL; empty if Service is set.
	URL     string
	Service *Service
	// CABundle has the certificates that the webhook's certificate is verified with, as PEM. It
	// may be the webhook's certificate itself. Empty: those of the system.
	CABundle []byte
}

// Service is a Service of the cluster.
type Service struct {
	Namespace, Name string
	// Path is that of the URL; empty: "/".
	Path string
	// Port is a port of the Service; zero: 443.
	Port int32
}

// Host returns the name of the Service in the cluster.
func (s *Service) Host() string { return s.Name + "." + s.Namespace + ".svc" }

func (s *Service) port() int32 {
	if s.Port == 0 {
		return 443
	}
	return s.Port
}

// Resolve returns the address of a Service, "host:port". It is called for each new connection.
type Resolve func(namespace, name string, port int32) (string, error)

// Connections has the connections to webhooks. Endpoints of the same target share them. The methods
// are safe for concurrent use.
type Connections struct {
	resolve Resolve
	users   *Users

	mu         sync.Mutex // guards transports and order
	transports map[string]*list.Element
	order      list.List // of *shared, the last used one first

	closed atomic.Bool
}

// shared is a transport of a target.
type shared struct {
	key  string
	base *http.Transport
	with http.RoundTripper // the transport with credentials

	large atomic.Int64 // bytes of buffers for large responses

	mu sync.Mutex
	h2 []*http2client.Conn // those of base with HTTP/2; guarded by mu
}

// RoundTrip implements http.RoundTripper. It uses a connection with HTTP/2 if there is one. Otherwise base finds or
// makes a connection, which takes longer.
func (s *shared) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.h2, (*http2client.Conn).Usable)
	if i < 0 {
		s.mu.Unlock()
		return s.base.RoundTrip(r)
	}
	c := s.h2[i]
	s.mu.Unlock()
	resp, err := c.RoundTrip(r)
	if !errors.Is(err, http2client.ErrUnusable) {
		return resp, err
	}
	again := r.WithContext(r.Context())
	if again.Body, err = r.GetBody(); err != nil {
		return nil, err
	}
	return s.base.RoundTrip(again)
}

// closeIdle closes the connections that are not in use.
func (s *shared) closeIdle() {
	s.base.CloseIdleConnections()
	s.mu.Lock()
	all := slices.Clone(s.h2)
	s.mu.Unlock()
	for _, c := range all {
		c.CloseIfIdle()
	}
}

// join returns the client of a connection with HTTP/2. Of several that were dialed at once, the first is kept.
func (s *shared) join(t *tls.Conn) http.RoundTripper {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h2 = slices.DeleteFunc(s.h2, (*http2client.Conn).Ended)
	if i := slices.IndexFunc(s.h2, (*http2client.Conn).Usable); i >= 0 {
		go t.Close() // it sends, so it may wait
		return s.h2[i]
	}
	c := http2client.New(t, http2client.Config{HeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout, PingAfter: pingAfter, PingTimeout: pingTimeout, WriteTimeout: writeTimeout})
	s.h2 = append(s.h2, c)
	return c
}

// NewConnections returns connections that find Services with resolve, and have the credentials of
// users; nil: none.
func NewConnections(resolve Resolve, users *Users) *Connections {
	return &Connections{resolve: resolve, users: users, transports: map[string]*list.Element{}}
}

// Close closes the connections that are not in use, and those in use after their calls.
func (c *Connections) Close() {
	c.closed.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil; e = e.Next() {
		e.Value.(*shared).closeIdle()
	}
}

// Endpoint returns a client of a target. At most calls calls of it run at once; others wait.
func (c *Connections) Endpoint(t Target, calls int) (*Endpoint, error) {
	u, err := t.url()
	if err != nil {
		return nil, err
	}
	s, err := c.transport(t, u)
	if err != nil {
		return nil, err
	}
	return &Endpoint{of: c, url: *u, transport: s, calls: make(chan struct{}, calls)}, nil
}

// url returns the URL that is called, without a query.
func (t *Target) url() (*url.URL, error) {
	if s := t.Service; s != nil {
		return &url.URL{Scheme: "https", Host: net.JoinHostPort(s.Host(), strconv.Itoa(int(s.port()))), Path: path.Join("/", s.Path)}, nil
	}
	if t.URL == "" {
		return nil, errors.New("webhook configuration must have either service or URL")
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		//lint:ignore ST1005 the words of kube-apiserver
		return nil, fmt.Errorf("Unparsable URL: %v", err)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: path.Join("/", u.Path)}, nil
}

// transport returns the transport of a target.
func (c *Connections) transport(t Target, u *url.URL) (*shared, error) {
	sum := sha256.Sum256(t.CABundle)
	kind := "url "
	if t.Service != nil {
		kind = "service "
	}
	key := kind + u.Scheme + "://" + u.Host + " " + string(sum[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.transports[key]; e != nil {
		c.order.MoveToFront(e)
		return e.Value.(*shared), nil
	}
	s, err := c.connect(t, u)
	if err != nil {
		return nil, err
	}
	s.key = key
	c.transports[key] = c.order.PushFront(s)
	if c.order.Len() > maxTransports {
		last := c.order.Remove(c.order.Back()).(*shared)
		delete(c.transports, last.key)
		last.closeIdle()
	}
	return s, nil
}

// connect makes a transport. It does not connect yet.
func (c *Connections) connect(t Target, u *url.URL) (*shared, error) {
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "443")
	}
	config, err := c.users.config(host)
	if err != nil {
		return nil, err
	}
	config.CAData = t.CABundle
	dial := dialer.DialContext
	if s := t.Service; s != nil {
		config.ServerName = s.Host()
		dial = c.dialService(s)
	}
	config.Dial = dial
	settings, err := transportConfig(config)
	if err != nil {
		return nil, err
	}
	secure, err := transport.TLSConfigFor(settings)
	if err != nil {
		return nil, err
	}
	if secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secure.NextProtos = []string{"h2", "http/1.1"}
	made := &shared{base: &http.Transport{
		TLSClientConfig: secure, TLSHandshakeTimeout: handshakeTimeout, DialContext: settings.DialHolder.Dial, DisableCompression: true,
		IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: maxIdleConnections, MaxResponseHeaderBytes: maxHeaderBytes,
	}}
	made.base.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{
		"h2": func(_ string, t *tls.Conn) http.RoundTripper { return made.join(t) },
	}
	made.with, err = transport.HTTPWrappersForConfig(settings, made)
	return made, err
}

// dialService connects to a Service, where it is at the moment.
func (c *Connections) dialService(s *Service) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		address, err := c.resolve(s.Namespace, s.Name, s.port())
		if err != nil {
			return nil, unreached{err}
		}
		return dialer.DialContext(ctx, network, address)
	}
}
