package registry

import (
	"bytes"
	"encoding/json"
)

// The functions of this file find members in stored JSON without decoding it. Stored JSON was
// written by encoding/json, so it is valid. In other text they find nothing, and never read beyond
// the end.

// member returns the value of a member of an object, nil if there is none.
func member(object []byte, name string) []byte {
	var found []byte
	eachMember(object, func(key, value []byte) bool {
		if string(key) == name {
			found = value
			return false
		}
		return true
	})
	return found
}

// find returns the value at a path of members, nil if there is none.
func find(object []byte, path ...string) []byte { return locate(object, path...).in(object) }

// span is the position of a value in an encoding. The zero value is no position.
type span struct{ from, to int }

// in returns the value, nil for the zero value.
func (s span) in(object []byte) []byte {
	if s.to == 0 {
		return nil
	}
	return object[s.from:s.to]
}

// locate returns the position of the value at a path of members. It does not read beyond the value.
func locate(object []byte, path ...string) span {
	i := space(object, 0)
	for _, name := range path {
		if i = enter(object, i, name); i < 0 {
			return span{}
		}
	}
	end := skipValue(object, i)
	if end < 0 {
		return span{}
	}
	return span{i, end}
}

// enter returns where the value of a member begins in the object that begins at i, -1 if there is
// none.
func enter(b []byte, i int, name string) int {
	if i >= len(b) || b[i] != '{' {
		return -1
	}
	for i = space(b, i+1); i < len(b) && b[i] == '"'; {
		end := skipString(b, i)
		if end < 0 {
			return -1
		}
		key := b[i+1 : end-1]
		if i = space(b, end); i >= len(b) || b[i] != ':' {
			return -1
		}
		i = space(b, i+1)
		if string(key) == name {
			return i
		}
		if i = skipValue(b, i); i < 0 {
			return -1
		}
		if i = space(b, i); i >= len(b) || b[i] != ',' {
			return -1
		}
		i = space(b, i+1)
	}
	return -1
}

// eachMember calls f for each member, with the key without its quotes and the value, until f
// returns false.
func eachMember(object []byte, f func(key, value []byte) bool) {
	i := space(object, 0)
	if i >= len(object) || object[i] != '{' {
		return
	}
	for i = space(object, i+1); i < len(object) && object[i] == '"'; {
		end := skipString(object, i)
		if end < 0 {
			return
		}
		key := object[i+1 : end-1]
		if i = space(object, end); i >= len(object) || object[i] != ':' {
			return
		}
		i = space(object, i+1)
		if end = skipValue(object, i); end < 0 {
			return
		}
		if !f(key, object[i:end]) {
			return
		}
		if i = space(object, end); i >= len(object) || object[i] != ',' {
			return
		}
		i = space(object, i+1)
	}
}

// space returns the index of the first byte from i on that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i, -1 if it does not end.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for j := i - 1; j >= 0 && b[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
	return -1
}

// skipValue returns the index after the value that begins at i, -1 if there is none.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	start := i
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func skipNested(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// text returns a scalar as selectors compare it: a string without quotes, a number or bool
// unchanged, and the empty string for null, objects and lists.
func text(value []byte) string {
	if len(value) == 0 {
		return ""
	}
	switch value[0] {
	case '"':
		return unquote(value[1 : len(value)-1])
	case '{', '[', 'n':
		return ""
	}
	return string(value)
}

// unquote decodes a string, given without its quotes.
func unquote(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	var s string
	if json.Unmarshal([]byte(`"`+string(b)+`"`), &s) != nil {
		return ""
	}
	return s
}

// textAt returns the scalar at a path as text.
func textAt(object []byte, path ...string) string { return text(find(object, path...)) }
