package apply

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/jsontext"
)

// Field is a field that two versions of an object have different values of.
type Field struct {
	// Path names the field: members by name, elements of lists by their keys.
	Path string `json:"path"`
	// From and To are the values as JSON; nil if the object has no such field. They refer to the text of the
	// objects.
	From json.RawMessage `json:"from,omitempty"`
	To   json.RawMessage `json:"to,omitempty"`
}

// DiffOptions are the options of a comparison. The zero value is ready.
type DiffOptions struct {
	// All includes metadata.managedFields, resourceVersion and generation.
	All bool
	// Limit is the greatest number of fields; zero means DefaultDiffLimit. Where there are more, a field is a
	// whole value that has several of them. The result has at most 64 fields more.
	Limit int
}

// DefaultDiffLimit is the limit of fields of one comparison.
const DefaultDiffLimit = 10_000

const (
	// maxDiffPath bounds a member of a path in bytes. The value around a longer one is one field.
	maxDiffPath = 1 << 10
	// maxDiffPaths bounds all paths of one comparison in bytes. So do freeDiffPaths and diffPathsPart times the size of
	// the objects: in a deep object, the paths of many small fields are all long.
	maxDiffPaths  = 4 << 20
	freeDiffPaths = 64 << 10
	diffPathsPart = 16
	// diffSlack is how many members of the object itself may exceed the limit.
	diffSlack = 64
)

// Diff returns the fields that differ between two versions of an object, as JSON in the schema's version. Either is
// nil for an object that does not exist. The order is that of the later object; removed fields of a value come last.
//
//	spec.replicas                                          a member
//	metadata.labels["a.b/c"]                               a member that is no word of letters, digits, _ and -
//	spec.ports[port=80,protocol=TCP].targetPort            an element by the list's keys, in the schema's order
//	spec.hosts[="a.example.com"]                           an element of a set
//
// A scalar, an atomic list or map, an empty value and a value that does not fit the schema are one field. So are a
// list whose elements have no unique keys or changed their order alone, and an element of a list that was added or
// removed. Each leaf is a field of its own if the whole object was created or deleted. Text that is no JSON object is
// one field with an empty path.
//
// It walks the bytes once and skips equal values. The time grows in proportion to the size of the objects.
func (s *Schema) Diff(before, after []byte, o DiffOptions) []Field {
	if before == nil && after == nil || bytes.Equal(before, after) {
		return nil
	}
	d := differs.Get().(*differ)
	defer d.release()
	d.all, d.limit, d.whole = o.All, o.Limit, before == nil || after == nil
	if d.limit <= 0 {
		d.limit = DefaultDiffLimit
	}
	d.mostPaths = min(maxDiffPaths, freeDiffPaths+diffPathsPart*(len(before)+len(after)))
	l, r := none, none
	if before != nil && d.left.read(before) == nil {
		l = 0
	}
	if after != nil && d.right.read(after) == nil {
		r = 0
	}
	if (l == none) != (before == nil) || (r == none) != (after == nil) || !d.object(s.shape(), l, r) {
		return []Field{{From: before, To: after}}
	}
	return d.result()
}

// differ finds the fields that differ.
type differ struct {
	left, right *tape
	all, whole  bool
	limit       int
	mostPaths   int // in bytes
	// over: there are too many fields, or a path is too long. The value that is being compared becomes one field.
	over bool

	path     []byte
	paths    []byte // of the found fields
	found    []foundField
	items    []diffItem
	segments []byte // of items
}

// foundField is a field with the end of its path in paths, and the values.
type foundField struct {
	end  int
	l, r int32
}

// diffItem is an element of a list with its segment of a path.
type diffItem struct {
	from, to int // in segments
	at       int32
}

var differs = sync.Pool{New: func() any { return &differ{left: &tape{}, right: &tape{}} }}

func (d *differ) release() {
	if cap(d.left.values)+cap(d.right.values)+cap(d.found)+cap(d.items) > maxKeptNodes || cap(d.paths)+cap(d.segments)+cap(d.path) > 1<<17 {
		return
	}
	d.left.data, d.right.data = nil, nil
	d.path, d.paths, d.segments = d.path[:0], d.paths[:0], d.segments[:0]
	d.found, d.items, d.over = d.found[:0], d.items[:0], false
	differs.Put(d)
}

func (d *differ) result() []Field {
	if len(d.found) == 0 {
		return nil
	}
	all, start := string(d.paths), 0
	fields := make([]Field, len(d.found))
	for i, f := range d.found {
		fields[i].Path, start = all[start:f.end], f.end
		if f.l != none {
			fields[i].From = d.left.raw(f.l)
		}
		if f.r != none {
			fields[i].To = d.right.raw(f.r)
		}
	}
	return fields
}

