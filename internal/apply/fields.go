package apply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tidemark-dev/tidemark/internal/jsontext"
)

// fields is the field set of one entry of managed fields. It is immutable; parts that are
// seldom used are made lazily.
type fields struct {
	json []byte // FieldsV1, as encoding/json writes it within an object
	trie trie
	// odd: there is no trie, so the library has to work with the set.
	odd bool

	once sync.Once
	set  *fieldpath.Set

	// fits is the last shape that fitted the set.
	fits atomic.Pointer[shape]
}

var emptyFields = []byte("{}")

// library returns the set in the library's form.
func (f *fields) library() *fieldpath.Set {
	f.once.Do(func() {
		if f.set == nil {
			set := &fieldpath.Set{}
			if set.FromJSON(bytes.NewReader(f.json)) != nil {
				set = &fieldpath.Set{} // impossible: newFields wrote it
			}
			f.set = set
		}
	})
	return f.set
}

// fieldsOf converts a set of the library.
func fieldsOf(set *fieldpath.Set) (*fields, error) {
	b, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("fieldsV1: %w", err)
	}
	f := newCanonical(escaped(b))
	f.set = set
	return f, nil
}

// newFields parses any valid FieldsV1.
func newFields(raw []byte) (*fields, error) {
	if f := newCanonical(bytes.Clone(raw)); !f.odd {
		return f, nil
	}
	set := &fieldpath.Set{}
	if err := set.FromJSON(bytes.NewReader(ordered(raw))); err != nil {
		return nil, fmt.Errorf("fieldsV1: %w", err)
	}
	return fieldsOf(set)
}

// newCanonical parses FieldsV1 in canonical form; anything else is odd.
func newCanonical(raw []byte) *fields {
	f := &fields{json: raw, odd: true}
	p := fieldsParser{data: raw}
	root, ok := p.set(0)
	if !ok || p.at != len(raw) {
		return f
	}
	p.out[0].first, p.out[0].n = root.first, root.n
	f.trie.nodes = p.out
	w := writer{out: make([]byte, 0, len(raw)), set: &f.trie, changes: &noTrie}
	w.write(&f.trie.nodes[0], &noNode)
	f.odd = !bytes.Equal(w.out, raw)
	return f
}

var noTrie = trie{nodes: []node{{}}}

// escaped escapes < > & as encoding/json does.
func escaped(raw []byte) []byte {
	if !bytes.ContainsAny(raw, "<>&\u2028\u2029") {
		return raw
	}
	var out bytes.Buffer
	json.HTMLEscape(&out, raw)
	return out.Bytes()
}

// fieldsParser parses FieldsV1 without white space.
type fieldsParser struct {
	data  []byte
	at    int
	out   []node
	stack []node
}

// set parses the object at p.at. The node has its members, and whether "." is present.
func (p *fieldsParser) set(depth int) (n node, ok bool) {
	if depth == 0 {
		p.out = append(make([]node, 0, 1+bytes.Count(p.data, []byte(`":{`))), node{})
	}
	if depth > maxTapeDepth || !p.take('{') {
		return n, false
	}
	base := len(p.stack)
	for first := true; !p.take('}'); first = false {
		if !first && !p.take(',') {
			return n, false
		}
		start := p.at
		if start >= len(p.data) || p.data[start] != '"' {
			return n, false
		}
		end, escapes, ok := stringEnd(p.data, start)
		if !ok {
			return n, false
		}
		p.at = end
		if !p.take(':') {
			return n, false
		}
		name := p.data[start+1 : end-1]
		if string(name) == "." {
			n.marks = member
			if p.at+2 > len(p.data) || string(p.data[p.at:p.at+2]) != "{}" {
				return n, false
			}
			p.at += 2
			continue
		}
		if escapes {
			name = unquoted(p.data[start:end])
		}
		if len(name) < 2 || name[1] != ':' || bytes.IndexByte([]byte("fkvi"), name[0]) < 0 || !validElement(name[0], name[2:]) {
			return n, false
		}
		child, ok := p.set(depth + 1)
		if !ok {
			return n, false
		}
		child.tag, child.text = name[0], name[2:]
		if child.n == 0 {
			child.marks = member
		}
		if len(p.stack) > base && p.stack[len(p.stack)-1].order(&child) >= 0 {
			return n, false
		}
		p.stack = append(p.stack, child)
	}
	n.first, n.n = int32(len(p.out)), int32(len(p.stack)-base)
	p.out = append(p.out, p.stack[base:]...)
	p.stack = p.stack[:base]
	return n, true
}

