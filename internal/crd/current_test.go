package crd

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// withDefaults gives some members of a schema defaults.
func withDefaults(r *rand.Rand, p *props) {
	for name, member := range p.Properties {
		withDefaults(r, &member)
		if r.IntN(8) == 0 {
			member.Default = &apiextensionsv1.JSON{Raw: []byte(`"d"`)}
		}
		p.Properties[name] = member
	}
	if inner := innerOf(p); inner != nil {
		withDefaults(r, inner)
	}
}

func innerOf(p *props) *props {
	switch {
	case p.Items != nil:
		return p.Items.Schema
	case p.AdditionalProperties != nil:
		return p.AdditionalProperties.Schema
	}
	return nil
}

// withMore adds unknown members.
func withMore(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = withMore(r, member)
		}
		if r.IntN(12) == 0 {
			v[one(r, "z", "metadata", "kind")] = one(r, any("more"), any(map[string]any{"a": "b"}), any([]any{nil}))
		}
	case []any:
		for i := range v {
			v[i] = withMore(r, v[i])
		}
	}
	return v
}

// TestAlreadyCurrentLikeLibrary checks that the library neither prunes nor defaults an object that
// needs neither by this package.
func TestAlreadyCurrentLikeLibrary(t *testing.T) {
	r := testrand.New(t)
	found, same := 0, 0
	for range 3000 {
		p := randomSchema(r, 3)
		p.Type, p.XIntOrString, p.AnyOf = "object", false, nil
		p.Items = nil
		randomMembers(r, &p, 3)
		withDefaults(r, &p)
		s, err := structuralschema.NewStructural(internalProps(t, &p))
		if err != nil {
			t.Fatal(err)
		}
		c := &compiled{structural: s}
		for range 10 {
			v, ok := withMore(r, randomValue(r, s)).(map[string]any)
			if !ok {
				continue
			}
			for _, name := range []string{"metadata", "kind", "apiVersion"} {
				delete(v, name)
			}
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			made := &Object{Members: runtime.DeepCopyJSON(v)}
			_, wrong := c.coerce(made, objectmeta.CoerceOptions{DropInvalidFields: true})
			structuraldefaulting.Default(made.Members, s)
			stays := wrong == nil && reflect.DeepEqual(made.Members, v)
			if stays {
				same++
			}
			if !c.pruner().current(text, true) {
				continue
			}
			if found++; !stays {
				schema, _ := json.Marshal(p)
				t.Fatalf("%s is current in %s, and becomes %v, %v", text, schema, made.Members, wrong)
			}
		}
	}
	if t.Logf("%d of %d that stay as they are, are current", found, same); found < same/2 {
		t.Error("too few")
	}
}
