// Package connect serves the subresources that connect a client to a node: log, exec, attach, portforward and proxy. The
// caller has authenticated and authorized the request, and knows the node and the container.
//
// A client speaks SPDY or WebSocket. SPDY, and the older subprotocols of WebSocket, pass byte for byte. Of WebSocket,
// v5.channel.k8s.io is translated to SPDY, and SPDY in WebSocket is unpacked, unless the kubelet takes both.
package connect

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/kubelet"
	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// Connector serves connections. All methods are safe for concurrent use. Their errors are for the client, and mean that
// nothing was sent. A response that breaks off is a panic with http.ErrAbortHandler.
type Connector struct {
	kubelets *kubelet.Client

	translated, tunneled *prometheus.CounterVec
	logTLSFailures       prometheus.Counter
	logUses              *prometheus.CounterVec
}

// New makes a connector.
func New(kubelets *kubelet.Client) *Connector {
	byCode := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"code"})
	}
	return &Connector{
		kubelets:       kubelets,
		translated:     byCode("apiserver_stream_translator_requests_total", "Connections whose WebSocket was translated to SPDY, by the HTTP status code of their result."),
		tunneled:       byCode("apiserver_stream_tunnel_requests_total", "Connections whose SPDY was tunneled through a WebSocket, by the HTTP status code of the kubelet."),
		logTLSFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "kube_apiserver_pod_logs_backend_tls_failure_total", Help: "Requests for logs that failed because the certificate of the kubelet is not valid."}),
		logUses:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kube_apiserver_pod_logs_insecure_backend_total", Help: "Requests for logs, by usage: enforce_tls, or skip_tls_allowed with insecureSkipTLSVerifyBackend."}, []string{"usage"}),
	}
}

// Collectors returns the metrics.
func (c *Connector) Collectors() []prometheus.Collector {
	return []prometheus.Collector{c.translated, c.tunneled, c.logTLSFailures, c.logUses}
}

// Kubelets returns the client of kubelets.
func (c *Connector) Kubelets() *kubelet.Client { return c.kubelets }

// Container is a container of a Pod, and the kubelet that runs it.
type Container struct {
	Kubelet              kubelet.Address
	Namespace, Pod, Name string
}

// path returns the path of the container at the kubelet.
func (c *Container) path(of string) string {
	return "/" + of + "/" + c.Namespace + "/" + c.Pod + "/" + c.Name
}

// errorBytes bounds the text of an error of a kubelet.
const errorBytes = 50_000

