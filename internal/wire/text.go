package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	goyaml "go.yaml.in/yaml/v2" // the decoder of sigs.k8s.io/yaml
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"
)

// Indent returns a JSON value indented by two spaces, without a final newline.
func Indent(value []byte) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(len(value) * 2)
	if err := json.Indent(&b, bytes.TrimSuffix(value, []byte("\n")), "", "  "); err != nil {
		return nil, fmt.Errorf("indenting: %w", err)
	}
	return b.Bytes(), nil
}

// ToYAML returns a JSON value as YAML with sorted keys.
func ToYAML(value []byte) ([]byte, error) { return yaml.JSONToYAML(value) }

// ListText writes a list as YAML or as indented JSON, item by item, so that only one item
// is in memory: Head, any number of Item, Tail.
type ListText struct {
	// Media is YAML, or JSON for the indented form.
	Media MediaType
	Frame Frame

	some bool   // an item was written
	tail []byte // the text after the items in YAML
}

// Head appends the part before the items.
func (l *ListText) Head(to []byte) ([]byte, error) {
	if l.Media != YAML {
		head, _ := l.edges()
		return append(to, head...), nil
	}
	text, err := yaml.JSONToYAML(l.Frame.AppendNone(nil))
	if err != nil {
		return to, fmt.Errorf("writing YAML: %w", err)
	}
	// The keys are sorted, and no other line begins with this one.
	key := "\n" + l.Frame.items() + ":"
	i := bytes.Index(text, []byte(key)) + len(key)
	l.tail = text[i:]
	return append(to, text[:i]...), nil
}

// Item appends an object or a row, given as JSON without its kind as in a list.
func (l *ListText) Item(to, item []byte) ([]byte, error) {
	if l.Media == YAML {
		return l.yamlItem(to, item)
	}
	if l.some {
		to = append(to, ',')
	}
	l.some = true
	var b bytes.Buffer
	if err := json.Indent(&b, item, "    ", "  "); err != nil {
		return to, fmt.Errorf("indenting: %w", err)
	}
	to = append(to, "\n    "...)
	return append(to, b.Bytes()...), nil
}

func (l *ListText) yamlItem(to, item []byte) ([]byte, error) {
	text, err := yaml.JSONToYAML(item)
	if err != nil {
		return to, fmt.Errorf("writing YAML: %w", err)
	}
	if !l.some {
		to = append(to, '\n')
		// The text for an empty list is the rest of the line.
		l.tail = l.tail[bytes.IndexByte(l.tail, '\n')+1:]
	}
	l.some = true
	indent := "- "
	for line := range bytes.Lines(text) {
		if len(line) > 1 { // an empty line is part of a block, and needs no indentation
			to = append(to, indent...)
		}
		to = append(to, line...)
		indent = "  "
	}
	return to, nil
}

// Tail appends the part after the items.
func (l *ListText) Tail(to []byte) ([]byte, error) {
	if l.Media == YAML {
		return append(to, l.tail...), nil
	}
	switch _, tail := l.edges(); {
	case l.some:
		return append(append(to, "\n  "...), tail...), nil
	case l.Frame.null:
		return append(append(to[:len(to)-1], "null"...), tail[1:]...), nil
	default:
		return append(to, tail...), nil
	}
}

// edges returns the parts of an empty indented list around its items.
func (l *ListText) edges() (head, tail []byte) {
	empty, _ := Indent(append(l.Frame.AppendHead(nil), ListTail...))
	i := bytes.LastIndexByte(empty, '[') + 1
	return empty[:i], empty[i:]
}

// FromYAML returns YAML as JSON.
func FromYAML(text []byte) ([]byte, error) {
	if err := checkYAML(text); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(text)
}

// maxAliases is the maximum number of aliases in a YAML text. The parser takes a microsecond for
// each, and an alias can have three bytes. Text that looks like an alias counts too, such as *this*
// in a block of text.
const maxAliases = 20_000

// countAliases returns an upper bound of the number of aliases.
func countAliases(text []byte) int {
	n := 0
	for i := 1; i+1 < len(text); i++ {
		if text[i] != '*' || text[i+1] <= ' ' || text[i+1] == '*' {
			continue
		}
		// YAML has line breaks beyond ASCII, too.
		if before := text[i-1]; before >= utf8.RuneSelf || strings.IndexByte(" \t\r\n,[{:-?", before) >= 0 {
			n++
		}
	}
	return n
}

// maxTags is the maximum number of %TAG directives in a YAML text. The parser compares each directive, and each
// tag, with all directives.
const maxTags = 64

// checkYAML refuses a text that takes the parser too long for its length, or that its aliases make too large.
// It also refuses other encodings than UTF-8: the parser reads UTF-16 too, in which the counts would find nothing.
func checkYAML(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("it is not valid UTF-8")
	}
	if bytes.Count(text, []byte("%TAG")) > maxTags {
		return fmt.Errorf("it has more than %d %%TAG directives", maxTags)
	}
	return checkAliases(text)
}

