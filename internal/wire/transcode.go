package wire

import (
	"bytes"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
)

// transcoder converts the JSON of an object, as encoding/json writes it, into the protobuf
// message of the object, in one pass and without decoding it. It returns false for
// unexpected text (another order, white space, null in a list), which is left to the
// decoder.
type transcoder struct {
	in []byte
	at int
	// more: the value of a member is next; key returns its name. The bounds of the name are
	// integers, since setting a pointer this often costs write barriers.
	more             bool
	keyBegin, keyEnd int
	room
}

// room is the working memory of a transcoder.
type room struct {
	out     []byte
	parts   []part // of the messages that are being written in another order
	scratch []byte
}

// part is a field of a message in progress.
type part struct {
	number     protowire.Number
	begin, end int
}

var rooms = sync.Pool{New: func() any { return new(room) }}

// mostRoom is how much memory is kept for the next object, in bytes.
const mostRoom = 256 << 10

// transcode appends the message of an object. With a tag, the message is wrapped as the
// field of that tag.
func (p *plan) transcode(to, object []byte, in ...byte) (message []byte, ok bool) {
	kept := rooms.Get().(*room)
	c := transcoder{in: object, room: *kept}
	c.out = append(c.out[:0], in...)
	if len(in) > 0 {
		begin := c.open()
		ok = c.message(p)
		c.close(begin)
	} else {
		ok = c.message(p)
	}
	ok = ok && c.at == len(c.in)
	switch {
	case !ok:
	case to == nil:
		to = append(make([]byte, 0, len(c.out)), c.out...) // no longer than it has to be
	default:
		to = append(to, c.out...)
	}
	if cap(c.out)+cap(c.scratch) <= mostRoom {
		c.parts = c.parts[:0]
		*kept = c.room
		rooms.Put(kept)
	}
	return to, ok
}

// is consumes a byte, if it is next.
func (c *transcoder) is(b byte) bool {
	if c.at >= len(c.in) || c.in[c.at] != b {
		return false
	}
	c.at++
	return true
}

// null consumes null, if it is next.
func (c *transcoder) null() bool {
	const null = "null"
	if c.at+len(null) > len(c.in) || c.in[c.at] != 'n' || string(c.in[c.at:c.at+len(null)]) != null {
		return false
	}
	c.at += len(null)
	return true
}

// text consumes a string, and returns the bytes between its quotes.
func (c *transcoder) text() (text []byte, escaped, ok bool) {
	if !c.is('"') {
		return nil, false, false
	}
	begin := c.at
	end := closingQuote(c.in, begin)
	if end < 0 {
		return nil, false, false
	}
	c.at = end + 1
	text = c.in[begin:end]
	return text, bytes.IndexByte(text, '\\') >= 0, true
}

