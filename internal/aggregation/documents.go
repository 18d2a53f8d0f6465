package aggregation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"

	"github.com/tidemark-dev/tidemark/internal/webhook"
)

const (
	// fetchEvery is how often documents are fetched again. After an error it is firstFetchRetry, and then twice as long each
	// time.
	fetchEvery      = time.Minute
	firstFetchRetry = 500 * time.Millisecond
	fetchTimeout    = 5 * time.Second
	openAPITimeout  = 30 * time.Second
	// maxDiscoveryBytes, maxIndexBytes (of OpenAPI v3) and maxOpenAPIBytes (of OpenAPI v2) limit the documents of a Service.
	maxDiscoveryBytes = 4 << 20
	maxIndexBytes     = 1 << 20
	maxOpenAPIBytes   = 8 << 20
	// maxDiscoveryValues and maxValues (of all others) limit the number of values in a document: decoding allocates memory
	// for each value.
	maxDiscoveryValues = 50_000
	maxValues          = 200_000
	// smallDocument is how much of each document does not count for maxFetching. Most documents are smaller: others that
	// arrive slowly cannot keep them out.
	smallDocument = 64 << 10
)

// maxFetching limits the documents that are being fetched, all together. Tests change it.
var maxFetching = newInt64(64 << 20)

func newInt64(n int64) *atomic.Int64 {
	made := new(atomic.Int64)
	made.Store(n)
	return made
}

// sourceKey is what backends with the same documents have in common.
type sourceKey struct {
	service  serviceKey
	ca       string
	insecure bool
}

// source has the documents of the extension server of a Service. After a failed fetch, discovery is stale, and the OpenAPI
// documents are those of the last fetch that succeeded.
type source struct {
	of  *Aggregator
	key sourceKey

	changed chan struct{} // has a value if the documents have to be fetched
	ctx     context.Context
	end     context.CancelFunc

	mu       sync.Mutex // guards the rest
	backends map[groupVersion]*Backend
	// current has the resources of each version that the last fetch returned. A version that is not in it is stale.
	current map[groupVersion]*apidiscovery.APIVersionDiscovery
	etag    string
	openAPI openAPIPart
}

// fetching counts the bytes of the documents that are being fetched by the process.
var fetching atomic.Int64

var errBusy = errors.New("documents of other extension servers use up the memory for them")

// join returns the source of a backend, and adds the backend to it. The lock of the aggregator is held.
func (a *Aggregator) join(b *Backend) *source {
	k := sourceKey{b.service, b.ca, b.insecure}
	s := a.sources[k]
	if s == nil {
		s = &source{of: a, key: k, changed: make(chan struct{}, 1), backends: map[groupVersion]*Backend{}}
		s.ctx, s.end = context.WithCancel(a.ctx)
		a.sources[k] = s
		a.done.Go(s.fetchDiscovery)
		a.done.Go(s.fetchOpenAPI)
	}
	s.mu.Lock()
	s.backends[b.groupVersion] = b
	s.etag = ""
	s.mu.Unlock()
	s.refresh()
	return s
}

// leave takes a backend from its source. The lock of the aggregator is held.
func (a *Aggregator) leave(b *Backend) {
	s := b.source
	s.mu.Lock()
	if s.backends[b.groupVersion] == b {
		delete(s.backends, b.groupVersion)
		delete(s.current, b.groupVersion)
		s.etag = ""
	}
	last := len(s.backends) == 0
	s.mu.Unlock()
	if last {
		s.end()
		delete(a.sources, s.key)
	}
}

// refresh starts a fetch of the discovery documents, after the one under way.
func (s *source) refresh() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// through returns an available backend; nil: there is none.
func (s *source) through() *Backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *Backend
	for _, b := range s.backends {
		if b.available() && b.broken == nil && (found == nil || b.name < found.name) {
			found = b
		}
	}
	return found
}

// fetchDiscovery fetches discovery documents until no backend is left.
func (s *source) fetchDiscovery() {
	repeat(s.ctx, s.changed, firstFetchRetry, fetchEvery, func() bool { return s.discover() != nil })
}

// errUnavailable is the error of a fetch while no backend is available.
var errUnavailable = errors.New("service unavailable")

