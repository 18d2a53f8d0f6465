package crd

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// The library that validates by schema compares each error with all preceding errors, and each
// value with all values of an enum. An object of 3 MiB can have some hundred thousand errors. So
// this file gives the library hooks for each member and item: once a list or a map has
// resource.MaxErrors errors, the rest of it is skipped. The object is invalid anyway, and the first
// errors are the same.

const (
	// errorValues is how many values of an enum, which an error lists, count as one error
	// more.
	errorValues = 100
	// manyValues is from how many values on an enum is looked up and not searched.
	manyValues = 32
)

// checkSchema validates a value by a schema, which accepts any value if it is nil. An update
// accepts invalid values that it does not change; was is nil for a new object. It returns early
// when the context is done.
func (c *compiled) checkSchema(ctx context.Context, path *field.Path, v any, s *spec.Schema, was *common.CorrelatedObject) field.ErrorList {
	if s == nil {
		return nil
	}
	return apivalidation.ValidateCustomResource(path, v, once{&checked{ctx: ctx, c: c, schema: s, formats: strfmt.Default, was: was, work: newPatternWork(ctx)}})
}

// once is a check as the library's interface has it.
type once struct{ *checked }

// Validate implements apivalidation.SchemaCreateValidator.
func (o once) Validate(v any, _ ...apivalidation.ValidationOption) *validate.Result {
	return o.checked.Validate(v)
}

// checked is a value that the library checks, with the hooks for its members.
type checked struct {
	ctx     context.Context //nolint:containedctx // of the one validation that it is made for
	c       *compiled
	schema  *spec.Schema
	root    any
	path    string
	formats strfmt.Registry
	was     *common.CorrelatedObject // nil: the value is new
	in      *checked                 // nil: it is the whole
	errors  int                      // of its members
	work    *patternWork             // of the whole
}

var errEnded = openapierrors.New(500, "the validation ended early")

// SetPath implements validate.ValueValidator.
func (n *checked) SetPath(string) {}

// Applies implements validate.ValueValidator.
func (n *checked) Applies(any, reflect.Kind) bool { return true }

// Validate implements validate.ValueValidator.
func (n *checked) Validate(v any) *validate.Result {
	switch {
	case n.in != nil && n.in.errors >= resource.MaxErrors:
		return &validate.Result{}
	case n.ctx.Err() != nil:
		return &validate.Result{Errors: []error{errEnded}}
	}
	s := n.lean(v)
	result := new(validate.Result)
	text, isText := v.(string)
	if len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) > 0 || s.Not != nil {
		if left := resource.MaxErrors; isText || many(v, &left) {
			s = n.alternatives(s, v, result)
		}
	}
	if isText && s.Pattern != "" {
		s = n.pattern(s, text, result)
	}
	result.Merge(validate.NewSchemaValidator(s, n.root, n.path, n.formats, n.hook).Validate(v))
	if result.IsValid() {
		return result
	}
	if n.was.CachedDeepEqual() {
		return new(validate.Result)
	}
	if n.in != nil {
		for _, err := range result.Errors {
			n.in.errors++
			if e, ok := err.(*openapierrors.Validation); ok {
				n.in.errors += len(e.Values) / errorValues
			}
		}
	}
	return result
}

// pattern checks a string by the pattern of its schema. It returns the rest of the schema.
func (n *checked) pattern(s *spec.Schema, text string, result *validate.Result) *spec.Schema {
	rest := *s
	rest.Pattern = ""
	used := n.work.steps < 0
	matches, err := n.c.matches(s.Pattern, text, n.work)
	switch {
	case errors.Is(err, errPatternWork) && used: // one error is enough
	case n.ctx.Err() != nil:
		result.AddErrors(errEnded)
	case errors.Is(err, errPatternWork):
		result.AddErrors(openapierrors.New(openapierrors.PatternFailCode, "%s: %v", n.path, err))
	case !within(utf8.RuneCountInString(text), s.MinLength, s.MaxLength): // the library reports this alone
	case err != nil:
		result.AddErrors(openapierrors.FailedPattern(n.path, "body", fmt.Sprintf("%s, but pattern is invalid: %s", s.Pattern, err), text))
	case !matches:
		result.AddErrors(openapierrors.FailedPattern(n.path, "body", s.Pattern, text))
	}
	return &rest
}

// many reports whether a value has more parts than are left.
func many(v any, left *int) bool {
	*left--
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if *left < 0 || many(item, left) {
				return true
			}
		}
	case map[string]any:
		for _, member := range v {
			if *left < 0 || many(member, left) {
				return true
			}
		}
	}
	return *left < 0
}

