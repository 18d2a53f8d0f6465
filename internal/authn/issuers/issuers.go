// Package issuers authenticates the tokens of OpenID Connect issuers, which an
// AuthenticationConfiguration lists. It reads the configuration again when the file changes.
package issuers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/oidc"
	"github.com/tidemark-dev/tidemark/internal/reload"
)

// Config configures Issuers.
type Config struct {
	// File is an AuthenticationConfiguration, read again when it changes. Empty: JWT is the
	// configuration.
	File string
	JWT  []apiserver.JWTAuthenticator
	// Algorithms are the allowed signing algorithms; nil: RS256 without a file, all of
	// oidc.Algorithms with a file.
	Algorithms []string
	// Disallowed are the issuers that no configuration may name: those of service accounts.
	Disallowed []string
	// ServerID identifies this server in metrics.
	ServerID string
	// Now is the clock for the validity of tokens; nil: time.Now.
	Now func() time.Time
	// Log gets a line for each reload, and for each request to an issuer that failed.
	Log *slog.Logger
}

// Issuers authenticates tokens. It implements authn.Tokens; the tokens carry no audiences of the
// server. All methods are safe for concurrent use.
type Issuers struct {
	c         Config
	anonymous *apiserver.AnonymousAuthConfig // of the first configuration
	current   atomic.Pointer[set]
	metrics   *metrics

	stop  context.CancelFunc
	ended chan struct{} // closed when no goroutine runs
}

// Open validates the configuration and starts to discover the issuers. It does not wait for them:
// until an issuer is discovered, its tokens are rejected.
func Open(c Config) (*Issuers, error) {
	i := &Issuers{c: c, ended: make(chan struct{}), metrics: newMetrics(c.ServerID)}
	if i.c.File == "" {
		return i, i.open(&apiserver.AuthenticationConfiguration{JWT: c.JWT}, nil)
	}
	if i.c.Algorithms == nil {
		i.c.Algorithms = oidc.Algorithms
	}
	file, err := reload.New(reload.Config[[]byte]{
		Files: []string{c.File},
		Load:  func() ([]byte, error) { return i.read() },
		Log:   slog.New(slog.DiscardHandler), // read logs, and follow
	})
	if err != nil {
		return nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", c.File, err)
	}
	first := file.Get()
	configuration, err := parse(first)
	if err != nil {
		return nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", c.File, err)
	}
	i.anonymous = configuration.Anonymous
	i.metrics.loaded(first)
	return i, i.open(configuration, &follower{of: i, read: file.Get, tracked: first})
}

// open starts with the first configuration. Without a follower, it never changes.
func (i *Issuers) open(c *apiserver.AuthenticationConfiguration, f *follower) error {
	rules, wrong := compile(c, i.c.Disallowed)
	if err := wrong.ToAggregate(); err != nil {
		return fmt.Errorf("invalid authentication configuration: %w", err)
	}
	first, err := newSet(&i.c, i.metrics, c.JWT, rules)
	if err != nil {
		return err
	}
	i.current.Store(first)
	ctx, cancel := context.WithCancel(context.Background())
	i.stop = cancel
	if f == nil {
		close(i.ended)
		return nil
	}
	go f.run(ctx)
	return nil
}

// Close stops the background work. Tokens that wait for their issuer are refused.
func (i *Issuers) Close() {
	i.stop()
	<-i.ended
	i.current.Load().close()
}

// Anonymous returns the policy for anonymous requests of the file, nil if it has none. It never
// changes: a changed file with another policy is not used.
func (i *Issuers) Anonymous() *apiserver.AnonymousAuthConfig { return i.anonymous }

// AuthenticateToken implements authn.Tokens.
func (i *Issuers) AuthenticateToken(ctx context.Context, t authn.Token, audiences []string) (*authn.User, []string, error) {
	for {
		s := i.current.Load()
		u, err := s.authenticate(ctx, t)
		if errors.Is(err, oidc.ErrClosed) && i.current.Load() != s {
			continue // the configuration was replaced meanwhile
		}
		return u, audiences, err
	}
}
