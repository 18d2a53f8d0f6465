package apply

import (
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"
)

// A tape is a JSON text with an index of its values, in the order of the text: a value's
// children follow it. It refers to the text, which must not change.
type tape struct {
	data   []byte
	values []tapeValue
}

// tapeValue is a value, with its key in an object.
type tapeValue struct {
	kind       byte // { [ " 0 t f n: how it begins; 0 is any number
	keyEscaped bool
	escaped    bool // a string with escapes
	// Offsets of the key without its quotes, and of the value.
	key0, key1, value0, value1 int32
	// next is the index after the last child; the first child follows the value.
	next     int32
	children int32
}

// maxTapeDepth is deeper than any object with a schema; deeper ones are left to the
// library.
const maxTapeDepth = 512

var errTape = errors.New("no JSON that can be indexed")

// none is the index of an absent value.
const none int32 = -1

// read indexes a JSON object.
func (t *tape) read(data []byte) error {
	t.data, t.values = data, t.values[:0]
	if len(data) > 1<<30 {
		return errTape
	}
	p := t.space(0)
	if p >= len(data) || data[p] != '{' {
		return errTape
	}
	t.values = append(t.values, tapeValue{})
	p, ok := t.value(p, 0, 0)
	if !ok || t.space(p) != len(data) {
		return errTape
	}
	return nil
}

func (t *tape) space(p int) int {
	for p < len(t.data) && (t.data[p] == ' ' || t.data[p] == '\n' || t.data[p] == '\t' || t.data[p] == '\r') {
		p++
	}
	return p
}

// value reads the value at p into its slot.
func (t *tape) value(p int, slot int32, depth int) (end int, ok bool) {
	if p >= len(t.data) || depth > maxTapeDepth {
		return 0, false
	}
	start, kind, escaped := p, t.data[p], false
	var children int32
	switch kind {
	case '{', '[':
		p, children, ok = t.container(p, kind, depth)
	case '"':
		p, escaped, ok = stringEnd(t.data, p)
	case 't':
		p, ok = t.literal(p, "true")
	case 'f':
		p, ok = t.literal(p, "false")
	case 'n':
		p, ok = t.literal(p, "null")
	default:
		kind = '0'
		p, ok = numberEnd(t.data, p)
	}
	v := &t.values[slot]
	v.kind, v.escaped, v.children = kind, escaped, children
	v.value0, v.value1, v.next = int32(start), int32(p), int32(len(t.values))
	return p, ok
}

// container reads the members of an object or the elements of an array.
func (t *tape) container(p int, kind byte, depth int) (end int, children int32, ok bool) {
	stop := kind + 2 // } or ]
	p = t.space(p + 1)
	if p < len(t.data) && t.data[p] == stop {
		return p + 1, 0, true
	}
	for {
		var v tapeValue
		if kind == '{' {
			if p >= len(t.data) || t.data[p] != '"' {
				return 0, 0, false
			}
			keyEnd, escaped, ok := stringEnd(t.data, p)
			if !ok {
				return 0, 0, false
			}
			v.key0, v.key1, v.keyEscaped = int32(p+1), int32(keyEnd-1), escaped
			if p = t.space(keyEnd); p >= len(t.data) || t.data[p] != ':' {
				return 0, 0, false
			}
			p = t.space(p + 1)
		}
		slot := int32(len(t.values))
		t.values = append(t.values, v)
		children++
		if p, ok = t.value(p, slot, depth+1); !ok {
			return 0, 0, false
		}
		if p = t.space(p); p >= len(t.data) {
			return 0, 0, false
		}
		switch t.data[p] {
		case stop:
			return p + 1, children, true
		case ',':
			p = t.space(p + 1)
		default:
			return 0, 0, false
		}
	}
}

func (t *tape) literal(p int, word string) (int, bool) {
	end := p + len(word)
	return end, end <= len(t.data) && string(t.data[p:end]) == word
}

// inString are the bytes that a string has between its quotes and without escapes.
var inString = func() (in [256]bool) {
	for c := ' '; c < 256; c++ {
		in[c] = c != '"' && c != '\\'
	}
	return in
}()

// stringEnd returns the index after a string.
func stringEnd(data []byte, p int) (end int, escaped, ok bool) {
	for p++; p < len(data); p++ {
		c := data[p]
		if inString[c] {
			continue
		}
		switch c {
		case '"':
			return p + 1, escaped, true
		case '\\':
			escaped = true
			p++
		default:
			return 0, false, false
		}
	}
	return 0, false, false
}

