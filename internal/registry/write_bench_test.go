package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// benchPod is a pod of about 2 KB as a controller makes it.
func benchPod(name string) string {
	const probe = `{"httpGet":{"path":"/livez","port":"http"},"initialDelaySeconds":5,"periodSeconds":10}`
	container := func(name string) string {
		return `{"name":"` + name + `","image":"registry.example.com/shop/web:v1","args":["--listen=:8080","--log-level=info"],` +
			`"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,"protocol":"TCP"}],` +
			`"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"DATABASE_URL","value":"postgres://shop-db.example.com:5432/shop"}],` +
			`"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"livenessProbe":` + probe + `,"readinessProbe":` + probe + `}`
	}
	return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"` + name + `","labels":{"app.kubernetes.io/instance":"web-7","app.kubernetes.io/name":"web","app.kubernetes.io/part-of":"shop","pod-template-hash":"5c689d88bb"},` +
		`"annotations":{"checksum/config":"0000","prometheus.io/port":"8080","prometheus.io/scrape":"true"}},` +
		`"spec":{"containers":[` + container("web") + "," + container("side") + `],"terminationGracePeriodSeconds":30,` +
		`"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]},"status":{}}`
}

// BenchmarkWrite measures the verbs with a log in memory.
func BenchmarkWrite(b *testing.B) {
	ctx := context.Background()
	run := func(name string, o registry.WriteOptions, do func(s *server, i int, o registry.WriteOptions) error) {
		b.Run(name, func(b *testing.B) {
			s := newServer(b, store.Options{})
			s.create("pods", "default", benchPod("there"))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := do(s, i, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("create-configmap", registry.WriteOptions{FieldManager: "bench"}, func(s *server, i int, o registry.WriteOptions) error {
		text := configMap(fmt.Sprintf("c%d", i), "l", strings.Repeat("x", 1000))
		_, err := s.Create(ctx, s.target("configmaps", "default", ""), body(text), o)
		return err
	})
	run("create-pod", registry.WriteOptions{FieldManager: "bench"}, func(s *server, i int, o registry.WriteOptions) error {
		_, err := s.Create(ctx, s.target("pods", "default", ""), body(benchPod(fmt.Sprintf("p%d", i))), o)
		return err
	})
	run("update-pod", registry.WriteOptions{FieldManager: "bench"}, func(s *server, i int, o registry.WriteOptions) error {
		was := s.Store.Any().Get("pods", "default/there").Bytes()
		from := strings.Index(string(was), `"checksum/config":"`) + len(`"checksum/config":"`)
		text := fmt.Sprintf("%s%04d%s", was[:from], (i+1)%10000, was[from+4:])
		_, err := s.Update(ctx, s.target("pods", "default", "there"), body(text), o)
		return err
	})
	run("patch-status", registry.WriteOptions{FieldManager: "bench"}, func(s *server, i int, o registry.WriteOptions) error {
		t := s.target("pods", "default", "there")
		t.Subresource = "status"
		p := registry.Patch{Type: types.StrategicMergePatchType, Bytes: fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","message":"%d"}]}}`, i)}
		_, err := s.Patch(ctx, t, p, o)
		return err
	})
}
