package changes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Path is the path of a field, as in Field.Path. Without the keys of a list, it means all elements.
type Path struct {
	text     string
	segments []segment
}

// segment is the name of a member, or selects elements of a list.
type segment struct {
	name string
	// elements: the segment selects elements of a list, by their members (keys), or one element of a set (value). Without
	// keys and value, it selects all elements.
	elements bool
	keys     []keyValue
	value    any
	isValue  bool
}

type keyValue struct {
	key   string
	value any // a string, a json.Number, a bool
}

// maxPathText is the longest path that a client may name, in bytes.
const maxPathText = 4 << 10

// ParsePath parses a path: spec.replicas, metadata.labels["a.b/c"], spec.containers[name=app].image,
// spec.containers.image, spec.hosts[="a"].
func ParsePath(text string) (Path, error) {
	if len(text) > maxPathText {
		return Path{}, fmt.Errorf("a path of %d bytes: want at most %d", len(text), maxPathText)
	}
	rest := strings.TrimPrefix(text, ".")
	p := Path{text: rest}
	if rest == "" {
		return Path{}, errors.New("the path is empty: want one such as spec.replicas")
	}
	for rest != "" {
		s, more, err := nextSegment(rest)
		if err != nil {
			return Path{}, fmt.Errorf("path %q: %w", text, err)
		}
		p.segments = append(p.segments, s)
		if more == rest {
			return Path{}, fmt.Errorf("path %q: want a name before %q", text, rest)
		}
		rest = more
		if strings.HasPrefix(rest, ".") {
			if rest = rest[1:]; rest == "" || rest[0] == '[' {
				return Path{}, fmt.Errorf("path %q: want a name after the dot", text)
			}
		} else if rest != "" && rest[0] != '[' {
			return Path{}, fmt.Errorf("path %q: want a dot before %q", text, rest)
		}
	}
	return p, nil
}

// String returns the text of the path.
func (p Path) String() string { return p.text }

var errBracket = errors.New("a bracket is not closed")

// nextSegment reads the first segment of a path.
func nextSegment(text string) (s segment, rest string, err error) {
	if text[0] != '[' {
		end := strings.IndexAny(text, ".[")
		if end < 0 {
			end = len(text)
		}
		return segment{name: text[:end]}, text[end:], nil
	}
	rest = text[1:]
	switch {
	case strings.HasPrefix(rest, `"`):
		name, rest, err := quotedText(rest)
		if err != nil || !strings.HasPrefix(rest, "]") {
			return segment{}, "", errors.Join(err, errBracket)
		}
		return segment{name: name}, rest[1:], nil
	case strings.HasPrefix(rest, "]"):
		return segment{elements: true}, rest[1:], nil
	case strings.HasPrefix(rest, "*]"):
		return segment{elements: true}, rest[2:], nil
	}
	s.elements = true
	for {
		key, after, ok := strings.Cut(rest, "=")
		if !ok || strings.ContainsAny(key, "]") {
			return segment{}, "", fmt.Errorf("%q: want keys such as [name=app], or [=\"x\"] for an element of a set", text)
		}
		var value any
		if value, rest, err = scalarValue(after); err != nil {
			return segment{}, "", err
		}
		if key == "" {
			s.isValue, s.value = true, value
		} else {
			s.keys = append(s.keys, keyValue{key, value})
		}
		switch {
		case strings.HasPrefix(rest, "]"):
			return s, rest[1:], nil
		case !strings.HasPrefix(rest, ",") || s.isValue:
			return segment{}, "", errBracket
		}
		rest = rest[1:]
	}
}

// scalarValue reads the value of a key.
func scalarValue(text string) (value any, rest string, err error) {
	if strings.HasPrefix(text, `"`) {
		return unpack(quotedText(text))
	}
	end := strings.IndexAny(text, ",]")
	if end < 0 {
		return nil, "", errBracket
	}
	word, rest := text[:end], text[end:]
	switch word {
	case "true":
		return true, rest, nil
	case "false":
		return false, rest, nil
	}
	var n json.Number
	if json.Unmarshal([]byte(word), &n) == nil && n != "" && word[0] != '"' {
		return n, rest, nil
	}
	return word, rest, nil
}

func unpack(text, rest string, err error) (any, string, error) { return text, rest, err }

// quotedText reads a JSON string.
func quotedText(text string) (value, rest string, err error) {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			err := json.Unmarshal([]byte(text[:i+1]), &value)
			return value, text[i+1:], err
		}
	}
	return "", "", errors.New("a quote is not closed")
}

// Touches reports whether one of the changed fields is the path or below it, or contains it with another value.
func (p Path) Touches(fields []Field) bool {
	for i := range fields {
		if p.touches(&fields[i]) {
			return true
		}
	}
	return false
}

func (p Path) touches(f *Field) bool {
	rest, wanted := f.Path, p.segments
	for len(wanted) > 0 && rest != "" {
		s, more, err := nextSegment(rest)
		if err != nil || more == rest {
			return false
		}
		switch w := &wanted[0]; {
		case w.elements == s.elements:
			if !w.matches(&s) {
				return false
			}
			wanted = wanted[1:]
		case w.elements:
			return false
		} // else the path does not say which element
		rest = strings.TrimPrefix(more, ".")
	}
	return len(wanted) == 0 || !reflect.DeepEqual(find(f.From, wanted), find(f.To, wanted))
}

// matches compares a wanted segment with one of a field.
func (s *segment) matches(of *segment) bool {
	switch {
	case !s.elements:
		return s.name == of.name
	case s.isValue:
		return of.isValue && sameScalar(s.value, of.value)
	}
	for _, k := range s.keys {
		found := false
		for _, o := range of.keys {
			found = found || o.key == k.key && sameScalar(o.value, k.value)
		}
		if !found {
			return false
		}
	}
	return true
}

// sameScalar compares the values of a key. A user may leave out the quotes of a string that looks like a number.
func sameScalar(a, b any) bool { return a == b || fmt.Sprint(a) == fmt.Sprint(b) }

// find returns the values at a path in a JSON value, in their order.
func find(raw json.RawMessage, path []segment) (all []any) {
	if raw == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return collect(nil, v, path)
}

func collect(all []any, v any, path []segment) []any {
	if list, ok := v.([]any); ok && len(path) > 0 {
		s, below := &segment{elements: true}, path
		if path[0].elements {
			s, below = &path[0], path[1:]
		}
		for _, e := range list {
			if s.chooses(e) {
				all = collect(all, e, below)
			}
		}
		return all
	}
	if len(path) == 0 {
		return append(all, v)
	}
	if m, ok := v.(map[string]any); ok && !path[0].elements {
		if member, ok := m[path[0].name]; ok {
			return collect(all, member, path[1:])
		}
	}
	return all
}

// chooses reports whether a segment selects an element of a list.
func (s *segment) chooses(element any) bool {
	if s.isValue {
		return sameScalar(element, s.value)
	}
	m, _ := element.(map[string]any)
	for _, k := range s.keys {
		if v, ok := m[k.key]; !ok || !sameScalar(v, k.value) {
			return false
		}
	}
	return true
}
