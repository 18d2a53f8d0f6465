package virtual

import (
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// FuzzFieldText checks that a requirement stays the same when it is written as text: no part of it
// becomes another requirement.
func FuzzFieldText(f *testing.F) {
	f.Add("metadata.name", "x", true)
	f.Add("a", "=b,c!=d", false)
	f.Add("a,b", `\`, true)
	f.Add("a", "!=", true)
	f.Fuzz(func(t *testing.T, key, value string, in bool) {
		r := metav1.FieldSelectorRequirement{Key: key, Operator: metav1.FieldSelectorOpNotIn, Values: []string{value}}
		if in {
			r.Operator = metav1.FieldSelectorOpIn
		}
		text, ok := fieldText([]metav1.FieldSelectorRequirement{r})
		if !ok || key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) { // refused before
			return
		}
		got, err := (&authz.Attributes{FieldSelector: text}).FieldRequirements()
		if err != nil {
			return // it is left out
		}
		if len(got) != 1 || got[0].Field != key || got[0].Value != value || (got[0].Operator == "=") != in {
			t.Errorf("%q is %+v, want %+v", text, got, r)
		}
	})
}

// FuzzLabelText is FuzzFieldText for labels.
func FuzzLabelText(f *testing.F) {
	f.Add("a", "In", "b", "c")
	f.Add("a", "In", "", "")
	f.Add("a", "Exists", "", "")
	f.Add("example.com/a", "NotIn", "b,c", "d)")
	f.Fuzz(func(t *testing.T, key, operator, one, other string) {
		r := metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOperator(operator), Values: []string{one, other}}
		if operator == "Exists" || operator == "DoesNotExist" {
			r.Values = nil
		}
		text, ok := labelText([]metav1.LabelSelectorRequirement{r})
		if !ok {
			return
		}
		got, err := (&authz.Attributes{LabelSelector: text}).LabelRequirements()
		if err != nil {
			return
		}
		if len(got) != 1 || got[0].Key() != key {
			t.Fatalf("%q is %+v, want %+v", text, got, r)
		}
		if values := got[0].Values(); len(r.Values) > 0 && (!values.HasAll(one, other) || values.Len() > 2) {
			t.Errorf("%q has the values %v, want %q", text, values, r.Values)
		}
	})
}
