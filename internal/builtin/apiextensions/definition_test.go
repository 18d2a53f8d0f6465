package apiextensions

import (
	"context"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestValidateUpdate checks that the errors of an update with an unchanged spec are those of the
// library, which checks all of the spec.
func TestValidateUpdate(t *testing.T) {
	old := &Definition{ObjectMeta: metav1.ObjectMeta{Name: "things.x.k8s.io", Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "https://example.com/1"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "x.k8s.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				SelectableFields:         []apiextensionsv1.SelectableField{{JSONPath: ".spec.a"}},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: ".spec.a"}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "string"}}, XValidations: apiextensionsv1.ValidationRules{{Rule: "self.a != 'b'"}}},
				}}}}},
		}}
	Default(old)
	NewStatus(old)
	old.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	for name, c := range map[string]struct {
		change func(*Definition)
		wrong  bool
	}{
		"nothing":               {change: func(*Definition) {}},
		"a finalizer":           {change: func(d *Definition) { d.Finalizers = []string{"example.com/f"} }},
		"no approval":           {func(d *Definition) { d.Annotations = nil }, true},
		"a wrong approval":      {func(d *Definition) { d.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation] = "of whom?" }, true},
		"nothing stored":        {func(d *Definition) { d.Status.StoredVersions = nil }, true},
		"a version that is not": {func(d *Definition) { d.Status.StoredVersions = []string{"v1", "v2"} }, true},
		"wrong names":           {func(d *Definition) { d.Status.AcceptedNames.Plural = "Wrong Plural" }, true},
		"another scope":         {func(d *Definition) { d.Spec.Scope = apiextensionsv1.NamespaceScoped }, true},
		"a wrong schema": {func(d *Definition) {
			d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].XValidations[0].Rule = "self.c"
		}, true},
	} {
		d := old.DeepCopy()
		c.change(d)
		made, err := internal(d)
		if err != nil {
			t.Fatal(err)
		}
		was, err := internal(old)
		if err != nil {
			t.Fatal(err)
		}
		got, want := texts(ValidateUpdate(d, old)), texts(crdvalidation.ValidateCustomResourceDefinitionUpdate(context.Background(), made, was))
		if !slices.Equal(got, want) || len(want) > 0 != c.wrong {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func texts(errs field.ErrorList) (all []string) {
	for _, e := range errs {
		all = append(all, e.Error())
	}
	slices.Sort(all)
	return all
}

// TestManyVersions checks that a definition that is stored with too many versions can be updated.
func TestManyVersions(t *testing.T) {
	made := func(n int) *Definition {
		d := &Definition{}
		d.Spec.Versions = make([]apiextensionsv1.CustomResourceDefinitionVersion, n)
		return d
	}
	for _, c := range []struct {
		n, stored int
		ok        bool
	}{{100, 0, true}, {101, 0, false}, {300, 300, true}, {299, 300, true}, {301, 300, false}} {
		var old *Definition
		if c.stored > 0 {
			old = made(c.stored)
		}
		if errs := tooMany(made(c.n), old); len(errs) == 0 != c.ok {
			t.Errorf("%d after %d versions: %v", c.n, c.stored, errs)
		}
	}
}
