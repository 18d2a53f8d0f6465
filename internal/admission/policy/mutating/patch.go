package mutating

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/tidemark-dev/tidemark/internal/patch"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// change applies the value of a mutation's expression to the object.
type change func(ctx context.Context, a *registry.Attributes, v *registry.Versioned, value ref.Val) error

// configureObject merges an apply configuration into the object.
func configureObject(ctx context.Context, a *registry.Attributes, v *registry.Versioned, value ref.Val) error {
	configuration, err := configurationOf(value)
	if err != nil {
		return err
	}
	configuration["apiVersion"], configuration["kind"] = v.Kind.GroupVersion().String(), v.Kind.Kind
	schema, err := a.Schema(ctx, v.Form)
	if err != nil {
		return fmt.Errorf("error applying patch: failed to convert patch object to typed object: %w", err)
	}
	live, _, err := v.Trees()
	if err != nil {
		return err
	}
	made, err := schema.Configure(live, configuration)
	if err != nil {
		return fmt.Errorf("error applying patch: %w", err)
	}
	plain, err := plainOf(made)
	if err != nil {
		return fmt.Errorf("error applying patch: %w", err)
	}
	object, err := json.Marshal(plain)
	if err != nil {
		return fmt.Errorf("error applying patch: %w", err)
	}
	if patch.Size(object) > patch.MaxBytes {
		return fmt.Errorf("error applying patch: the object would be larger than %d bytes", patch.MaxBytes)
	}
	if err := a.Widen(ctx, object); err != nil {
		return err
	}
	next, _, err := a.Decode(v.Form, object)
	if err != nil {
		return fmt.Errorf("unable to convert unstructured object to %v: %w", v.Kind, err)
	}
	return a.Set(ctx, v.Form, next)
}

// configurationOf returns an apply configuration as unstructured content.
func configurationOf(value ref.Val) (map[string]any, error) {
	object, ok := value.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", value.Type())
	}
	if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, fmt.Errorf("type mismatch: %w", err)
	}
	configuration, ok := object.Value().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", value)
	}
	return containersOf(configuration).(map[string]any), nil
}

// containersOf replaces maps of strings, which values of the request's objects have (labels for
// example): the schema's library supports only map[string]any and []any. It leaves other values as
// they are, and the library rejects unsupported ones, such as the list that split returns. An empty
// list of an expression is a nil slice and stays nil: it is null, not an empty list in the object.
func containersOf(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[name] = containersOf(member)
		}
		return out
	case map[string]string:
		out := make(map[string]any, len(v))
		for name, text := range v {
			out[name] = text
		}
		return out
	case []any:
		if v == nil {
			return v
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = containersOf(v[i])
		}
		return out
	}
	return value
}

// plainOf returns a value as encoding/json decodes it. The values of an Object may have types of
// CEL, which the schema's library does not take.
func plainOf(value any) (any, error) {
	switch v := value.(type) {
	case nil, bool, int64, float64, string:
		return v, nil
	case structpb.NullValue:
		return nil, nil
	case ref.Val:
		return plainOf(v.Value())
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			plain, err := plainOf(member)
			if err != nil {
				return nil, err
			}
			out[name] = plain
		}
		return out, nil
	case []any:
		if v == nil {
			return nil, nil
		}
		out := make([]any, len(v))
		for i := range v {
			plain, err := plainOf(v[i])
			if err != nil {
				return nil, err
			}
			out[i] = plain
		}
		return out, nil
	}
	return plainByType(value)
}

// plainByType is plainOf for lists and maps of other types, as expressions make them.
func plainByType(value any) (any, error) {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		out := make([]any, v.Len())
		for i := range out {
			out[i] = v.Index(i).Interface()
		}
		return plainOf(out)
	case reflect.Map:
		out := make(map[string]any, v.Len())
		for member := v.MapRange(); member.Next(); {
			name := member.Key().Interface()
			if key, ok := name.(ref.Val); ok {
				name = key.Value()
			}
			text, ok := name.(string)
			if !ok {
				return nil, fmt.Errorf("map key %q is of type %T, not string", member.Key().Interface(), member.Key().Interface())
			}
			out[text] = member.Value().Interface()
		}
		return plainOf(out)
	case reflect.Uint64, reflect.Uint32, reflect.Uint:
		return v.Uint(), nil
	}
	return nil, fmt.Errorf("a value of type %T has no form in JSON", value)
}

// patchObject applies a JSON patch. One with a test that fails changes nothing.
func patchObject(ctx context.Context, a *registry.Attributes, v *registry.Versioned, value ref.Val) error {
	operations, err := operationsOf(value)
	if err != nil {
		return err
	}
	object, _, err := v.JSON()
	if err != nil {
		return fmt.Errorf("failed to create JSON patch: %w", err)
	}
	decoded, err := patch.Decode(operations)
	if err != nil {
		return fmt.Errorf("JSON Patch: %w", err)
	}
	made, err := decoded.Apply(object)
	switch {
	case errors.Is(err, jsonpatch.ErrTestFailed):
		return nil
	case err != nil:
		return fmt.Errorf("JSON Patch: %w", err)
	}
	if err := a.Widen(ctx, made); err != nil {
		return err
	}
	next, complaints, err := a.Decode(v.Form, made)
	if err == nil && len(complaints) > 0 {
		err = errors.New("strict decoding error: " + strings.Join(complaints, ", "))
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return a.Set(ctx, v.Form, next)
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// operationsOf returns a list of JSONPatch values as JSON.
func operationsOf(value ref.Val) ([]byte, error) {
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	all := []operation{}
	for i := list.Iterator(); i.HasNext() == types.True; {
		item := i.Next()
		one, ok := item.(*celmutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %v", item.Type())
		}
		op := operation{Op: one.Op, Path: one.Path, From: one.From}
		if one.Val != nil {
			var err error
			if op.Value, err = jsonOf(one.Val); err != nil {
				return nil, err
			}
		}
		all = append(all, op)
	}
	return json.Marshal(all)
}

func jsonOf(value ref.Val) (json.RawMessage, error) {
	if object, ok := value.(*dynamic.ObjectVal); ok {
		if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
	}
	const failed = "JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w"
	v, err := native(value)
	if err != nil {
		return nil, fmt.Errorf(failed, err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf(failed, err)
	}
	return text, nil
}

// native converts a value to its JSON form. CEL has no conversion for an Object within a list or
// map.
func native(value ref.Val) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = plainOf(value)
		}
	}()
	return value.ConvertToNative(reflect.TypeFor[*structpb.Value]())
}
