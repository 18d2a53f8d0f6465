package etcdvalue_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// benchPod returns a Pod as the store holds it, of about 5 KB.
func benchPod(b *testing.B) wire.Encoded {
	b.Helper()
	typ := storedTypes()[corev1.SchemeGroupVersion.WithKind("Pod")]
	var pod corev1.Pod
	for _, o := range testkinds.Objects(b, templates, "x", rand.New(rand.NewPCG(1, 1))) {
		if o["kind"] == "Pod" {
			text, err := json.Marshal(o)
			if err != nil {
				b.Fatal(err)
			}
			if err := json.Unmarshal(text, &pod); err != nil {
				b.Fatal(err)
			}
		}
	}
	typ.Strategy.Default(&pod)
	pod.Spec.Containers, pod.Spec.Volumes = pod.Spec.Containers[:1], pod.Spec.Volumes[:2]
	pod.Spec.InitContainers, pod.Spec.EphemeralContainers, pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints = nil, nil, nil, nil
	for i := 0; ; i++ {
		e, err := wire.Encode(typ, &pod)
		if err != nil {
			b.Fatal(err)
		}
		if len(e.Bytes) >= 5<<10 {
			return e
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, fmt.Sprint("annotation-", i), "some text that an annotation may have")
	}
}

// benchCustom returns a custom resource as the store holds it, of about 5 KB.
func benchCustom(b *testing.B) wire.Encoded {
	b.Helper()
	var c etcdvalue.Codec
	for _, g := range goldens(b) {
		if g.Case == "written" && g.Collection == "pandas.awesome.example" {
			o := tree(b, g.Value)
			for i := range 60 {
				o[fmt.Sprint("member-", i)] = map[string]any{"name": "some text", "count": i, "list": []any{"a", "b"}}
			}
			text, err := json.Marshal(o)
			if err != nil {
				b.Fatal(err)
			}
			d, err := c.Decode(g.Collection, text)
			if err != nil {
				b.Fatal(err)
			}
			return wire.Encoded{Bytes: d.JSON, RevisionAt: d.RevisionAt}
		}
	}
	b.Fatal("there is no custom resource")
	return wire.Encoded{}
}

// benched are the objects of the benchmarks.
var benched = []struct {
	name, collection string
	object           func(*testing.B) wire.Encoded
}{{"pod", "pods", benchPod}, {"custom", "pandas.awesome.example", benchCustom}}

func BenchmarkDecode(b *testing.B) {
	for _, o := range benched {
		b.Run(o.name, func(b *testing.B) {
			var c etcdvalue.Codec
			e := o.object(b)
			value, err := c.Encode(o.collection, e.Bytes, e.RevisionAt)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Decode(o.collection, value); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(e.Bytes)), "JSON-bytes")
			b.ReportMetric(float64(len(value)), "stored-bytes")
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, o := range benched {
		b.Run(o.name, func(b *testing.B) {
			var c etcdvalue.Codec
			e := o.object(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Encode(o.collection, e.Bytes, e.RevisionAt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
