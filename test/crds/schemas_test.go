package crds

import (
	"fmt"
	"math/rand/v2"
)

// schemas makes schemas at random that definitions may have, mostly.
type schemas struct {
	*rand.Rand
	defaults float64 // how likely one has a default
}

func (r schemas) one(n int) bool { return r.IntN(n) == 0 }

// root is the schema of an object.
func (r schemas) root() tree {
	s := tree{"type": "object", "properties": tree{"spec": r.object(4), "status": r.object(2)}}
	if r.one(3) {
		s["properties"].(tree)["extra"] = r.value(2)
	}
	if r.one(6) {
		s["x-kubernetes-preserve-unknown-fields"] = true
	}
	if r.one(6) {
		s["required"] = []any{"spec"}
	}
	for _, name := range []string{"spec", "status"} {
		if r.one(4) {
			s["properties"].(tree)[name].(tree)["default"] = tree{}
		}
	}
	if r.one(6) {
		s["properties"].(tree)["metadata"] = tree{"type": "object", "properties": tree{"name": tree{"type": "string", "pattern": "^[a-z]"}}}
	}
	if r.one(3) {
		s["x-kubernetes-validations"] = []any{r.rule([]string{
			"!has(self.spec) || has(self.spec)", "has(self.spec)", "!has(self.status)", "has(self.status)", "self.metadata.name.startsWith('o')", "has(self.spec) == has(oldSelf.spec)",
		})}
	}
	return s
}

// rule is one of the possible rules of a value.
func (r schemas) rule(all []string) tree {
	made := tree{"rule": pick(r.Rand, all)}
	if r.one(3) {
		made["message"] = "it is wrong"
	}
	if r.one(4) {
		made["messageExpression"] = pick(r.Rand, []string{"'it is ' + string(1 + 1)", "'not ' + string(has(self.a))", "string(self)"})
		if text := made["messageExpression"].(string); text != "'it is ' + string(1 + 1)" {
			delete(made, "messageExpression")
		}
	}
	if r.one(4) {
		made["reason"] = pick(r.Rand, []string{"FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"})
	}
	return made
}

// value is the schema of anything.
func (r schemas) value(depth int) tree {
	kinds := []string{"string", "integer", "number", "boolean", "mixed", "any"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "object", "map", "array", "array", "embedded")
	}
	var s tree
	switch kind := pick(r.Rand, kinds); kind {
	case "string":
		s = r.text()
	case "integer", "number":
		s = r.number(kind)
	case "boolean":
		s = tree{"type": kind}
	case "mixed":
		s = tree{"x-kubernetes-int-or-string": true}
		if r.one(2) {
			s["anyOf"] = []any{tree{"type": "integer"}, tree{"type": "string"}}
		}
		if r.one(4) {
			s["pattern"] = "^[0-9]+%?$"
		}
	case "any":
		s = tree{"x-kubernetes-preserve-unknown-fields": true}
		if r.one(2) {
			s["type"] = "object"
		}
	case "object":
		s = r.object(depth)
	case "map":
		s = tree{"type": "object", "additionalProperties": r.value(depth - 1)}
		r.sizes(s, "Properties")
	case "array":
		s = r.array(depth)
	case "embedded": // or something that looks like one
		s = tree{"type": "object", "x-kubernetes-embedded-resource": true}
		if r.one(2) {
			s["x-kubernetes-preserve-unknown-fields"] = true
		} else {
			s["properties"] = tree{"a": r.value(depth - 1)}
		}
	}
	if r.one(5) {
		s["nullable"] = true
	}
	if r.Float64() < r.defaults {
		m := maker{Rand: r.Rand, optional: .5, depth: 4}
		s["default"] = m.value(s, 0)
		if r.one(8) {
			s["default"] = tree{}
		}
	}
	return s
}

func (r schemas) sizes(s tree, of string) {
	if r.one(3) {
		s["max"+of] = float64(1 + r.IntN(3))
	}
	if r.one(6) {
		s["min"+of] = float64(r.IntN(2))
	}
}

func (r schemas) text() tree {
	s := tree{"type": "string"}
	r.sizes(s, "Length")
	switch r.IntN(6) {
	case 0:
		s["format"] = pick(r.Rand, []string{"date-time", "date", "byte", "duration", "ipv4", "cidr", "uri", "uuid", "hostname", "no-such-format"})
	case 1:
		s["pattern"] = pick(r.Rand, []string{"^[a-z]*$", "b", "^(a|abc)+$", `^\d+$`, "é"})
	case 2:
		s["enum"] = []any{"a", "abc", "A"}
	case 3:
		s["not"] = tree{"enum": []any{"a"}}
	}
	if r.one(4) {
		s["maxLength"] = float64(20)
		s["x-kubernetes-validations"] = []any{r.rule([]string{"self.size() < 3", "self.startsWith('a')", "self == oldSelf", "self.matches('^[a-z]+$')", "self != 'A'", "self.find('[0-9]+') != '1'"})}
		if r.one(4) {
			s["x-kubernetes-validations"] = []any{tree{"rule": "!oldSelf.hasValue() || oldSelf.value() != self", "optionalOldSelf": true}}
		}
	}
	return s
}

