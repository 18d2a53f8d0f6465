package admission_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// BenchmarkPolicies creates Pods without policies, with three policies of ten validations each, and
// with as many policies that do not match.
func BenchmarkPolicies(b *testing.B) {
	types := map[string]*resource.Type{}
	for t := range builtin.Catalog().Types() {
		if t.Collection != "" && t.Conversion == nil {
			types[t.Collection] = t
		}
	}
	for _, c := range []struct {
		name, resource string
	}{{"none", ""}, {"three", "pods"}, {"unmatched", "secrets"}} {
		b.Run(c.name, func(b *testing.B) {
			ctx := context.Background()
			s, err := stores.Open(ctx, store.Options{Log: memlog.New()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			r := &registry.Registry{Store: s, Plugins: admission.Chain(admission.Config{Store: s, Catalog: builtin.Catalog})}
			by := &authn.User{Name: "jane", Groups: []string{"devs", authn.Authenticated}}
			create := func(collection, namespace, body string) {
				t := registry.Target{Type: types[collection], Namespace: namespace}
				if _, err := r.Create(ctx, t, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{FieldManager: "bench", By: by}); err != nil {
					b.Fatal(err)
				}
			}
			create("namespaces", "", `{"metadata":{"name":"n"}}`)
			for i := 0; i < 3 && c.resource != ""; i++ {
				create("validatingadmissionpolicies.admissionregistration.k8s.io", "", testkinds.PodPolicy(fmt.Sprint("p", i), c.resource, "{}"))
				create("validatingadmissionpolicybindings.admissionregistration.k8s.io", "", testkinds.DenyBinding(fmt.Sprint("p", i)))
			}
			create("pods", "n", testkinds.PlainPod("first"))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				create("pods", "n", testkinds.PlainPod(fmt.Sprint("web-", i)))
			}
		})
	}
}
