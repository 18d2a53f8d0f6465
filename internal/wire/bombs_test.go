package wire_test

import (
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestAliases: what aliases make large is refused before it is large.
func TestAliases(t *testing.T) {
	body := func(n int) []byte {
		return []byte("metadata: {name: a}\ndata:\n  a: &a " + strings.Repeat("x", 50_000) + strings.Repeat("\n  b: *a", 1) +
			"\n  c: \"&*\"\nbinaryData: {}\nextra: [" + strings.Repeat("*a,", n) + "]\n")
	}
	if d, err := wire.Decode(configMaps, wire.YAML, body(2)); err != nil || len(d.Strict) == 0 {
		t.Errorf("a few aliases: %v, %v", d.Strict, err)
	}
	_, err := wire.Decode(configMaps, wire.YAML, body(1000))
	if err == nil || !strings.Contains(err.Error(), "aliases") {
		t.Errorf("a thousand aliases of 50 kB: %v", err)
	}
	if _, err := wire.FromYAML(body(1000)); err == nil {
		t.Error("FromYAML took them")
	}
}

// TestDeepProtobuf: a message that nests without end is refused, not followed.
func TestDeepProtobuf(t *testing.T) {
	typ := builtin.Catalog().Lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	for _, depth := range []int{20, 2000} {
		schema := apiextensions.JSONSchemaProps{Type: "object"}
		for range depth {
			inner := schema
			schema = apiextensions.JSONSchemaProps{Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &inner}}
		}
		crd := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: apiextensions.CustomResourceDefinitionSpec{
			Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &schema}}},
		}}
		raw, err := crd.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, Raw: raw}
		body, err := envelope.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		_, err = wire.Decode(typ, wire.Protobuf, append([]byte("k8s\x00"), body...))
		if tooDeep := depth > 500; (err != nil) != tooDeep || tooDeep && !strings.Contains(err.Error(), "nests deeper than 512") {
			t.Errorf("%d levels: %v", depth, err)
		}
	}
}