// alternatives validates a value by the allOf, anyOf, oneOf and not of its schema, for which the
// library has no hooks. It returns the rest of the schema.
func (n *checked) alternatives(s *spec.Schema, v any, result *validate.Result) *spec.Schema {
	check := func(part *spec.Schema) *validate.Result {
		return (&checked{ctx: n.ctx, c: n.c, schema: part, root: n.root, path: n.path, formats: n.formats, work: n.work}).Validate(v)
	}
	// The library shows the errors of the alternative that has passed the most checks.
	count := func(parts []spec.Schema) (right int, best *validate.Result) {
		for i := range parts {
			found := check(&parts[i])
			if found.IsValid() {
				right++
			} else if best == nil || found.MatchCount > best.MatchCount {
				best = found
			}
		}
		return right, best
	}
	if right, best := count(s.AnyOf); len(s.AnyOf) > 0 && right == 0 {
		result.AddErrors(openapierrors.New(openapierrors.CompositeErrorCode, "%q must validate at least one schema (anyOf)", n.path))
		result.Merge(best)
	}
	switch right, best := count(s.OneOf); {
	case len(s.OneOf) == 0 || right == 1:
	case right == 0:
		result.AddErrors(openapierrors.New(openapierrors.CompositeErrorCode, "%q must validate one and only one schema (oneOf). Found none valid", n.path))
		result.Merge(best)
	default:
		result.AddErrors(openapierrors.New(openapierrors.CompositeErrorCode, "%q must validate one and only one schema (oneOf). Found %d valid alternatives", n.path, right))
	}
	right := 0
	for i := range s.AllOf {
		found := check(&s.AllOf[i])
		if found.IsValid() {
			right++
		}
		result.Merge(found)
	}
	switch right {
	case len(s.AllOf):
	case 0:
		result.AddErrors(openapierrors.New(openapierrors.CompositeErrorCode, "%q must validate all the schemas (allOf). None validated", n.path))
	default:
		result.AddErrors(openapierrors.New(openapierrors.CompositeErrorCode, "%q must validate all the schemas (allOf)", n.path))
	}
	if s.Not != nil && check(s.Not).IsValid() {
		result.AddErrors(openapierrors.New(openapierrors.CompositeErrorCode, "%q must not validate the schema (not)", n.path))
	}
	rest := *s
	rest.AllOf, rest.AnyOf, rest.OneOf, rest.Not = nil, nil, nil, nil
	return &rest
}

func (n *checked) hook(o *validate.SchemaValidatorOptions) {
	o.NewValidatorForField = func(name string, s *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
		was := n.was.Key(name)
		if n.path == "" && (name == "kind" || name == "apiVersion") {
			was = nil // the alternatives cannot be correlated with the old value
		}
		return n.member(s, root, path, formats, was)
	}
	o.NewValidatorForIndex = func(i int, s *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
		return n.member(s, root, path, formats, n.was.Index(i))
	}
}

func (n *checked) member(s *spec.Schema, root any, path string, formats strfmt.Registry, was *common.CorrelatedObject) validate.ValueValidator {
	return &checked{ctx: n.ctx, c: n.c, schema: s, root: root, path: path, formats: formats, was: was, in: n, work: n.work}
}

// lean is the schema of a value without the enum that the value is in, and without most of
// the members that are required and not there, where these are many.
func (n *checked) lean(v any) *spec.Schema {
	s := n.schema
	if len(s.Enum) > manyValues && n.c.enum(s.Enum).has(v) {
		leaner := *s
		leaner.Enum = nil
		s = &leaner
	}
	if members, ok := v.(map[string]any); ok && len(s.Required) > resource.MaxErrors {
		var missing []string
		for _, name := range s.Required {
			if _, ok := members[name]; !ok && len(missing) < resource.MaxErrors {
				missing = append(missing, name)
			}
		}
		leaner := *s
		leaner.Required = missing
		s = &leaner
	}
	return s
}

// enum are the strings and numbers of a long enum.
type enum map[any]struct{}

// enum returns the values of a list, which is a part of the schema, to look them up. They
// are collected once.
func (c *compiled) enum(values []any) enum {
	if made, ok := c.enums.Load(&values[0]); ok {
		return made.(enum)
	}
	e := make(enum, len(values))
	for _, v := range values {
		e.add(v)
	}
	made, _ := c.enums.LoadOrStore(&values[0], e)
	return made.(enum)
}

// enumOf is enum of values as a structural schema has them.
func (c *compiled) enumOf(values []structuralschema.JSON) enum {
	if made, ok := c.enums.Load(&values[0]); ok {
		return made.(enum)
	}
	e := make(enum, len(values))
	for _, v := range values {
		e.add(v.Object)
	}
	made, _ := c.enums.LoadOrStore(&values[0], e)
	return made.(enum)
}

func (e enum) add(v any) {
	switch v.(type) {
	case string, int64, float64, bool:
		e[v] = struct{}{}
	}
}

// has reports whether a value is in the enum for sure. To the library a whole number is the
// same as the float.
func (e enum) has(v any) bool {
	switch v := v.(type) {
	case string, float64, bool:
		_, ok := e[v]
		return ok
	case int64:
		if _, ok := e[v]; ok {
			return true
		}
		_, ok := e[float64(v)]
		return ok
	}
	return false
}
