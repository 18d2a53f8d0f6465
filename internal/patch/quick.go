package patch

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// quickly applies operations that add, replace or remove members of objects, as most are. Untouched
// parts stay bytes, whereas the library decodes and compacts each level of the document: it takes
// eight times as long for a large one. The result is that of the library. It reports false if it
// cannot apply them: for other operations, lists, or missing members. Then the library applies all
// of them, and finds the errors.
func quickly(document []byte, operations jsonpatch.Patch) ([]byte, bool) {
	root := &part{text: document}
	for _, o := range operations {
		if !root.apply(o) {
			return nil, false
		}
	}
	if root.members == nil { // without operations
		return nil, false
	}
	out, err := root.append(make([]byte, 0, len(document)))
	if err != nil {
		return nil, false
	}
	return escaped(out), true
}

// part is a value of a document: its text, or the members of an object that an operation has looked at.
type part struct {
	text    []byte
	members map[string]*part
}

// open reads the members. It reports false for other values than objects.
func (p *part) open() bool {
	if p.members != nil {
		return true
	}
	all := map[string]*part{}
	valid := true
	err := members(p.text, func(name string, value jsontext.Value) error {
		valid = valid && !strings.ContainsRune(name, utf8.RuneError)
		all[name] = &part{text: value}
		return nil
	})
	if err != nil || !valid {
		return false
	}
	p.text, p.members = nil, all
	return true
}

// apply applies an operation, or reports false.
func (p *part) apply(o jsonpatch.Operation) bool {
	path, err := o.Path()
	if err != nil || !strings.HasPrefix(path, "/") {
		return false
	}
	names := segments(path)
	for _, name := range names[:len(names)-1] {
		if !p.open() || p.members[name] == nil {
			return false
		}
		p = p.members[name]
	}
	if !p.open() {
		return false
	}
	last := names[len(names)-1]
	kind, value := o.Kind(), o["value"]
	switch {
	case kind != "add" && p.members[last] == nil:
		return false
	case kind == "remove":
		delete(p.members, last)
	case (kind == "add" || kind == "replace") && value != nil:
		var text bytes.Buffer
		if json.Compact(&text, *value) != nil {
			return false
		}
		p.members[last] = &part{text: text.Bytes()}
	default:
		return false
	}
	return true
}

// append appends the value. Members are sorted.
func (p *part) append(b []byte) ([]byte, error) {
	if p.members == nil {
		return append(b, p.text...), nil
	}
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(p.members)) {
		if i > 0 {
			b = append(b, ',')
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		b = append(append(b, quoted...), ':')
		if b, err = p.members[name].append(b); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// escaped returns a document as encoding/json writes it, for HTML's sake.
func escaped(document []byte) []byte {
	for _, text := range []string{"<", ">", "&", "\u2028", "\u2029"} {
		if bytes.Contains(document, []byte(text)) {
			var out bytes.Buffer
			json.HTMLEscape(&out, document)
			return out.Bytes()
		}
	}
	return document
}
