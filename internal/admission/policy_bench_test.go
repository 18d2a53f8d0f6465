package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// podValidations are ten validations of Pods as clusters have them. They hold for benchPod.
var podValidations = []string{
	"object.spec.containers.all(c, has(c.image) && !c.image.endsWith(':latest'))",
	"object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",
	"!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
	"!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
	"has(object.metadata.labels) && 'app' in object.metadata.labels",
	"object.metadata.name.size() < 64",
	"request.operation == 'CREATE'",
	"object.spec.containers.all(c, has(c.resources) && has(c.resources.requests) && 'cpu' in c.resources.requests)",
	"object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
	"!has(object.spec.priorityClassName) || object.spec.priorityClassName in ['low', 'high']",
}

const benchPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","labels":{"app":"web","tier":"front"},"annotations":{"a":"b"}},
"spec":{"containers":[{"name":"app","image":"registry.example.com/web:1.2","resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"ports":[{"containerPort":80}],
"env":[{"name":"A","value":"b"}],"securityContext":{"runAsNonRoot":true}},{"name":"side","image":"registry.example.com/side:1.2","resources":{"requests":{"cpu":"100m"}}}],
"volumes":[{"name":"v","emptyDir":{}}]}}`

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
			s, err := store.Open(ctx, store.Options{Log: memlog.New()})
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
				create("validatingadmissionpolicies.admissionregistration.k8s.io", "", benchPolicy(i, c.resource))
				create("validatingadmissionpolicybindings.admissionregistration.k8s.io", "", fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"policyName":"p%d","validationActions":["Deny"]}}`, i, i))
			}
			create("pods", "n", fmt.Sprintf(benchPod, 1_000_000_000))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				create("pods", "n", fmt.Sprintf(benchPod, i))
			}
		})
	}
}

func benchPolicy(i int, resource string) string {
	var all []string
	for _, text := range podValidations {
		quoted, _ := json.Marshal(text)
		all = append(all, fmt.Sprintf(`{"expression":%s}`, quoted))
	}
	return fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":[%q]}]},"validations":[%s]}}`,
		i, resource, strings.Join(all, ","))
}
