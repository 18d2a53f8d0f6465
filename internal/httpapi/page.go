package httpapi

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/discovery"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// page serves all paths that are not resources.
func (q *request) page() error {
	switch q.info.kind {
	case rootAPI, rootAPIs, groupPath, versionPath:
		return q.discovery()
	}
	path := q.r.URL.Path
	if q.instant != nil && !ofInstant(path) {
		return errNoPage
	}
	switch {
	case path == "/", path == "/index.html":
		return q.index()
	case path == statuszPath && !q.h.forked: // that of the process
		return q.statusz()
	case path == "/version", path == "/version/":
		return q.version()
	case path == "/metrics" && !q.h.forked: // the metrics are those of the whole server
		return q.delegate(q.h.metrics, scrapeBytes)
	case path == slisPath && !q.h.forked:
		return q.delegate(&q.h.metrics.healthchecks, smallBytes)
	case isHealth(path):
		return q.health(path)
	case path == "/openapi/v2", path == "/openapi/v3", strings.HasPrefix(path, "/openapi/v3/"):
		return q.openAPI()
	case strings.HasPrefix(path, "/version/"):
		return errNoResource()
	case strings.HasPrefix(path, flowDebugPath) && !q.h.forked:
		return q.flowDebug(path[len(flowDebugPath):])
	case path == overviewPath && !q.h.forked:
		return q.overview()
	case q.h.c.Profiling && !q.h.forked && (path == profilingPath || strings.HasPrefix(path, profilingPath+"/")): // of the whole process
		return q.profiling(path[len(profilingPath):])
	}
	for i := range q.h.c.Pages {
		if p := &q.h.c.Pages[i]; strings.TrimSuffix(path, "/") == p.Path {
			return q.extraPage(p)
		}
	}
	for i := range q.h.c.Mounts {
		if m := &q.h.c.Mounts[i]; path == m.Path || strings.HasPrefix(path, m.Path+"/") {
			return q.mounted(m)
		}
	}
	if q.h.c.Missing != nil {
		if err := q.h.c.Missing(path); err != nil {
			return err
		}
	}
	return errNoPage
}

// mounted serves a request to a mount. It reads the body before the handler, without seats if the client is
// slow.
func (q *request) mounted(m *Mount) error {
	body, err := q.bodyUpTo(m.BodyBytes)
	if err != nil {
		return err
	}
	if m.Timeout > 0 {
		q.extend(m.Timeout)
	}
	ctx := q.context()
	if m.Stream {
		var cancel context.CancelFunc
		ctx, cancel = q.watchContext()
		defer cancel()
		if q.seat != nil {
			q.seat.Leave(0)
			q.stays = true
		}
	}
	q.r = q.r.WithContext(ctx)
	q.r.Body = io.NopCloser(bytes.NewReader(body))
	return q.delegate(m.Handler, smallBytes)
}

// discovery serves the documents about the served groups, versions and resources.
func (q *request) discovery() error {
	p, docs := &q.info, q.documents()
	if p.kind == versionPath && p.Group != "" && !docs.catalog.Serves(p.Group) && docs.catalog.Lists(p.Group, p.Version) == nil {
		return errNoPage
	}
	doc, offer, ok := q.document(docs)
	if !ok {
		if p.kind == groupPath {
			return errNoPage
		}
		return errNoResource()
	}
	head := q.r.Method == http.MethodHead && (p.kind == rootAPIs || p.kind == groupPath)
	if q.r.Method != http.MethodGet && !head {
		return errNoMethod()
	}
	if p.kind == rootAPI || p.kind == rootAPIs {
		q.header()["Vary"] = varyAccept
	}
	if doc.ETag != "" {
		return q.aggregated(doc, offer)
	}
	out, err := q.h.c.Media.Negotiate(q.accept(), offer)
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, doc.Body, out)
}

// document returns the document of a path, and how it is negotiated.
func (q *request) document(docs *documents) (discovery.Document, wire.Offer, bool) {
	p := &q.info
	switch p.kind {
	case rootAPI:
		if _, ok := wire.Aggregated(q.accept(), wire.Discovery); ok {
			return docs.AggregatedAPI(), wire.Discovery, true
		}
		return docs.API(q.address()), wire.Discovery, true
	case rootAPIs:
		groups := q.groups(docs)
		if _, ok := wire.Aggregated(q.accept(), wire.Documents); ok {
			return groups.AggregatedAPIs(), wire.Documents, true
		}
		return groups.APIs(), wire.Documents, true
	case groupPath:
		doc, ok := q.groups(docs).Group(p.Group)
		return doc, wire.Documents, ok
	}
	doc, ok := docs.GroupVersion(p.Group, p.Version)
	return doc, wire.Resources, ok
}

