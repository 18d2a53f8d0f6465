package aggregation

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// openAPIPart has the OpenAPI documents of a source, for the groups and versions of its APIServices alone.
type openAPIPart struct {
	// pages are the addresses of pages of version 3, by their names: "apis/GROUP/VERSION".
	pages map[string]string
	// paths and definitions are those of version 2. They are shared and must not be changed.
	paths, definitions map[string]json.RawMessage
	sum                string // of paths and definitions; empty: there are none
	etag               string
}

const (
	// firstOpenAPI is when the documents of a new APIService are fetched.
	firstOpenAPI = time.Second
	openAPIV3    = "/openapi/v3"
	openAPIV2    = "/openapi/v2"
)

// fetchOpenAPI fetches OpenAPI documents until no backend is left.
func (s *source) fetchOpenAPI() {
	sleep(s.ctx, nil, firstOpenAPI)
	repeat(s.ctx, nil, firstOpenAPI, fetchEvery, func() bool { return s.readOpenAPI() != nil })
}

// readOpenAPI fetches the documents of both versions.
func (s *source) readOpenAPI() error {
	b := s.through()
	if b == nil {
		return errUnavailable
	}
	return errors.Join(s.readIndex(b), s.readV2(b))
}

// index is the document /openapi/v3.
type index struct {
	Paths map[string]indexed `json:"paths"`
}

type indexed struct {
	URL string `json:"serverRelativeURL"`
}

// owns reports whether a page of version 3 is one of the backends.
func (s *source) owns(page string) bool {
	rest, ok := strings.CutPrefix(page, "apis/")
	group, version, versioned := strings.Cut(rest, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok && versioned && s.backends[groupVersion{group, version}] != nil
}

// readIndex fetches /openapi/v3. Pages that are not those of its own APIServices, and addresses elsewhere, are ignored.
func (s *source) readIndex(b *Backend) error {
	d, err := b.fetch(s.ctx, fetched{path: openAPIV3, header: http.Header{"Accept": {"application/json"}}, user: openAPIUser, limit: maxIndexBytes, timeout: openAPITimeout})
	if err != nil {
		return err
	}
	var read index
	if d.code == http.StatusOK {
		if err := json.Unmarshal(d.body, &read); err != nil {
			return err
		}
	}
	pages := map[string]string{}
	for page, at := range read.Paths {
		if u, err := url.Parse(at.URL); err == nil && s.owns(page) && u.Scheme == "" && u.Host == "" && u.Path == openAPIV3+"/"+page {
			pages[page] = at.URL
		}
	}
	s.mu.Lock()
	s.openAPI.pages = pages
	s.mu.Unlock()
	return nil
}

// readV2 fetches /openapi/v2.
func (s *source) readV2(b *Backend) error {
	s.mu.Lock()
	etag, wanted := s.openAPI.etag, slices.Collect(maps.Keys(s.backends))
	s.mu.Unlock()
	header := http.Header{"Accept": {"application/json"}}
	if etag != "" {
		header["If-None-Match"] = []string{etag}
	}
	d, err := b.fetch(s.ctx, fetched{path: openAPIV2, header: header, user: openAPIUser, limit: maxOpenAPIBytes, timeout: openAPITimeout})
	if err != nil {
		return err
	}
	if d.code == http.StatusNotModified && etag != "" {
		return nil
	}
	var read struct{ Paths, Definitions map[string]json.RawMessage }
	if d.code == http.StatusOK {
		if err := json.Unmarshal(d.body, &read); err != nil {
			return err
		}
	}
	part, err := selectV2(read.Paths, read.Definitions, wanted)
	if err == nil { // clients cannot read a document with a part that is not valid
		_, err = (&foreign{part.paths, part.definitions}).protobuf()
	}
	if err != nil {
		part = openAPIPart{}
	}
	part.etag = d.header.Get("Etag")
	s.mu.Lock()
	part.pages = s.openAPI.pages
	s.openAPI = part
	s.mu.Unlock()
	return err
}

// selectV2 returns the paths of the groups and versions, with the definitions that they need.
func selectV2(paths, definitions map[string]json.RawMessage, wanted []groupVersion) (openAPIPart, error) {
	part := openAPIPart{paths: map[string]json.RawMessage{}, definitions: map[string]json.RawMessage{}}
	for path, item := range paths {
		if slices.ContainsFunc(wanted, func(gv groupVersion) bool { return strings.HasPrefix(path, "/apis/"+gv.String()+"/") }) {
			part.paths[path] = item
		}
	}
	var open []string
	for _, item := range part.paths {
		open = append(open, references(item)...)
	}
	for len(open) > 0 {
		name := open[len(open)-1]
		open = open[:len(open)-1]
		d, ok := definitions[name]
		if !ok {
			return openAPIPart{}, fmt.Errorf("the document refers to a definition %.100q that it does not have", name)
		}
		if part.definitions[name] == nil {
			part.definitions[name] = d
			open = append(open, references(d)...)
		}
	}
	if len(part.paths) > 0 {
		part.sum = sumOf(part.paths, part.definitions)
	}
	return part, nil
}

// reference precedes the name of a definition.
const reference = `"$ref":"#/definitions/`

// references returns the names of the definitions to which a compact JSON value refers.
func references(value json.RawMessage) (names []string) {
	compact := new(bytes.Buffer)
	if json.Compact(compact, value) != nil {
		return nil
	}
	for rest := compact.Bytes(); ; {
		_, after, ok := bytes.Cut(rest, []byte(reference))
		if !ok {
			return names
		}
		name, _, _ := bytes.Cut(after, []byte{'"'})
		names, rest = append(names, string(name)), after
	}
}

func sumOf(all ...map[string]json.RawMessage) string {
	h := sha512.New()
	for _, m := range all {
		for _, name := range sortedKeys(m) {
			io.WriteString(h, name)
			h.Write([]byte{0})
			h.Write(m[name])
			h.Write([]byte{0})
		}
	}
	return strings.ToUpper(hex.EncodeToString(h.Sum(nil)))
}

// openAPIParts returns the documents of the sources, in the order of the names of their APIServices.
func (t *Table) openAPIParts() (all []openAPIPart) {
	seen := map[*source]bool{}
	for _, b := range t.sorted() {
		if seen[b.source] {
			continue
		}
		seen[b.source] = true
		b.source.mu.Lock()
		all = append(all, b.source.openAPI)
		b.source.mu.Unlock()
	}
	return all
}

type callerKey struct{}

// WithCaller returns a context for a request to OpenAPI, whose pages of extension servers are fetched as the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// OpenAPI returns a handler of OpenAPI documents that adds those of extension servers to those of another handler.
func (a *Aggregator) OpenAPI(own http.Handler) http.Handler { return &openAPI{of: a, own: own} }

// openAPI serves merged documents.
type openAPI struct {
	of  *Aggregator
	own http.Handler

	mu     sync.Mutex // held to merge documents of version 2
	merged map[string]*mergedV2
}

// ServeHTTP implements http.Handler.
func (o *openAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := o.of.table.Load()
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if len(t.remote) == 0 || !read {
		o.own.ServeHTTP(w, r)
		return
	}
	switch path := strings.TrimSuffix(r.URL.Path, "/"); path {
	case openAPIV3:
		o.serveIndex(w, r, t)
	case openAPIV2:
		o.serveV2(w, r, t)
	default:
		c, ok := r.Context().Value(callerKey{}).(Caller)
		if b := t.page(strings.TrimPrefix(path, openAPIV3+"/")); b != nil && ok {
			if err := b.Serve(w, r, c); err != nil {
				refuse(w, err)
			}
			return
		}
		o.own.ServeHTTP(w, r)
	}
}

// page returns the backend of a page of version 3, nil if it is one of the server itself.
func (t *Table) page(page string) *Backend {
	rest, ok := strings.CutPrefix(page, "apis/")
	group, version, _ := strings.Cut(rest, "/")
	if !ok {
		return nil
	}
	return t.backend(groupVersion{group, version})
}

// serveIndex serves /openapi/v3.
func (o *openAPI) serveIndex(w http.ResponseWriter, r *http.Request, t *Table) {
	own := o.recorded(r, http.Header{})
	var all index
	if own.code != http.StatusOK || json.Unmarshal(own.body.Bytes(), &all) != nil {
		o.own.ServeHTTP(w, r)
		return
	}
	for gv := range t.remote { // the server itself does not serve these
		delete(all.Paths, "apis/"+gv.String())
	}
	for _, part := range t.openAPIParts() {
		for page, at := range part.pages {
			all.Paths[page] = indexed{at}
		}
	}
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if err := e.Encode(all); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text := bytes.TrimRight(body.Bytes(), "\n")
	w.Header().Set("Content-Type", own.header.Get("Content-Type"))
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Write(text)
}

// recorder is the response of the server's own handler.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (c *recorder) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *recorder) WriteHeader(code int) {
	if c.code == 0 {
		c.code = code
	}
}

