package registry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const owned = `"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"o1","blockOwnerDeletion":true},{"apiVersion":"v1","kind":"Node","name":"b","uid":"o2"}]`

func TestMetadata(t *testing.T) {
	const managed = `"managedFields":[{"manager":"x","fieldsV1":{"f:metadata":{"f:ownerReferences":{}}}}]`
	for _, c := range []struct {
		name, value string
		uid         string
		deleting    bool
		owners      int
		finalizers  int
	}{
		{"nothing", `{"kind":"A","metadata":{}}`, "", false, 0, 0},
		{"no metadata", `{"kind":"A"}`, "", false, 0, 0},
		{"in the order of a Go type", `{"kind":"A","metadata":{"name":"n","uid":"u","deletionTimestamp":"t",` + owned + `,"finalizers":["f"],` + managed + `},"spec":{"uid":"other"}}`, "u", true, 2, 1},
		{"in the order of the alphabet", `{"kind":"A","metadata":{"finalizers":["f","g"],` + managed + `,"name":"n",` + owned + `,"uid":"u"}}`, "u", false, 2, 2},
		{"with space", "{ \"metadata\" :\n { \"uid\" : \"u\" , \"finalizers\" : [ \"f\" ] } }", "u", false, 0, 1},
		{"elsewhere only", `{"metadata":{"uid":"u","labels":{"deletionTimestamp":"x"}},"spec":{"template":{"metadata":{` + owned + `}}}}`, "u", false, 0, 0},
		{"empty", `{"metadata":{"uid":"","ownerReferences":[],"finalizers":null,"deletionTimestamp":null}}`, "", false, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := registry.MetadataOf(&store.Object{Held: []byte(c.value)})
			owners, err := m.Owners()
			if err != nil {
				t.Error(err)
			}
			finalizers, err := m.FinalizerNames()
			if err != nil {
				t.Error(err)
			}
			if string(m.UID) != c.uid || m.Deleting != c.deleting || len(owners) != c.owners || len(finalizers) != c.finalizers {
				t.Errorf("got uid %q, deleting %t, %d owners, %d finalizers", m.UID, m.Deleting, len(owners), len(finalizers))
			}
		})
	}
	for value, want := range map[string]bool{
		`{}`: false,
		`{"deletionTimestamp":"t","deletionGracePeriodSeconds":0}`:                      true,
		`{"deletionTimestamp":"t"}`:                                                     true,
		`{"deletionTimestamp":"t","deletionGracePeriodSeconds":30}`:                     false,
		`{"deletionTimestamp":"t","deletionGracePeriodSeconds":0,"finalizers":["a.b"]}`: false,
	} {
		if m := registry.MetadataOf(&store.Object{Held: []byte(`{"metadata":` + value + `}`)}); m.HalfGone() != want {
			t.Errorf("half gone: %t of %s", !want, value)
		}
	}
	if m := registry.MetadataOf(nil); m.UID != nil || m.Deleting {
		t.Errorf("nothing has %+v", m)
	}
}

// FuzzMetadata compares MetadataOf with a decoder, and checks that it reads nothing beyond the end.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"metadata":{"uid":"u","deletionTimestamp":"t",` + owned + `,"finalizers":["f"]}}`))
	f.Add([]byte(`{"metadata":{"uid":"u"`))
	f.Add([]byte(`{"metadata":{"finalizers":["a]\"`))
	f.Fuzz(func(t *testing.T, value []byte) {
		registry.MetadataOf(&store.Object{Held: value}) // whatever it finds
		var object map[string]any
		if json.Unmarshal(value, &object) != nil {
			return
		}
		again, err := json.Marshal(object) // valid, and each member once
		if err != nil {
			return
		}
		m := registry.MetadataOf(&store.Object{Held: again})
		metadata, _ := object["metadata"].(map[string]any)
		if uid, ok := metadata["uid"].(string); ok && uid != "" {
			var got string
			if err := json.Unmarshal(fmt.Appendf(nil, `"%s"`, m.UID), &got); err != nil || got != uid {
				t.Errorf("uid %q, want %q in %s", m.UID, uid, again)
			}
		}
		if references, ok := metadata["ownerReferences"].([]any); ok && len(references) > 0 {
			var got []any
			if err := json.Unmarshal(m.OwnerReferences, &got); err != nil || len(got) != len(references) {
				t.Errorf("owners %s, want %v", m.OwnerReferences, references)
			}
		}
	})
}

// BenchmarkMetadata measures the cost for controllers of each version of a pod.
func BenchmarkMetadata(b *testing.B) {
	fields := strings.Repeat(`"f:x":{".":{},"f:name":{},"f:resources":{}},`, 60)
	o := &store.Object{Held: []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","namespace":"ns","uid":"u","resourceVersion":"1","labels":{"a":"b"},` +
		owned + `,"managedFields":[{"manager":"x","fieldsV1":{` + fields[:len(fields)-1] + `}}]},"spec":{}}`)}
	b.SetBytes(int64(len(o.Bytes())))
	b.ReportAllocs()
	for b.Loop() {
		if registry.MetadataOf(o).OwnerReferences == nil {
			b.Fatal("no owners")
		}
	}
}
