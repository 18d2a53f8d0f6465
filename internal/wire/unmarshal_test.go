package wire_test

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// sameDecoding compares Decode with the field's own decoder.
func sameDecoding(t testing.TB, typ *resource.Type, body []byte) {
	t.Helper()
	d, err := wire.Decode(typ, wire.JSON, body)
	if err != nil {
		return // in the field's words: TestDecodeErrors
	}
	want := typ.New()
	strict, err := kjson.UnmarshalStrict(body, want)
	if err != nil || len(strict) != len(d.Strict) {
		t.Fatalf("%s: %.500s\ncomplaints %q, want %v, %v", typ.Kind, body, d.Strict, strict, err)
	}
	if !reflect.DeepEqual(d.Object, want) {
		t.Fatalf("%s: %.500s\n%s", typ.Kind, body, cmp.Diff(want, d.Object))
	}
}

// TestDecodeRandom: every kind with random content in every field is read as the
// field's decoder reads it, and the same when it is a stored value.
func TestDecodeRandom(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})                                                                           // for the objects of RawExtensions
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(int64(testrand.New(t).Uint64())), serializer.NewCodecFactory(scheme)).MaxDepth(14) // schemas hold schemas
	for typ := range builtin.Catalog().Types() {
		for range 20 {
			o := typ.New()
			filler.Fill(o)
			body, err := json.Marshal(o)
			if err != nil {
				continue // a value that has no JSON
			}
			sameDecoding(t, typ, body)
			stored, err := wire.Unmarshal(body, typ.New)
			want := typ.New()
			if wantErr := json.Unmarshal(body, want); (err == nil) != (wantErr == nil) {
				t.Fatalf("%s: %v, want %v", typ.Kind, err, wantErr)
			}
			if err == nil && !reflect.DeepEqual(stored, want) {
				t.Fatalf("%s as stored:\n%s", typ.Kind, cmp.Diff(want, stored))
			}
		}
	}
}

// FuzzUnmarshal checks that both decoders have the same result for text that both accept.
func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"a","labels":null,"creationTimestamp":null,"generation":1.0,"ownerReferences":[null]},"data":{"a":"YQ==","b":null}}`,
		`{"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"fieldsV1":{"f:a":{}},"time":"2026-01-01T00:00:00Z"}]}}`,
		`{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":1,"memory":"1Gi"}},"livenessProbe":{"httpGet":{"port":"http"}},"ports":[{"containerPort":8e1}]}]}}`,
		`{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":80}}}],"activeDeadlineSeconds":-0,"priority":2147483648}}`,
		`{"Metadata":{"NAME":"a"},"data":{"a":"YQ=\n="}}`, `{"data":{"a":"\ud800","a":[97]}}`, `{"data":{"":{}},"immutable":"true"}`,
		`{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"default":[1,1.5,{"a":null}],"additionalProperties":false,"items":[{"type":"x"}]}}}]}}`,
		`{"webhooks":[{"rules":[{"apiGroups":[],"operations":["*"]}],"timeoutSeconds":1e1}]}`, `{"raw":{"a":1},"revision":9223372036854775807}`,
		"\ufeff{}", `{} {}`, `null`, `[]`, `{"kind":1}`, `{"spec":null,"status":[]}`,
	} {
		for i := range 8 {
			f.Add(seed, i*9)
		}
	}
	all := slices.Collect(builtin.Catalog().Types())
	f.Fuzz(func(t *testing.T, body string, i int) {
		if strings.Count(body, "{")+strings.Count(body, "[") < 500 {
			sameDecoding(t, all[uint(i)%uint(len(all))], []byte(body))
		}
	})
}
