package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidemark-dev/tidemark/internal/registry"
)

// The server logs requests: with -v=4 all of them, with -v=2 those that failed or were slow, and those that
// took longer than Config.SlowRequest in any case. A line has the attributes of kube-apiserver's HTTP log,
// the user, and the parts of the latency. Paths that are not served and unknown parameters of queries are
// left out.

const (
	// LevelFailedRequests is the level of a request that was slow or failed, -v=2.
	LevelFailedRequests = slog.Level(-2)
	// LevelRequests is the level of each other request, -v=4.
	LevelRequests = slog.LevelDebug

	// slowRequest is the time from which on a request is slow.
	slowRequest = 500 * time.Millisecond
	// logURIBytes bounds the URI of a line of the log.
	logURIBytes = 1024
)

// latency is how long the parts of a request took. The rest is the work of the verb: decoding,
// reading, encoding.
type latency struct {
	authentication, impersonation, authorization, queue time.Duration
	body, response                                      time.Duration // the client sent it, or took it
	admission, commit                                   time.Duration
}

// timesParts reports whether the parts of the latency are measured: the audit log, the log or traces may show them.
func (h *Handler) timesParts() bool {
	return h.c.Audit != nil || h.c.Tracer != nil || h.c.SlowRequest > 0 || h.c.Log.Enabled(context.Background(), LevelFailedRequests)
}

// lap adds the time since the lap before to a part.
func (q *request) lap(part *time.Duration) {
	if q.timed {
		now := time.Now()
		*part += now.Sub(q.lapped)
		q.station(part, q.lapped, now)
		q.lapped = now
	}
}

// took adds the time since began to a part.
func (q *request) took(part *time.Duration, began time.Time) {
	ended := time.Now()
	*part += ended.Sub(began)
	q.station(part, began, ended)
}

// logLevel returns the level of the line for a request, and why it is logged.
func (q *request) logLevel(took time.Duration) (level slog.Level, why string) {
	slow := q.h.c.SlowRequest
	long := q.longRunning()
	switch {
	case slow > 0 && took >= slow && !long:
		return slog.LevelInfo, "slow request"
	case q.code >= http.StatusInternalServerError:
		return LevelFailedRequests, "failed request"
	case slow == 0 && took >= slowRequest && !long:
		return LevelFailedRequests, "slow request"
	}
	return LevelRequests, "request"
}

// log writes the line of a request that ends.
func (q *request) log() {
	if !q.timed {
		return
	}
	took := time.Since(q.start)
	level, why := q.logLevel(took)
	log, ctx := q.h.c.Log, context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	all := []slog.Attr{
		slog.String("verb", q.loggedVerb()), slog.String("URI", q.loggedURI()), slog.Int("resp", q.code),
		slog.Duration("latency", took), slog.String("audit-ID", q.auditID[0]), slog.String("userAgent", userAgent(q.r)), slog.String("srcIP", q.r.RemoteAddr),
	}
	if u := q.info.User; u != nil {
		all = append(all, slog.String("user", u.Name))
	}
	if q.typ != nil {
		all = append(all, slog.String("resource", q.info.Resource), slog.String("group", q.info.Group))
	}
	p := &q.parts
	if q.times != nil {
		p.admission, p.commit = q.times.Admission(), q.times.Commit()
	}
	for _, part := range [...]struct {
		name string
		d    time.Duration
	}{
		{"authentication", p.authentication}, {"impersonation", p.impersonation}, {"authorization", p.authorization}, {"queue", p.queue},
		{"body", p.body}, {"admission", p.admission}, {"commit", p.commit}, {"response", p.response},
	} {
		if part.d > 0 {
			all = append(all, slog.Duration(part.name, part.d))
		}
	}
	log.LogAttrs(ctx, level, why, all...)
}

// loggedParameters are the parameters of a query that the log shows. Others may be secret: clients put tokens into
// queries although no API reads them there.
var loggedParameters = []string{
	"allowWatchBookmarks", "dryRun", "fieldManager", "fieldSelector", "fieldValidation", "force", "labelSelector", "limit",
	"propagationPolicy", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeout", "timeoutSeconds", "watch",
}

// loggedURI returns the path of a known resource or document, with known parameters of the query.
func (q *request) loggedURI() string {
	served := q.code < http.StatusBadRequest || q.code >= http.StatusInternalServerError
	if q.typ == nil && !(q.isPage && served) {
		return "unknown"
	}
	uri, separator := q.path(), "?"
	if q.r.URL.RawQuery != "" && strings.Count(q.r.URL.RawQuery, "&") < maxParameters {
		v := q.query()
		for _, name := range loggedParameters {
			if v.Has(name) {
				uri += separator + name + "=" + url.QueryEscape(v.Get(name))
				separator = "&"
			}
		}
	}
	if len(uri) > logURIBytes {
		uri = uri[:logURIBytes] + cutOff
	}
	return uri
}

// loggedPath returns the path of a known resource, or of a document that cannot be served. Other paths may be secret.
func (q *request) loggedPath() string {
	if q.typ == nil && !q.isPage {
		return "unknown"
	}
	if path := q.path(); len(path) <= logURIBytes {
		return path
	}
	return q.path()[:logURIBytes] + cutOff
}

// loggedVerb returns the verb, unless a client has invented it.
func (q *request) loggedVerb() string {
	switch q.info.Verb {
	case verbGet, verbList, verbWatch, verbCreate, verbUpdate, verbPatch, verbDelete, verbDeleteCollection, "head", "options", "connect", "post", "put":
		return q.info.Verb
	}
	return "unknown"
}

// timing returns where the registry adds the time of admission and of the log; nil: it is not measured.
func (q *request) timing() *registry.Times {
	if q.timed && q.times == nil {
		q.times = new(registry.Times)
	}
	return q.times
}
