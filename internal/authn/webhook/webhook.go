// Package webhook authenticates bearer tokens with a remote service: it sends a TokenReview, and
// the service completes it. Results are cached for a time, in bounded memory; failures are not
// cached. Requests with the same token within a second share one call, which ends when the last of
// them leaves. A service that hangs delays only the requests whose tokens no other authenticator
// accepts, each for callLimit at most. The requests from one client address leave room for those
// from others.
package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

const (
	// DefaultCacheTTL and DefaultVersion are those of kube-apiserver.
	DefaultCacheTTL = 2 * time.Minute
	DefaultVersion  = "v1beta1"

	// callLimit bounds a call with its retries.
	callLimit = 30 * time.Second
	// maxWaiting is the maximum number of requests that wait for the service. Those from one client address are at most
	// half of them.
	maxWaiting = 1000
	// fresh is the time in which requests join a call: a token that was revoked since is still
	// valid for them.
	fresh = time.Second
	// mostEscaped is the maximum number of bytes that JSON uses for a byte of a token.
	mostEscaped = 6
)

// Config configures a Tokens.
type Config struct {
	// File is a kubeconfig file with the address and the credentials of the service. It and the
	// files that it names are read again when they change.
	File string
	// Version is the version of TokenReview, v1 or v1beta1; empty: DefaultVersion.
	Version string
	// CacheTTL is how long results are cached. Zero: not at all.
	CacheTTL time.Duration
	// Audiences are the audiences of the server, for which a token is valid if the service names none.
	Audiences []string
	// Metrics counts the calls; nil: nothing does.
	Metrics *Metrics
	// Now is the clock for the cache and for checking the files; nil: time.Now.
	Now func() time.Time
	// Log gets a line when files are read again, and for each failed call.
	Log *slog.Logger
}

// Tokens are the tokens of a remote service. It implements authn.Tokens.
type Tokens struct {
	c       Config
	remote  *remote
	cache   *cache
	flights webhook.Flights[returned]
}

// result is what the service returned for a token. It is immutable.
type result struct {
	user *authn.User // nil: the token is not valid
	good []string    // the audiences that the token is for
	err  error       // the reason, if the service gives one
}

// returned is the outcome of a call.
type returned struct {
	*result
	known bool // it was in the cache
}

// New returns the tokens of a service. It reads the files, and calls nothing.
func New(c Config) (*Tokens, error) {
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	remote, err := newRemote(&c)
	if err != nil {
		return nil, err
	}
	w := &Tokens{
		c: c, remote: remote, cache: newCache(c.Now), flights: webhook.Flights[returned]{Most: maxWaiting, Limit: callLimit, Fresh: fresh},
	}
	w.flights.Keep = func(k webhook.Key, r returned) {
		if !r.known {
			w.cache.put(k, r.result, c.CacheTTL)
		}
	}
	return w, nil
}

// AuthenticateToken implements authn.Tokens.
func (w *Tokens) AuthenticateToken(ctx context.Context, t authn.Token, audiences []string) (*authn.User, []string, error) {
	k := keyOf(t, audiences)
	if r := w.cache.get(k); r != nil {
		w.c.Metrics.asked("hit")
		return r.get()
	}
	w.c.Metrics.asked("miss")
	r, err := w.flights.Join(ctx, k, t.Client(), mostEscaped*len(t.Text), func(ctx context.Context) (returned, error) {
		if r := w.cache.get(k); r != nil { // meanwhile
			return returned{r, true}, nil
		}
		r, err := w.call(ctx, t, audiences)
		return returned{r, false}, err
	})
	if errors.Is(err, webhook.ErrBusy) {
		err = authn.ErrBusy
	}
	if err != nil {
		return nil, nil, err
	}
	return r.get()
}

func (r *result) get() (*authn.User, []string, error) { return r.user, r.good, r.err }

// keyOf returns a hash of a token and the audiences that it is wanted for. The lengths of the audiences are in it, so that
// no two lists have the same text.
func keyOf(t authn.Token, audiences []string) webhook.Key {
	text := append([]byte(nil), t.Sum[:]...)
	for _, a := range audiences {
		text = append(binary.AppendUvarint(text, uint64(len(a))), a...)
	}
	return sha256.Sum256(text)
}

// call calls the service. Several requests may use the result.
func (w *Tokens) call(ctx context.Context, t authn.Token, audiences []string) (*result, error) {
	end := w.c.Metrics.fetching()
	status, err := w.remote.review(ctx, t.Text, audiences)
	end(err)
	if err != nil {
		w.c.Log.Error("the token webhook failed", "err", err)
		return nil, err
	}
	return w.read(status, audiences), nil
}

// read returns the result of a review. If the status has no audiences, the token is for those of the server.
func (w *Tokens) read(s *authenticationv1.TokenReviewStatus, wanted []string) *result {
	of := w.c.Audiences
	if len(s.Audiences) > 0 {
		of = s.Audiences
	}
	var good []string
	for _, a := range wanted {
		if slices.Contains(of, a) {
			good = append(good, a)
		}
	}
	switch {
	case len(wanted) > 0 && len(good) == 0:
		return &result{}
	case !s.Authenticated && s.Error != "":
		return &result{err: errors.New(s.Error)}
	case !s.Authenticated:
		return &result{}
	case s.User.Username == "":
		return &result{err: errors.New("the token webhook names no user")}
	}
	u := &authn.User{Name: s.User.Username, UID: s.User.UID, Groups: s.User.Groups}
	for name, values := range s.User.Extra {
		if u.Extra == nil {
			u.Extra = make(map[string][]string, len(s.User.Extra))
		}
		u.Extra[name] = values
	}
	return &result{user: u.InGroup(), good: good}
}
