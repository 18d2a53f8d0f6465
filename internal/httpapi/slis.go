package httpapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/exposition"
)

// slisPath has the metrics about health checks, for a scrape in short intervals.
const slisPath = "/metrics/slis"

// healthchecks has the results of health checks since the start. Its zero value is ready, and safe for concurrent use.
type healthchecks struct {
	mu  sync.Mutex
	all map[healthcheck]*results // of checks that were probed
}

// healthcheck is a check of /healthz, /livez or /readyz.
type healthcheck struct{ name, kind string }

// results are those of a check.
type results struct {
	healthy           bool // at last
	succeeded, failed uint64
}

// done counts the result of a check.
func (h *healthchecks) done(c healthcheck, healthy bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[healthcheck]*results{}
	}
	r := h.all[c]
	if r == nil {
		r = new(results)
		h.all[c] = r
	}
	if r.healthy = healthy; healthy {
		r.succeeded++
	} else {
		r.failed++
	}
}

// ServeHTTP responds with the metrics.
func (h *healthchecks) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Type"] = []string{exposition.ContentType}
	out := exposition.NewWriter(w)
	h.expose(out)
	if out.Close() != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
}

func (h *healthchecks) expose(w *exposition.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sorted := slices.SortedFunc(maps.Keys(h.all), func(a, b healthcheck) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.kind, b.kind))
	})
	w.Family("kubernetes_healthcheck", exposition.GaugeKind, "1 if the health check succeeded when it was probed last, 0 if it failed.")
	for _, c := range sorted {
		value := 0.0
		if h.all[c].healthy {
			value = 1
		}
		w.Float(exposition.Labels("name", c.name, "type", c.kind), value)
	}
	w.Family("kubernetes_healthchecks_total", exposition.CounterKind, "Probes of a health check, by their result.")
	for _, c := range sorted {
		for status, n := range map[string]uint64{"success": h.all[c].succeeded, "error": h.all[c].failed} {
			if n > 0 {
				w.Uint(exposition.Labels("name", c.name, "status", status, "type", c.kind), n)
			}
		}
	}
}
