package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
)

// maxGroupIssuers limits the issuers that may sign the distributed claims of one issuer's tokens. One that is not discovered
// makes room when no token waits for it: the source of a claim can name any issuer.
const maxGroupIssuers = 16

// distributed fetches the groups of tokens that do not contain them: OpenID Connect Core 1.0,
// section 5.6.2. It is safe for concurrent use.
type distributed struct {
	claim  string
	issuer *Issuer

	mu      sync.Mutex
	closed  bool
	running int               // requests for claims
	others  map[string]*other // by issuer
}

// other is another issuer than that of the tokens.
type other struct {
	*remote
	waiting int // tokens that wait until it is discovered
}

// source is where a claim can be fetched.
type source struct {
	Endpoint    string `json:"endpoint"`
	AccessToken string `json:"access_token"`
}

var (
	errNoSource = errors.New("oidc: source does not exist")
	errEndpoint = errors.New("the endpoint is not an https URL")
)

// expand fetches the claim if it is distributed, and adds it to the claims. It reports whether it
// did.
func (d *distributed) expand(ctx context.Context, c claims) (bool, error) {
	if _, ok := c[d.claim]; ok {
		return false, nil
	}
	from := d.source(c)
	if from == nil {
		return false, nil
	}
	value, err := d.fetch(ctx, from)
	if err != nil {
		return false, err
	}
	c[d.claim] = value
	return true, nil
}

// source returns the source of a distributed claim, or nil.
func (d *distributed) source(c claims) *source {
	var names map[string]string
	var sources map[string]source
	if c.decode("_claim_names", &names) != nil || c.decode("_claim_sources", &sources) != nil {
		return nil
	}
	// Without an endpoint, it is an aggregated claim, which is not supported.
	if s := sources[names[d.claim]]; s.Endpoint != "" {
		return &s
	}
	return nil
}

// checkSources checks that the sources of all distributed claims exist.
func (c claims) checkSources() error {
	var names map[string]string
	var sources map[string]source
	for name, into := range map[string]any{"_claim_names": &names, "_claim_sources": &sources} {
		if err := c.decode(name, into); err != nil && !errors.Is(err, errNoClaim) {
			return fmt.Errorf("oidc: failed to unmarshal claims: %w", err)
		}
	}
	for _, name := range names {
		if _, ok := sources[name]; name == "" || !ok {
			return errNoSource
		}
	}
	return nil
}

// fetch returns the value of the claim in the token that the source sends.
func (d *distributed) fetch(ctx context.Context, from *source) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	token, err := d.token(ctx, from)
	if err != nil {
		return nil, fmt.Errorf("while getting distributed claim %q: %w", d.claim, err)
	}
	issuer := UnverifiedIssuer(token)
	if issuer == "" {
		return nil, fmt.Errorf("getting untrusted issuer from endpoint %v failed for claim %q: malformed token", from.Endpoint, d.claim)
	}
	of, err := d.remote(ctx, issuer)
	if err != nil {
		return nil, fmt.Errorf("verifying untrusted issuer %v failed: %w", issuer, err)
	}
	v, err := d.issuer.verify(ctx, of, token)
	if err != nil {
		return nil, fmt.Errorf("verify distributed claim token: %w", err)
	}
	value, ok := v.claims[d.claim]
	if !ok {
		return nil, fmt.Errorf("jwt returned by distributed claim endpoint %q did not contain claim: %v", from.Endpoint, d.claim)
	}
	return value, nil
}

// token returns the token that the source sends.
func (d *distributed) token(ctx context.Context, from *source) (string, error) {
	u, err := url.Parse(from.Endpoint)
	if err != nil || !isHTTPS(u) {
		return "", errEndpoint
	}
	d.mu.Lock()
	if d.running >= maxWaiting {
		d.mu.Unlock()
		return "", errWaiting
	}
	d.running++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running--
	}()
	body, err := get(ctx, d.issuer.client, from.Endpoint, from.AccessToken)
	return string(body), err
}

// remote returns the keys of an issuer of distributed claims, once it is discovered.
func (d *distributed) remote(ctx context.Context, issuer string) (*remote, error) {
	r, leave, err := d.find(issuer)
	if err != nil {
		return nil, err
	}
	defer leave()
	select {
	case <-r.ready:
		return r, nil
	case <-r.ctx.Done():
		return nil, errClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("verifier not initialized for issuer: %q", issuer)
	}
}

// find returns the keys of an issuer, which may not be discovered yet. The caller must call leave when it does not wait for
// that any longer.
func (d *distributed) find(issuer string) (r *remote, leave func(), err error) {
	if issuer == d.issuer.c.Issuer.URL {
		return d.issuer.remote, func() {}, nil
	}
	if u, err := url.Parse(issuer); err != nil || !isHTTPS(u) {
		return nil, nil, errors.New("the issuer is not an https URL")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.others[issuer]
	if one == nil {
		switch {
		case d.closed:
			return nil, nil, errClosed
		case len(d.others) >= maxGroupIssuers && !d.makeRoom():
			return nil, nil, fmt.Errorf("distributed claims of more than %d issuers", maxGroupIssuers)
		case d.others == nil:
			d.others = map[string]*other{}
		}
		one = &other{remote: discoverRemote(issuer, "", d.issuer.client, d.issuer.c.Log, func([]byte) {})}
		d.others[issuer] = one
	}
	one.waiting++
	return one.remote, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		one.waiting--
	}, nil
}

// makeRoom drops an issuer that is not discovered, and reports whether there was one. d.mu is held.
func (d *distributed) makeRoom() bool {
	for issuer, one := range d.others {
		if one.waiting == 0 && !one.discovered() {
			one.cancel()
			delete(d.others, issuer)
			return true
		}
	}
	return false
}

func (d *distributed) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, r := range d.others {
		r.close()
	}
}