// discover fetches the discovery documents once, and publishes them.
func (s *source) discover() error {
	next, etag, err := s.readDiscovery()
	if errors.Is(err, errNotModified) {
		return nil
	}
	if errors.Is(err, errBusy) { // the documents of the last fetch are better than none
		return err
	}
	s.mu.Lock()
	same := len(next) == len(s.current)
	for gv, v := range next {
		same = same && equalJSON(v, s.current[gv])
	}
	s.current, s.etag = next, etag
	s.mu.Unlock()
	if !same {
		s.of.generation.Add(1)
	}
	return err
}

func equalJSON(a, b *apidiscovery.APIVersionDiscovery) bool {
	if a == nil || b == nil {
		return a == b
	}
	one, err1 := json.Marshal(a)
	other, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(one) == string(other)
}

var errNotModified = errors.New("the documents are those of the last fetch")

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// readDiscovery fetches the documents of all group versions of the source. An error concerns those that are not among the
// results.
func (s *source) readDiscovery() (map[groupVersion]*apidiscovery.APIVersionDiscovery, string, error) {
	b := s.through()
	if b == nil {
		return nil, "", errUnavailable
	}
	s.mu.Lock()
	etag, wanted := s.etag, maps.Clone(s.backends)
	s.mu.Unlock()
	header := http.Header{"Accept": {aggregatedType}}
	if etag != "" {
		header["If-None-Match"] = []string{etag}
	}
	d, err := b.fetch(s.ctx, fetched{path: "/apis", header: header, user: aggregatorUser, groups: []string{masters}, limit: maxDiscoveryBytes, values: maxDiscoveryValues, timeout: fetchTimeout})
	switch {
	case err != nil:
		return nil, "", err
	case d.code == http.StatusNotModified && etag != "":
		return nil, "", errNotModified
	case d.code == http.StatusServiceUnavailable:
		return nil, "", fmt.Errorf("the service responded with %d", d.code)
	case d.code == http.StatusOK && isAggregated(d.header.Get("Content-Type")):
		found, err := readAggregated(d.body, wanted)
		return found, d.header.Get("Etag"), err
	}
	return s.readLegacy(wanted)
}

// isAggregated reports whether a content type is that of aggregated discovery.
func isAggregated(contentType string) bool {
	want := strings.Split(aggregatedType, ";")
	var have []string
	for part := range strings.SplitSeq(contentType, ";") {
		have = append(have, strings.TrimSpace(part))
	}
	return !slices.ContainsFunc(want, func(part string) bool { return !slices.Contains(have, part) })
}

// readAggregated reads the versions that are wanted from an aggregated document, and no others.
func readAggregated(body []byte, wanted map[groupVersion]*Backend) (map[groupVersion]*apidiscovery.APIVersionDiscovery, error) {
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	found := map[groupVersion]*apidiscovery.APIVersionDiscovery{}
	for i := range list.Items {
		g := &list.Items[i]
		for j := range g.Versions {
			v, gv := &g.Versions[j], groupVersion{g.Name, g.Versions[j].Version}
			if wanted[gv] == nil {
				continue
			}
			v.Freshness = apidiscovery.DiscoveryFreshnessCurrent
			for k := range v.Resources { // clients read these without a check
				r := &v.Resources[k]
				if r.ResponseKind == nil {
					r.ResponseKind = new(metav1.GroupVersionKind)
				}
				for l := range r.Subresources {
					if r.Subresources[l].ResponseKind == nil {
						r.Subresources[l].ResponseKind = new(metav1.GroupVersionKind)
					}
				}
			}
			found[gv] = v
		}
	}
	if len(found) < len(wanted) {
		return found, errors.New("the document lacks a version")
	}
	return found, nil
}

// readLegacy fetches the document of each group and version from a server without aggregated discovery.
func (s *source) readLegacy(wanted map[groupVersion]*Backend) (map[groupVersion]*apidiscovery.APIVersionDiscovery, string, error) {
	found := map[groupVersion]*apidiscovery.APIVersionDiscovery{}
	var failed error
	for gv, b := range wanted {
		d, err := b.fetch(s.ctx, fetched{
			path: "/apis/" + gv.String(), header: http.Header{"Accept": {"application/json"}}, user: aggregatorUser, limit: maxDiscoveryBytes, values: maxDiscoveryValues, timeout: fetchTimeout,
		})
		if err == nil && d.code != http.StatusOK {
			err = fmt.Errorf("the service responded with %d", d.code)
		}
		var list metav1.APIResourceList
		if err == nil {
			err = json.Unmarshal(d.body, &list)
		}
		if errors.Is(err, errBusy) {
			return nil, "", err
		}
		if err != nil {
			failed = err
			continue
		}
		found[gv] = aggregated(gv, &list)
	}
	return found, "", failed
}