// object compares the whole objects. It returns false if they are one field.
func (d *differ) object(s *shape, l, r int32) bool {
	if s == nil || s.dict == nil {
		s = &shape{dict: &dictShape{}}
	}
	d.dict(s.dict, l, r, position{root: true})
	return !d.over
}

func (d *differ) emit(l, r int32) {
	d.paths = append(d.paths, d.path...)
	d.found = append(d.found, foundField{len(d.paths), l, r})
	d.over = len(d.found) > d.limit || len(d.paths) > d.mostPaths
}

// value compares the values of one path. One of them may be absent.
func (d *differ) value(s *shape, l, r int32, at position) {
	if l != none && r != none && bytes.Equal(d.left.raw(l), d.right.raw(r)) {
		return
	}
	found, paths := len(d.found), len(d.paths)
	switch {
	case d.are('{', l, r) && (s == nil || s.dict != nil && !s.dict.atomic):
		members := &dictShape{} // of a value without a schema
		if s != nil {
			members = s.dict
		}
		d.dict(members, l, r, at)
	case s != nil && s.list != nil && !s.list.atomic && !s.list.odd && d.are('[', l, r) && d.list(s.list, l, r):
	case l != none && r != none && equal(d.left, l, d.right, r):
		return
	default:
		d.emit(l, r)
		return
	}
	if d.over {
		d.found, d.paths = d.found[:found], d.paths[:paths]
		d.emit(l, r)
	}
}

// are reports whether the values have this kind, as far as they are there, and at least one is not empty.
func (d *differ) are(kind byte, l, r int32) bool {
	children := int32(0)
	for _, v := range [...]struct {
		t *tape
		i int32
	}{{d.left, l}, {d.right, r}} {
		if v.i == none {
			continue
		}
		if v.t.values[v.i].kind != kind {
			return false
		}
		children += v.t.values[v.i].children
	}
	return children > 0
}

func (d *differ) dict(s *dictShape, l, r int32, at position) {
	met := int32(0)
	var look lookup
	if l != none {
		look = newLookup(d.left, l)
	}
	if r != none {
		for m := r + 1; m < d.right.values[r].next; m = d.right.values[m].next {
			key, was := d.right.key(m), none
			if l != none {
				if was = look.find(key); was != none {
					met++
				}
			}
			if !d.member(s, key, was, m, at) {
				return
			}
		}
	}
	if l == none || met == d.left.values[l].children {
		return
	}
	if r != none {
		look = newLookup(d.right, r)
	}
	for m := l + 1; m < d.left.values[l].next; m = d.left.values[m].next {
		if key := d.left.key(m); r == none || look.find(key) == none {
			if !d.member(s, key, m, none, at) {
				return
			}
		}
	}
}

// member compares one member of a map. It returns false if the map becomes one field.
func (d *differ) member(s *dictShape, key []byte, l, r int32, at position) bool {
	if at.metadata && !d.all && leftOut(key) {
		return true
	}
	if len(key) > maxDiffPath {
		d.over = true
		return false
	}
	base := len(d.path)
	d.path = appendMember(d.path, key)
	d.value(s.of(key), l, r, position{metadata: at.root && string(key) == "metadata"})
	d.path = d.path[:base]
	if d.over && at.root && len(d.found) <= d.limit+diffSlack {
		d.over = false
	}
	return !d.over
}

// leftOut reports whether a member of the metadata changes with each write.
func leftOut(key []byte) bool {
	switch string(key) {
	case "managedFields", "resourceVersion", "generation":
		return true
	}
	return false
}

// appendMember appends the name of a member to a path.
func appendMember(path, key []byte) []byte {
	if !plainWord(key) {
		return append(jsontext.AppendString(append(path, '['), string(key)), ']')
	}
	if len(path) > 0 {
		path = append(path, '.')
	}
	return append(path, key...)
}

