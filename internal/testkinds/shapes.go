package testkinds

import "strings"

// A Shape is a way to make a text of any length, as the formats that the API knows have them.
type Shape struct {
	// Name describes the shape, with its parts.
	Name             string
	head, part, tail string
}

// Of returns a text of about n bytes.
func (s Shape) Of(n int) string {
	return s.head + strings.Repeat(s.part, max(0, n-len(s.head)-len(s.tail))/len(s.part)) + s.tail
}

// Shapes returns shapes of all formats that the API parses.
func Shapes() []Shape {
	var all []Shape
	for _, part := range []string{
		// One character.
		"a", "A", "1", "0", "9", ".", ",", ":", ";", "-", "_", "/", "\\", "%", "$", "*", "?", "!", "=", "+", "|", "&", "#", "@", "~", "^", "(", "[", "{", "<", `"`, "'", " ", "\n", "\x00", "é", "世", "😀", "\xff", "\u202e",
		// Items and separators.
		"a.", ".a", "1.", "a-", "-a", "a/", "/a", "/..", "/.", "~1", "~0", "a,", "a,a=", "a=b,", "a!=b,", "!a,", "a in (b),", "a:", "1:", "::", "ff:", "1,", "1-2,", "*/2,", "* ", "1h", "1m1s", "1ns", ".1s", "1e9", "1E", "-1", "+1", "%41", "%", "$(A)", "$$", "$(", "${a}", "&a=b", "?a=b", "a b", "a\n", "\r\n", "\\n", "\\u0041", `\"`, "a=b;", "a; q=0.1,", "a/b,", "a@", "a:1@", "sha256:", "A1", "QUFB", "==", "()", "[]", "{}", "[0]", "..a", "[?(@.a)]", "['a'].", "{.a}", "[0,0]", "[:]", "a|", "(a|", "(a)*", "a{9}", "a*", "(?i)", `\pL`, "[a-z]", "[^a]", "x && ", "x || ", "!x", "x ? x : ", "x + ", "-x", "x.", "[x", "{x:", "f(", `"" + `, "self.", "1 == 1 && ", "-----BEGIN A-----\n", "é.", "xn--a-", "A.", "a_b", "v1", "v1beta", "1.2.3-", "UTC/", "<a>",
	} {
		all = append(all, Shape{Name: "of " + part, part: part})
	}
	for _, s := range []Shape{
		{head: "a", part: "-", tail: "a"},
		{head: "example.com/", part: "a"},
		{head: "example.com/", part: "a."},
		{head: "", part: "a.", tail: "com/a"},
		{head: "", part: "a", tail: "/a"},
		{head: "", part: "a", tail: "!"},
		{head: "", part: "a-", tail: "!"},
		{head: "", part: "a.", tail: "!"},
		{head: "", part: "1", tail: "Mi"},
		{head: "0.", part: "0", tail: "1"},
		{head: "1.", part: "9", tail: "m"},
		{head: "1e", part: "9"},
		{head: "1e-", part: "9"},
		{head: "1e-", part: "0", tail: "9"},
		{head: "-", part: "9", tail: "Ki"},
		{head: "0x", part: "f"},
		{head: "1h", part: "0", tail: "s"},
		{head: "0.", part: "9", tail: "h"},
		{head: "10.0.0.", part: "0", tail: "1/8"},
		{head: "10.0.0.0/", part: "0", tail: "8"},
		{head: "fe80::1%", part: "a"},
		{head: "::ffff:", part: "1."},
		{head: "2001:", part: "0", tail: "::/16"},
		{head: "https://", part: "a.", tail: "/a"},
		{head: "https://[", part: ":", tail: "]/"},
		{head: "https://a/", part: "../"},
		{head: "https://a/?", part: "a=b&"},
		{head: "https://", part: "a:a@", tail: "a/"},
		{head: "https://a/", part: "%41"},
		{head: "unix:///", part: "a/"},
		{head: "2026-01-01T00:00:00.", part: "0", tail: "Z"},
		{head: "", part: "9", tail: "-01-01T00:00:00Z"},
		{head: "* * * * ", part: "1,", tail: "1"},
		{head: "", part: "0-59/1,", tail: "1 * * * *"},
		{head: "@every ", part: "1h"},
		{head: "TZ=", part: "a/", tail: " * * * * *"},
		{head: "CRON_TZ=", part: "A", tail: " * * * * *"},
		{head: "{.", part: "a.", tail: "}"},
		{head: ".", part: "a.", tail: "a"},
		{head: ".spec", part: "..a"},
		{head: ".spec", part: "['a']"},
		{head: "^", part: "(a|b)", tail: "$"},
		{head: "^(", part: "a?", tail: ")*$"},
		{head: "(", part: "a{1,9}", tail: "){1,9}"},
		{head: "'", part: "a", tail: "' == 'a'"},
		{head: "[", part: "1,", tail: "1].size() > 0"},
		{head: "{", part: "'a':1,", tail: "'b':2}.size() > 0"},
		{head: "true", part: " && true"},
		{head: "1", part: " + 1", tail: " == 1"},
		{head: "'a'", part: " + 'a'", tail: " == ''"},
		{head: "quantity('1e", part: "9", tail: "').isGreaterThan(quantity('1'))"},
		{head: "'a'.matches('", part: "(a)", tail: "')"},
		{head: "duration('", part: "1h", tail: "') > duration('1s')"},
		{head: "'%", part: "d%", tail: "'.format([1]) == ''"},
		{head: "//", part: "a", tail: "\ntrue"},
		{head: "object", part: ".a", tail: " == 1"},
		{head: "self", part: ".a", tail: " == 1"},
		{head: "device", part: ".attributes['a']", tail: " == 1"},
		{head: "has(self.", part: "a.", tail: "a)"},
		{head: `{"a":`, part: "[", tail: ""},
		{head: `{"a":"`, part: "a", tail: `"}`},
		{head: "[", part: `{"op":"add","path":"/a","value":1},`, tail: "{}]"},
		{head: "LS0t", part: "LS0t", tail: "LS0t"},
		{head: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t", part: "QUFB"},
		{head: "-----BEGIN CERTIFICATE-----\n", part: "QUFB", tail: "\n-----END CERTIFICATE-----\n"},
		{head: "-----BEGIN CERTIFICATE REQUEST-----\n", part: "QUFB\n", tail: "\n-----END CERTIFICATE REQUEST-----\n"},
		{head: "-----BEGIN A-----\n", part: "a: b\n", tail: "\nQUFB\n-----END A-----\n"},
		{head: "eyJhIjox", part: "QUFB", tail: ".a.a"},
		{head: "system:serviceaccount:", part: "a", tail: ":a"},
		{head: "runtime/default", part: "a"},
		{head: "localhost/", part: "../"},
		{head: "kernel.", part: "a."},
		{head: "docker.io/", part: "a/", tail: ":a@sha256:00"},
		{head: "a@sha256:", part: "0"},
		{head: "spec.", part: "a.", tail: "=a"},
		{head: "metadata.annotations['", part: "a", tail: "']"},
		{head: "requests.", part: "a."},
		{head: "", part: "count/", tail: "a"},
		{head: "v1.", part: "9"},
		{head: "v", part: "1", tail: "alpha1"},
	} {
		s.Name = s.head + " then " + s.part + " then " + s.tail
		all = append(all, s)
	}
	return all
}
