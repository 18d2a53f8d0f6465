package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// fetchTimeout limits one request to the issuer. While there is no response, another request begins every patience. So
	// a slow issuer has the whole timeout, and an issuer that hung is used again soon after it has recovered.
	fetchTimeout = 30 * time.Second
	patience     = 4 * time.Second
	// waitTimeout limits how long a token waits for newer keys.
	waitTimeout = 10 * time.Second
	// maxWaiting limits the tokens that wait for the newer keys of one issuer.
	maxWaiting = 256
	// minPause is the time between two requests for keys: tokens with unknown keys cannot make
	// the server flood an issuer.
	minPause = time.Second
	// firstRetry and lastRetry are the pauses between attempts to discover an issuer, which
	// double.
	firstRetry, lastRetry = time.Second, 4 * time.Second
	// refreshEvery is the period of fetching the keys unconditionally, so that a removed key is not
	// accepted for ever.
	refreshEvery = 10 * time.Minute
)

// remote holds the keys of an issuer. One goroutine discovers the issuer, then fetches its keys,
// from time to time and when a token needs newer ones. All methods are safe for concurrent use.
type remote struct {
	issuer string
	// discovery is the URL of the discovery document.
	discovery string
	client    *http.Client
	log       *slog.Logger
	// fetched is called with the keys that the issuer sent, nil if it sent none.
	fetched func(document []byte)

	ready   chan struct{}          // closed when the issuer is discovered
	keys    atomic.Pointer[keySet] // nil: none were fetched yet
	problem atomic.Pointer[error]  // why discovery failed last; nil: it has not failed yet

	ctx    context.Context // of the goroutine
	cancel context.CancelFunc
	ended  chan struct{} // closed when the goroutine has ended

	wanted chan struct{} // capacity 1: a token needs newer keys

	mu      sync.Mutex
	next    *fetch // the fetch that has not begun, if a token waits for it
	waiting int    // how many tokens wait
}

// fetch is a request for keys that tokens wait for.
type fetch struct {
	done chan struct{}
	keys *keySet // set before done is closed
	err  error   // set before done is closed
}

var (
	errClosed  = errors.New("oidc: the configuration of the issuer has been replaced")
	errWaiting = fmt.Errorf("oidc: more than %d tokens wait for the keys of the issuer", maxWaiting)
)

// discoverRemote begins to discover an issuer. An empty discovery URL follows from the issuer.
func discoverRemote(issuer, discovery string, client *http.Client, log *slog.Logger, fetched func([]byte)) *remote {
	if discovery == "" {
		discovery = strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
	}
	r := &remote{
		issuer: issuer, discovery: discovery, client: client, log: log, fetched: fetched,
		ready: make(chan struct{}), ended: make(chan struct{}), wanted: make(chan struct{}, 1),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.run()
	return r
}

// close stops fetching. Tokens that wait for keys are refused.
func (r *remote) close() {
	r.cancel()
	<-r.ended
}

// discovered reports whether the issuer has been discovered.
func (r *remote) discovered() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

func (r *remote) run() {
	defer close(r.ended)
	jwks, ok := r.discover()
	if !ok {
		return
	}
	close(r.ready)
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		r.fetch(jwks)
		if !r.sleep(minPause) {
			return
		}
		select {
		case <-r.ctx.Done():
			return
		case <-r.wanted:
		case <-refresh.C:
		}
	}
}

// discover returns the URL of the keys; false if the remote was closed first.
func (r *remote) discover() (string, bool) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		jwks, err := r.discoverOnce()
		if err == nil {
			return jwks, true
		}
		if r.ctx.Err() != nil {
			return "", false
		}
		r.log.Error("an issuer of tokens cannot be discovered, which is tried again", "issuer", r.issuer, "err", err)
		r.problem.Store(&err)
		if !r.sleep(pause) {
			return "", false
		}
	}
}

// sleep returns false if the remote was closed.
func (r *remote) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

func (r *remote) discoverOnce() (string, error) {
	body, err := r.get(r.discovery)
	if err != nil {
		return "", err
	}
	var document struct {
		Issuer string `json:"issuer"`
		JWKS   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return "", fmt.Errorf("oidc: failed to decode provider discovery object: %w", err)
	}
	if document.Issuer != r.issuer {
		return "", fmt.Errorf("oidc: issuer did not match the issuer returned by provider, expected %q got %q", r.issuer, document.Issuer)
	}
	if document.JWKS == "" {
		return "", errors.New("provider did not return JWKS URL")
	}
	if u, err := url.Parse(document.JWKS); err != nil || !isHTTPS(u) {
		return "", errors.New("the JWKS URL that the provider returned is not an https URL")
	}
	return document.JWKS, nil
}

// fetch fetches the keys once. If that fails, the known keys stay.
func (r *remote) fetch(jwks string) {
	asked := r.begin()
	keys := r.keys.Load()
	fetched := keys
	body, err := r.get(jwks)
	if err == nil && !keys.same(body) {
		fetched, err = parseKeys(body)
	}
	if r.ctx.Err() != nil {
		return
	}
	if err != nil {
		body = nil
		r.log.Error("the keys of an issuer of tokens cannot be fetched", "issuer", r.issuer, "err", err)
	}
	r.fetched(body)
	if err == nil {
		keys = fetched
		r.keys.Store(keys)
	}
	if asked != nil {
		asked.keys, asked.err = keys, err
		close(asked.done)
	}
}

// begin returns the fetch that tokens wait for, nil if none does. Tokens that come later wait for
// the next one, because their key can be newer than the response to this one.
func (r *remote) begin() *fetch {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.wanted:
	default:
	}
	f := r.next
	r.next = nil
	return f
}

// newer waits for the result of a fetch.
func (r *remote) newer(ctx context.Context) (*keySet, error) {
	f, err := r.ask()
	if err != nil {
		return nil, err
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waiting--
	}()
	limit := time.NewTimer(waitTimeout)
	defer limit.Stop()
	select {
	case <-f.done:
		return f.keys, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.ctx.Done():
		return nil, errClosed
	case <-limit.C:
		return nil, fmt.Errorf("the issuer did not respond within %v", waitTimeout)
	}
}

// ask adds a caller to those that wait for the next fetch.
func (r *remote) ask() (*fetch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting >= maxWaiting {
		return nil, errWaiting
	}
	r.waiting++
	if r.next == nil {
		r.next = &fetch{done: make(chan struct{})}
	}
	select {
	case r.wanted <- struct{}{}:
	default:
	}
	return r.next, nil
}

// get returns a document of the issuer, or an error: the outcome of the first of its requests that ends.
func (r *remote) get(url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.ctx, fetchTimeout)
	defer cancel()
	type result struct {
		body []byte
		err  error
	}
	const most = int(fetchTimeout/patience) + 1
	results := make(chan result, most)
	again := time.NewTicker(patience)
	defer again.Stop()
	for n := 1; ; n++ {
		if n <= most {
			go func() {
				body, err := get(ctx, r.client, url, "")
				results <- result{body, err}
			}()
		}
		select {
		case one := <-results:
			return one.body, one.err
		case <-again.C:
		}
	}
}

// get returns the body of a response 200. A bearer token is sent if it is not empty.
func get(ctx context.Context, client *http.Client, url, bearer string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDocumentBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("unable to read response body: %w", err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	case len(body) > maxDocumentBytes:
		return nil, fmt.Errorf("%s: the response is larger than %d bytes", url, maxDocumentBytes)
	}
	return body, nil
}
