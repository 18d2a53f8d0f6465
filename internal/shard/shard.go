// Package shard selects objects by the hash of their UID or namespace, so that several clients can
// share the objects of a collection (the parameter shardSelector, KEP-5866):
//
//	shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')
//
// A range has a start and an end, which is not part of it. Ranges of one field can be joined by ||. The hash is FNV-1a
// with 64 bits.
package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Selector selects the objects of a shard. It is immutable.
type Selector struct {
	text        string
	byNamespace bool
	spans       []span // sorted; none overlaps another
}

// span is a range of hashes with both ends.
type span struct{ first, last uint64 }

// The fields that a range may name.
const (
	uid       = "object.metadata.uid"
	namespace = "object.metadata.namespace"
)

// Parse parses a selector. Its time is linear in the length of the text, but for sorting the ranges.
func Parse(text string) (*Selector, error) {
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("empty shard selector is not allowed; omit the parameter for unfiltered lists")
	}
	p := parser{text: text}
	field, err := p.ranges()
	if err != nil {
		return nil, err
	}
	return &Selector{text: strings.Join(p.parts, " || "), byNamespace: field == namespace, spans: joined(p.spans)}, nil
}

// String returns the selector in its canonical form: without parentheses, with single quotes and one space between tokens.
func (s *Selector) String() string { return s.text }

// ByNamespace reports whether the selected field is the namespace, and not the UID.
func (s *Selector) ByNamespace() bool { return s.byNamespace }

// Has reports whether a value of the field is in the shard.
func (s *Selector) Has(value string) bool {
	h := hash(value)
	after, _ := slices.BinarySearchFunc(s.spans, h, func(one span, h uint64) int {
		if one.first > h {
			return 1
		}
		return -1
	})
	return after > 0 && h <= s.spans[after-1].last
}

func hash(value string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(value) {
		h = (h ^ uint64(value[i])) * 0x100000001b3
	}
	return h
}

// joined sorts spans and joins those that touch.
func joined(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	next := all[:1]
	for _, one := range all[1:] {
		if last := &next[len(next)-1]; last.last == ^uint64(0) || one.first <= last.last+1 {
			last.last = max(last.last, one.last)
			continue
		}
		next = append(next, one)
	}
	return slices.Clip(next)
}

// parser reads a selector.
type parser struct {
	text string
	at   int // the next byte

	parts []string // the ranges in their canonical form
	spans []span
}

// ranges reads ranges that are joined by ||, which may be in parentheses, and returns their field.
func (p *parser) ranges() (field string, err error) {
	for depth := 0; ; {
		for p.take("(") {
			depth++
		}
		of, err := p.one()
		if err != nil {
			return "", err
		}
		if field == "" {
			field = of
		}
		if of != field {
			return "", fmt.Errorf("all shard ranges must use the same field, got %q and %q", field, of)
		}
		for depth > 0 && p.take(")") {
			depth--
		}
		switch {
		case p.take("||"):
		case p.peek() != "" || depth > 0:
			return "", p.unexpected()
		default:
			return field, nil
		}
	}
}

// one reads one range and returns its field.
func (p *parser) one() (field string, err error) {
	if name := p.path(); name != "shardRange" {
		if name != "" && p.take("(") {
			return "", fmt.Errorf("unsupported function %q; only shardRange() and || are allowed", name)
		}
		return "", p.unexpected()
	}
	if !p.take("(") {
		return "", p.unexpected()
	}
	if field = p.path(); field == "" {
		return "", p.unexpected()
	}
	if field != uid && field != namespace {
		return "", fmt.Errorf("unsupported field path %q; supported: %s, %s", field, uid, namespace)
	}
	var texts [2]string
	for i, name := range [...]string{"hexStart", "hexEnd"} {
		if !p.take(",") {
			return "", p.unexpected()
		}
		if texts[i], err = p.hex(name); err != nil {
			return "", err
		}
	}
	if !p.take(")") {
		return "", p.unexpected()
	}
	start, end := texts[0], texts[1]
	if len(start) > len(end) || len(start) == len(end) && start >= end {
		return "", fmt.Errorf("shard range start %s must be less than end %s", start, end)
	}
	p.parts = append(p.parts, fmt.Sprintf("shardRange(%s, '%s', '%s')", field, start, end))
	p.spans = append(p.spans, span{number(start), number(end) - 1})
	return field, nil
}

// number returns the value of digits; 0 for 2^64.
func number(hex string) uint64 {
	n, _ := strconv.ParseUint(hex[len(hex)-16:], 16, 64)
	return n
}

// hex reads a string that is a number of 16 hexadecimal digits, or 2^64.
func (p *parser) hex(name string) (string, error) {
	s, ok := p.string()
	if !ok {
		return "", fmt.Errorf("%s must be a string literal (e.g. '0x00000000000000ff')", name)
	}
	digits, ok := strings.CutPrefix(s, "0x")
	switch {
	case !ok:
		return "", fmt.Errorf("%s must have '0x' prefix, got %.40q", name, s)
	case digits == "":
		return "", fmt.Errorf("%s: hex value is required after '0x'", name)
	case len(digits) > 17:
		return "", fmt.Errorf("%s: hex value too long (%d chars, max 17): %.40q", name, len(digits), digits)
	}
	for _, c := range digits {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", fmt.Errorf("%s: invalid hex character %q in %q", name, string(c), s)
		}
	}
	switch {
	case len(digits) < 16:
		return "", fmt.Errorf("%s must be a 0x-prefixed 16-digit hex value, got %q (did you mean %q?)", name, s, "0x"+strings.Repeat("0", 16-len(digits))+digits)
	case len(digits) == 17 && s != "0x10000000000000000":
		return "", fmt.Errorf("%s: 17-digit hex value must be '0x10000000000000000' (2^64), got %q", name, s)
	}
	return s, nil
}

// string reads a string in single or double quotes, without escapes.
func (p *parser) string() (string, bool) {
	rest := p.peek()
	if rest == "" || rest[0] != '\'' && rest[0] != '"' {
		return "", false
	}
	end := strings.IndexByte(rest[1:], rest[0])
	if end < 0 {
		return "", false
	}
	p.at += end + 2
	return rest[1 : end+1], true
}

// path reads names with dots between them; empty: there is none.
func (p *parser) path() string {
	rest := p.peek()
	n := 0
	for n < len(rest) && (rest[n] == '.' || rest[n] == '_' || rest[n]|0x20 >= 'a' && rest[n]|0x20 <= 'z' || rest[n] >= '0' && rest[n] <= '9') {
		n++
	}
	p.at += n
	return rest[:n]
}

// take skips a token if it is the next one.
func (p *parser) take(token string) bool {
	if !strings.HasPrefix(p.peek(), token) {
		return false
	}
	p.at += len(token)
	return true
}

// peek returns the rest of the text without white space in front.
func (p *parser) peek() string {
	rest := strings.TrimLeft(p.text[p.at:], " \t\r\n\f")
	p.at = len(p.text) - len(rest)
	return rest
}

func (p *parser) unexpected() error {
	const want = "want shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000'), or several joined by ||"
	if rest := p.peek(); rest != "" {
		return fmt.Errorf("unexpected %.20q at position %d: %s", rest, p.at, want)
	}
	return fmt.Errorf("unexpected end: %s", want)
}
