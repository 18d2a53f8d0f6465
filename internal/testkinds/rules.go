package testkinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Rule is a row of a table of rules: the name of the rule, the edits that turn a valid
// object into one to which the rule applies, and the results: errors, warnings or changes, "" for none.
//
// Edits are lines of the form "path: value". A path is as errors write it,
// `spec.containers[0].name` or `metadata.annotations["example.com/a"]`, the value is
// YAML on one line. The index after the last item appends one; null removes a member.
//
// The results have a line for each error, warning or change, in which "..." stands for
// any text. In both, "{a*64}" stands for 64 times "a".
type Rule [3]string

// Update is a row of a table about updates: the name of the rule, the edits of the valid object
// that make the old object, the edits of the old object that make the new one, and the results.
type Update [4]string

// Rules runs a table. Apply returns the errors, warnings or changes for an object.
func Rules[T any](t *testing.T, valid string, rows []Rule, apply func(o *T) []string) {
	t.Helper()
	for _, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			o := decode[T](t, edited(t, parse(t, valid), row[1]))
			compare(t, apply(o), row[2])
		})
	}
}

// Below returns rows whose paths begin at a part of the object. The part is put before each path,
// in the edits and in the results, that does not begin with metadata, annotations, spec or status,
// or with [], the whole.
func Below(part string, rows []Rule) []Rule {
	for i, row := range rows {
		rows[i] = Rule{row[0], prefixed(part, row[1]), prefixed(part, row[2])}
	}
	return rows
}

// UpdatesBelow is Below of a table about updates.
func UpdatesBelow(part string, rows []Update) []Update {
	for i, row := range rows {
		rows[i] = Update{row[0], prefixed(part, row[1]), prefixed(part, row[2]), prefixed(part, row[3])}
	}
	return rows
}

func prefixed(part, lines string) string {
	var out strings.Builder
	for line := range strings.Lines(lines) {
		if !fromRoot.MatchString(line) {
			out.WriteString(part)
			if !strings.ContainsRune(":.[", rune(line[0])) {
				out.WriteByte('.')
			}
		}
		out.WriteString(line)
	}
	return out.String()
}

// Updates runs a table about updates.
func Updates[T any](t *testing.T, valid string, rows []Update, apply func(o, old *T) []string) {
	t.Helper()
	for _, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			before := edited(t, parse(t, valid), row[1])
			old := decode[T](t, before)
			compare(t, apply(decode[T](t, edited(t, before, row[2])), old), row[3])
		})
	}
}

// Object decodes an object that is written as YAML. Unknown members fail the test.
func Object[T any](t *testing.T, text string) *T {
	t.Helper()
	return decode[T](t, parse(t, text))
}

// Texts are errors as the API shows them.
func Texts(errs field.ErrorList) (all []string) {
	for _, e := range errs {
		all = append(all, e.Error())
	}
	return all
}

// Changes returns the changes that a function makes to an object, sorted: "path: value" for a
// member that it sets, "path: removed" for one that it removes.
func Changes[T any](o *T, change func(*T)) (all []string) {
	before := map[string]string{}
	flatten(before, "", plain(o))
	change(o)
	after := map[string]string{}
	flatten(after, "", plain(o))
	for path, value := range after {
		if before[path] != value {
			all = append(all, path+": "+value)
		}
		delete(before, path)
	}
	for path := range maps.Keys(before) {
		all = append(all, path+": removed")
	}
	slices.Sort(all)
	return all
}

func plain(o any) (v any) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		panic(err)
	}
	return v
}

// flatten puts the leaves of a value into a map by their paths. Empty maps and lists are
// leaves.
func flatten(to map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			at := path + "." + key
			if strings.ContainsAny(key, "./") {
				at = path + "[" + key + "]"
			}
			flatten(to, strings.TrimPrefix(at, "."), value)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for i, value := range v {
			flatten(to, fmt.Sprintf("%s[%d]", path, i), value)
		}
		if len(v) > 0 {
			return
		}
	}
	text, _ := json.Marshal(v)
	if s, ok := v.(string); ok && s != "" {
		text = []byte(s)
	}
	to[path] = string(text)
}

func parse(t *testing.T, text string) any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(repeat(text)))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func decode[T any](t *testing.T, v any) *T {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	o := new(T)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

var (
	step     = regexp.MustCompile(`^(?:\.?([^.\[\]]+)|\[(\d+)\]|\["([^"]+)"\])`)
	fromRoot = regexp.MustCompile(`^(\[\]|(metadata|annotations|spec|status)\b)`)
	repeated = regexp.MustCompile(`\{(.)\*(\d+)\}`)
)

func repeat(text string) string {
	return repeated.ReplaceAllStringFunc(text, func(s string) string {
		m := repeated.FindStringSubmatch(s)
		n, _ := strconv.Atoi(m[2])
		return strings.Repeat(m[1], n)
	})
}

// edited is a copy of a value with edits.
func edited(t *testing.T, v any, edits string) any {
	t.Helper()
	v = clone(v)
	for line := range strings.Lines(edits) {
		path, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			t.Fatalf("the edit %q has no value", line)
		}
		v = set(t, v, path, parse(t, value))
	}
	return v
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[key] = clone(value)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = clone(v[i])
		}
		return list
	}
	return v
}

// set returns a value with another one at a path below it.
func set(t *testing.T, in any, path string, value any) any {
	t.Helper()
	if path == "" {
		return value
	}
	m := step.FindStringSubmatch(path)
	if m == nil {
		t.Fatalf("%q is no path", path)
	}
	rest := path[len(m[0]):]
	if m[2] != "" {
		list, _ := in.([]any)
		i, _ := strconv.Atoi(m[2])
		switch {
		case i > len(list):
			t.Fatalf("there is no item before %q", path)
		case i == len(list):
			list = append(list, nil)
		}
		list[i] = set(t, list[i], rest, value)
		return list
	}
	object, _ := in.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	key := m[1] + m[3]
	if rest == "" && value == nil {
		delete(object, key)
	} else {
		object[key] = set(t, object[key], rest, value)
	}
	return object
}

// compare requires that the results are the wanted lines.
func compare(t *testing.T, got []string, want string) {
	t.Helper()
	text := strings.Join(got, "\n")
	var wanted []string
	if want != "" {
		wanted = strings.Split(repeat(want), "\n")
	}
	same := slices.EqualFunc(got, wanted, func(got, want string) bool {
		start, end, open := strings.Cut(want, "...")
		return got == want || open && strings.HasPrefix(got, start) && strings.HasSuffix(got[len(start):], end)
	})
	if !same {
		t.Errorf("got:\n%s\nwant:\n%s", text, repeat(want))
	}
}
