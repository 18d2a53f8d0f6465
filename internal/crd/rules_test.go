package crd

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// TestRulesEnd checks that rules that would take minutes within their budget end when the context
// is done.
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
	errs := c.checkRules(ctx, nil, v, nil, &notes{})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "operation interrupted") {
		t.Errorf("%v, want that it was interrupted", errs)
	}
}

// TestManyFailedRules checks that an object has few errors and warnings of rules, however many of
// its items violate them. An update that does not change these items is accepted.
func TestManyFailedRules(t *testing.T) {
	list := props{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &props{
		Type: "integer", XValidations: apiextensionsv1.ValidationRules{{Rule: "self < 0 || false"}, {Rule: "false", Message: "never"}},
	}}}
	p := props{Type: "object", Properties: map[string]props{"list": list}}
	s, err := structuralschema.NewStructural(internalProps(t, &p))
	if err != nil {
		t.Fatal(err)
	}
	c := &compiled{structural: s, rules: newRules(s, 2)}
	v := make([]any, 3*resource.MaxErrors)
	for i := range v {
		v[i] = int64(i)
	}
	o := map[string]any{"list": v}
	errs := c.checkRules(t.Context(), nil, o, nil, &notes{})
	if len(errs) != resource.MaxErrors+1 || errs[999].Error() != `list[499]: Invalid value: 499: never` {
		t.Fatalf("a new object has %d errors, the last ones %v", len(errs), errs[max(0, len(errs)-2):])
	}
	noted := &notes{}
	same := common.NewCorrelatedObject(o, o, &model.Structural{Structural: s})
	if errs := c.checkRules(t.Context(), nil, o, o, noted, cel.WithRatcheting(same)); len(errs) > 0 || noted.number != 2*len(v) || len(noted.all) != resource.MaxErrors {
		t.Errorf("an unchanged object has %d errors, %d warnings and keeps %d", len(errs), noted.number, len(noted.all))
	}
}
