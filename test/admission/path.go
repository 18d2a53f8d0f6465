package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A path selects values of a JSON document: .a.b, ["a/b"], [0], [*], [type=Ready].
var segment = regexp.MustCompile(`^(?:\.([^.\[]+)|\["([^"]*)"\]|\[(\d+)\]|\[(\*)\]|\[([^=\]]+)=([^\]]*)\])`)

// visit calls f with each value that a path selects, and replaces it with the result. It removes
// the value if keep is false.
func visit(root any, path string, f func(v any) (value any, keep bool)) (any, bool, error) {
	if path == "" || path == "." {
		v, keep := f(root)
		return v, keep, nil
	}
	m := segment.FindStringSubmatch(path)
	if m == nil {
		return root, true, fmt.Errorf("bad path at %q", path)
	}
	rest := path[len(m[0]):]
	switch node := root.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			if m[4] != "*" && (m[1]+m[2] != key || m[3]+m[5] != "") {
				continue
			}
			v, keep, err := visit(node[key], rest, f)
			if err != nil {
				return root, true, err
			}
			if node[key] = v; !keep {
				delete(node, key)
			}
		}
	case []any:
		kept := node[:0:0]
		for i, child := range node {
			if m[4] == "*" || m[3] == strconv.Itoa(i) || m[5] != "" && has(child, m[5], m[6]) {
				v, keep, err := visit(child, rest, f)
				if err != nil {
					return root, true, err
				}
				if !keep {
					continue
				}
				child = v
			}
			kept = append(kept, child)
		}
		return kept, true, nil
	}
	return root, true, nil
}

func has(v any, key, value string) bool {
	m, ok := v.(map[string]any)
	return ok && text(m[key]) == value
}

// find returns all values that a path selects.
func find(root any, path string) (all []any, err error) {
	_, _, err = visit(root, path, func(v any) (any, bool) {
		all = append(all, v)
		return v, true
	})
	return all, err
}

// text writes a value as a shell user would: strings without quotes.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	data, _ := json.Marshal(v)
	return string(data)
}

// pretty writes JSON with sorted keys, and short values on one line.
func pretty(v any) string {
	var b strings.Builder
	write(&b, v, "", 0)
	return b.String() + "\n"
}

func write(b *strings.Builder, v any, indent string, before int) {
	line := compact(v)
	if len(indent)+before+len(line) <= 110 {
		b.WriteString(line)
		return
	}
	deeper := indent + "  "
	switch node := v.(type) {
	case []any:
		for i, child := range node {
			b.WriteString([]string{"[\n", ",\n"}[min(i, 1)] + deeper)
			write(b, child, deeper, 0)
		}
		b.WriteString("\n" + indent + "]")
	case map[string]any:
		for i, key := range slices.Sorted(maps.Keys(node)) {
			name := compact(key) + ": "
			b.WriteString([]string{"{\n", ",\n"}[min(i, 1)] + deeper + name)
			write(b, node[key], deeper, len(name))
		}
		b.WriteString("\n" + indent + "}")
	default:
		b.WriteString(line)
	}
}

// compact writes JSON on one line, with a space after colons and commas.
func compact(v any) string {
	switch node := v.(type) {
	case []any:
		parts := make([]string, len(node))
		for i, child := range node {
			parts[i] = compact(child)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(node)) {
			parts = append(parts, compact(key)+": "+compact(node[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimRight(b.String(), "\n")
}