// endsEscaped reports whether the quote after the text is escaped.
func endsEscaped(text []byte) bool {
	n := 0
	for n < len(text) && text[len(text)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// first enters an object, at its first member.
func (c *transcoder) first() bool {
	if !c.is('{') {
		return false
	}
	if c.is('}') {
		c.more = false
		return true
	}
	return c.member()
}

// next advances past a value, to the next member or out of the object.
func (c *transcoder) next() bool {
	if c.is('}') {
		c.more = false
		return true
	}
	return c.is(',') && c.member()
}

func (c *transcoder) member() bool {
	c.keyBegin = c.at + 1
	_, escaped, ok := c.text()
	c.keyEnd, c.more = c.at-1, true
	return ok && !escaped && c.is(':')
}

// key returns the name of the member.
func (c *transcoder) key() []byte { return c.in[c.keyBegin:c.keyEnd] }

// message converts an object whose members are those of a plan.
func (c *transcoder) message(p *plan) bool {
	return c.first() && c.members(p) && !c.more
}

// members converts the members that a plan has.
func (c *transcoder) members(p *plan) bool {
	if p.ascending {
		for i := range p.fields {
			if !c.field(&p.fields[i]) {
				return false
			}
		}
		return true
	}
	from := len(c.parts)
	begin := len(c.out)
	for i := range p.fields {
		f, at := &p.fields[i], len(c.out)
		if !c.field(f) {
			return false
		}
		if len(c.out) > at {
			c.parts = append(c.parts, part{f.number, at, len(c.out)})
		}
	}
	parts := c.parts[from:]
	slices.SortStableFunc(parts, func(a, b part) int { return int(a.number) - int(b.number) })
	c.scratch = c.scratch[:0]
	for _, p := range parts {
		c.scratch = append(c.scratch, c.out[p.begin:p.end]...)
	}
	copy(c.out[begin:], c.scratch)
	c.parts = c.parts[:from]
	return true
}

// field converts the next member, if it is that of a field.
func (c *transcoder) field(f *planField) bool {
	if f.shape == planInline {
		c.out = append(c.out, f.tag...)
		begin := c.open()
		ok := c.members(f.of)
		c.close(begin)
		return ok
	}
	if !c.more || string(c.key()) != f.name {
		c.out = append(c.out, f.absent...)
		return true
	}
	if c.null() {
		c.out = append(c.out, f.absent...)
		return c.next()
	}
	switch f.shape {
	case planIgnored:
		return c.skip() && c.next()
	case planRepeated:
		return c.list(f) && c.next()
	case planMap:
		return c.entries(f) && c.next()
	}
	c.out = append(c.out, f.tag...)
	return c.value(f) && c.next()
}

// open begins a length-prefixed part, and close ends it. The prefix has room for one byte
// until the length turns out to be longer.
func (c *transcoder) open() (begin int) {
	c.out = append(c.out, 0)
	return len(c.out)
}

func (c *transcoder) close(begin int) {
	n := len(c.out) - begin
	more := protowire.SizeVarint(uint64(n)) - 1
	if more > 0 {
		c.out = slices.Grow(c.out, more)[:len(c.out)+more]
		copy(c.out[begin+more:], c.out[begin:begin+n])
	}
	protowire.AppendVarint(c.out[:begin-1], uint64(n))
}

func (c *transcoder) list(f *planField) bool {
	if !c.is('[') {
		return false
	}
	if c.is(']') {
		return true
	}
	for {
		c.out = append(c.out, f.tag...)
		if !c.value(f) {
			return false
		}
		if c.is(']') {
			return true
		}
		if !c.is(',') {
			return false
		}
	}
}

// entries converts an object that is a map: each member becomes a message of a key and a
// value. Both are sorted.
func (c *transcoder) entries(f *planField) bool {
	if !c.is('{') {
		return false
	}
	if c.is('}') {
		return true
	}
	for {
		c.out = append(c.out, f.tag...)
		begin := c.open()
		c.out = append(c.out, tag1)
		if !c.str() || !c.is(':') {
			return false
		}
		c.out = append(c.out, tag2)
		if f.kind == planInt || f.kind == planBool {
			c.out[len(c.out)-1] = 2<<3 | byte(protowire.VarintType)
		}
		if !c.value(f) {
			return false
		}
		c.close(begin)
		if c.is('}') {
			return true
		}
		if !c.is(',') {
			return false
		}
	}
}

// value converts a value, and appends it with its length.
func (c *transcoder) value(f *planField) bool {
	switch f.kind {
	case planString:
		return c.str()
	case planInt:
		n, ok := c.int()
		c.out = protowire.AppendVarint(c.out, uint64(n))
		return ok
	case planBool:
		return c.bool()
	case planBytes:
		return c.bytes()
	}
	begin := c.open()
	if !c.inner(f) {
		return false
	}
	c.close(begin)
	return true
}

// inner converts a value that is a message, without its length.
func (c *transcoder) inner(f *planField) bool {
	switch f.kind {
	case planMessage:
		return c.message(f.of)
	case planTime, planMicroTime:
		return c.time(f.kind == planMicroTime)
	case planDuration:
		text, escaped, ok := c.text()
		d, err := time.ParseDuration(string(text))
		c.out = protowire.AppendVarint(append(c.out, 1<<3), uint64(d))
		return ok && !escaped && err == nil
	case planQuantity:
		c.out = append(c.out, tag1)
		return c.str()
	case planIntOrString:
		return c.intOrString()
	case planRaw:
		begin := c.at
		ok := c.skip()
		c.out = append(c.out, tag1)
		c.out = protowire.AppendBytes(c.out, c.in[begin:c.at])
		return ok
	case planItems:
		return c.list(&stringItems)
	}
	return false
}

var stringItems = planField{tag: []byte{tag1}, kind: planString}

// str converts a string.
func (c *transcoder) str() bool {
	text, escaped, ok := c.text()
	if !ok {
		return false
	}
	if !escaped {
		c.out = protowire.AppendBytes(c.out, text)
		return true
	}
	begin := c.open()
	var err error
	quoted := c.in[c.at-len(text)-2 : c.at]
	c.out, err = jsontext.AppendUnquote(c.out, quoted)
	c.close(begin)
	return err == nil
}

// int parses an integer.
func (c *transcoder) int() (int64, bool) {
	begin := c.at
	for c.at < len(c.in) && (c.in[c.at] == '-' || c.in[c.at] >= '0' && c.in[c.at] <= '9') {
		c.at++
	}
	n, err := strconv.ParseInt(string(c.in[begin:c.at]), 10, 64)
	return n, err == nil
}

func (c *transcoder) bool() bool {
	rest := c.in[c.at:]
	switch {
	case bytes.HasPrefix(rest, []byte("true")):
		c.at += len("true")
		c.out = append(c.out, 1)
	case bytes.HasPrefix(rest, []byte("false")):
		c.at += len("false")
		c.out = append(c.out, 0)
	default:
		return false
	}
	return true
}

func (c *transcoder) bytes() bool {
	text, escaped, ok := c.text()
	if !ok || escaped {
		return false
	}
	begin := c.open()
	var err error
	c.out, err = base64.StdEncoding.AppendDecode(c.out, text)
	c.close(begin)
	return err == nil
}

func (c *transcoder) time(micro bool) bool {
	text, escaped, ok := c.text()
	if !ok || escaped {
		return false
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil || t.IsZero() {
		return false
	}
	nanos := 0
	if micro {
		nanos = t.Nanosecond() / 1000 * 1000
	}
	c.out = protowire.AppendVarint(append(c.out, 1<<3), uint64(t.Unix()))
	c.out = protowire.AppendVarint(append(c.out, 2<<3), uint64(nanos))
	return true
}

// intOrString converts an integer or a string to a message of its type, an integer and a
// string.
func (c *transcoder) intOrString() bool {
	if c.at < len(c.in) && c.in[c.at] == '"' {
		c.out = append(c.out, 1<<3, 1, 2<<3, 0, tag3)
		return c.str()
	}
	n, ok := c.int()
	if !ok || n < math.MinInt32 || n > math.MaxInt32 {
		return false
	}
	c.out = protowire.AppendVarint(append(c.out, 1<<3, 0, 2<<3), uint64(n))
	c.out = append(c.out, tag3, 0)
	return true
}

// skip advances past a value.
func (c *transcoder) skip() bool {
	if c.at >= len(c.in) {
		return false
	}
	switch c.in[c.at] {
	case '"':
		_, _, ok := c.text()
		return ok
	case '{', '[':
		end := closing(c.in, c.at)
		if end < 0 {
			return false
		}
		c.at = end
		return true
	}
	begin := c.at
	for c.at < len(c.in) && c.in[c.at] != ',' && c.in[c.at] != '}' && c.in[c.at] != ']' {
		c.at++
	}
	return c.at > begin
}
