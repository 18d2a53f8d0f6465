package tidemarktest_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// TestSeed: two worlds with the same seed have the same UIDs and generated names, those of another seed differ.
func TestSeed(t *testing.T) {
	names := func(seed uint64) (all []string) {
		w := &tidemarktest.World{Seed: seed, CRDDirectoryPaths: []string{"testdata/crd"}}
		f := &failing{TB: t}
		env := w.Fork(f)
		for range 3 {
			if code, text := request(t, env, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"generateName":"c-"}}`); code != 201 {
				t.Fatalf("%d %s", code, text)
			}
		}
		env.Settle(t)
		for _, c := range env.Changes(t).Of("configmaps", "").Verb("create").All() {
			all = append(all, c.Key+" "+regexp.MustCompile(`"uid":"[^"]*"`).FindString(string(c.After)))
		}
		for _, c := range f.cleanups {
			c()
		}
		if !strings.Contains(f.log.String(), "the seed is ") {
			t.Errorf("the log of a failed test lacks the seed:\n%s", &f.log)
		}
		return all
	}
	one, again, other := names(1), names(1), names(2)
	if len(one) < 3 || !slices.Equal(one, again) {
		t.Errorf("the same seed makes\n%s\nand\n%s", strings.Join(one, "\n"), strings.Join(again, "\n"))
	}
	if slices.Equal(one, other) {
		t.Errorf("two seeds make\n%s", strings.Join(one, "\n"))
	}
}
