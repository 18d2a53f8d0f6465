package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
)

// TestScenarios compares Tidemark with the recordings of kube-apiserver. Configurations are in
// effect with the next request, so that no step waits.
func TestScenarios(t *testing.T) {
	all, err := load("testdata")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "audit.log")
	// The scenarios were recorded without a kube-controller-manager.
	s := tidemark.Server{Controllers: []string{"-*"}, Admission: tidemark.Admission{NoUnenforcedWarnings: true},
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
	known := knownDifferences(t)
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) {
			// One after another: audit annotations count the webhooks of all scenarios.
			report, err := target.check(t.Context(), sc, false)
			if err != nil {
				t.Error(err)
			}
			found := differing(report)
			if want := known[sc.name]; !slices.Equal(found, want) || report != "" && len(found) == 0 {
				t.Errorf("differs in %q, differences.txt has %q:\n%s", found, want, report)
			}
		})
	}
}

var heading = regexp.MustCompile(`(?m)^ *((?:expect|calls|audit) \S+): - recorded`)

// differing returns the parts of a scenario's steps that differ, in their order.
func differing(report string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(report, -1) {
		all = append(all, m[1])
	}
	return all
}

// knownDifferences returns the parts in which each scenario differs deliberately.
func knownDifferences(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		place, _, _ := strings.Cut(line, ":")
		scenario, part, _ := strings.Cut(place, " ")
		all[scenario] = append(all[scenario], part)
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
