package issuers

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-dev/tidemark/internal/authn/oidc/oidctest"
	"github.com/tidemark-dev/tidemark/internal/await"
)

// followed is a configuration file whose changes a test applies step by step.
type followed struct {
	*Issuers
	t    *testing.T
	f    *follower
	text string
}

func follow(t *testing.T, text string) *followed {
	t.Helper()
	i, err := Open(Config{File: file(t, text), Disallowed: []string{accounts}, ServerID: "one", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	i.stop() // the test is the follower
	<-i.ended
	h := &followed{Issuers: i, t: t, text: text}
	h.f = &follower{of: i, read: func() []byte { return []byte(h.text) }, tracked: []byte(text)}
	t.Cleanup(h.f.drop)
	return h
}

// change changes the file, and steps until the follower waits for nothing.
func (h *followed) change(text string) {
	h.t.Helper()
	h.text = text
	h.f.step()
	if h.f.pending == nil {
		return
	}
	h.f.pending.set.ready(h.t)
	if h.f.step(); h.f.pending != nil {
		h.t.Fatalf("not ready: %v", h.f.pending.set.health())
	}
}

// reloads checks the counters of reloads.
func (h *followed) reloads(ok, failed float64) {
	h.t.Helper()
	m := h.metrics
	if a, b := testutil.ToFloat64(m.reloads.WithLabelValues(success, m.server)), testutil.ToFloat64(m.reloads.WithLabelValues(failure, m.server)); a != ok || b != failed {
		h.t.Errorf("%v reloads succeeded, %v failed; want %v and %v", a, b, ok, failed)
	}
}

// TestReload: a changed file is used if it is valid, and otherwise counted.
func TestReload(t *testing.T) {
	a, b := oidctest.Listen(t), oidctest.Listen(t)
	first := header + "jwt:\n" + entry(a, "a:")
	h := follow(t, first)
	h.ready(t)
	now := time.Now()
	ofA, ofB := a.Token(t, now, nil), b.Token(t, now, nil)
	check := func(wantA, wantB string) {
		t.Helper()
		if a, b := h.who(ofA), h.who(ofB); a != wantA || b != wantB {
			t.Errorf("got %s and %s, want %s and %s", a, b, wantA, wantB)
		}
	}
	check("a:ann", "unknown")

	h.change(first + entry(b, "b:"))
	check("a:ann", "b:ann")
	h.reloads(1, 0)

	for n, invalid := range []string{
		"", "junk", header + "jwt: 7\n", first + entry(a, "a:"), first + "anonymous: {enabled: true}\n",
		strings.ReplaceAll(first, a.URL, accounts), strings.ReplaceAll(first, "audiences", "egressSelectorType: cluster\n    audiences"),
	} {
		h.change(invalid)
		check("a:ann", "b:ann")
		h.reloads(1, float64(n+1))
		h.f.step() // an unchanged file is not tried again
		h.reloads(1, float64(n+1))
	}

	h.change(header + "jwt:\n" + entry(b, "new:"))
	check("unknown", "new:ann")
	h.reloads(2, 7)
	if n := testutil.CollectAndCount(h.metrics.keySet); n != 1 {
		t.Errorf("%d issuers have metrics, want 1", n)
	}
	h.change(header)
	check("unknown", "unknown")
	h.reloads(3, 7)
}

// TestReloadWaits: until the issuers of a changed file are ready, the old ones are in use. What was
// changed again is used at once.
func TestReloadWaits(t *testing.T) {
	a, dead := oidctest.Listen(t), oidctest.Listen(t)
	dead.Down.Store(true)
	first := header + "jwt:\n" + entry(a, "a:")
	h := follow(t, first)
	h.ready(t)
	token := a.Token(t, time.Now(), nil)

	h.text = header + "jwt:\n" + entry(a, "new:") + entry(dead, "dead:")
	h.f.step()
	waiting := h.f.pending
	if waiting == nil || h.who(token) != "a:ann" {
		t.Fatalf("%v, %s", waiting, h.who(token))
	}
	waiting.deadline = time.Now().Add(-time.Second)
	h.f.step()
	if h.f.pending == nil || h.f.pending == waiting || h.who(token) != "a:ann" {
		t.Errorf("after the deadline: %v, %s", h.f.pending, h.who(token))
	}
	h.reloads(0, 1)

	h.change(header + "jwt:\n" + entry(a, "third:"))
	if got := h.who(token); got != "third:ann" {
		t.Error(got)
	}
	h.reloads(1, 1)
}

// TestFollow: the goroutine of Open finds a changed file, and a removed one.
func TestFollow(t *testing.T) {
	a := oidctest.Listen(t)
	path := file(t, header)
	i, err := Open(Config{File: path, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	token := a.Token(t, time.Now(), nil)
	if got := i.who(token); got != "unknown" {
		t.Fatal(got)
	}
	if err := os.WriteFile(path, []byte(header+"jwt:\n"+entry(a, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the issuer of the changed file", func() bool { return i.who(token) == "ann" })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	await.True(t, "a reload that fails", func() bool {
		return testutil.ToFloat64(i.metrics.reloads.WithLabelValues(failure, i.metrics.server)) > 0
	})
	if got := i.who(token); got != "ann" {
		t.Error(got)
	}
}
