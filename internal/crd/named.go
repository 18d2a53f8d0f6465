package crd

import (
	"regexp"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// needed is the part of a value that rules name: all of it, or members by their names in CEL.
type needed struct {
	all bool
	of  map[string]*needed
}

// add notes a path that a rule names.
func (n *needed) add(path []string) {
	for _, name := range path {
		if n.of == nil {
			n.of = map[string]*needed{}
		}
		if n.of[name] == nil {
			n.of[name] = &needed{}
		}
		n = n.of[name]
	}
	n.all = true
}

// addRules adds the members that the rules of a schema name.
func (n *needed) addRules(s *structuralschema.Structural) {
	for _, r := range s.XValidations {
		// A field path leads to a member that the rule need not name. A comment can hide the
		// parenthesis that makes a name a call.
		if r.OptionalOldSelf != nil || r.FieldPath != "" || strings.Contains(r.Rule+r.MessageExpression, "//") {
			n.all = true
		}
		n.addRule(r)
	}
}

// addRule adds the members that the expressions of a rule name.
func (n *needed) addRule(r apiextensionsv1.ValidationRule) {
	for _, text := range []string{r.Rule, r.MessageExpression} {
		for _, at := range paths.FindAllStringSubmatchIndex(text, -1) {
			n.add(pathOf(text[at[2]:at[3]], text[at[3]:]))
		}
	}
}

// paths are those that begin at the value that a rule is about.
var paths = regexp.MustCompile(`\b(?:self|oldSelf)\b((?:\.\??[A-Za-z_][A-Za-z0-9_]*)*)`)

// pathOf splits a path into its members. The name of a called function is not a member.
func pathOf(path, behind string) []string {
	if path == "" {
		return nil
	}
	names := strings.Split(path[1:], ".")
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], "?")
	}
	if strings.HasPrefix(strings.TrimLeft(behind, " \t\r\n"), "(") {
		names = names[:len(names)-1]
	}
	return names
}

// forRules returns the schema without the members that no rule names. Compiling a rule takes time
// for each member, named or not.
func forRules(s *structuralschema.Structural, n *needed) *structuralschema.Structural {
	n.addRules(s)
	switch {
	case n.all, s.XEmbeddedResource, len(s.Properties) == 0 && len(n.of) > 0:
		return s
	case s.ValueValidation != nil && len(s.ValueValidation.AllOf) > 0: // it may have rules
		return s
	}
	left := *s
	if s.Properties != nil {
		left.Properties = map[string]structuralschema.Structural{}
	}
	for name := range s.Properties {
		escaped, _ := apiservercel.Escape(name)
		of := n.of[escaped]
		if of == nil && inside(s.Properties[name])&(aRule|anAllOf) == 0 {
			continue
		}
		if of == nil {
			of = &needed{}
		}
		p := s.Properties[name]
		left.Properties[name] = *forRules(&p, of)
	}
	if s.Items != nil && inside(*s.Items)&(aRule|anAllOf) != 0 {
		of := &needed{}
		for _, key := range s.XListMapKeys {
			if escaped, ok := apiservercel.Escape(key); ok {
				of.add([]string{escaped})
			}
		}
		left.Items = forRules(s.Items, of)
	}
	if more := s.AdditionalProperties; more != nil && more.Structural != nil && inside(*more.Structural)&(aRule|anAllOf) != 0 {
		of := *more
		of.Structural = forRules(more.Structural, &needed{})
		left.AdditionalProperties = &of
	}
	return &left
}

// contents are the features of a schema and the schemas below it.
type contents uint8

const (
	aRule   contents = 1 << iota
	anAllOf          // which may have rules
	anIntOrString
	anEmbedded // object
)

// inside returns the features of a schema and the schemas below it. It takes a value: the address
// of a map's value would be that of a copy on the heap.
func inside(s structuralschema.Structural) contents {
	var c contents
	if len(s.XValidations) > 0 {
		c |= aRule
	}
	if s.ValueValidation != nil && len(s.ValueValidation.AllOf) > 0 {
		c |= anAllOf
	}
	if s.XIntOrString {
		c |= anIntOrString
	}
	if s.XEmbeddedResource {
		c |= anEmbedded
	}
	for _, p := range s.Properties {
		c |= inside(p)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		c |= inside(*s.AdditionalProperties.Structural)
	}
	if s.Items != nil {
		c |= inside(*s.Items)
	}
	return c
}

// rulesOf returns the part of a kind's schema that the rules are compiled with.
func rulesOf(s *structuralschema.Structural) *structuralschema.Structural {
	n := &needed{}
	for _, name := range []string{"apiVersion", "kind", "metadata"} { // every object has them
		n.add([]string{name})
	}
	return forRules(s, n)
}
