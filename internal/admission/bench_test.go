package admission_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// BenchmarkCreate creates in a namespace that has no LimitRanges and no ResourceQuotas,
// without and with the plugins, and in one that has them.
func BenchmarkCreate(b *testing.B) {
	types := map[string]*resource.Type{}
	for t := range builtin.Catalog().Types() {
		if t.Collection != "" && t.Conversion == nil {
			types[t.Collection] = t
		}
	}
	bodies := map[string]string{
		"configmaps": `{"metadata":{"name":"o%d"},"data":{"k":"v"}}`,
		"pods":       `{"metadata":{"name":"o%d"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"100m","memory":"1Mi"},"limits":{"cpu":"100m","memory":"1Mi"}}}]}}`,
	}
	for _, collection := range []string{"configmaps", "pods"} {
		for _, c := range []struct {
			name    string
			disable []string
			objects map[string]string
		}{
			{name: "off", disable: []string{"LimitRanger", "ResourceQuota"}},
			{name: "none"},
			{name: "limits", objects: map[string]string{"limitranges": limited}},
			{name: "quota", objects: map[string]string{"resourcequotas": `{"metadata":{"name":"q"},"spec":{"hard":{"pods":"1000000000","requests.cpu":"1000000000","configmaps":"1000000000"}}}`}},
		} {
			b.Run(collection+"/"+c.name, func(b *testing.B) {
				ctx := context.Background()
				s, err := stores.Open(ctx, store.Options{Log: memlog.New()})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				plugins, err := admission.Choose(nil, c.disable)
				if err != nil {
					b.Fatal(err)
				}
				ledger := &quota.Ledger{Quotas: types["resourcequotas"]}
				chain := admission.Chain(admission.Config{Store: s, Enabled: plugins, Quotas: ledger})
				r := &registry.Registry{Store: s, Plugins: chain, Observe: admission.NewDurations(chain).Observe}
				create := func(collection, namespace, body string) {
					t := registry.Target{Type: types[collection], Namespace: namespace}
					if _, err := r.Create(ctx, t, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{FieldManager: "bench"}); err != nil {
						b.Fatal(err)
					}
				}
				create("namespaces", "", `{"metadata":{"name":"n"}}`)
				for collection, body := range c.objects {
					create(collection, "n", body)
				}
				if len(c.objects["resourcequotas"]) > 0 {
					if _, err := ledger.Recount(ctx, r, "n", "q", "bench"); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					create(collection, "n", fmt.Sprintf(bodies[collection], i))
				}
			})
		}
	}
}
