package oidc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apiserver/pkg/apis/apiserver"
	certutil "k8s.io/client-go/util/cert"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Config configures an Issuer.
type Config struct {
	// Issuer is the issuer's part of a configuration that Compile found valid.
	Issuer apiserver.Issuer
	// Rules are the rules that Compile returned.
	Rules *Rules
	// Algorithms are the allowed signing algorithms, some of the variable Algorithms. Nil:
	// RS256.
	Algorithms []string
	// Transport sends the requests to the issuer; nil: over the network, with the authorities of
	// Issuer.
	Transport http.RoundTripper
	// Now is the clock for the validity of tokens; nil: time.Now.
	Now func() time.Time
	// Log gets a line for each request to the issuer that failed.
	Log *slog.Logger
	// Fetched is called after each fetch of the keys, with the document or with nil if that failed.
	// It must not block. A nil function is not called.
	Fetched func(document []byte)
}

// Issuer authenticates the tokens of one issuer. All methods are safe for concurrent use.
type Issuer struct {
	c      Config
	client *http.Client
	remote *remote
	groups *distributed // nil: groups are never distributed claims
}

// New begins to discover an issuer in the background.
func New(c Config) (*Issuer, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if len(c.Algorithms) == 0 {
		c.Algorithms = []string{"RS256"}
	}
	if c.Fetched == nil {
		c.Fetched = func([]byte) {}
	}
	if t := c.Issuer.EgressSelectorType; t != "" {
		return nil, fmt.Errorf("oidc: egress lookup required with egress selector type %q", t)
	}
	client := &http.Client{Transport: c.Transport, Timeout: fetchTimeout, CheckRedirect: checkRedirect}
	if c.Transport == nil {
		var err error
		if client.Transport, err = newTransport(c.Issuer.CertificateAuthority); err != nil {
			return nil, err
		}
	}
	i := &Issuer{c: c, client: client}
	i.remote = discoverRemote(c.Issuer.URL, c.Issuer.DiscoveryURL, client, c.Log, c.Fetched)
	if claim := c.Rules.mappings.Groups.Claim; claim != "" {
		i.groups = &distributed{claim: claim, issuer: i}
	}
	return i, nil
}

// Close stops the background work. Tokens that wait for keys are refused with ErrClosed.
func (i *Issuer) Close() {
	i.remote.close()
	if i.groups != nil {
		i.groups.close()
	}
	i.client.CloseIdleConnections()
}

// ErrClosed is the error of a token that was waiting when its Issuer was closed.
var ErrClosed = errClosed

// Ready is closed when the issuer has been discovered. Before, all its tokens are refused.
func (i *Issuer) Ready() <-chan struct{} { return i.remote.ready }

// Health returns why the issuer is not ready; nil if it is.
func (i *Issuer) Health() error {
	if i.remote.discovered() {
		return nil
	}
	if err := i.remote.problem.Load(); err != nil {
		return fmt.Errorf("oidc: authenticator for issuer %q is not healthy: %w", i.c.Issuer.URL, *err)
	}
	return fmt.Errorf("oidc: authenticator for issuer %q is not initialized", i.c.Issuer.URL)
}

// Result is the result of authenticating a token. Until the time Until, and while Holds reports
// true, the token has the same result.
type Result struct {
	User  *authn.User
	Until time.Time

	from   time.Time
	keys   *keySet // verified the token
	issuer *Issuer
}

// distributedFor is how long groups of another server are valid.
const distributedFor = 10 * time.Second

// Holds reports whether the result is still valid.
func (r *Result) Holds() bool {
	now := r.issuer.c.Now()
	return r.keys == r.issuer.remote.keys.Load() && !now.After(r.Until) && !now.Before(r.from)
}

// Authenticate returns the user of a token. The token must name this issuer: see UnverifiedIssuer.
// It waits for the network only if no known key verifies the token, or if the groups of the token
// are distributed; then for some seconds at most.
func (i *Issuer) Authenticate(ctx context.Context, token string) (*Result, error) {
	v, err := i.verify(ctx, i.remote, token)
	if err != nil {
		if errors.Is(err, errUndiscovered) {
			return nil, err
		}
		return nil, fmt.Errorf("oidc: verify token: %w", err)
	}
	result := &Result{Until: v.until, from: v.from, keys: v.keys, issuer: i}
	if i.groups != nil {
		expanded, err := i.groups.expand(ctx, v.claims)
		if err != nil {
			return nil, fmt.Errorf("oidc: could not expand distributed claims: %w", err)
		}
		if end := i.c.Now().Add(distributedFor); expanded && end.Before(result.Until) {
			result.Until = end
		}
	}
	if result.User, err = i.c.Rules.user(ctx, v.claims); err != nil {
		return nil, err
	}
	return result, nil
}

var errUndiscovered = errors.New("oidc: authenticator not initialized")

// verify verifies a token of the remote's issuer.
func (i *Issuer) verify(ctx context.Context, of *remote, token string) (*verified, error) {
	if !of.discovered() {
		return nil, errUndiscovered
	}
	parsed, err := parseToken(token, i.c.Algorithms)
	if err != nil {
		return nil, err
	}
	payload, keys, err := verifySignature(ctx, of, parsed)
	if err != nil {
		return nil, fmt.Errorf("failed to verify signature: %w", err)
	}
	v, err := expected{issuer: of.issuer, audiences: i.c.Issuer.Audiences, now: i.c.Now()}.check(payload)
	if err != nil {
		return nil, err
	}
	v.keys = keys
	return v, nil
}

// verifySignature verifies with the known keys, then with newer ones.
func verifySignature(ctx context.Context, of *remote, token *jose.JSONWebSignature) ([]byte, *keySet, error) {
	keys := of.keys.Load()
	payload, err := keys.verify(token)
	if err == nil {
		return payload, keys, nil
	}
	newer, err := of.newer(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("fetching keys %w", err)
	}
	if newer == keys {
		return nil, nil, errSignature
	}
	payload, err = newer.verify(token)
	return payload, newer, err
}

// newTransport returns the transport for requests to an issuer, whose certificate the authorities
// verify; empty: those of the system.
func newTransport(authorities string) (http.RoundTripper, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 2
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true) // a request after one that hangs gets its own connection
	t.MaxResponseHeaderBytes = maxDocumentBytes
	if authorities != "" {
		pool, err := certutil.NewPoolFromBytes([]byte(authorities))
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return t, nil
}

var errRedirect = errors.New("the issuer redirects too often, or to an URL without TLS")

// checkRedirect follows a few redirects, which issuers use for their discovery documents.
func checkRedirect(r *http.Request, before []*http.Request) error {
	if len(before) > 5 || !isHTTPS(r.URL) {
		return errRedirect
	}
	return nil
}

func isHTTPS(u *url.URL) bool { return u.Scheme == "https" }
