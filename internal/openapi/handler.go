package openapi

import (
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
	return &Source{catalog: catalog, version: version, cbor: cbor, library: newLibrary(catalog)}
}

// Fork returns a source for another catalog with the same built-in kinds. They share what the documents
// have of these and of common custom kinds.
func (s *Source) Fork(catalog func() *resource.Catalog) *Source {
	return &Source{catalog: catalog, version: s.version, cbor: s.cbor, library: s.library}
}

// Source serves the documents of the newest catalog. It is an http.Handler.
type Source struct {
	catalog func() *resource.Catalog
	version string
	cbor    bool
	library *library

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

// ServeHTTP implements http.Handler.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(&handler{s.documents()}).ServeHTTP(w, r)
}

type handler struct{ *documents }

// ServeHTTP implements http.Handler. It answers GET and HEAD.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return
	}
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/openapi/v2":
		h.serve(w, r, "v2", "v2", protobufV2)
	case path == "/openapi/v3":
		h.serveIndex(w, r)
	default:
		page := strings.TrimPrefix(path, "/openapi/v3/")
		if !slices.Contains(h.order, page) {
			w.WriteHeader(http.StatusNotFound) // without a body, as kube-apiserver
			return
		}
		h.servePage(w, r, page)
	}
}

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
func (h *handler) servePage(w http.ResponseWriter, r *http.Request, page string) {
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if want := h.hashOf(page); hash != want {
			u := url.URL{Path: "/openapi/v3/" + page, RawQuery: url.Values{"hash": {want}}.Encode()}
			http.Redirect(w, r, u.String(), http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().Add(forever).UTC().Format(http.TimeFormat))
	}
	h.serve(w, r, page, page, protobufV3)
}

// serve writes a page in the media type that the client accepts.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, page, hashed, protobuf string) {
	f, ok := accept(r.Header.Get("Accept"), protobuf)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable) // without a body, as kube-apiserver
		return
	}
	header := w.Header()
	header.Set("Vary", "Accept")
	header.Set("Etag", `"`+h.hashOf(hashed)+`"`)
	if match := r.Header.Get("If-None-Match"); strings.Contains(match, h.hashOf(hashed)) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body, err := h.page(pageKey{page, f})
	if err != nil {
		http.Error(w, errors.Join(errors.New("making the OpenAPI document"), err).Error(), http.StatusInternalServerError)
		return
	}
	header.Set("Content-Type", "application/json")
	if f == asProtobuf {
		header.Set("Content-Type", strings.ReplaceAll(protobuf, "@", ".")) // a media type cannot have an @
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
		header.Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
		return
	}
	header.Set("Content-Length", strconv.Itoa(unpackedBytes(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_ = unpack(w, body) // fails only if the client is gone
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
