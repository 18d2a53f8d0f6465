package httpapi_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// accepts are the representations that are asked for often.
var accepts = []struct{ name, accept string }{
	{"json", "application/json"},
	{"protobuf", "application/vnd.kubernetes.protobuf"},
	{"cbor", "application/cbor"},
	{"table", "application/json;as=Table;g=meta.k8s.io;v=v1"},
	{"metadata", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
	{"metadata-protobuf", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
}

// aPod is about 3 KB, as a Deployment would make it and a kubelet would report it.
func aPod(i int) string {
	return fmt.Sprintf(`{"metadata":{"name":"web-5c689d88bb-%05d","labels":{"app":"web","pod-template-hash":"5c689d88bb"},"annotations":{"checksum/config":%q}},
		"spec":{"nodeName":"n%d","serviceAccountName":"default","automountServiceAccountToken":false,"terminationGracePeriodSeconds":30,"containers":[{"name":"web","image":"registry.example.com/web:v1.%d",
		"args":["--listen=:8080","--config=/etc/web/config.yaml"],"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],
		"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"DATABASE_URL","value":"postgres://db:5432/shop"}],
		"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},
		"volumeMounts":[{"name":"config","mountPath":"/etc/web","readOnly":true}],
		"livenessProbe":{"httpGet":{"path":"/livez","port":"http"},"periodSeconds":10},
		"securityContext":{"allowPrivilegeEscalation":false,"runAsNonRoot":true,"capabilities":{"drop":["ALL"]}}}],
		"volumes":[{"name":"config","configMap":{"name":"web-config"}}]}}`, i, strings.Repeat(fmt.Sprint(i), 8), i%50, i%7)
}

// podServer is a handler over a store with n pods.
func podServer(t testing.TB, n int) (*httpapi.Handler, func(i int)) {
	t.Helper()
	c := newConfig(newStore(t))
	create := func(resource, ns, body string) {
		target := registry.Target{Type: builtin.Catalog().Lookup("", "v1", resource), Namespace: ns}
		if _, err := c.Registry.Create(context.Background(), target, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("namespaces", "", `{"metadata":{"name":"default"}}`)
	for i := range n {
		create("pods", "default", aPod(i))
	}
	withCBOR(&c)
	c.Now = func() time.Time { return time.Now().Add(24 * time.Hour) } // the pods are not new
	h := httpapi.New(c)
	t.Cleanup(h.Drain)
	return h, func(i int) { create("pods", "default", aPod(i)) }
}

// BenchmarkRepresentations lists 10,000 pods, the first time, when nothing is kept,
// and again.
func BenchmarkRepresentations(b *testing.B) {
	const pods = 10_000
	for _, encoding := range []string{"identity", "gzip"} {
		for _, a := range accepts {
			for _, again := range []bool{false, true} {
				name := encoding + "/" + a.name + map[bool]string{false: "/first", true: "/again"}[again]
				b.Run(name, func(b *testing.B) {
					h, _ := podServer(b, pods)
					w, r := &discard{header: map[string][]string{}}, getRequest("/api/v1/pods")
					r.Header.Set("Accept", a.accept)
					r.Header.Set("Accept-Encoding", encoding)
					if again {
						h.ServeHTTP(w, r)
					} else if b.N > 1 {
						b.Skip("there is one first time: -benchtime 1x")
					}
					var before, after runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&before)
					b.ResetTimer()
					spent := testkinds.CPUTime()
					for range b.N {
						w.reset()
						h.ServeHTTP(w, r)
					}
					b.StopTimer()
					runtime.ReadMemStats(&after)
					if w.code != 200 {
						b.Fatal(w.code)
					}
					n := float64(b.N) * pods
					b.ReportMetric(float64((testkinds.CPUTime()-spent).Nanoseconds())/n, "cpu-ns/object")
					b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B-made/object")
					b.ReportMetric(float64(w.bytes)/pods, "B-sent/object")
					runtime.GC()
					runtime.ReadMemStats(&after)
					b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/pods, "B-kept/object")
				})
			}
		}
	}
}
