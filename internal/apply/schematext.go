package apply

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// The embedded schemas are lines of text, one for each named type, sorted by name:
//
//	line   = name " " atom
//	atom   = [scalar] [list] [map]
//	scalar = "n" (numeric) | "s" (string) | "b" (boolean) | "u" (any of them)
//	list   = "[" ("a" | "m" {key ","}) ref "]"      atomic, or a set or a map by keys
//	map    = "{" ["a" | "p"] ref {field} "}"        atomic, separable; ref is the type of the other keys
//	field  = name ["=" JSON of the default] ":" ref
//	ref    = "@" name ["!a" | "!p"] ";" | "(" atom ")" | "-"
//
// They are facts taken from the OpenAPI schemas of the types by the test that also
// holds them against client-go's.

//go:embed schemas.txt.gz
var embedded []byte

// embeddedText unpacks the lines. It is called once for each kind at its first use, so that
// the text takes no memory in between.
func embeddedText() (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(embedded))
	if err != nil {
		return "", fmt.Errorf("the embedded schemas: %w", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return "", fmt.Errorf("the embedded schemas: %w", err)
	}
	return string(text), nil
}

// index finds the lines by name.
func index(text string) map[string]string {
	lines := make(map[string]string, 700)
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		lines[name] = rest
	}
	return lines
}

// parser reads one line. Strings are copied, so that the text can go.
type parser struct {
	rest string
	refs []string
	err  error
}

var errSchemaText = errors.New("unexpected text")

func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *parser) until(stop string) string {
	if p.err != nil {
		return ""
	}
	word, rest, ok := strings.Cut(p.rest, stop)
	if !ok {
		p.err = errSchemaText
		return ""
	}
	p.rest = rest
	return strings.Clone(word)
}

func (p *parser) expect(s string) {
	if p.err == nil && !p.take(s) {
		p.err = errSchemaText
	}
}

var scalars = []struct {
	mark string
	is   smd.Scalar
}{{"n", smd.Numeric}, {"s", smd.String}, {"b", smd.Boolean}, {"u", smd.Untyped}}

func (p *parser) atom() smd.Atom {
	var a smd.Atom
	for i := range scalars {
		if p.take(scalars[i].mark) {
			a.Scalar = &scalars[i].is
			break
		}
	}
	if p.take("[") {
		a.List = p.list()
	}
	if p.take("{") {
		a.Map = p.fields()
	}
	return a
}

func (p *parser) list() *smd.List {
	l := &smd.List{ElementRelationship: smd.Atomic}
	if !p.take("a") {
		p.expect("m")
		l.ElementRelationship = smd.Associative
		for p.err == nil && !strings.HasPrefix(p.rest, "@") && !strings.HasPrefix(p.rest, "(") {
			l.Keys = append(l.Keys, p.until(","))
		}
	}
	l.ElementType = p.ref()
	p.expect("]")
	return l
}

func (p *parser) fields() *smd.Map {
	m := &smd.Map{}
	switch {
	case p.take("a"):
		m.ElementRelationship = smd.Atomic
	case p.take("p"):
		m.ElementRelationship = smd.Separable
	}
	m.ElementType = p.ref()
	for p.err == nil && !p.take("}") {
		f := smd.StructField{Name: p.until(":")}
		if name, value, ok := strings.Cut(f.Name, "="); ok {
			f.Name = name
			p.err = json.Unmarshal([]byte(value), &f.Default)
		}
		f.Type = p.ref()
		m.Fields = append(m.Fields, f)
	}
	return m
}

func (p *parser) ref() smd.TypeRef {
	switch {
	case p.take("-"):
		return smd.TypeRef{}
	case p.take("("):
		t := smd.TypeRef{Inlined: p.atom()}
		p.expect(")")
		return t
	}
	p.expect("@")
	name := p.until(";")
	var t smd.TypeRef
	if to, how, ok := strings.Cut(name, "!"); ok {
		relationship := smd.Atomic
		if how == "p" {
			relationship = smd.Separable
		}
		name, t.ElementRelationship = to, &relationship
	}
	t.NamedType = &name
	p.refs = append(p.refs, name)
	return t
}
