package tidemarktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// yamlText returns a JSON value as YAML.
func yamlText(v any) string {
	var b strings.Builder
	writeYAML(&b, v, 0)
	return b.String()
}

// writeYAML writes a JSON value as lines of YAML that are indented by a number of spaces. Members are
// in the order of their names, after apiVersion, kind and metadata.
func writeYAML(b *strings.Builder, v any, indent int) {
	margin := strings.Repeat(" ", indent)
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			b.WriteString(margin + "{}\n")
		}
		for _, name := range memberNames(v) {
			b.WriteString(margin + yamlString(name) + ":")
			writeMember(b, v[name], indent)
		}
	case []any:
		if len(v) == 0 {
			b.WriteString(margin + "[]\n")
		}
		for _, item := range v {
			text := new(strings.Builder)
			writeYAML(text, item, indent+2)
			b.WriteString(margin + "- " + text.String()[indent+2:])
		}
	default:
		b.WriteString(margin + yamlScalar(v) + "\n")
	}
}

// writeMember writes the value of a member after its name and colon.
func writeMember(b *strings.Builder, v any, indent int) {
	switch x := v.(type) {
	case map[string]any:
		if len(x) > 0 {
			b.WriteString("\n")
			writeYAML(b, v, indent+2)
			return
		}
	case []any:
		if len(x) > 0 {
			b.WriteString("\n")
			writeYAML(b, v, indent)
			return
		}
	case string:
		if blockText.MatchString(x) {
			chomp := "-"
			if strings.HasSuffix(x, "\n") {
				chomp = ""
			}
			b.WriteString(" |" + chomp + "\n")
			margin := strings.Repeat(" ", indent+2)
			for line := range strings.Lines(x) {
				if line == "\n" {
					b.WriteString(line)
					continue
				}
				b.WriteString(margin + strings.TrimSuffix(line, "\n") + "\n")
			}
			return
		}
	}
	b.WriteString(" ")
	writeYAML(b, v, 0)
}

// memberNames returns the names of members in the order in which they are written.
func memberNames(m map[string]any) []string {
	var names []string
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		if _, ok := m[name]; ok {
			names = append(names, name)
		}
	}
	head := len(names)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(names[:head], name) {
			names = append(names, name)
		}
	}
	return names
}

var (
	// plainText needs no quotes, unless it is a word of YAML.
	plainText = regexp.MustCompile(`^[A-Za-z/_(]([-A-Za-z0-9_./() ]*[-A-Za-z0-9_./()])?$`)
	yamlWord  = regexp.MustCompile(`^(?i:true|false|null|yes|no|on|off|y|n)$`)
	// blockText has several lines that can be written as they are.
	blockText = regexp.MustCompile(`^[!-~][ -~]*\n(?:[ -~]*\n)*?(?:[ -~]*[!-~]\n?)$`)
)

func yamlString(s string) string {
	if plainText.MatchString(s) && !yamlWord.MatchString(s) {
		return s
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return fmt.Sprintf("%q", s)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func yamlScalar(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return yamlString(v)
	}
	return fmt.Sprint(v)
}