// Write implements http.ResponseWriter.
func (c *recorder) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	return c.body.Write(b)
}

// recorded returns the response of the server's own handler to a GET of the path with other headers.
func (o *openAPI) recorded(r *http.Request, h http.Header) *recorder {
	made := &recorder{header: http.Header{}}
	again := r.Clone(r.Context())
	again.Method, again.Header, again.URL.RawQuery = http.MethodGet, h, ""
	o.own.ServeHTTP(made, again)
	return made
}

// mergedBytes estimates the memory of a request that waits until documents are merged.
const mergedBytes = 32 << 10

// serveV2 serves /openapi/v2.
func (o *openAPI) serveV2(w http.ResponseWriter, r *http.Request, t *Table) {
	parts := slices.DeleteFunc(t.openAPIParts(), func(p openAPIPart) bool { return p.sum == "" })
	if len(parts) == 0 {
		o.own.ServeHTTP(w, r)
		return
	}
	probe := o.recorded(r, http.Header{"Accept": r.Header["Accept"], "If-None-Match": {`"none"`}, "Accept-Encoding": {"gzip"}})
	if probe.code != http.StatusOK {
		o.own.ServeHTTP(w, r)
		return
	}
	key := v2Key{own: probe.header.Get("Etag"), media: probe.header.Get("Content-Type")}
	for _, p := range parts {
		key.parts += p.sum
	}
	var doc *mergedV2
	err := fairness.Wait(r.Context(), mergedBytes, func() (err error) {
		doc, err = o.merge(r, key, parts, probe)
		return err
	})
	switch {
	case errors.Is(err, fairness.ErrFull):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	case err != nil:
		http.Error(w, "merging the OpenAPI documents: "+err.Error(), http.StatusInternalServerError)
		return
	}
	doc.serve(w, r)
}

// serve writes the document.
func (d *mergedV2) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Vary", "Accept")
	h.Set("Etag", d.etag)
	if strings.Contains(r.Header.Get("If-None-Match"), strings.Trim(d.etag, `"`)) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", d.key.media)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		h.Set("Content-Length", strconv.Itoa(len(d.packed)))
		w.Write(d.packed)
		return
	}
	h.Set("Content-Length", strconv.Itoa(d.size))
	if r.Method == http.MethodHead {
		return
	}
	if unpacked, err := gzip.NewReader(bytes.NewReader(d.packed)); err == nil {
		_, _ = io.Copy(w, unpacked) // fails only if the client is gone
	}
}
