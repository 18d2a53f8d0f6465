// Package jsontext writes JSON without encoding/json, for the bytes that the server puts together itself.
package jsontext

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// plain are the bytes of a string that need no escape.
var plain = func() (p [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		p[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return p
}()

// AppendString appends a string as encoding/json writes it, with its quotes. Bytes that are not UTF-8 become \ufffd.
func AppendString(to []byte, s string) []byte {
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
