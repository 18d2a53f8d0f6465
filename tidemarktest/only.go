package tidemarktest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// onlyVariable names the environment variable that chooses one disturbance, by its name or the name of its dump's directory.
const onlyVariable = "TIDEMARK_ONLY"

// selections has the tests that run and have searches, by their names, while onlyVariable is set.
var selections struct {
	sync.Mutex
	of map[string]*selection
}

// selection is the choice among the runs of one test, which may have several searches.
type selection struct {
	found bool     // by one of them
	runs  []string // of those that do not have it, a line for each search
}

// selectOnly returns the run that has a name, after the run without a disturbance; none if the search does not have it.
// The test fails at its end if none of its searches has it.
func (s *search) selectOnly(all []disturbance, only string) []disturbance {
	s.t.Helper()
	chosen := slices.DeleteFunc(slices.Clone(all), func(d disturbance) bool { return d.name != "" && d.dir != only && fileName(d.dir) != only })
	if len(chosen) == 1 && chosen[0].dir != only && fileName(chosen[0].dir) != only {
		chosen = nil
	}
	name := s.t.Name()
	selections.Lock()
	defer selections.Unlock()
	c := selections.of[name]
	if c == nil {
		c = &selection{}
		if selections.of == nil {
			selections.of = map[string]*selection{}
		}
		selections.of[name] = c
		s.t.Cleanup(func() {
			s.t.Helper()
			s.endSelection(name, only)
		})
	}
	if chosen != nil {
		c.found = true
		return chosen
	}
	s.t.Logf("tidemarktest: %s: no runs, because %s is %q, which is none of its runs", s.name, onlyVariable, only)
	var names []string
	for _, d := range all {
		names = append(names, "\n    "+shellQuote(d.dir))
	}
	c.runs = append(c.runs, s.name+":"+strings.Join(names, ""))
	return nil
}

// endSelection fails the test if none of its searches has the run that was chosen.
func (s *search) endSelection(name, only string) {
	s.t.Helper()
	selections.Lock()
	defer selections.Unlock()
	c := selections.of[name]
	delete(selections.of, name)
	if !c.found {
		s.t.Errorf("tidemarktest: %s is %q, but no search of this test has a run of that name, so nothing was tested. The runs are\n  %s",
			onlyVariable, only, strings.Join(c.runs, "\n  "))
	}
}

// repeatCommand returns how to repeat the run with a disturbance alone, and to keep its state and history.
func (s *search) repeatCommand(dir string) string {
	if os.Getenv("TIDEMARK_DUMP") != "" {
		return fmt.Sprintf("\n  this run alone: %s=%s go test %s", onlyVariable, shellQuote(dir), testFlag(s.t.Name()))
	}
	return fmt.Sprintf("\n  this run alone, with its state and history in DIR: %s=%s TIDEMARK_DUMP=DIR go test %s", onlyVariable, shellQuote(dir), testFlag(s.t.Name()))
}

// testFlag returns the flag of go test that selects one test. The name of a spec of Ginkgo is a sentence, and that of a Go
// test has no space.
func testFlag(name string) string {
	if strings.Contains(name, " ") {
		return "-ginkgo.focus=" + shellQuote(regexp.QuoteMeta(name)+"$")
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return "-run " + shellQuote(strings.Join(parts, "/"))
}