// aggregated converts the document of a version to the aggregated form.
func aggregated(gv groupVersion, list *metav1.APIResourceList) *apidiscovery.APIVersionDiscovery {
	made := &apidiscovery.APIVersionDiscovery{Version: gv.version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
	index := map[string]int{}
	of := func(name string) *apidiscovery.APIResourceDiscovery {
		i, ok := index[name]
		if !ok {
			i = len(made.Resources)
			index[name] = i
			made.Resources = append(made.Resources, apidiscovery.APIResourceDiscovery{Resource: name, ResponseKind: new(metav1.GroupVersionKind), Verbs: []string{}})
		}
		return &made.Resources[i]
	}
	kind := func(r *metav1.APIResource) *metav1.GroupVersionKind {
		k := metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		if k.Version == "" {
			k.Group, k.Version = gv.group, gv.version
		}
		return &k
	}
	for i := range list.APIResources {
		r := &list.APIResources[i]
		name, sub, isSub := strings.Cut(r.Name, "/")
		to := of(name)
		scope := apidiscovery.ScopeCluster
		if r.Namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		if isSub {
			if to.Scope == "" {
				to.Scope = scope
			}
			to.Subresources = append(to.Subresources, apidiscovery.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind(r), Verbs: r.Verbs})
			continue
		}
		to.Scope, to.ResponseKind, to.Verbs = scope, kind(r), r.Verbs
		to.SingularResource, to.ShortNames, to.Categories = r.SingularName, r.ShortNames, r.Categories
	}
	return made
}

// version returns the resources of a version; nil: they are stale.
func (s *source) version(gv groupVersion) *apidiscovery.APIVersionDiscovery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current[gv]
}

// fetched is a request of the server itself for a document, and the response to it.
type fetched struct {
	method  string // empty: GET
	path    string
	header  http.Header
	user    string
	groups  []string
	limit   int64
	values  int // zero: maxValues
	timeout time.Duration

	code int
	body []byte
}

// fetch requests a document. A longer one than the limit is an error.
func (b *Backend) fetch(ctx context.Context, f fetched) (*fetched, error) {
	if b.broken != nil {
		return nil, b.broken
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	host, err := b.address()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, cmp.Or(f.method, http.MethodGet), "https://"+host+f.path, nil)
	if err != nil {
		return nil, err
	}
	r.Header = f.header
	b.of.sign(r)
	transport.SetAuthProxyHeaders(r, f.user, "", f.groups, nil)
	response, err := b.transport.RoundTrip(r)
	if err != nil {
		return nil, webhook.Quoteless(err)
	}
	defer response.Body.Close()
	if f.body, err = readAll(response.Body, f.limit); err != nil {
		return nil, fmt.Errorf("the document %s: %w", f.path, err)
	}
	if n := bytes.Count(f.body, []byte{','}); n > cmp.Or(f.values, maxValues) {
		return nil, fmt.Errorf("the document %s has more than %d values", f.path, cmp.Or(f.values, maxValues))
	}
	f.code, f.header = response.StatusCode, response.Header
	return &f, nil
}

// readAll reads a document. The buffer grows with the bytes that arrive.
func readAll(from io.Reader, limit int64) ([]byte, error) {
	var charged int64
	defer func() { fetching.Add(-charged) }()
	b := make([]byte, 0, 4<<10)
	for {
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, fmt.Errorf("it has more than %d bytes", limit)
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, webhook.Quoteless(err)
		case len(b) < cap(b):
			continue
		}
		if more := int64(cap(b)); more >= smallDocument {
			charged += more
			if fetching.Add(more) > maxFetching.Load() {
				return nil, errBusy
			}
		}
		b = append(make([]byte, 0, min(2*int64(cap(b)), limit+1)), b...)
	}
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
