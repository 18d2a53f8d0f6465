package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// BenchmarkEvents writes an event for a pod of about 2 KB: to the first watcher of a version,
// and to one more watcher.
func BenchmarkEvents(b *testing.B) {
	typ := builtin.Catalog().Lookup("", "v1", "pods")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "default", CreationTimestamp: metav1.Now(), Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"x": strings.Repeat("f:metadata f:labels ", 40)}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:v1", Args: []string{"--listen=:8080", strings.Repeat("a", 500)}}}}}
	e, err := wire.Encode(typ, pod)
	if err != nil || !json.Valid(e.Bytes) {
		b.Fatal(err)
	}
	for _, f := range []struct {
		name string
		out  wire.Output
	}{
		{"json", wire.Output{Media: wire.JSON}},
		{"protobuf", wire.Output{Media: wire.Protobuf}},
		{"cbor", wire.Output{Media: wire.CBOR}},
		{"table", wire.Output{Media: wire.JSON, Form: wire.Table}},
		{"metadata", wire.Output{Media: wire.JSON, Form: wire.Partial}},
		{"metadata-protobuf", wire.Output{Media: wire.Protobuf, Form: wire.Partial}},
	} {
		for _, again := range []bool{false, true} {
			b.Run(f.name+map[bool]string{false: "/first", true: "/again"}[again], func(b *testing.B) {
				s := &shape{cache: newCache(32<<20, func(int64) bool { return true }), typ: typ, out: f.out, binary: f.out.Binary(), head: wire.Head(typ), include: metav1.IncludeMetadata, now: time.Now()}
				event := registry.Event{Type: registry.Modified, Object: &store.Object{Key: "default/web-0", Held: e.Bytes, Created: 1, Modified: 1}}
				var buf []byte
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if !again {
						event.Object = &store.Object{Key: "default/web-0", Held: e.Bytes, Created: 1, Modified: store.Revision(i + 2)}
					}
					var err error
					if buf, err = s.event(buf[:0], &event); err != nil {
						b.Fatal(err)
					}
				}
				b.SetBytes(int64(len(buf)))
			})
		}
	}
}
