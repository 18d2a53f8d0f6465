package virtual

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestMayMatch checks that mayMatch selects the same objects as the selector of apimachinery.
func TestMayMatch(t *testing.T) {
	if mayMatch(nil, nil) {
		t.Error("no selector matches")
	}
	random := testrand.New(t)
	texts := []string{"", "a", "b"}
	text := func() string { return texts[random.IntN(len(texts))] }
	operators := []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}
	matched := 0
	for range 20_000 {
		var s metav1.LabelSelector
		of := map[string]string{}
		for range random.IntN(3) {
			of["k"+text()] = text()
		}
		for range random.IntN(2) {
			metav1.AddLabelToSelector(&s, "k"+text(), text())
		}
		for range random.IntN(3) {
			r := metav1.LabelSelectorRequirement{Key: "k" + text(), Operator: operators[random.IntN(len(operators))]}
			if slices.Contains(operators[:2], r.Operator) {
				r.Values = []string{text(), text()}
			}
			s.MatchExpressions = append(s.MatchExpressions, r)
		}
		valid, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			t.Fatal(err)
		}
		want := valid.Matches(labels.Set(of))
		if got := mayMatch(&s, of); got != want {
			t.Fatalf("%v matches %v: %t, want %t", s.String(), of, got, want)
		}
		if want {
			matched++
		}
	}
	if matched == 0 {
		t.Error("no selector matched")
	}
}
