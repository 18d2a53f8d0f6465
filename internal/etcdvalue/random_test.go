package etcdvalue_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestRandom checks that the first decoding of a random message of each kind adds missing fields.
// From then on, decoding and encoding change nothing, as kube-apiserver expects of a no-op update.
func TestRandom(t *testing.T) {
	r := testrand.New(t)
	fill := filler(r)
	var c etcdvalue.Codec
	for kind, typ := range storedTypes() {
		if kind.Kind == "CustomResourceDefinition" || kind.Kind == "APIService" {
			continue // stored as JSON: TestGoldenSparse has them
		}
		for range 20 {
			o := typ.New()
			fill.Fill(o)
			o.(metav1.Object).SetResourceVersion("")
			raw, err := wire.Message(o)
			if err != nil {
				t.Fatal(err)
			}
			version := kind.GroupVersion()
			for _, s := range etcdvalue.Builtins() {
				if s.Collection == typ.Collection {
					version = s.Kind.GroupVersion()
				}
			}
			value := wire.AppendEnvelope(nil, metav1.TypeMeta{Kind: kind.Kind, APIVersion: version.String()}, raw)
			first, err := c.Decode(typ.Collection, value)
			if err != nil {
				t.Fatalf("%s: %v", typ.Collection, err)
			}
			if value, err = c.Encode(typ.Collection, first.JSON, first.RevisionAt); err != nil {
				t.Fatalf("%s: %v", typ.Collection, err)
			}
			second, err := c.Decode(typ.Collection, value)
			if err != nil || second.Outdated || second.RevisionAt != first.RevisionAt || !bytes.Equal(second.JSON, first.JSON) {
				t.Errorf("%s, decoded again, %v:\n got %s\nwant %s", typ.Collection, err, second.JSON, first.JSON)
			}
			if again, err := c.Encode(typ.Collection, second.JSON, second.RevisionAt); err != nil || !bytes.Equal(again, value) {
				t.Errorf("%s, encoded again, %v:\n got %q\nwant %q", typ.Collection, err, again, value)
			}
		}
	}
}

type source struct{ *rand.Rand }

func (s source) Int63() int64 { return s.Int64() }
func (s source) Seed(int64)   {}

func filler(r *rand.Rand) *randfill.Filler {
	word := func() string { return []string{"a", "b", "c", "d<", "e \"f\\", "ü\u2028"}[r.IntN(6)] }
	return randfill.New().RandSource(source{r}).NilChance(0.3).NumElements(0, 3).MaxDepth(10).Funcs(
		func(s *string, _ randfill.Continue) { *s = word() },
		func(t *metav1.Time, _ randfill.Continue) { *t = metav1.Unix(r.Int64N(2_000_000_000), 0) },
		func(t *metav1.MicroTime, _ randfill.Continue) {
			*t = metav1.NewMicroTime(time.Unix(r.Int64N(2_000_000_000), r.Int64N(1_000_000)*1000))
		},
		func(d *metav1.Duration, _ randfill.Continue) {
			d.Duration = time.Duration(r.IntN(9_000_000)) * time.Microsecond
		},
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = resource.MustParse([]string{"1", "100m", "2Gi", "1500m", "1e3", "0", "12345678901234567890"}[r.IntN(7)])
		},
		func(v *intstr.IntOrString, _ randfill.Continue) {
			*v = []intstr.IntOrString{intstr.FromInt32(3), intstr.FromInt32(0), intstr.FromString("x"), intstr.FromString("")}[r.IntN(4)]
		},
		func(e *runtime.RawExtension, _ randfill.Continue) { e.Raw = []byte(`{"a":{"b":[1]}}`) },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawBytes([]byte(`{"f:a":{}}`)) },
	)
}

// TestDamaged: a damaged value is an error or an object, also one of an earlier release. It does not end the process.
func TestDamaged(t *testing.T) {
	r := testrand.New(t)
	fill := filler(r)
	var c etcdvalue.Codec
	var values []golden
	for _, g := range goldens(t) {
		if g.Case == "written" || g.Case == "version" && g.Code == http.StatusOK {
			values = append(values, g)
		}
	}
	for kind, typ := range storedTypes() { // messages of v1, whose fields have other types
		if kind.Group != "resource.k8s.io" {
			continue
		}
		for range 5 {
			o := typ.New()
			fill.Fill(o)
			raw, err := wire.Message(o)
			if err != nil {
				t.Fatal(err)
			}
			value := wire.AppendEnvelope(nil, metav1.TypeMeta{Kind: kind.Kind, APIVersion: "resource.k8s.io/v1beta1"}, raw)
			values = append(values, golden{Collection: typ.Collection, Value: value})
		}
	}
	for _, g := range values {
		for range 40 {
			value := bytes.Clone(g.Value)
			for range 1 + r.IntN(3) {
				switch at := r.IntN(len(value)); r.IntN(4) {
				case 0:
					value = value[:at+1]
				case 1:
					value[at] ^= 1 << r.IntN(8)
				case 2:
					value[at] = byte(r.Uint32())
				case 3:
					n := r.IntN(min(8, len(value)-at))
					value = append(value[:at:at], value[at+n:]...)
				}
				if len(value) == 0 {
					break
				}
			}
			d, err := c.Decode(g.Collection, value)
			if err != nil {
				continue
			}
			if d.RevisionAt <= 0 || !bytes.HasSuffix(d.JSON[:d.RevisionAt], []byte(`"resourceVersion":"`)) {
				t.Fatalf("%s: no place for the revision in %s", g, d.JSON)
			}
			// A year of five digits, which protobuf can have, has no form that JSON can be read from.
			if _, err := c.Encode(g.Collection, d.JSON, d.RevisionAt); err != nil && !errors.As(err, new(*time.ParseError)) {
				t.Errorf("%s: %v; %s", g, err, d.JSON)
			}
		}
	}
}
