package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
)

// TestScenarios verifies that Tidemark does what was recorded from kube-apiserver. Configurations
// are in effect with the next request, so that no step waits.
func TestScenarios(t *testing.T) {
	all, err := load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "audit.log")
	// The scenarios were recorded without a kube-controller-manager.
	s := tidemark.Server{Controllers: []string{"-*"}, NoUnenforcedWarnings: true,
		Audit: tidemark.Audit{PolicyFile: filepath.Join("testdata", "audit.yaml"), Log: tidemark.AuditLog{Path: log}}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hooks, err := newHookServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hooks.close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	target := &server{url: s.URL(), client: clientWith(s.RESTConfig().BearerToken), auditLog: log, hooks: hooks}
	waiting := waitingScenarios(t)
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) {
			// One after another: audit annotations count the webhooks of all scenarios.
			report, err := target.check(t.Context(), sc, false)
			if err != nil {
				report += err.Error()
			}
			switch why, waits := waiting[sc.name]; {
			case waits && report != "":
				t.Skipf("%s:\n%s", why, report)
			case waits:
				t.Logf("passes; take it out of waiting.txt")
			case report != "":
				t.Error(report)
			}
		})
	}
}

// waitingScenarios returns the scenarios that Tidemark does not pass, and the reason.
func waitingScenarios(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open("waiting.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, why, ok := strings.Cut(lines.Text(), " "); ok && name != "#" {
			all[name] = strings.TrimSpace(why)
		}
	}
	return all
}

func TestFormat(t *testing.T) {
	all, err := load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range all {
		want, err := os.ReadFile(sc.file)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(string(want), string(sc.format())); d != "" {
			t.Errorf("%s is written in another way:\n%s", sc.name, d)
		}
		for _, st := range sc.steps {
			if st.want[0] == "" {
				t.Errorf("%s: step %s was never recorded", sc.name, st.name)
			}
		}
	}
}
