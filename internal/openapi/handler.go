package openapi

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

const (
	protobufV2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	protobufV3 = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	forever    = 365 * 24 * time.Hour
)

// New returns the source of /openapi/v2, /openapi/v3 and the pages below it. It calls catalog
// for each request. The version is the gitVersion of /version. Cbor: resources are served in
// CBOR as well.
func New(catalog func() *resource.Catalog, version string, cbor bool) *Source {
	return &Source{catalog: catalog, version: version, cbor: cbor, library: newLibrary(catalog), pace: newPace()}
}

// Fork returns a source for another catalog with the same built-in kinds. They share the parts of
// documents for these and for common custom kinds, and the limit for the work to make them.
func (s *Source) Fork(catalog func() *resource.Catalog) *Source {
	return &Source{catalog: catalog, version: s.version, cbor: s.cbor, library: s.library, pace: s.pace}
}

// Source serves the documents of the newest catalog. It is an http.Handler.
type Source struct {
	catalog func() *resource.Catalog
	version string
	cbor    bool
	library *library
	pace    *pace

	mu     sync.Mutex // held to make documents
	newest atomic.Pointer[documents]
}

// documents returns the documents of the catalog that is served now. They share unchanged
// pages with those of the catalog before.
func (s *Source) documents() *documents {
	c := s.catalog()
	if d := s.newest.Load(); d != nil && d.catalog == c {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.newest.Load()
	if d == nil || d.catalog != c {
		d = newDocuments(c, s, d)
		s.newest.Store(d)
	}
	return d
}

// ServeHTTP implements http.Handler. A page that is not made yet is made for the newest catalog. Meanwhile the request
// has no seat.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := s.documents()
	key := (&handler{d}).respond(w, r)
	if key == nil {
		return
	}
	err := fairness.Wait(r.Context(), waitingBytes, func() (err error) {
		d, err = s.make(r.Context(), *key)
		return err
	})
	switch {
	case errors.Is(err, fairness.ErrFull):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	case r.Context().Err() != nil:
		http.Error(w, "the OpenAPI document was not made within the time of the request", http.StatusGatewayTimeout)
	case err != nil:
		http.Error(w, errors.Join(errors.New("making the OpenAPI document"), err).Error(), http.StatusInternalServerError)
	default:
		(&handler{d}).respond(w, r)
	}
}

// waitingBytes estimates the memory of a request that waits for a document.
const waitingBytes = 32 << 10

// make returns the newest documents when it is the turn of the request. They have the page, if it still exists.
func (s *Source) make(ctx context.Context, key pageKey) (*documents, error) {
	made := func(d *documents) bool { return d.kept(key) != nil || !d.has(key.page) }
	if err := s.pace.begin(ctx, func() bool { return made(s.documents()) }); err != nil {
		return nil, err
	}
	n := int64(0)
	defer func() { s.pace.end(n) }()
	d := s.documents()
	if made(d) {
		return d, nil
	}
	var err error
	n, err = d.make(ctx, key)
	return d, err
}

type handler struct{ *documents }

// respond responds to GET and HEAD. It returns the page that has to be made first, nil if it has responded.
func (h *handler) respond(w http.ResponseWriter, r *http.Request) *pageKey {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return nil
	}
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/openapi/v2":
		return h.serve(w, r, "v2", protobufV2)
	case path == "/openapi/v3":
		h.serveIndex(w, r)
	default:
		page := strings.TrimPrefix(path, "/openapi/v3/")
		if !slices.Contains(h.order, page) {
			w.WriteHeader(http.StatusNotFound) // without a body, as kube-apiserver
			return nil
		}
		return h.servePage(w, r, page)
	}
	return nil
}

// has reports whether there is a page.
func (d *documents) has(page string) bool { return page == "v2" || slices.Contains(d.order, page) }

// serveIndex writes the list of pages. Its content type is that of kube-apiserver.
func (h *handler) serveIndex(w http.ResponseWriter, r *http.Request) {
	body, err := h.index()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

// servePage writes a page. A URL with the current hash may be cached for ever; one with
// another hash is redirected.
func (h *handler) servePage(w http.ResponseWriter, r *http.Request, page string) *pageKey {
	hash := r.URL.Query().Get("hash")
	if want := h.hashOf(page); hash != "" && hash != want {
		u := url.URL{Path: "/openapi/v3/" + page, RawQuery: url.Values{"hash": {want}}.Encode()}
		http.Redirect(w, r, u.String(), http.StatusMovedPermanently)
		return nil
	}
	return h.serve(w, r, page, protobufV3)
}

// serve writes a page in the media type that the client accepts. It returns the page if it has to be made first.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, page, protobuf string) *pageKey {
	f, ok := accept(r.Header.Get("Accept"), protobuf)
	if !ok {
		h.mayBeKept(w, r)
		w.WriteHeader(http.StatusNotAcceptable) // without a body, as kube-apiserver
		return nil
	}
	matches := strings.Contains(r.Header.Get("If-None-Match"), h.hashOf(page))
	key := pageKey{page, f}
	kept := h.kept(key)
	if kept == nil && !matches {
		return &key
	}
	h.mayBeKept(w, r)
	header := w.Header()
	header.Set("Vary", "Accept")
	header.Set("Etag", `"`+h.hashOf(page)+`"`)
	if matches {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", "application/json")
	if f == asProtobuf {
		header.Set("Content-Type", strings.ReplaceAll(protobuf, "@", ".")) // a media type cannot have an @
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
		header.Set("Content-Length", strconv.Itoa(len(kept.packed)))
		w.Write(kept.packed)
		return nil
	}
	header.Set("Content-Length", strconv.FormatInt(kept.size, 10))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_ = unpack(w, kept.packed) // fails only if the client is gone
	}
	return nil
}

// mayBeKept marks a page that was requested by its hash as immutable.
func (h *handler) mayBeKept(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("hash") != "" {
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().Add(forever).UTC().Format(http.TimeFormat))
	}
}

// accept returns the form of the first clause that is supported.
func accept(header, protobuf string) (form, bool) {
	if header == "" {
		return asJSON, true
	}
	for clause := range strings.SplitSeq(header, ",") {
		media, _, err := mime.ParseMediaType(clause)
		if err != nil { // the protobuf type has an @, which mime refuses
			media, _, _ = strings.Cut(strings.TrimSpace(clause), ";")
		}
		switch media {
		case "application/json", "*/*", "application/*":
			return asJSON, true
		case protobuf, strings.ReplaceAll(protobuf, "spec.", "spec_"):
			return asProtobuf, true
		}
	}
	return asJSON, false
}
