package crd

import (
	"context"
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// TestRulesTakeTurns: the many rules of a schema are compiled while no other schema with many is, others meanwhile. The
// request that waits for that ends with its time.
func TestRulesTakeTurns(t *testing.T) {
	s := ruled(t, apiextensionsv1.ValidationRule{Rule: "self.n > 0"})
	many, few := newRules(s, manyRules+1), newRules(s, manyRules)
	other := newRules(s, manyRules+1)
	if err := other.lane.enter(t.Context()); err != nil { // it is being compiled
		t.Fatal(err)
	}
	if v, err := few.validator(t.Context()); v == nil || err != nil {
		t.Errorf("few rules: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := many.validator(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("many rules beside others: %v, want that the context ended", err)
	}
	c := &compiled{structural: s, rules: many}
	if errs := c.checkRules(ctx, nil, map[string]any{"n": int64(1)}, nil, &notes{}); len(errs) != 1 {
		t.Errorf("the object has %v, want an error: its rules were not checked", errs)
	}
	done := make(chan error)
	for range 3 {
		go func() {
			_, err := many.validator(t.Context())
			done <- err
		}()
	}
	other.lane.leave()
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if v := many.compiled.Load(); v == nil {
		t.Error("the rules are not compiled")
	} else if again, _ := many.validator(ctx); again != v {
		t.Error("the rules are compiled twice")
	}
}
