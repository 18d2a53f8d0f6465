package crd

import (
	"context"
	"errors"
	"maps"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/unexported"
)

// manyProperties is the number of properties from which on it pays to leave out those that no rule
// names: CEL makes a map of all of them each time that a rule reads one.
const manyProperties = 8

// narrow removes members that no rule names from the schemas of rules. It does not change results:
// a rule that uses an object as a whole, to compare it for example, keeps all members.
func narrow(v *cel.Validator) {
	if v == nil {
		return
	}
	narrow(v.Items)
	narrow(v.AdditionalProperties)
	for name, p := range v.Properties {
		narrow(&p)
		v.Properties[name] = p
	}
	if s := v.Schema; s != nil && s.Type == "object" && !s.XEmbeddedResource && len(s.Properties) > manyProperties && len(s.XValidations) > 0 {
		v.Schema = withNamed(s)
	}
}

// tally counts the rules that fail for one object. The library collects an error for each: 200,000 items with 30 rules of
// constants, which cost nothing, took 1 GB. It is not safe for concurrent use.
type tally struct {
	failed    int
	tolerated *notes // of these: the library warns of rules that fail for unchanged values
}

type tallyKey struct{}

// counted is the program of a rule that ends the evaluation of all rules after resource.MaxErrors errors, and with the
// context: the library ends if there are no details. The errors before that stay the same.
type counted struct{ celgo.Program }

// ContextEval implements cel.Program.
func (p counted) ContextEval(ctx context.Context, input any) (ref.Val, *celgo.EvalDetails, error) {
	t, _ := ctx.Value(tallyKey{}).(*tally)
	if t == nil {
		return p.Program.ContextEval(ctx, input)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if t.failed-t.tolerated.number >= resource.MaxErrors {
		return nil, nil, errManyErrors
	}
	value, details, err := p.Program.ContextEval(ctx, input)
	if err != nil || value != types.True {
		t.failed++
	}
	return value, details, err
}

var errManyErrors = errors.New("the object has too many errors")

// replacePrograms replaces the programs of the rules and their messages with those of [expression.Replacer]. The library
// takes no programs. If this version of it has other fields, its own programs stay.
func replacePrograms(v *cel.Validator) {
	if v == nil {
		return
	}
	replacePrograms(v.Items)
	replacePrograms(v.AdditionalProperties)
	for _, p := range v.Properties {
		replacePrograms(&p) // the copy has the same rules
	}
	for _, all := range v.AllOfValidators {
		replacePrograms(all)
	}
	compiled, err := unexported.Field[[]cel.CompilationResult](v, "compiledRules")
	if err != nil {
		return
	}
	of, err := unexported.Field[[]apiextensionsv1.ValidationRule](v, "uncompiledRules")
	if err != nil || len(*of) != len(*compiled) {
		return
	}
	var replacer expression.Replacer // the rules of one value have one environment or two
	for i, rule := range *of {
		c := &(*compiled)[i]
		if c.Program != nil {
			c.Program = counted{replacer.Replace(c.Program, rule.Rule)}
		}
		if c.MessageExpression != nil {
			c.MessageExpression = replacer.Replace(c.MessageExpression, rule.MessageExpression)
		}
	}
}

// comparesMetadata reports whether the rules of an object may compare its metadata as a
// whole. Otherwise they see no more of it than the name and generateName.
func comparesMetadata(s *structuralschema.Structural) bool {
	n := &needed{}
	for _, r := range s.XValidations {
		n.addRule(r)
	}
	if n.all {
		return true
	}
	metadata := n.of["metadata"]
	if metadata == nil {
		return false
	}
	for name := range metadata.of {
		if name != "name" && name != "generateName" {
			return true
		}
	}
	return metadata.all
}

// withNamed returns the schema of an object with only those properties that its rules name;
// the schema itself where that is not clear.
func withNamed(s *structuralschema.Structural) *structuralschema.Structural {
	n := &needed{}
	for _, r := range s.XValidations {
		if n.addRule(r); n.all || r.OptionalOldSelf != nil {
			return s
		}
	}
	narrowed := *s
	narrowed.Properties = maps.Clone(s.Properties)
	maps.DeleteFunc(narrowed.Properties, func(name string, _ structuralschema.Structural) bool {
		escaped, ok := apiservercel.Escape(name)
		return !ok || n.of[escaped] == nil
	})
	return &narrowed
}
