package admission_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestDurations checks which plugins and phases are counted, with which labels, and in how many buckets
// or quantiles.
func TestDurations(t *testing.T) {
	s, err := stores.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nothing := func(context.Context, *registry.Attributes) error { return nil }
	chain := []registry.Plugin{
		{Name: "A", Mutate: nothing, Validate: nothing},
		{Name: "B", Validate: func(_ context.Context, a *registry.Attributes) error {
			if a.Name == "bad" {
				return errors.New("no")
			}
			return nil
		}},
		{Mutate: nothing},
		{Name: "A", Validate: nothing},
	}
	d := admission.NewDurations(chain)
	r := &registry.Registry{Store: s, Plugins: chain, Observe: d.Observe}
	at := registry.Target{Type: builtin.Catalog().Lookup("", "v1", "namespaces")}
	for _, name := range []string{"good", "bad"} {
		r.Create(t.Context(), at, registry.Body{Media: wire.JSON, Bytes: []byte(`{"metadata":{"name":"` + name + `"}}`)}, registry.WriteOptions{})
	}
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(d)
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			count, parts := m.GetHistogram().GetSampleCount(), len(m.GetHistogram().GetBucket())
			if s := m.GetSummary(); s != nil {
				count, parts = s.GetSampleCount(), len(s.GetQuantile())
			}
			got = append(got, fmt.Sprintf("%s %s: %d in %d", strings.TrimPrefix(f.GetName(), "apiserver_admission_"), strings.Join(labels, " "), count, parts))
		}
	}
	want := `controller_admission_duration_seconds name=A operation=CREATE rejected=false type=admit: 2 in 6
controller_admission_duration_seconds name=A operation=CREATE rejected=false type=validate: 3 in 6
controller_admission_duration_seconds name=B operation=CREATE rejected=false type=validate: 1 in 6
controller_admission_duration_seconds name=B operation=CREATE rejected=true type=validate: 1 in 6
step_admission_duration_seconds operation=CREATE rejected=false type=admit: 2 in 6
step_admission_duration_seconds operation=CREATE rejected=false type=validate: 1 in 6
step_admission_duration_seconds operation=CREATE rejected=true type=validate: 1 in 6
step_admission_duration_seconds_summary operation=CREATE rejected=false type=admit: 2 in 3
step_admission_duration_seconds_summary operation=CREATE rejected=false type=validate: 1 in 3
step_admission_duration_seconds_summary operation=CREATE rejected=true type=validate: 1 in 3`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("metrics:\n%s\nwant\n%s", text, want)
	}
}
