package crds

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// maker makes values of a schema at random.
type maker struct {
	*rand.Rand
	// optional is how likely a member is that need not be there.
	optional float64
	// depth is how far optional members go down.
	depth int
}

type tree = map[string]any

func sorted(o tree) []string {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func clone(o tree) (c tree) {
	text, _ := json.Marshal(o)
	json.Unmarshal(text, &c)
	return c
}

func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

func texts(v any) (all []string) {
	list, _ := v.([]any)
	for _, e := range list {
		if text, ok := e.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

// object makes a whole object of a version's schema.
func (m maker) object(schema tree, apiVersion, kind, name string) tree {
	made, ok := m.value(schema, 0).(tree)
	if !ok {
		made = tree{}
	}
	made["apiVersion"], made["kind"], made["metadata"] = apiVersion, kind, tree{"name": name}
	return made
}

// value makes one of a schema.
func (m maker) value(s tree, depth int) any {
	if all, ok := s["enum"].([]any); ok && len(all) > 0 {
		return pick(m.Rand, all)
	}
	if mixed, _ := s["x-kubernetes-int-or-string"].(bool); mixed {
		return pick(m.Rand, []any{float64(3), "25%", "100m"})
	}
	kind, _ := s["type"].(string)
	switch kind {
	case "object":
		return m.members(s, depth)
	case "array":
		return m.list(s, depth)
	case "string":
		return m.text(s)
	case "integer", "number":
		return m.number(s, kind == "integer")
	case "boolean":
		return m.IntN(2) == 0
	}
	return pick(m.Rand, []any{"x", float64(1), true, tree{"a": "b"}})
}

func (m maker) members(s tree, depth int) tree {
	made := tree{}
	required := texts(s["required"])
	for _, word := range []string{"oneOf", "anyOf"} { // the members of one branch
		if branches, ok := s[word].([]any); ok && len(branches) > 0 {
			if branch, ok := pick(m.Rand, branches).(tree); ok {
				required = append(required, texts(branch["required"])...)
			}
		}
	}
	properties, _ := s["properties"].(tree)
	for _, name := range sorted(properties) {
		if slices.Contains(required, name) || depth < m.depth && m.Float64() < m.optional {
			made[name] = m.value(properties[name].(tree), depth+1)
		}
	}
	if more, ok := s["additionalProperties"].(tree); ok && depth < m.depth {
		for range m.IntN(3) {
			made[pick(m.Rand, []string{"a", "b", "c.d/e"})] = m.value(more, depth+1)
		}
	}
	if embedded, _ := s["x-kubernetes-embedded-resource"].(bool); embedded {
		made["apiVersion"], made["kind"], made["metadata"] = "v1", "Inner", tree{"name": "inner"}
	}
	if keep, _ := s["x-kubernetes-preserve-unknown-fields"].(bool); keep {
		made["free"] = pick(m.Rand, []any{"x", float64(1), 1.5, tree{"deep": nil}, []any{"l"}})
	}
	return made
}

func bound(s tree, name string, otherwise int) int {
	if n, ok := s[name].(float64); ok {
		return int(n)
	}
	return otherwise
}

func (m maker) list(s tree, depth int) []any {
	least := bound(s, "minItems", 0)
	n := least
	if depth < m.depth {
		n = min(least+m.IntN(3), bound(s, "maxItems", least+2))
	}
	made := []any{}
	items, ok := s["items"].(tree)
	for i := range n {
		if !ok {
			break
		}
		v := m.value(items, depth+1)
		if o, ok := v.(tree); ok {
			for _, key := range texts(s["x-kubernetes-list-map-keys"]) { // no two the same, mostly
				if text, ok := o[key].(string); ok && m.IntN(8) > 0 {
					o[key] = fmt.Sprint(text, i)
				}
			}
		}
		made = append(made, v)
	}
	return made
}

var byFormat = map[string]string{
	"date-time": "2024-01-01T00:00:30Z", "date": "2024-02-29", "byte": "aGVsbG8=", "duration": "1h30m", "ipv4": "10.0.0.1", "ipv6": "fe80::1", "cidr": "10.0.0.0/8",
	"uri": "https://example.com/a", "email": "a@example.com", "hostname": "a.example.com", "uuid": "0123abcd-0000-1111-8222-333344445555", "password": "x", "mac": "00:00:5e:00:53:01",
}

var plausible = []string{
	"a", "abc", "a-b", "example.com", "a.example.com", "1", "10", "1s", "1h30m", "5m", "100m", "1Gi", "/", "/path", "v1", "A", "Abc", "https://example.com", "example.com/name",
	"sha256:0000000000000000000000000000000000000000000000000000000000000000", "200", "2xx", "10.0.0.0/8", "10.0.0.1", "-1", "0 0 * * *", "oci://example.com/x", "key=value",
	"arn:aws:iam::123456789012:role/x", "Never", "10%", "ami-0123456789abcdef0", "subnet-0123456789abcdef0", "sg-0123456789abcdef0", "alias@latest",
}

func (m maker) text(s tree) string {
	format, _ := s["format"].(string)
	if text, ok := byFormat[format]; ok && m.IntN(10) > 0 {
		return text
	}
	least, most := bound(s, "minLength", 0), bound(s, "maxLength", 1<<20)
	fits := slices.DeleteFunc(slices.Clone(plausible), func(text string) bool { return len(text) < least || len(text) > most })
	if pattern, ok := s["pattern"].(string); ok {
		if p, err := regexp.Compile(pattern); err == nil {
			fits = slices.DeleteFunc(fits, func(text string) bool { return !p.MatchString(text) })
		}
	}
	if len(fits) == 0 {
		return strings.Repeat("x", max(1, min(least, 100)))
	}
	return pick(m.Rand, fits)
}

func (m maker) number(s tree, whole bool) float64 {
	low, ok := s["minimum"].(float64)
	if !ok {
		low = 0
	}
	high, ok := s["maximum"].(float64)
	if !ok || high < low {
		high = low + 5
	}
	n := float64(int64(low) + m.Int64N(max(1, min(10, int64(high-low)+1))))
	if !whole && m.IntN(3) == 0 {
		n += .5
	}
	return n
}

// spot is a value in a document.
type spot struct {
	value any
	set   func(any)
	del   func() // nil for an item of a list
}

// spots returns the values below a value, except for those that identify an object.
func spots(v any, top bool) (all []spot) {
	switch v := v.(type) {
	case tree:
		for _, name := range sorted(v) {
			if top && (name == "apiVersion" || name == "kind" || name == "metadata") {
				continue
			}
			all = append(all, spot{v[name], func(x any) { v[name] = x }, func() { delete(v, name) }})
			all = append(all, spots(v[name], false)...)
		}
	case []any:
		for i := range v {
			all = append(all, spot{v[i], func(x any) { v[i] = x }, nil})
			all = append(all, spots(v[i], false)...)
		}
	}
	return all
}

var odd = []any{
	nil, "", "A", "a_b", strings.Repeat("x", 70), "-1", "1.5", "2024-13-01T00:00:00Z", "é", float64(0), float64(-1), float64(1 << 40), 1.5, 1e20, true, false, tree{}, []any{}, tree{"x": "y"},
	[]any{"a", "a"}, []any{float64(1), nil},
}

// odd returns a copy of a random odd value.
func (m maker) odd() any { return clone(tree{"": pick(m.Rand, odd)})[""] }

// damage changes one value: to another one, to one of another type, to none.
func (m maker) damage(o tree) {
	all := spots(o, true)
	if len(all) == 0 {
		o[pick(m.Rand, []string{"unknown", "spec", "status"})] = m.odd()
		return
	}
	s := pick(m.Rand, all)
	switch n := m.IntN(6); {
	case n == 0 && s.del != nil:
		s.del()
		return
	case n == 1:
		s.set(m.odd())
		return
	}
	switch v := s.value.(type) {
	case string:
		s.set(pick(m.Rand, append([]any{v + v, strings.ToUpper(v), strings.Repeat(v, 20)}, odd[1], odd[3], odd[4], odd[7])))
	case float64:
		s.set(pick(m.Rand, []float64{v + 1, v - 1, -v, v * 1000, v + .5}))
	case bool:
		s.set(!v)
	case []any:
		if len(v) > 0 && m.IntN(2) == 0 {
			s.set(append(slices.Clone(v), v[m.IntN(len(v))]))
		} else if len(v) > 0 {
			i := m.IntN(len(v))
			s.set(slices.Delete(slices.Clone(v), i, i+1))
		}
	case tree:
		v[pick(m.Rand, []string{"unknown", "name", "Spec"})] = m.odd()
	}
}