func plainWord(key []byte) bool {
	for _, c := range key {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return len(key) > 0
}

// list compares two lists by the keys of their elements. It returns false, without a result, if they have no unique
// keys.
func (d *differ) list(s *listShape, l, r int32) bool {
	from, segments, found := len(d.items), len(d.segments), len(d.found)
	defer func() { d.items, d.segments = d.items[:from], d.segments[:segments] }()
	if !d.itemsOf(s, d.left, l) {
		return false
	}
	mid := len(d.items)
	if !d.itemsOf(s, d.right, r) {
		return false
	}
	end := len(d.items)
	index := d.index(from, mid)
	cursor, met, ordered := from, 0, true
	for i := mid; i < end; i++ {
		was := none
		if j := d.find(from, mid, i, cursor, index); j >= 0 {
			ordered = ordered && j >= cursor
			was, cursor = d.items[j].at, j+1
			d.items[j].at = none
			met++
		}
		if d.item(s, i, was, d.items[i].at); d.over {
			return true
		}
	}
	for i := from; i < mid && met < mid-from; i++ {
		if was := d.items[i].at; was != none {
			if d.item(s, i, was, none); d.over {
				return true
			}
		}
	}
	if !ordered && len(d.found) == found {
		d.emit(l, r)
	}
	return true
}

// item compares one element of a list.
func (d *differ) item(s *listShape, i int, l, r int32) {
	base := len(d.path)
	d.path = append(d.path, d.segment(i)...)
	if (l == none || r == none) && !d.whole {
		d.emit(l, r)
	} else {
		d.value(s.each, l, r, position{})
	}
	d.path = d.path[:base]
}

func (d *differ) segment(i int) []byte { return d.segments[d.items[i].from:d.items[i].to] }

// index returns the items by their segments if there are many.
func (d *differ) index(from, to int) map[string]int {
	if to-from <= manyMembers {
		return nil
	}
	index := make(map[string]int, to-from)
	for i := from; i < to; i++ {
		index[string(d.segment(i))] = i
	}
	return index
}

// find returns the item with the segment of another one, or -1.
func (d *differ) find(from, to, of, cursor int, index map[string]int) int {
	want := d.segment(of)
	if cursor < to && bytes.Equal(d.segment(cursor), want) {
		return cursor
	}
	if index != nil {
		if i, ok := index[string(want)]; ok {
			return i
		}
		return -1
	}
	for i := from; i < to; i++ {
		if bytes.Equal(d.segment(i), want) {
			return i
		}
	}
	return -1
}

// itemsOf determines the segments of a list's elements. It returns false if an element has none of its own.
func (d *differ) itemsOf(s *listShape, t *tape, list int32) bool {
	if list == none {
		return true
	}
	from := len(d.items)
	for e := list + 1; e < t.values[list].next; e = t.values[e].next {
		start, ok := len(d.segments), false
		d.segments = append(d.segments, '[')
		if len(s.keys) > 0 {
			ok = d.keys(s, t, e)
		} else {
			d.segments = append(d.segments, '=')
			ok = d.scalar(t, e)
		}
		d.segments = append(d.segments, ']')
		if !ok || len(d.segments)-start > maxDiffPath {
			return false
		}
		d.items = append(d.items, diffItem{start, len(d.segments), e})
	}
	if index := d.index(from, len(d.items)); index != nil {
		return len(index) == len(d.items)-from
	}
	for i := from; i < len(d.items); i++ {
		for j := from; j < i; j++ {
			if bytes.Equal(d.segment(i), d.segment(j)) {
				return false
			}
		}
	}
	return true
}

// keys writes the keys of an element, in the schema's order.
func (d *differ) keys(s *listShape, t *tape, e int32) bool {
	if t.values[e].kind != '{' {
		return false
	}
	start := len(d.segments)
	for place := range s.keys {
		for i := range s.keys {
			k := &s.keys[i]
			if k.place != place {
				continue
			}
			at := t.find(e, []byte(k.name), e+1)
			if at == none && k.standsIn == nil {
				continue
			}
			if len(d.segments) > start {
				d.segments = append(d.segments, ',')
			}
			d.segments = append(append(d.segments, k.name...), '=')
			switch {
			case at == none:
				d.segments = appendKeyJSON(d.segments, k.standsIn)
			case t.values[at].kind == '"':
				d.segments = appendKeyText(d.segments, t.text(at))
			case !d.scalar(t, at):
				return false
			}
		}
	}
	return len(d.segments) > start
}

// appendKeyJSON appends a key's value in the form of JSON.
func appendKeyJSON(to, raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '"' {
		return appendKeyText(to, unquoted(raw))
	}
	return append(to, raw...)
}

// appendKeyText appends a string as a key's value. It has quotes if it would be ambiguous without.
func appendKeyText(to, text []byte) []byte {
	plain := len(text) > 0 && string(text) != "true" && string(text) != "false"
	for _, c := range text {
		plain = plain && c > ' ' && c < 0x7f && c != ',' && c != '[' && c != ']' && c != '=' && c != '\\' && c != '"'
	}
	if plain {
		if end, number := numberEnd(text, 0); !number || end < len(text) {
			return append(to, text...)
		}
	}
	return jsontext.AppendString(to, string(text))
}

// scalar writes a scalar as JSON. It returns false for other values.
func (d *differ) scalar(t *tape, i int32) bool {
	switch t.values[i].kind {
	case '"':
		d.segments = jsontext.AppendString(d.segments, string(t.text(i)))
		return true
	case '0', 't', 'f':
		d.segments = append(d.segments, t.raw(i)...)
		return true
	}
	return false
}