func (r schemas) number(kind string) tree {
	s := tree{"type": kind}
	if r.one(3) {
		s["minimum"], s["exclusiveMinimum"] = float64(r.IntN(4)-2), r.one(2)
	}
	if r.one(3) {
		s["maximum"], s["exclusiveMaximum"] = float64(4+r.IntN(4)), r.one(2)
	}
	switch r.IntN(8) {
	case 0:
		s["multipleOf"] = pick(r.Rand, []float64{2, .5, 1})
	case 1:
		s["enum"] = []any{float64(1), float64(2), float64(3)}
	case 2:
		s["format"] = pick(r.Rand, []string{"int32", "int64", "double", "float"})
	case 3:
		s["oneOf"] = []any{tree{"minimum": float64(2)}, tree{"maximum": float64(1)}}
	}
	if r.one(4) {
		rules := []string{"self > 1", "self >= oldSelf", "self != 3", "self * 2 < 9"}
		if kind == "number" {
			rules = []string{"self > 1.0", "self >= oldSelf", "self != 2.5", "double(int(self)) == self"}
		}
		s["x-kubernetes-validations"] = []any{r.rule(rules)}
	}
	return s
}

// object has a few members, or more than it pays to show to rules.
func (r schemas) object(depth int) tree {
	names := []string{"a", "b", "c"}
	if r.one(4) {
		names = append(names, "d-e", "namespace", "f.g", "h", "i", "j", "k")
	}
	properties, s := tree{}, tree{"type": "object"}
	for _, name := range names {
		properties[name] = r.value(depth - 1)
	}
	s["properties"] = properties
	r.sizes(s, "Properties")
	if r.one(4) {
		s["required"] = []any{pick(r.Rand, names)}
	}
	if r.one(6) {
		s["x-kubernetes-preserve-unknown-fields"] = true
	}
	if r.one(8) {
		s["x-kubernetes-map-type"] = "atomic"
	}
	switch r.IntN(10) {
	case 0:
		s["anyOf"] = []any{tree{"required": []any{"a"}}, tree{"required": []any{"c"}}}
	case 1:
		s["oneOf"] = []any{tree{"required": []any{"a"}}, tree{"required": []any{"b"}}}
	case 2:
		s["not"] = tree{"required": []any{"a", "b"}}
	case 3:
		s["allOf"] = []any{tree{"properties": tree{"a": tree{"not": tree{"enum": []any{"a", float64(1)}}}}}}
	}
	if r.one(3) {
		s["x-kubernetes-validations"] = []any{r.rule(r.memberRules(names))}
		if r.one(4) {
			s["x-kubernetes-validations"].([]any)[0].(tree)["fieldPath"] = "." + pick(r.Rand, []string{"a", "b"})
		}
	}
	return s
}

func (r schemas) memberRules(names []string) []string {
	a, b := pick(r.Rand, []string{"a", "b", "c"}), pick(r.Rand, []string{"a", "b", "c"})
	rules := []string{
		fmt.Sprintf("has(self.%s) || has(self.%s)", a, b), fmt.Sprintf("!has(self.%s)", a), fmt.Sprintf("has(self.%s) == has(oldSelf.%s)", a, b),
		fmt.Sprintf("!has(self.%s) || !has(oldSelf.%s) || self.%s == oldSelf.%s", a, a, a, a), "self == oldSelf", "self.?a.hasValue()", fmt.Sprintf("type(self.%s) == type(1) || true", a),
		fmt.Sprintf("[self].all(x, has(x.%s))", a), "dyn(self) == dyn(self)", fmt.Sprintf("self.%s == self.%s", a, a),
	}
	if len(names) > 3 {
		rules = append(rules, "has(self.d__dash__e)", "has(self.__namespace__) && has(self.f__dot__g)", "!has(self.h) || has(self.i) // self.j", "has(self.j) || 'self.k' == 'x'", "has(self.k) ? has(self.h) : has(self.a)")
	}
	return rules
}

func (r schemas) array(depth int) tree {
	s := tree{"type": "array", "items": r.value(depth - 1)}
	r.sizes(s, "Items")
	switch r.IntN(5) {
	case 0:
		s["x-kubernetes-list-type"], s["items"] = "set", r.text()
	case 1:
		s["x-kubernetes-list-type"], s["x-kubernetes-list-map-keys"] = "map", []any{"a"}
		s["items"] = tree{"type": "object", "required": []any{"a"}, "properties": tree{"a": tree{"type": "string"}, "b": r.value(depth - 1)}}
		if r.one(2) {
			s["x-kubernetes-list-map-keys"] = []any{"a", "n"}
			s["items"].(tree)["properties"].(tree)["n"] = tree{"type": "integer", "default": float64(7)}
		}
	case 2:
		s["x-kubernetes-list-type"] = "atomic"
	}
	if r.one(4) {
		s["maxItems"] = float64(4)
		s["x-kubernetes-validations"] = []any{r.rule([]string{"self.size() != 2", "self.all(x, x == self[0])", "self == oldSelf", "self.exists_one(x, true)", "size(self.map(x, x)) < 2"})}
	}
	return s
}
