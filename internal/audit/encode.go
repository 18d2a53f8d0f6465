package audit

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/tidemark-dev/tidemark/internal/jsontext"
)

// The functions of this file append JSON as encoding/json writes it, with its escapes.

// appendMember appends the name and the value of a member, unless the value is empty. name has
// its quotes and colon.
func appendMember(to []byte, name, value string) []byte {
	if value == "" {
		return to
	}
	return jsontext.AppendString(append(appendComma(to), name...), value)
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
		to = jsontext.AppendString(to, s)
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
		to = append(jsontext.AppendString(to, key), ':')
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
		return jsontext.AppendString(to, string(value))
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
