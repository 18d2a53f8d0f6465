package oidc

import (
	"encoding/json"
	"errors"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// claimsValue returns the claims as expressions see them. A claim is decoded when an expression
// first reads it. The value is not safe for concurrent use.
func claimsValue(c claims) ref.Val {
	m := lazy.NewMapValue(types.NewObjectType("kubernetes.claims"))
	for name, text := range c {
		m.Append(name, func(*lazy.MapValue) ref.Val {
			var v any
			if err := json.Unmarshal(text, &v); err != nil {
				return types.NewErr("claim %q failed to unmarshal: %w", name, err)
			}
			return native(v)
		})
	}
	return m
}

// userValue returns the user as expressions see it. The value is not safe for concurrent use.
func userValue(u *authn.User) ref.Val {
	m := lazy.NewMapValue(types.NewObjectType("kubernetes.UserInfo"))
	for name, v := range map[string]any{"username": u.Name, "uid": u.UID, "groups": u.Groups, "extra": u.Extra} {
		m.Append(name, func(*lazy.MapValue) ref.Val { return native(v) })
	}
	return m
}

// native returns a value of Go as a value of CEL, in which the names of fields can be escaped:
// claims.a__dot__b reads the claim "a.b".
func native(v any) ref.Val { return unescaped(types.DefaultTypeAdapter.NativeToValue(v)) }

// unescaped makes the maps inside a value find escaped names, at any depth.
func unescaped(v ref.Val) ref.Val {
	switch v := v.(type) {
	case traits.Mapper:
		return unescapedMap{v}
	case traits.Lister:
		return unescapedList{v}
	}
	return v
}

type unescapedMap struct{ traits.Mapper }

func (m unescapedMap) Find(key ref.Val) (ref.Val, bool) {
	if escaped, ok := key.(types.String); ok {
		if name, ok := apiservercel.Unescape(string(escaped)); ok {
			key = types.String(name)
		}
	}
	v, ok := m.Mapper.Find(key)
	return unescaped(v), ok
}

type unescapedList struct{ traits.Lister }

func (l unescapedList) Get(index ref.Val) ref.Val { return unescaped(l.Lister.Get(index)) }

var (
	errNoStrings   = errors.New("expression must return a string or a list of strings")
	errNoCondition = errors.New("validation expression must return a boolean")
)

// stringsOf returns the strings of a string or of a list, without empty ones.
func stringsOf(v ref.Val) ([]string, error) {
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.String:
		if v == "" {
			return nil, nil
		}
		return []string{string(v)}, nil
	case traits.Lister:
		var all []string
		for i := v.Iterator(); i.HasNext() == types.True; {
			s, ok := i.Next().(types.String)
			if !ok {
				return nil, errNoStrings
			}
			if s != "" {
				all = append(all, string(s))
			}
		}
		return all, nil
	}
	return nil, errNoStrings
}