// numberEnd returns the index after a valid number.
func numberEnd(data []byte, p int) (int, bool) {
	digits := func() bool {
		from := p
		for p < len(data) && data[p] >= '0' && data[p] <= '9' {
			p++
		}
		return p > from
	}
	if p < len(data) && data[p] == '-' {
		p++
	}
	first := p
	if !digits() || data[first] == '0' && p > first+1 {
		return 0, false
	}
	if p < len(data) && data[p] == '.' {
		p++
		if !digits() {
			return 0, false
		}
	}
	if p < len(data) && (data[p] == 'e' || data[p] == 'E') {
		p++
		if p < len(data) && (data[p] == '+' || data[p] == '-') {
			p++
		}
		if !digits() {
			return 0, false
		}
	}
	return p, true
}

// raw returns a value as it is in the text.
func (t *tape) raw(i int32) []byte {
	v := &t.values[i]
	return t.data[v.value0:v.value1]
}

// key returns the name of a member.
func (t *tape) key(i int32) []byte {
	v := &t.values[i]
	if v.keyEscaped {
		return unquoted(t.data[v.key0-1 : v.key1+1])
	}
	return t.data[v.key0:v.key1]
}

// text returns the content of a string.
func (t *tape) text(i int32) []byte {
	raw := t.raw(i)
	if t.values[i].escaped {
		return unquoted(raw)
	}
	return raw[1 : len(raw)-1]
}

func unquoted(quoted []byte) []byte {
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return nil // only strings have names and fit a schema
	}
	return []byte(s)
}

// find returns the member of an object; the search begins at from.
func (t *tape) find(object int32, key []byte, from int32) int32 {
	end := t.values[object].next
	for c := from; c < end; c = t.values[c].next {
		if string(t.key(c)) == string(key) {
			return c
		}
	}
	for c := object + 1; c < from; c = t.values[c].next {
		if string(t.key(c)) == string(key) {
			return c
		}
	}
	return none
}

// equal compares two values by meaning: members in any order, numbers by value.
func equal(a *tape, i int32, b *tape, j int32) bool {
	x, y := a.raw(i), b.raw(j)
	if string(x) == string(y) {
		return true
	}
	v, w := &a.values[i], &b.values[j]
	if v.kind != w.kind {
		return false
	}
	switch v.kind {
	case '"':
		return (v.escaped || w.escaped) && string(a.text(i)) == string(b.text(j))
	case '0':
		return sameNumber(x, y)
	case '[':
		if v.children != w.children {
			return false
		}
		d := j + 1
		for c := i + 1; c < v.next; c = a.values[c].next {
			if !equal(a, c, b, d) {
				return false
			}
			d = b.values[d].next
		}
		return true
	case '{':
		return equalMembers(a, i, b, j)
	}
	return false
}

func equalMembers(a *tape, i int32, b *tape, j int32) bool {
	if a.values[i].children != b.values[j].children {
		return false
	}
	look := newLookup(b, j)
	for c := i + 1; c < a.values[i].next; c = a.values[c].next {
		d := look.find(a.key(c))
		if d == none || !equal(a, c, b, d) {
			return false
		}
	}
	return true
}

func sameNumber(x, y []byte) bool {
	n, err1 := strconv.ParseInt(string(x), 10, 64)
	m, err2 := strconv.ParseInt(string(y), 10, 64)
	if err1 == nil && err2 == nil {
		return n == m
	}
	f, err1 := strconv.ParseFloat(string(x), 64)
	g, err2 := strconv.ParseFloat(string(y), 64)
	return err1 == nil && err2 == nil && f == g
}

// lookup finds members of one object in about the order of the text. A large object gets an
// index, so that no order is slow.
type lookup struct {
	t      *tape
	object int32
	cursor int32
	index  map[string]int32
}

// manyMembers is the size from which an index is faster than a scan.
const manyMembers = 48

func newLookup(t *tape, object int32) lookup { return lookup{t: t, object: object, cursor: object + 1} }

func (l *lookup) find(key []byte) int32 {
	v := &l.t.values[l.object]
	if l.cursor < v.next && string(l.t.key(l.cursor)) == string(key) {
		at := l.cursor
		l.cursor = l.t.values[at].next
		return at
	}
	var at int32
	if v.children > manyMembers {
		if l.index == nil {
			l.index = make(map[string]int32, v.children)
			for c := l.object + 1; c < v.next; c = l.t.values[c].next {
				l.index[string(l.t.key(c))] = c
			}
		}
		found, ok := l.index[string(key)]
		if !ok {
			return none
		}
		at = found
	} else if at = l.t.find(l.object, key, l.cursor); at == none {
		return none
	}
	l.cursor = l.t.values[at].next
	return at
}

// validText reports whether the library and encoding/json write a text alike.
func validText(s []byte) bool {
	for _, c := range s {
		if c < 0x20 {
			return false
		}
		if c >= utf8.RuneSelf {
			return utf8.Valid(s)
		}
	}
	return true
}
