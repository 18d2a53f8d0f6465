package tidemarktest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// limited is a test whose process ends at a time.
type limited struct {
	tidemarktest.TB
	end time.Time
}

func (l *limited) Deadline() (time.Time, bool) { return l.end, true }

// TestBeforeDeadline: a test that hangs reports what its cluster waits for before go test ends the process.
func TestBeforeDeadline(t *testing.T) {
	t.Parallel()
	env := tidemarktest.Start(t)
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: stuck, finalizers: [example.com/f]}}")
	if code := send(t.Context(), env, "DELETE", configMaps+"/stuck", ""); code != 200 {
		t.Fatalf("the deletion: %d", code)
	}
	reports := make(chan string)
	tidemarktest.WatchDeadline(env, &limited{t, time.Now()}, func(text string) { reports <- text })
	got := <-reports
	for _, part := range []string{"TestBeforeDeadline is about to exceed", "configmaps default/stuck: example.com/f", "apply   configmaps default/stuck"} {
		if !strings.Contains(got, part) {
			t.Errorf("the report lacks %q:\n%s", part, got)
		}
	}
}

// TestEvidenceOfSettled: a test that hangs although its cluster has settled does not report unfinished work.
func TestEvidenceOfSettled(t *testing.T) {
	t.Parallel()
	env := tidemarktest.Start(t)
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	got := tidemarktest.Evidence(env, t, 30*time.Second)
	if strings.Contains(got, "settled") || !strings.Contains(got, "apply   configmaps default/a") {
		t.Errorf("the report is:\n%s", got)
	}
}