// groupDocuments are the documents about groups: those of this server, or those with the groups of extension servers.
type groupDocuments interface {
	APIs() discovery.Document
	AggregatedAPIs() discovery.Document
	Group(name string) (discovery.Document, bool)
}

func (q *request) groups(docs *documents) groupDocuments {
	if m := q.aggregation().Merge(docs.Documents); m != nil {
		return m
	}
	return docs.Documents
}

// aggregated writes an aggregated document, with an ETag for clients that cache it.
func (q *request) aggregated(doc discovery.Document, offer wire.Offer) error {
	h := q.header()
	h["Etag"] = []string{doc.ETag}
	h["Cache-Control"] = publicCache
	if headerHas(q.r.Header["If-None-Match"], doc.ETag) {
		q.writeHeader(http.StatusNotModified)
		return nil
	}
	out, _ := wire.Aggregated(q.accept(), offer)
	q.audited.sends(doc.Body)
	body, err := q.encode(doc.Body, out)
	if err != nil {
		return err
	}
	return q.send(http.StatusOK, []string{wire.AggregatedType(out.Media)}, body)
}

// address returns the address that the client connected to.
func (q *request) address() string {
	if a, ok := q.r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && a.Network() != "unix" {
		return a.String()
	}
	return q.r.Host
}

// index lists the paths of the server.
func (q *request) index() error {
	docs, others := q.documents(), q.paths()
	if m := q.aggregation().Merge(docs.Documents); m != nil {
		others = append(others, m.Paths()...)
	}
	doc := docs.Root(others...)
	return q.send(http.StatusOK, jsonType, doc.Body)
}

// paths returns the paths of the server besides those of the API.
func (q *request) paths() []string {
	others := []string{"/version"}
	if !q.h.forked && q.instant == nil {
		others = append(others, "/metrics", statuszPath)
	}
	for _, kind := range []string{"/healthz", "/livez", "/readyz"} {
		others = append(others, kind)
		for _, c := range q.h.checks(kind) {
			others = append(others, kind+"/"+c.Name)
		}
	}
	if q.openAPIHandler() != nil {
		others = append(others, "/openapi/v2", "/openapi/v3", "/openapi/v3/")
	}
	if q.instant != nil {
		return others
	}
	for _, p := range q.h.c.Pages {
		others = append(others, p.Path)
	}
	for _, m := range q.h.c.Mounts {
		others = append(others, m.Path)
	}
	return others
}

// extraPage serves one of Config.Pages.
func (q *request) extraPage(p *Page) error {
	if q.r.Method != http.MethodGet {
		return errNoMethod()
	}
	if !names(q.accept(), p.Media) {
		return refusal(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
			"406: Not Acceptable\n\nAvailable representations: "+p.Media, &metav1.StatusDetails{})
	}
	body, err := p.Read()
	if err != nil {
		return err
	}
	q.header()["Cache-Control"] = []string{"public, max-age=3600"}
	return q.send(http.StatusOK, []string{p.Media}, body)
}

// names reports whether an Accept header allows a media type.
func names(accept, media string) bool {
	if accept == "" {
		return true
	}
	for part := range strings.SplitSeq(accept, ",") {
		name, _, _ := strings.Cut(part, ";")
		if name = strings.TrimSpace(name); name == media || name == "*/*" {
			return true
		}
	}
	return false
}

// version serves /version.
func (q *request) version() error {
	if q.r.Method != http.MethodGet {
		return errNoMethod()
	}
	if _, err := q.h.c.Media.Negotiate(q.accept(), wire.OnlyJSON); err != nil {
		return err
	}
	return q.send(http.StatusOK, jsonType, versionDocument(&q.h.c))
}

// openAPI serves the OpenAPI documents.
func (q *request) openAPI() error {
	if q.openAPIHandler() == nil {
		return errNoPage
	}
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead {
		return errNoMethod()
	}
	ctx := q.context()
	if q.aggregation() != nil {
		ctx = aggregation.WithCaller(ctx, q.caller())
	}
	q.r = q.r.WithContext(ctx)
	return q.delegate(q.openAPIHandler(), openAPIBytes)
}

// openAPIBytes estimates the memory of an OpenAPI document while it is sent.
const openAPIBytes = 128 << 10

// platform is the platform in /version.
var platform = runtime.GOOS + "/" + runtime.GOARCH
