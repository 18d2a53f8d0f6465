package tidemarktest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// ids are those of objects in TestRenderings.
var ids = []string{"11111111-2222-4333-8444-555555555555", "aaaaaaaa-2222-4333-8444-555555555555", "bbbbbbbb-2222-4333-8444-555555555555"}

// randomText returns a text of few parts, so that it often repeats.
func randomText(r *rand.Rand) string {
	parts := append([]string{"web-abcde", "a", "-", " ", "\n", `"`, `\`, "ü", "2026-01-01T00:00:00Z", "2026-01-01T0:00:00Z", "5:x", "1", "None"}, ids...)
	var b strings.Builder
	for range r.IntN(3) + 1 {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// randomJSON returns a value of an object.
func randomJSON(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case n == 0 && depth > 0:
		list := make([]any, r.IntN(3))
		for i := range list {
			list[i] = randomJSON(r, depth-1)
		}
		return list
	case n < 3 && depth > 0:
		names := []string{"resourceVersion", "generation", "observedGeneration", "conditions", "uid", "name", "metadata", "x\"", "spec", "clusterIP", ids[0]}
		m := map[string]any{}
		for range r.IntN(4) {
			m[names[r.IntN(len(names))]] = randomJSON(r, depth-1)
		}
		return m
	case n == 3:
		return r.IntN(3)
	case n == 4:
		return nil
	}
	return randomText(r)
}

// TestRenderings: a kept rendering is the same as a new one, whatever was rendered before.
func TestRenderings(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	kept, hits := new(renderings), 0
	for i := range 5_000 {
		o := map[string]any{"metadata": randomJSON(r, 2), "kind": []string{"Service", "Pod"}[r.IntN(2)], "apiVersion": "v1", "spec": randomJSON(r, 2)}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if r.IntN(4) == 0 {
			text, _ = json.MarshalIndent(o, "", "\t ")
		}
		known := map[string]string{ids[0]: "(uid of a)", ids[1]: []string{"(uid of a)", "(uid of b)"}[r.IntN(2)]}
		replace := func(s string) string { return replaceUUIDs(s, known) }
		if r.IntN(2) == 0 {
			replace = strings.NewReplacer("web-abcde", []string{"web-(1)", "web-(2)"}[r.IntN(2)], ids[0], "(uid of a)").Replace
		}
		want, err := (*renderings)(nil).render(text, replace)
		if err != nil {
			t.Fatal(err)
		}
		before := len(kept.texts)
		got, err := kept.render(text, replace)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("seed %d, object %d: %s\nis rendered as\n%s, want\n%s", seed, i, text, got, want)
		}
		if len(kept.texts) == before {
			hits++
		}
	}
	t.Logf("%d of 5,000 were kept before", hits)
	if hits < 100 {
		t.Errorf("seed %d: only %d of 5,000 objects were rendered before", seed, hits)
	}
}

// TestRenderingsLimit: beyond the limit, texts are the same, and are not kept.
func TestRenderingsLimit(t *testing.T) {
	kept := &renderings{bytes: maxRenderings - 100}
	same := func(s string) string { return s }
	for i := range 10 {
		text, err := kept.render(json.RawMessage(fmt.Sprintf(`{"data":{"i":"%d"}}`, i)), same)
		if want := fmt.Sprintf("data:\n  i: \"%d\"\n", i); err != nil || text != want {
			t.Errorf("%q %v, want %q", text, err, want)
		}
	}
	if n := len(kept.texts); n == 0 || n == 10 || kept.bytes > maxRenderings {
		t.Errorf("%d texts are kept, %d bytes", n, kept.bytes)
	}
}

// TestReplaceUUIDs: the result is that of a strings.Replacer, and it finds all matches of the
// regular expression.
func TestReplaceUUIDs(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	known := map[string]string{ids[0]: "(one)", ids[1]: "(two)"}
	replacer := strings.NewReplacer(ids[0], "(one)", ids[1], "(two)")
	parts := append([]string{"-", "a", "A", "1", " ", ids[0][:20], ids[0][20:], "55555555"}, ids...)
	for range 10_000 {
		s := ""
		for range r.IntN(6) {
			s += parts[r.IntN(len(parts))]
		}
		if got, want := replaceUUIDs(s, known), replacer.Replace(s); got != want {
			t.Fatalf("seed %d: %q becomes %q, want %q", seed, s, got, want)
		}
		if uuid.MatchString(s) && nextUUID(s, 0) < 0 {
			t.Fatalf("seed %d: there is a UUID in %q", seed, s)
		}
	}
}

// TestIdentityOf: only the members of the metadata count.
func TestIdentityOf(t *testing.T) {
	for text, want := range map[string]identity{
		``:     {},
		`null`: {},
		`{"spec":{"name":"x","metadata":{"name":"y"}},"metadata":{"name":"a","labels":{"uid":"z"},"uid":"u","generateName":"g-"},"status":{"uid":"v"}}`:              {"a", "g-", "u"},
		"{ \"metadata\" :\n{ \"name\" : \"a\\\"b\", \"uid\": null, \"generateName\": [\"x\"] }, \"name\": \"c\", \"Metadata\": {\"name\": \"d\"}, \"data\": \"}\" }": {name: `a"b`},
	} {
		if got := identityOf(json.RawMessage(text)); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}