// Log responds with the log of a container. options are the parameters of the client, which are valid.
func (c *Connector) Log(w http.ResponseWriter, r *http.Request, of Container, options url.Values) error {
	route, usage := c.kubelets.Kubelet, "enforce_tls"
	if boolean(options, "insecureSkipTLSVerifyBackend") {
		route, usage = c.kubelets.Unverified, "skip_tls_allowed"
	}
	c.logUses.WithLabelValues(usage).Inc()
	u := of.Kubelet.URL(of.path("containerLogs"), logQuery(options))
	header := http.Header{}
	route.Mark(header)
	resp, err := route.Transport.RoundTrip((&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: header}).WithContext(r.Context()))
	if err != nil {
		if strings.Contains(err.Error(), "x509:") {
			c.logTLSFailures.Inc()
		}
		return failed(&url.Error{Op: "Get", URL: u.String(), Err: err})
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code >= 300 && code <= 399 && resp.Header.Get("Location") != "":
		return failed(&url.Error{Op: "Get", URL: u.String(), Err: errors.New("redirects forbidden")})
	case code < 200 || code > 206:
		text, err := io.ReadAll(io.LimitReader(resp.Body, errorBytes))
		switch {
		case err != nil:
			return apierrors.NewInternalError(err)
		case code == http.StatusInternalServerError:
			return apierrors.NewInternalError(errors.New(string(text)))
		case code == http.StatusBadRequest:
			return apierrors.NewBadRequest(string(text))
		}
		return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{Resource: "pods/log"}, of.Pod, string(text), 0, false)
	}
	if isWebSocket(r) {
		return logMessages(w, r, resp.Body)
	}
	w.Header()["Content-Type"] = []string{"text/plain"}
	w.WriteHeader(http.StatusOK)
	to := io.Writer(w)
	if boolean(options, "follow") {
		client := http.NewResponseController(w)
		_ = client.Flush()
		to = writerFunc(func(b []byte) (int, error) {
			n, err := w.Write(b)
			if err == nil {
				err = client.Flush()
			}
			return n, err
		})
	}
	_, err = io.CopyBuffer(writerFunc(to.Write), resp.Body, make([]byte, chunk))
	if err != nil || r.Context().Err() != nil { // a kubelet may end the body properly once its client closes the connection
		panic(http.ErrAbortHandler)
	}
	return nil
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// logQuery returns the parameters for the kubelet.
func logQuery(options url.Values) url.Values {
	q := url.Values{}
	for _, name := range []string{"follow", "previous", "timestamps"} {
		if boolean(options, name) {
			q.Set(name, "true")
		}
	}
	for _, name := range []string{"sinceSeconds", "tailLines", "limitBytes"} {
		if n, err := strconv.ParseInt(options.Get(name), 10, 64); err == nil {
			q.Set(name, strconv.FormatInt(n, 10))
		}
	}
	if t, err := time.Parse(time.RFC3339, options.Get("sinceTime")); err == nil {
		q.Set("sinceTime", t.UTC().Format(time.RFC3339))
	}
	return q
}

// boolean reports whether a parameter is there with another value than 0 and false.
func boolean(v url.Values, name string) bool {
	values := v[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// chunk is the size of a buffer for one direction.
const chunk = 16 << 10

// The subprotocols of WebSockets that send a log.
const (
	binaryMessages = "binary.k8s.io"
	base64Messages = "base64.binary.k8s.io"
)

// logMessages sends a log as messages of a WebSocket.
func logMessages(w http.ResponseWriter, r *http.Request, from io.Reader) error {
	ws, err := accept(w, r, binaryMessages, base64Messages)
	if err != nil {
		return nil //nolint:nilerr // accept has responded
	}
	defer context.AfterFunc(r.Context(), func() { ws.CloseNow() })()
	ctx := ws.CloseRead(context.Background())
	room := make([]byte, chunk)
	for {
		n, err := from.Read(room)
		if n > 0 {
			kind, message := websocket.MessageBinary, room[:n]
			if ws.Subprotocol() == base64Messages {
				kind, message = websocket.MessageText, base64.StdEncoding.AppendEncode(nil, message)
			}
			if ws.Write(ctx, kind, message) != nil {
				ws.CloseNow()
				return nil
			}
		}
		if err != nil {
			_ = ws.Close(websocket.StatusNormalClosure, "")
			return nil
		}
	}
}

// accept opens the WebSocket that the client requests, from a page of any origin. If it fails, the response has been sent.
func accept(w http.ResponseWriter, r *http.Request, protocols ...string) (*websocket.Conn, error) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: protocols, CompressionMode: websocket.CompressionDisabled, InsecureSkipVerify: true})
	if err == nil {
		ws.SetReadLimit(-1) // messages are read in parts
	}
	return ws, err
}

// isWebSocket reports whether a request asks for a WebSocket.
func isWebSocket(r *http.Request) bool {
	return upgrade.IsUpgrade(r) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// offers returns the first subprotocol with a prefix that a client of a WebSocket offers; empty: it offers none.
func offers(r *http.Request, prefix string) string {
	for _, line := range r.Header["Sec-Websocket-Protocol"] {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); strings.HasPrefix(p, prefix) {
				return p
			}
		}
	}
	return ""
}

// Backend is where a request for proxy goes.
type Backend struct {
	Route *kubelet.Route
	// Scheme is http or https, Host may have a port. Path is the path at the backend, Prefix the one of the proxy in front
	// of it.
	Scheme, Host, Path, Prefix string
}

