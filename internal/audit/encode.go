package audit

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"
)

// The functions of this file append JSON as encoding/json writes it, with its escapes.

const hexDigits = "0123456789abcdef"

// plain are the bytes of a string that need no escape.
var plain = func() (p [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		p[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return p
}()

// appendString appends a string. Bytes that are not UTF-8 become \ufffd.
func appendString(to []byte, s string) []byte {
	to = append(to, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			to = append(to, s[from:i]...)
			to = appendEscape(to, c)
			i++
			from = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			to = append(append(to, s[from:i]...), `\ufffd`...)
			from = i + size
		case r == '\u2028' || r == '\u2029':
			to = append(append(to, s[from:i]...), `\u202`...)
			to = append(to, hexDigits[r&0xf])
			from = i + size
		}
		i += size
	}
	return append(append(to, s[from:]...), '"')
}

func appendEscape(to []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(to, '\\', c)
	case '\b':
		return append(to, '\\', 'b')
	case '\f':
		return append(to, '\\', 'f')
	case '\n':
		return append(to, '\\', 'n')
	case '\r':
		return append(to, '\\', 'r')
	case '\t':
		return append(to, '\\', 't')
	}
	return append(to, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

// appendMember appends the name and the value of a member, unless the value is empty. name has
// its quotes and colon.
func appendMember(to []byte, name, value string) []byte {
	if value == "" {
		return to
	}
	return appendString(append(appendComma(to), name...), value)
}

// appendComma appends a comma, unless an object or an array has just begun.
func appendComma(to []byte) []byte {
	switch to[len(to)-1] {
	case '{', '[':
		return to
	}
	return append(to, ',')
}

// appendStrings appends an array.
func appendStrings(to []byte, all []string) []byte {
	if all == nil {
		return append(to, "null"...)
	}
	to = append(to, '[')
	for i, s := range all {
		if i > 0 {
			to = append(to, ',')
		}
		to = appendString(to, s)
	}
	return append(to, ']')
}

// appendLists appends an object of arrays.
func appendLists(to []byte, lists map[string][]string) []byte {
	var room [8]string
	keys := room[:0]
	for key := range lists {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	to = append(to, '{')
	for i, key := range keys {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendString(to, key), ':')
		to = appendStrings(to, lists[key])
	}
	return append(to, '}')
}

// appendMicros appends a point in time with microseconds, in UTC.
func appendMicros(to []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	if year < 0 || year > 9999 {
		return append(to, "null"...)
	}
	micro := t.Nanosecond() / 1000
	digits := [...]int{year, int(month), day, hour, minute, second}
	before := [...]byte{'"', '-', '-', 'T', ':', ':'}
	for i, n := range digits {
		to = append(to, before[i])
		if i == 0 {
			to = append(to, byte('0'+n/1000), byte('0'+n/100%10))
			n %= 100
		}
		to = append(to, byte('0'+n/10), byte('0'+n%10))
	}
	to = append(to, '.')
	for unit := 100_000; unit > 0; unit /= 10 {
		to = append(to, byte('0'+micro/unit%10))
	}
	return append(to, 'Z', '"')
}

// appendRaw appends a JSON value in one line, with the escapes of encoding/json. A text that is
// no JSON becomes a string, so that the event is not lost: kube-apiserver has no event for it.
func appendRaw(to, value []byte) []byte {
	b := bytes.NewBuffer(to)
	if err := json.Compact(b, value); err != nil {
		return appendString(to, string(value))
	}
	made := b.Bytes()
	if !needsEscape(made[len(to):]) {
		return made
	}
	b = bytes.NewBuffer(make([]byte, 0, len(made)+len(made)/8))
	b.Write(made[:len(to)])
	json.HTMLEscape(b, made[len(to):])
	return b.Bytes()
}

// needsEscape reports whether json.HTMLEscape changes a value.
func needsEscape(value []byte) bool {
	return bytes.ContainsAny(value, "<>&") || bytes.Contains(value, []byte("\u2028")) || bytes.Contains(value, []byte("\u2029"))
}
