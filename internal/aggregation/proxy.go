package aggregation

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/transport"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/upgrade"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// Tests change these limits.
var (
	// documentTimeout limits the time of a request for the discovery document of a group and version.
	documentTimeout = 5 * time.Second
	// maxRunning is how many requests of one APIService are under way at a time, without watches and other long-running ones.
	// Each has a connection of its client and the memory of its buffers.
	maxRunning = int64(1000)
)

// forwardedBy is the header by which a server recognizes its own requests.
const forwardedBy = "X-Tidemark-Forwarded-By"

// Caller is the request that is forwarded.
type Caller struct {
	User    *authn.User
	AuditID string
	// Document: the request is for the discovery document of a group and version.
	Document bool
	// Long: the request is a watch, an upgrade or another long-running one.
	Long bool
	// Drained ends a long-running response cleanly.
	Drained context.Context //nolint:containedctx // of the server
}

// Serve forwards a request to the extension server, and its response to the client. An error means that nothing was sent
// to the client. A response that ends early panics with http.ErrAbortHandler.
func (b *Backend) Serve(w http.ResponseWriter, r *http.Request, c Caller) error {
	if !b.available() {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return nil
	}
	if slices.Contains(r.Header[forwardedBy], b.of.c.Identity) {
		http.Error(w, "the Service of the APIService "+b.name+" is this server itself", http.StatusLoopDetected)
		return nil
	}
	if b.broken != nil {
		http.Error(w, b.broken.Error(), http.StatusInternalServerError)
		return nil
	}
	if hasDots(r.URL.Path) {
		http.Error(w, "a path with the segment . or .. is not forwarded", http.StatusBadRequest)
		return nil
	}
	host, err := b.address()
	if err != nil {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return nil
	}
	to := &url.URL{Scheme: "https", Host: host, Path: r.URL.Path, RawQuery: r.URL.Query().Encode()}
	if !c.Long {
		defer b.running.Add(-1)
		if b.running.Add(1) > maxRunning {
			return apierrors.NewTooManyRequests("too many requests wait for the extension server of the APIService "+b.name+", please try again later", 1)
		}
	}
	return b.forward(w, r, to, &c)
}

// hasDots reports whether a path has a segment "." or "..". No object has such a name, and the request was authorized for the
// segments as they are: an extension server that resolves them would serve another object, perhaps of another namespace.
func hasDots(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// forward is Serve for a request to a URL.
func (b *Backend) forward(w http.ResponseWriter, r *http.Request, to *url.URL, c *Caller) error {
	ctx := r.Context()
	if c.Document {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, documentTimeout)
		defer cancel()
	}
	proxy := upgrade.Proxy{
		Target: to, Transport: b.transport, Dial: b.dialUpgrade, RefuseRedirects: !b.of.c.ForwardRedirects,
		Prepare: func(out *http.Request) {
			out.Host = to.Host
			b.setHeaders(out, r, c)
		},
	}
	if c.Long && c.Drained != nil {
		proxy.Transport = drainable{b.transport, c.Drained}
	}
	err := proxy.Serve(w, r.WithContext(ctx))
	if err == nil {
		return nil
	}
	if r.Context().Err() != nil { // the time of the request is over, or the client is gone
		return r.Context().Err()
	}
	refuse(w, err)
	return nil
}

// dialUpgrade connects to the extension server with HTTP/1.1.
func (b *Backend) dialUpgrade(ctx context.Context, to *url.URL) (net.Conn, error) {
	return upgrade.Dial(ctx, to, b.of.dial, b.transport.TLSClientConfig)
}

// refuse responds to a request whose extension server cannot be reached.
func refuse(w http.ResponseWriter, err error) {
	text := ""
	var unreachable *upgrade.Unreachable
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		text = "error trying to reach service: " + context.DeadlineExceeded.Error()
	case errors.As(err, &unreachable):
		text = "error trying to reach service: " + webhook.Quoteless(unreachable.Err).Error()
	default:
		text = webhook.Quoteless(err).Error()
	}
	http.Error(w, text, http.StatusServiceUnavailable)
}

// setHeaders sets the headers of a forwarded request, which begin as those of the client.
func (b *Backend) setHeaders(out, in *http.Request, c *Caller) {
	h := out.Header
	b.of.strip(h)
	if given := authn.Subprotocols(in); len(in.Header["Sec-Websocket-Protocol"]) > 0 { // one of them may be a token
		h["Sec-Websocket-Protocol"] = []string{strings.Join(given, ", ")}
		if len(given) == 0 {
			delete(h, "Sec-Websocket-Protocol")
		}
	}
	h.Set("Audit-Id", c.AuditID)
	h.Set("X-Forwarded-Uri", out.URL.EscapedPath())
	h.Set("X-Forwarded-Host", in.Host)
	h.Set("X-Forwarded-Proto", "https")
	h[forwardedBy] = append(slices.Clone(in.Header[forwardedBy]), b.of.c.Identity)
	transport.SetAuthProxyHeaders(out, c.User.Name, c.User.UID, c.User.Groups, c.User.Extra)
}

// strip removes the credentials of the client, and the headers in which it may name a user. Some frameworks take an underscore
// in the name of a header for a hyphen.
func (a *Aggregator) strip(h http.Header) {
	for key := range h {
		lower := strings.ReplaceAll(strings.ToLower(key), "_", "-")
		named := func(name string) bool { return lower == strings.ToLower(name) }
		begins := func(prefix string) bool { return strings.HasPrefix(lower, strings.ToLower(prefix)) }
		if lower == "authorization" || begins("x-remote-") || begins("impersonate-") ||
			slices.ContainsFunc(a.c.IdentityHeaders, named) || slices.ContainsFunc(a.c.IdentityPrefixes, begins) {
			delete(h, key)
		}
	}
}

// sign marks a request of the server itself.
func (a *Aggregator) sign(r *http.Request) {
	r.Header[forwardedBy] = []string{a.c.Identity}
	r.Header.Set("User-Agent", userAgent)
}

// userAgent is that of the requests of the server itself.
const userAgent = "tidemark"

// drainable makes the bodies of responses end cleanly when the server ends long-running requests.
type drainable struct {
	http.RoundTripper
	drained context.Context //nolint:containedctx // of the server
}

// RoundTrip implements http.RoundTripper.
func (d drainable) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := d.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = drainableBody{response.Body, d.drained}
	}
	return response, err
}

type drainableBody struct {
	io.ReadCloser
	drained context.Context //nolint:containedctx // of the server
}

// Read implements io.Reader.
func (b drainableBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.drained.Err() != nil {
		err = io.EOF
	}
	return n, err
}