// Proxy forwards a request.
func (c *Connector) Proxy(w http.ResponseWriter, r *http.Request, to Backend) error {
	if to.Path == "" && !upgrade.IsUpgrade(r) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		w.Header()["Location"] = []string{(&url.URL{Path: r.URL.Path + "/", RawQuery: r.URL.RawQuery}).String()}
		w.WriteHeader(http.StatusMovedPermanently)
		return nil
	}
	if host, _, err := net.SplitHostPort(to.Host); err == nil && host == "" {
		return apierrors.NewBadRequest(kubelet.ErrNotAllowed.Error())
	}
	p := &upgrade.Proxy{
		Target:    &url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path, RawQuery: r.URL.RawQuery},
		Transport: to.Route.Transport, Dial: to.Route.Dial, Prefix: to.Prefix,
		Prepare: func(out *http.Request) { to.Route.Mark(out.Header) },
	}
	return failed(p.Serve(w, r))
}

// failed returns the error for the client.
func failed(err error) error {
	var unreachable *upgrade.Unreachable
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, kubelet.ErrNotAllowed):
		return apierrors.NewBadRequest(kubelet.ErrNotAllowed.Error())
	case errors.Is(err, upgrade.ErrFull):
		return apierrors.NewTooManyRequests(upgrade.ErrFull.Error(), 1)
	case errors.As(err, &unreachable):
		return apierrors.NewServiceUnavailable(err.Error())
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}}
}

// Stream is a connection of a client to a container: exec, attach or portforward.
type Stream struct {
	Container
	// Kind is the subresource.
	Kind string
	// Options are the parameters of the client.
	Options url.Values
}

// target returns the URL at the kubelet.
func (s *Stream) target() *url.URL {
	q := url.Values{}
	if s.Kind == "portforward" {
		if ports := s.Options["ports"]; len(ports) > 0 {
			q.Set("port", strings.Join(ports, ","))
		}
		return s.Kubelet.URL("/portForward/"+s.Namespace+"/"+s.Pod, q)
	}
	for name, at := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
		if boolean(s.Options, name) {
			q.Set(at, "1")
		}
	}
	if command := s.Options["command"]; s.Kind == "exec" && len(command) > 0 {
		q["command"] = command
	}
	return s.Kubelet.URL(s.path(s.Kind), q)
}

// Stream connects a client to a container, until one of them ends.
func (c *Connector) Stream(w http.ResponseWriter, r *http.Request, s Stream) error {
	if !upgrade.IsUpgrade(r) {
		return apierrors.NewBadRequest("Upgrade request required")
	}
	p := &upgrade.Proxy{Target: s.target(), Dial: c.kubelets.Kubelet.Dial, Prepare: func(out *http.Request) {
		delete(out.Header, "Cookie") // kubelets have no use for it
		c.kubelets.Kubelet.Mark(out.Header)
	}}
	if isWebSocket(r) && !s.Kubelet.WebSockets {
		switch {
		case s.Kind != "portforward" && offers(r, translatable) == translatable:
			c.translate(w, r, p, &s)
			return nil
		case s.Kind == "portforward" && offers(r, tunnelPrefix) != "":
			return failed(c.tunnel(w, r, p))
		}
	}
	return failed(p.Serve(w, r))
}

// spdyRequest returns the request for SPDY that stands for one for a WebSocket.
func spdyRequest(r *http.Request, protocol string) *http.Request {
	out := r.Clone(r.Context())
	out.Method, out.Body, out.ContentLength = http.MethodPost, nil, 0
	maps.DeleteFunc(out.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Sec-Websocket-") })
	out.Header["Connection"], out.Header["Upgrade"] = []string{"Upgrade"}, []string{"SPDY/3.1"}
	out.Header["X-Stream-Protocol-Version"] = []string{protocol}
	return out
}
