package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
)

// target is the address of a server, with credentials.
type target struct {
	name  string // of the context
	base  *url.URL
	token string
	tls   *tls.Config
	// transport authenticates with methods other than a token or a certificate, such as
	// plugins.
	transport *transport.Config
	// link limits what all connections receive together; nil does not.
	link *link
}

// loadTarget reads a kubeconfig as kubectl does.
func loadTarget(s Server) (*target, error) {
	loader := clientconfig.Load(s.Kubeconfig, s.Context)
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, err
	}
	config, err := clientconfig.REST(loader)
	if err != nil {
		return nil, err
	}
	name := s.Context
	if name == "" {
		name = raw.CurrentContext
	}
	return newTarget(name, config)
}

func newTarget(name string, config *rest.Config) (*target, error) {
	base, err := url.Parse(config.Host)
	if err != nil || base.Scheme != "https" {
		return nil, fmt.Errorf("the server of the context %q is %q: want an https URL", name, config.Host)
	}
	// The token goes into prepared headers. client-go would copy each request to add it.
	token := config.BearerToken
	if config.BearerTokenFile == "" {
		config = rest.CopyConfig(config)
		config.BearerToken = ""
	}
	tc, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	t := &target{name: name, base: base, token: token, transport: tc}
	if t.tls, err = transport.TLSConfigFor(tc); err != nil {
		return nil, err
	}
	if t.tls == nil {
		t.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.tls.NextProtos = []string{"h2", "http/1.1"}
	return t, nil
}

// conn is one HTTP/2 connection, opened on first use. It opens another one only if the
// server allows fewer streams than are needed.
type conn struct {
	http.RoundTripper
	transport *http.Transport
}

// dial returns a connection with its own TLS session cache, or without one.
func (t *target) dial(sessions tls.ClientSessionCache) (*conn, error) {
	config := t.tls.Clone()
	config.ClientSessionCache = sessions
	h := &http.Transport{
		Proxy:              http.ProxyFromEnvironment,
		TLSClientConfig:    config,
		ForceAttemptHTTP2:  true,
		DisableCompression: true, // scenarios ask for it by themselves
	}
	if t.transport.Proxy != nil {
		h.Proxy = t.transport.Proxy
	}
	if t.transport.DialHolder != nil {
		h.DialContext = t.transport.DialHolder.Dial
	}
	if t.link != nil {
		h.DialContext = t.link.dial
	}
	rt, err := transport.HTTPWrappersForConfig(t.transport, h)
	if err != nil {
		return nil, err
	}
	return &conn{rt, h}, nil
}

func (c *conn) close() { c.transport.CloseIdleConnections() }

// url returns the address of a path with a query.
func (t *target) url(path, query string) *url.URL {
	u := *t.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query
	return &u
}

// Accept headers.
const (
	acceptJSON     = "application/json"
	acceptProtobuf = "application/vnd.kubernetes.protobuf"
	// acceptTable is the Accept header of kubectl.
	acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	// Metadata alone; client-go's informers of metadata send the protobuf one first.
	acceptMetadata         = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	acceptMetadataProtobuf = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// header returns the headers of every request. They are shared and must not be changed.
func (t *target) header(accept, encoding string) http.Header {
	h := http.Header{
		"Accept":          {accept},
		"Accept-Encoding": {encoding},
		"User-Agent":      {"tidemark-bench"},
		"Content-Type":    {"application/json"},
	}
	if t.token != "" {
		h.Set("Authorization", "Bearer "+t.token)
	}
	return h
}

// responseError is a response with an unexpected status.
type responseError struct {
	request string
	code    int
	message string
}

// Error implements error.
func (e *responseError) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.request, e.code, http.StatusText(e.code), e.message)
}

// notServed reports whether an error means that the server does not serve the request.
func notServed(err error) bool {
	var e *responseError
	if !errors.As(err, &e) {
		return false
	}
	switch e.code {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType, http.StatusNotImplemented:
		return true
	}
	return false
}

// hasCode reports whether an error is a response with a code.
func hasCode(err error, code int) bool {
	var e *responseError
	return errors.As(err, &e) && e.code == code
}

// maxErrorBytes limits how much of an error response is read.
const maxErrorBytes = 4 << 10

// refusal turns a response into an error, and closes it.
func refusal(req *http.Request, resp *http.Response) error {
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(string(b))
	}
	return &responseError{req.Method + " " + req.URL.RequestURI(), resp.StatusCode, status.Message}
}

// serverVersion returns the version that the server reports.
func (t *target) serverVersion(ctx context.Context, w *client) (string, error) {
	body, err := w.small(ctx, http.MethodGet, t.url("/version", ""), nil)
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return "", fmt.Errorf("GET /version: %w", err)
	}
	return v.GitVersion, nil
}
