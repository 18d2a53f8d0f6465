package bench

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// goRuntime holds the memory metrics that a server written in Go exposes at /metrics. If
// the server has several processes, they describe the one that responds.
type goRuntime struct {
	live, gogc, memoryLimit float64 // bytes after the last collection, percent, bytes
	mark                    float64 // seconds of CPU for marking, so far
}

// liveHeap is the required metric: without it the others are ignored.
const liveHeap = "go_gc_heap_live_bytes"

// goRuntime requests it from the server; nil: the server does not report it.
func (b *bed) goRuntime(ctx context.Context) *goRuntime {
	if b.admin == nil || b.silent {
		return nil
	}
	var g goRuntime
	told := false
	resp, err := b.admin.send(ctx, http.MethodGet, b.target.url("/metrics", ""), b.target.header("text/plain", "identity"), nil)
	if err == nil {
		defer resp.Body.Close()
		lines := bufio.NewScanner(io.LimitReader(resp.Body, 64<<20))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			name, text, _ := strings.Cut(lines.Text(), " ")
			value, err := strconv.ParseFloat(text, 64)
			switch {
			case err != nil:
			case name == liveHeap:
				told, g.live = true, value
			case name == "go_gc_gogc_percent":
				g.gogc = value
			case name == "go_gc_gomemlimit_bytes":
				g.memoryLimit = value
			case strings.HasPrefix(name, "go_cpu_classes_gc_mark_") && strings.HasSuffix(name, "_cpu_seconds_total"):
				g.mark += value
			}
		}
	}
	if !told {
		b.silent = true // it is not asked again
		return nil
	}
	return &g
}
