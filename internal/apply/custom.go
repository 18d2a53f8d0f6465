package apply

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// rootName is the name of a custom resource's type among its types.
const rootName = "root"

// FromOpenAPI returns the schema of a custom resource, given its OpenAPI v3 schema. Named
// references are types of meta/v1. See Custom for hasStatus.
func FromOpenAPI(kind schema.GroupVersionKind, shown *spec.Schema, hasStatus bool) (*Schema, error) {
	typ, err := parseOpenAPI(shown)
	if err != nil {
		return nil, err
	}
	return Custom(kind, typ, hasStatus), nil
}

func parseOpenAPI(shown *spec.Schema) (typed.ParseableType, error) {
	made, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{rootName: shown}, false)
	if err != nil {
		return typed.ParseableType{}, err
	}
	known := map[string]smd.TypeDef{}
	for _, t := range made.Types {
		known[t.Name] = t
	}
	for _, t := range made.Types {
		eachNamed(t.Atom, func(name string) {
			if strings.HasPrefix(name, "io.k8s.") {
				embeddedTypes.add(name, known)
			}
		})
	}
	r := reacher{types: known, seen: map[string]bool{}}
	r.named(rootName)
	root := rootName
	return typed.ParseableType{Schema: &smd.Schema{Types: r.list}, TypeRef: smd.TypeRef{NamedType: &root}}, nil
}
