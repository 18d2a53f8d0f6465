package crds

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	kjson "sigs.k8s.io/json"
)

// library has the results of the libraries of Kubernetes for the objects of a schema. They are
// called unchanged, one step after the other.
type library struct {
	structural *structuralschema.Structural
	validator  apivalidation.SchemaValidator
	status     apivalidation.SchemaValidator // nil: it is no subresource
	rules      *cel.Validator
}

func newLibrary(t testing.TB, schema tree, status bool) *library {
	t.Helper()
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	var sent apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(text, &sent); err != nil {
		t.Fatal(err)
	}
	made := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&sent, made, nil); err != nil {
		t.Fatal(err)
	}
	l := &library{}
	if l.validator, _, err = apivalidation.NewSchemaValidator(made); err != nil {
		t.Fatal(err)
	}
	if p, ok := made.Properties["status"]; ok && status {
		if l.status, _, err = apivalidation.NewSchemaValidator(&p); err != nil {
			t.Fatal(err)
		}
	}
	if l.structural, err = structuralschema.NewStructural(made); err != nil {
		t.Fatal(err)
	}
	l.structural = l.structural.DeepCopy()
	if err := structuraldefaulting.PruneDefaults(l.structural); err != nil {
		t.Fatal(err)
	}
	l.rules = cel.NewValidator(l.structural, true, celconfig.PerCallLimit)
	return l
}

// verdict is the outcome of a write.
type verdict struct {
	refused bool // before validation by the schema
	causes  []string
	object  tree // without metadata
}

// read decodes an object from a request body, or from stored bytes.
func (l *library) read(text []byte, stored bool) (tree, error) {
	var o tree
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &o); err != nil {
		return nil, err
	}
	head := tree{"kind": o["kind"], "apiVersion": o["apiVersion"], "metadata": o["metadata"]}
	pruning.Prune(o, l.structural, true)
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(o, l.structural)
	if wrong, _ := objectmeta.CoerceWithOptions(nil, o, l.structural, false, objectmeta.CoerceOptions{DropInvalidFields: stored}); wrong != nil {
		return nil, wrong
	}
	maps.Copy(o, head)
	structuraldefaulting.Default(o, l.structural)
	return o, nil
}

// blocks reports whether the errors prevent the evaluation of rules.
func blocks(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(e *field.Error) bool {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
		return false
	})
}

// ask appends the errors of the rules.
func (l *library) ask(errs field.ErrorList, o, old any, options ...cel.Option) field.ErrorList {
	if l.rules == nil {
		return errs
	}
	if blocks(errs) {
		return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
	}
	more, _ := l.rules.Validate(context.Background(), nil, l.structural, o, old, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, more...)
}

// settle returns the verdict: the errors, or without errors the object as it is stored and
// read again.
func (l *library) settle(errs field.ErrorList, o tree) verdict {
	v := verdict{}
	for _, e := range errs {
		v.causes = append(v.causes, cause(string(e.Type), e.ErrorBody(), e.Field))
	}
	if slices.Sort(v.causes); len(v.causes) > 0 {
		return v
	}
	text, err := json.Marshal(o)
	if err != nil {
		return verdict{refused: true}
	}
	if o, err = l.read(text, true); err != nil {
		return verdict{refused: true}
	}
	v.object = withoutMetadata(o)
	return v
}

// create returns the result of a POST.
func (l *library) create(text []byte) verdict {
	o, err := l.read(text, false)
	if err != nil {
		return verdict{refused: true}
	}
	if l.status != nil {
		delete(o, "status")
	}
	errs := apivalidation.ValidateCustomResource(nil, o, l.validator)
	errs = append(errs, objectmeta.Validate(context.Background(), nil, o, l.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, l.structural, o)...)
	return l.settle(l.ask(errs, o, nil), o)
}

// update returns the result of a PUT, of the object or of its status.
func (l *library) update(text, stored []byte, status bool) verdict {
	old, err := l.read(stored, true)
	if err != nil {
		return verdict{refused: true}
	}
	o, err := l.read(text, false)
	if err != nil {
		return verdict{refused: true}
	}
	o["metadata"] = clone(old)["metadata"]
	from, to := o, old // where the status comes from, and the rest
	if l.status != nil && !status {
		from, to = old, o
	}
	if l.status != nil {
		made := maps.Clone(to)
		delete(made, "status")
		if v, ok := from["status"]; ok {
			made["status"] = v
		}
		o = made
	}
	same := common.NewCorrelatedObject(o, old, &model.Structural{Structural: l.structural})
	var errs field.ErrorList
	if status {
		if v, ok := o["status"]; ok {
			errs = apivalidation.ValidateCustomResourceUpdate(field.NewPath("status"), v, old["status"], l.status, apivalidation.WithRatcheting(same.Key("status")))
		}
	} else {
		errs = apivalidation.ValidateCustomResourceUpdate(nil, o, old, l.validator, apivalidation.WithRatcheting(same))
		errs = append(errs, objectmeta.Validate(context.Background(), nil, o, l.structural, false)...)
	}
	if len(listtype.ValidateListSetsAndMaps(nil, l.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, l.structural, o)...)
	}
	return l.settle(l.ask(errs, o, old, cel.WithRatcheting(same)), o)
}

func withoutMetadata(o tree) tree {
	o = maps.Clone(o)
	delete(o, "metadata")
	return o
}

func cause(reason, message, field string) string {
	text, _ := json.Marshal([]string{reason, masked(message), field})
	return string(text)
}

// verdict returns the verdict of a response.
func (a response) verdict() verdict {
	switch {
	case a.code == 422:
		v := verdict{}
		details, _ := a.body["details"].(tree)
		causes, _ := details["causes"].([]any)
		for _, each := range causes {
			c, _ := each.(tree)
			text := func(name string) string { s, _ := c[name].(string); return s }
			v.causes = append(v.causes, cause(text("reason"), text("message"), text("field")))
		}
		slices.Sort(v.causes)
		return v
	case a.code < 300:
		return verdict{object: withoutMetadata(a.body)}
	}
	return verdict{refused: true}
}

// text returns the text that tests compare.
func (v verdict) text() string {
	if v.refused {
		return "refused"
	}
	if len(v.causes) > 0 {
		return "invalid: " + strings.Join(v.causes, " ")
	}
	text, err := json.Marshal(v.object)
	if err != nil {
		return err.Error()
	}
	var o any // with numbers as float64, as in encoding/json
	json.Unmarshal(text, &o)
	text, _ = json.Marshal(o)
	return string(text)
}
