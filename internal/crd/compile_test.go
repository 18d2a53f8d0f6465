package crd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// TestRulesTakeTurns checks that schemas with many rules are compiled one after the other, and
// others meanwhile. A request that waits for that ends when its context is done.
func TestRulesTakeTurns(t *testing.T) {
	s := ruled(t, apiextensionsv1.ValidationRule{Rule: "self.n > 0"})
	many, few := newRules(s, manyRules+1), newRules(s, manyRules)
	other := newRules(s, manyRules+1)
	if err := other.lane.enter(t.Context(), ""); err != nil { // it is being compiled
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

// TestLaneOfUsers: users take turns in a lane, and a request that leaves gives its turn to the next.
func TestLaneOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lane{free: 1}
		if !l.try() || l.try() {
			t.Fatal("a lane for one request has another number of places")
		}
		var got []string
		wait := func(ctx context.Context, user, name string) {
			go func() {
				if err := l.enter(ctx, user); err != nil {
					return
				}
				got = append(got, name)
				l.leave()
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, n := range []string{"1", "2", "3"} {
			wait(t.Context(), "a", "a"+n)
		}
		wait(ctx, "c", "c1")
		wait(t.Context(), "b", "b1")
		wait(t.Context(), "b", "b2")
		cancel()
		synctest.Wait()
		l.leave()
		synctest.Wait()
		if got, want := strings.Join(got, " "), "a1 b1 a2 b2 a3"; got != want {
			t.Errorf("the order is %s, want %s", got, want)
		}
		if !l.try() || len(l.waiting) > 0 {
			t.Errorf("the lane keeps %v", l.waiting)
		}
	})
}
