package issuers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/oidc"
)

// set is the issuers of one configuration.
type set struct {
	issuers map[string]*oidc.Issuer // by URL
	results results
	metrics *metrics
}

// newSet begins to discover the issuers of a valid configuration.
func newSet(c *Config, m *metrics, jwt []apiserver.JWTAuthenticator, rules []*oidc.Rules) (*set, error) {
	s := &set{issuers: map[string]*oidc.Issuer{}, metrics: m}
	for n := range jwt {
		url := jwt[n].Issuer.URL
		i, err := oidc.New(oidc.Config{
			Issuer: jwt[n].Issuer, Rules: rules[n], Algorithms: c.Algorithms, Now: c.Now, Log: c.Log,
			Fetched: func(document []byte) { m.fetched(url, document) },
		})
		if err != nil {
			s.close()
			return nil, err
		}
		s.issuers[url] = i
	}
	return s, nil
}

func (s *set) close() {
	for _, i := range s.issuers {
		i.Close()
	}
}

// health returns why issuers are not ready, nil if all are.
func (s *set) health() error {
	var all []error
	for _, i := range s.issuers {
		all = append(all, i.Health())
	}
	return errors.Join(all...)
}

// authenticate returns the user of a token, nil if no issuer of the set has issued it.
func (s *set) authenticate(ctx context.Context, t authn.Token) (*authn.User, error) {
	if r := s.results.get(t.Sum); r != nil {
		return r.User, nil
	}
	url := oidc.UnverifiedIssuer(t.Text)
	i := s.issuers[url]
	if i == nil {
		return nil, nil
	}
	begin := time.Now()
	r, err := i.Authenticate(ctx, t.Text)
	s.metrics.authenticated(url, time.Since(begin), err)
	if err != nil {
		return nil, err
	}
	if !r.User.IsAnonymous() && !slices.Contains(r.User.Groups, authn.Authenticated) {
		r.User.Groups = append(slices.Clip(r.User.Groups), authn.Authenticated)
	}
	s.results.put(t, r)
	return r.User, nil
}

const (
	// maxResults limits each of the two generations of results.
	maxResults = 2048
	// maxResultBytes is the length of the longest token whose result is kept: results hold
	// parts of their tokens.
	maxResultBytes = 16 << 10
)

// results keeps the results of valid tokens by the hashes of the tokens, because verifying a
// signature costs more than most requests. A result is used only while verifying the token again
// would have the same result. It is safe for concurrent use.
type results struct {
	mu sync.Mutex
	// recent was used since it was empty the last time; older was recent before.
	recent, older map[[32]byte]*oidc.Result
}

// get returns the result of a token, nil if it is not known.
func (r *results) get(sum [32]byte) *oidc.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	result, ok := r.recent[sum]
	if !ok {
		if result, ok = r.older[sum]; !ok {
			return nil
		}
	}
	if !result.Holds() {
		delete(r.recent, sum)
		delete(r.older, sum)
		return nil
	}
	if _, ok := r.recent[sum]; !ok {
		r.add(sum, result)
	}
	return result
}

func (r *results) put(t authn.Token, result *oidc.Result) {
	if len(t.Text) > maxResultBytes {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(t.Sum, result)
}

func (r *results) add(sum [32]byte, result *oidc.Result) {
	if r.recent == nil || len(r.recent) >= maxResults {
		r.recent, r.older = map[[32]byte]*oidc.Result{}, r.recent
	}
	r.recent[sum] = result
}
