package tidemarktest

import (
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"sync"
)

// maxRenderings limits the cached renderings in bytes.
const maxRenderings = 64 << 20

// renderings keeps the texts of objects for runs that are alike: most of their objects differ in UIDs and points
// in time alone. The zero value is empty. All methods are safe for concurrent use; nil keeps nothing.
type renderings struct {
	mu    sync.Mutex
	texts map[string]string // by stableJSON
	bytes int
}

// render returns an object as YAML without the parts that differ from run to run; empty for none.
func (r *renderings) render(object json.RawMessage, replace func(string) string) (string, error) {
	if isNone(object) {
		return "", nil
	}
	var key []byte
	if r != nil {
		key = stableJSON(object, replace)
		if text, ok := r.get(key); ok {
			return text, nil
		}
	}
	o, err := decodeObject(object)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	writeYAML(&b, stable(o, replace), 0)
	r.keep(key, b.String())
	return b.String(), nil
}

func (r *renderings) get(key []byte) (text string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, ok = r.texts[string(key)]
	return text, ok
}

// keep keeps a text if there is room.
func (r *renderings) keep(key []byte, text string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes += len(key) + len(text); r.bytes > maxRenderings {
		r.bytes -= len(key) + len(text)
		return
	}
	if r.texts == nil {
		r.texts = map[string]string{}
	}
	r.texts[string(key)] = text
}

// stableJSON returns a text that is the same for two objects only if stable returns the same for them. It is
// their JSON, with stable strings after their lengths, without resource versions. What stable leaves out in
// addition stays in it.
func stableJSON(object json.RawMessage, replace func(string) string) []byte {
	out := make([]byte, 0, len(object)+len(object)/4)
	rest, hide := 0, -1 // hide: where a value begins that is left out
	for s := range jsonStrings(object) {
		out = append(out, object[rest:s.start]...)
		rest = s.end
		if s.value >= 0 {
			out = append(out, object[s.start:s.end]...)
			if string(object[s.start:s.end]) == `"resourceVersion"` {
				hide = s.value
			}
			continue
		}
		text := ""
		if s.start != hide {
			text = stableText(s.of(object), replace)
		}
		out = append(out, '"')
		out = append(strconv.AppendInt(out, int64(len(text)), 10), ':')
		out = append(out, text...)
	}
	return append(out, object[rest:]...)
}

// identity identifies an object.
type identity struct{ name, generateName, uid string }

// identityOf reads the identity of an object, which may be none.
func identityOf(object json.RawMessage) (id identity) {
	metadata := false
	var field *string
	for s := range jsonStrings(object) {
		switch {
		case s.value >= 0 && s.depth == 1:
			metadata = string(object[s.start:s.end]) == `"metadata"`
		case s.depth != 2 || !metadata:
		case s.value < 0:
			if field != nil {
				*field = s.of(object)
			}
		default:
			switch string(object[s.start:s.end]) {
			case `"name"`:
				field = &id.name
			case `"generateName"`:
				field = &id.generateName
			case `"uid"`:
				field = &id.uid
			default:
				field = nil
			}
		}
	}
	return id
}

// jsonString is a string in a JSON text.
type jsonString struct {
	start, end int // with its quotes
	depth      int // of the objects and arrays around it
	value      int // where the value of the member begins whose name it is; negative: it is no name
	escaped    bool
}

// of returns the string in its text.
func (s jsonString) of(text []byte) string {
	if !s.escaped {
		return string(text[s.start+1 : s.end-1])
	}
	var v string
	json.Unmarshal(text[s.start:s.end], &v) // the text is valid
	return v
}

// jsonStrings yields the strings in a valid JSON text, in their order.
func jsonStrings(text []byte) iter.Seq[jsonString] {
	return func(yield func(jsonString) bool) {
		depth := 0
		for i := 0; i < len(text); i++ {
			switch text[i] {
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			case '"':
				s := jsonString{start: i, depth: depth, value: -1}
				for i++; i < len(text) && text[i] != '"'; i++ {
					if text[i] == '\\' {
						s.escaped = true
						i++
					}
				}
				if i >= len(text) {
					return
				}
				s.end = i + 1
				if next := skipSpace(text, s.end); next < len(text) && text[next] == ':' {
					s.value = skipSpace(text, next+1)
				}
				if !yield(s) {
					return
				}
			}
		}
	}
}

// skipSpace returns where the white space of JSON ends that begins at an index.
func skipSpace(text []byte, i int) int {
	for i < len(text) && strings.IndexByte(" \t\r\n", text[i]) >= 0 {
		i++
	}
	return i
}
