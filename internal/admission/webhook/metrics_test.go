package webhook

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/series"
)

// TestManyWebhooks: clients that create webhooks with new names again and again do not let the metrics
// grow.
func TestManyWebhooks(t *testing.T) {
	m := newMetrics()
	a := &registry.Attributes{Operation: "CREATE"}
	for i := range 2 * series.Most {
		h := &hook{name: fmt.Sprintf("w%d.example.com", i), phase: validating}
		m.called(h, a, 1, 200, false)
		m.rejected(h, a, "no_error", 403)
		m.failedOpen(h)
	}
	for _, c := range m.collectors() {
		if n := testutil.CollectAndCount(c); n == 0 || n > series.Most {
			t.Errorf("%d series", n)
		}
	}
}