// maxAliased limits the bytes that aliases add to a YAML text: each alias expands to the whole
// value of its anchor. It is the size of the largest body.
const maxAliased = 3 << 20

// checkAliases refuses a text that becomes too large by its aliases.
func checkAliases(text []byte) error {
	if bytes.IndexByte(text, '*') < 0 || bytes.IndexByte(text, '&') < 0 {
		return nil
	}
	if countAliases(text) > maxAliases {
		return fmt.Errorf("it has more than %d aliases", maxAliases)
	}
	var v any
	if err := goyaml.Unmarshal(text, &v); err != nil {
		return nil //nolint:nilerr // the decoder has a better error
	}
	left := maxAliased - len(text)
	if expanded(v, &left); left < 0 {
		return fmt.Errorf("its aliases make it larger than %d bytes", maxAliased)
	}
	return nil
}

// expanded subtracts the size of a value, about that of its JSON.
func expanded(v any, left *int) {
	const separators = 4
	*left -= separators
	if *left < 0 {
		return
	}
	switch v := v.(type) {
	case string:
		*left -= len(v)
	case []any:
		for _, e := range v {
			expanded(e, left)
		}
	case map[any]any:
		for key, e := range v {
			expanded(key, left)
			expanded(e, left)
		}
	}
}

// Configuration returns an applied configuration in CBOR, YAML or JSON as JSON. A duplicate
// key in YAML is a complaint in the words of field validation, not an error; its last value
// counts. The text of an error is the message of kube-apiserver.
func Configuration(m MediaType, body []byte) (config []byte, complaint string, err error) {
	if m == CBOR {
		config, err = configurationCBOR(body)
		var tooLarge *apierrors.StatusError
		if err != nil && !errors.As(err, &tooLarge) {
			err = fmt.Errorf("%s%w", DecodingPatch, err)
		}
		return config, "", err
	}
	if jsontext.Value(body).IsValid() { // it has no duplicate key
		return plainNumbers(body), "", nil
	}
	config, strict, err := fromYAML(body)
	switch {
	case err != nil && startsAsJSON(body):
		return nil, "", fmt.Errorf("%s%s%w", DecodingPatch, convertingYAML, err)
	case err != nil:
		return nil, "", fmt.Errorf("error encoding patch: %w", err)
	}
	if len(strict) > 0 {
		complaint = convertingYAML + strict[0]
	}
	return plainNumbers(config), complaint, nil
}

// DecodingPatch is the beginning of the message about a patch that cannot be decoded.
const DecodingPatch = "error decoding patch: "

// startsAsJSON reports whether a configuration looks like a JSON object. kube-apiserver converts any other
// one before it decodes it, and so has another message for it.
func startsAsJSON(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeftFunc(body, unicode.IsSpace), []byte("{"))
}

// plainNumbers rewrites the numbers with fractions or exponents, and -0, in a valid JSON text as a conversion
// from YAML writes them: 1e3 becomes 1000, and -0.0 becomes 0. So an apply sets an integer for each of these, as
// in kube-apiserver. It returns the text itself if it has no such number.
func plainNumbers(text []byte) []byte {
	var plain []byte
	done := 0 // length of the text that plain has
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i++
		case c == '-' || '0' <= c && c <= '9':
			from, integer := i, true
			for ; i < len(text) && strings.IndexByte("+-.0123456789eE", text[i]) >= 0; i++ {
				integer = integer && text[i] != '.' && text[i]|0x20 != 'e'
			}
			number := string(text[from:i])
			if integer && number != "-0" {
				continue
			}
			f, err := strconv.ParseFloat(number, 64)
			if err != nil { // too large: the decoder reports it
				continue
			}
			if f == 0 {
				f = 0 // -0
			}
			made, err := json.Marshal(f)
			if err != nil || string(made) == number {
				continue
			}
			plain = append(append(plain, text[done:from]...), made...)
			done = i
		default:
			i++
		}
	}
	if done == 0 {
		return text
	}
	return append(plain, text[done:]...)
}

const (
	convertingYAML = "error converting YAML to JSON: "
	unmarshalYAML  = "yaml: unmarshal errors:\n"
)

// Warnings returns the errors of field validation as warning headers carry them: those
// about YAML line by line.
func Warnings(complaints ...string) []string {
	var all []string
	for _, c := range complaints {
		lines, isYAML := strings.CutPrefix(strings.TrimPrefix(c, convertingYAML), unmarshalYAML)
		if !isYAML {
			all = append(all, c)
			continue
		}
		for line := range strings.SplitSeq(lines, "\n") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}