func (p *fieldsParser) take(c byte) bool {
	if p.at < len(p.data) && p.data[p.at] == c {
		p.at++
		return true
	}
	return false
}

// validElement reports whether a path element is in canonical form, so that elements can be
// compared as text.
func validElement(tag byte, text []byte) bool {
	switch tag {
	case 'f':
		return validText(text)
	case 'v':
		kind, n := scalarAt(text)
		return kind != aNothing && n == len(text) && canonicalScalar(kind, text)
	case 'k':
		return validKeys(text)
	}
	return false // an index: nothing is known by one any more
}

func validKeys(text []byte) bool {
	if len(text) < 2 || text[0] != '{' {
		return false
	}
	rest := text[1:]
	for {
		kind, n := scalarAt(rest)
		if kind != aString || n >= len(rest) || rest[n] != ':' {
			return false
		}
		rest = rest[n+1:]
		kind, n = scalarAt(rest)
		if kind == aNothing || n >= len(rest) || !canonicalScalar(kind, rest[:n]) {
			return false
		}
		switch rest[n] {
		case ',':
			rest = rest[n+1:]
		case '}':
			return n+1 == len(rest)
		default:
			return false
		}
	}
}

// canonicalScalar reports whether the library writes a scalar like this.
func canonicalScalar(kind int, text []byte) bool {
	switch kind {
	case aNumber:
		return len(text) <= 15 && !bytes.ContainsAny(text, ".eE") && string(text) != "-0"
	case aBool:
		return string(text) == "true" || string(text) == "false"
	}
	if bytes.IndexByte(text, '\\') < 0 && bytes.IndexByte(text, 0xe2) < 0 && !bytes.ContainsAny(text, "<>&") && validText(text) {
		return true
	}
	said := unquoted(text)
	return said != nil && validText(said) && string(jsontext.AppendString(nil, string(said))) == string(text)
}

// fit reports whether no path of a set is inside an atomic value: schemas change, and the
// library then adapts the sets.
func (f *fields) fit(s *shape) bool {
	if f.fits.Load() == s {
		return true
	}
	if f.odd || !f.trie.fit(s, &f.trie.nodes[0], true) {
		return false
	}
	f.fits.Store(s)
	return true
}

func (t *trie) fit(s *shape, n *node, root bool) bool {
	if s == nil {
		return false
	}
	whole := !root && n.marks&member != 0 && n.n == 0
	switch {
	case s.dict != nil:
		d := s.dict
		if d.deduced {
			return true
		}
		if d.atomic {
			return whole
		}
		for i := range t.below(n) {
			child := &t.below(n)[i]
			below := d.others
			if child.tag == 'f' {
				below = d.of(child.text)
			}
			if below != nil && !t.fit(below, child, false) { // nil: not in the schema, and left alone
				return false
			}
		}
	case s.scalar != "":
	case s.list != nil:
		if s.list.atomic {
			return whole
		}
		for i := range t.below(n) {
			if !t.fit(s.list.each, &t.below(n)[i], false) {
				return false
			}
		}
	}
	return true
}

// parsed holds parsed sets by their bytes, which many objects share. It is bounded by two
// generations: sets that are not used while one generation fills up are evicted. See the package
// comment.
var parsed = newSetMemo(1 << 20)

// setMemo holds at most twice its limit, in approximate bytes.
type setMemo struct {
	limit  int
	seed   maphash.Seed
	shards [8]struct {
		sync.RWMutex
		young, old map[string]*fields
		bytes      int
	}
}

func newSetMemo(limitBytes int) *setMemo {
	return &setMemo{limit: limitBytes / 8, seed: maphash.MakeSeed()}
}

// nodeBytes is the memory of a node with its own text.
const nodeBytes = 48

// get returns the parsed set of FieldsV1.
func (m *setMemo) get(raw []byte) (*fields, error) {
	s := &m.shards[maphash.Bytes(m.seed, raw)%uint64(len(m.shards))]
	s.RLock()
	f, young := s.young[string(raw)]
	if !young {
		f = s.old[string(raw)]
	}
	s.RUnlock()
	if young {
		return f, nil
	}
	if f == nil {
		var err error
		if f, err = newFields(raw); err != nil {
			return nil, err
		}
	}
	cost := 2*len(raw) + len(f.trie.nodes)*nodeBytes + 200
	if cost > m.limit/4 {
		return f, nil
	}
	s.Lock()
	defer s.Unlock()
	if s.bytes += cost; s.bytes > m.limit || s.young == nil {
		s.old, s.young, s.bytes = s.young, map[string]*fields{}, cost
	}
	s.young[string(raw)] = f
	return f, nil
}
