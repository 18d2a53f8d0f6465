package admission_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-dev/tidemark/internal/admission/policy"
	"github.com/tidemark-dev/tidemark/internal/series"
)

// TestManyPolicyNames: clients that create policies and bindings with new names again and again do not let the
// metrics grow.
func TestManyPolicyNames(t *testing.T) {
	m := policy.NewMetrics(policy.MetricsOptions{Prefix: "p_", Labels: []string{"enforcement_action"}})
	for i := range 2 * series.Most {
		m.Observe(policy.Check{Policy: fmt.Sprint("p", i), Binding: fmt.Sprint("b", i), ErrorType: policy.NoError, Labels: []string{"deny"}, Took: 1})
	}
	for _, c := range m.Collectors() {
		if n := testutil.CollectAndCount(c); n == 0 || n > series.Most {
			t.Errorf("%d series", n)
		}
	}
}
