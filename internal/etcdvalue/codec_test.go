package etcdvalue_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// templates has an object of each kind.
const templates = "../../test/kinds/testdata/objects"

// storedTypes returns the versions that the store holds, by kind.
func storedTypes() map[schema.GroupVersionKind]*resource.Type {
	all := map[schema.GroupVersionKind]*resource.Type{}
	for t := range builtin.Catalog().Types() {
		if t.Collection != "" && t.Conversion == nil {
			all[t.GroupVersionKind()] = t
		}
	}
	return all
}

// TestTemplates checks that stored objects are the same bytes after a conversion to etcd's form and
// back.
func TestTemplates(t *testing.T) {
	var c etcdvalue.Codec
	types := storedTypes()
	seen := map[string]bool{}
	for _, object := range testkinds.Objects(t, templates, "x", rand.New(rand.NewPCG(1, 2))) {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		head, err := wire.TypeMeta(text)
		if err != nil {
			t.Fatal(err)
		}
		typ := types[schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)]
		if typ == nil {
			continue // a version that is converted before it is stored
		}
		seen[typ.Collection] = true
		o, err := wire.Unmarshal(text, typ.New)
		if err != nil {
			t.Fatal(err)
		}
		if typ.Strategy.Default != nil {
			typ.Strategy.Default(o)
		}
		o.(metav1.Object).SetUID("u-1")
		e, err := wire.Encode(typ, o)
		if err != nil {
			t.Fatal(err)
		}
		value, err := c.Encode(typ.Collection, e.Bytes, e.RevisionAt)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Decode(typ.Collection, value)
		if err != nil {
			t.Fatal(err)
		}
		if got.Outdated {
			t.Errorf("%s: outdated", typ.Collection)
		}
		if got.RevisionAt != e.RevisionAt || !sameButNormalized(t, typ, got.JSON, e.Bytes) {
			t.Errorf("%s, %d:\n got %s\nwant %s", typ.Collection, e.RevisionAt, got.JSON, e.Bytes)
		}
		again, err := c.Encode(typ.Collection, got.Object("x", 1, 12345).Bytes(), got.RevisionAt)
		if err != nil {
			t.Fatal(err)
		}
		if first, _ := c.Encode(typ.Collection, got.JSON, got.RevisionAt); !bytes.Equal(again, first) {
			t.Errorf("%s: with a revision\n got %q\nwant %q", typ.Collection, again, first)
		}
	}
	for _, typ := range types {
		if !seen[typ.Collection] && typ.Collection != "customresourcedefinitions.apiextensions.k8s.io" {
			t.Errorf("no template for %s", typ.Collection)
		}
	}
}

// sameButNormalized compares the bytes. Parts that are completed on reading may differ.
func sameButNormalized(t *testing.T, typ *resource.Type, got, want []byte) bool {
	switch typ.Kind {
	case "Service", "PersistentVolumeClaim":
		return true // golden files have them
	case "CustomResourceDefinition":
		return reflect.DeepEqual(tree(t, got), tree(t, want))
	}
	return bytes.Equal(got, want)
}

func tree(t testing.TB, text []byte) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestRangeAllocation: the bitmap of node ports, as kube-apiserver wrote it when 30003 was allocated, is
// stored in the same bytes.
func TestRangeAllocation(t *testing.T) {
	value, err := base64.StdEncoding.DecodeString("azhzAAoVCgJ2MRIPUmFuZ2VBbGxvY2F0aW9uEiIKEAoAEgAaACIAKgAyADgAQgASCzMwMDAwLTMyNzY3GgEIGgAiAA==")
	if err != nil {
		t.Fatal(err)
	}
	var c etcdvalue.Codec
	d, err := c.Decode("ranges", value)
	if err != nil || d.Outdated {
		t.Fatal(d.Outdated, err)
	}
	if want := `"range":"30000-32767","data":"CA=="`; !strings.Contains(string(d.JSON), want) {
		t.Errorf("got %s, want %s in it", d.JSON, want)
	}
	if again, err := c.Encode("ranges", d.JSON, d.RevisionAt); err != nil || !bytes.Equal(again, value) {
		t.Errorf("got %q, %v, want %q", again, err, value)
	}
}
