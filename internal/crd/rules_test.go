package crd

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestRulesEnd: rules that would take minutes within their budget end when the time is
// over.
func TestRulesEnd(t *testing.T) {
	p := props{
		Type: "array", MaxItems: new(int64(400_000)), Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &props{Type: "integer"}},
		XValidations: apiextensionsv1.ValidationRules{{Rule: "!self.exists(x, x == -1)"}},
	}
	s, err := structuralschema.NewStructural(internalProps(t, &p))
	if err != nil {
		t.Fatal(err)
	}
	c := &compiled{structural: s, rules: &rules{}}
	c.rules.compiled.Store(cel.NewValidator(s, false, celconfig.PerCallLimit))
	v := make([]any, 380_000)
	for i := range v {
		v[i] = int64(i)
	}
	ctx, over := context.WithCancel(t.Context())
	over()
	errs := c.checkRules(ctx, nil, v, nil)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "operation interrupted") {
		t.Errorf("%v, want that it was interrupted", errs)
	}
}
