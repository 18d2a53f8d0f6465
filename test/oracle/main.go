// Command oracle checks Tidemark against scenarios that were recorded from a
// real kube-apiserver. It starts a server in memory, lets the runner that comes
// with the scenarios compare the responses, and holds the result against two lists:
// the areas that are built, and the scenarios that wait for a part, or that differ below /at/.
//
//	go run ./test/oracle --dir FOLDER [--version v1.37] [--emulated-version 1.36] [--run REGEXP] [--follower | --at] [-v]
//
// The exit status is 0 when every scenario of a built area passes, apart from the
// waiting ones, and every waiting one still fails.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/follower"
	"github.com/tidemark-dev/tidemark/test/scenarios"
)

//go:embed areas.txt
var areasText string

//go:embed waiting.txt
var waitingText string

//go:embed past.txt
var pastText string

var (
	throughFollower bool
	ofInstants      bool
	version         string
	emulated        string
)

func main() {
	dir := flag.String("dir", "", "folder of the runner and its scenarios")
	flag.StringVar(&version, "version", "v1.37", "version of Kubernetes whose recordings are compared")
	flag.StringVar(&emulated, "emulated-version", "", "version of Kubernetes that the server emulates: 1.36; default: the newest")
	run := flag.String("run", "", "only scenarios that match; then the lists are not held against the result")
	flag.BoolVar(&throughFollower, "follower", false, "compare the responses of a server that follows another one")
	flag.BoolVar(&ofInstants, "at", false, "compare the responses to reads below /at/, each at the newest revision of its moment; writes are sent as they are")
	verbose := flag.Bool("v", false, "show every scenario, and whole differences")
	flag.Parse()
	if err := check(*dir, *run, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func check(dir, run string, verbose bool) error {
	areas, waiting, err := lists()
	if err != nil {
		return err
	}
	expr := run
	if expr == "" {
		expr = "^(" + strings.Join(areas, "|") + ")/"
	}
	outcomes, err := verify(dir, expr, verbose)
	if err != nil || run != "" {
		return err
	}
	if err := again(dir, outcomes, waiting); err != nil {
		return err
	}
	return hold(outcomes, waiting)
}

// again gives scenarios that fail and should not a second chance, alone on a fresh
// server. Managed fields are in the order of their times, which the recordings have
// within one second: a scenario that a second ends in the middle of is in another.
func again(dir string, outcomes []scenarios.Outcome, waiting map[string]string) error {
	for i, o := range outcomes {
		if _, waits := waiting[o.Name]; o.Passed || waits {
			continue
		}
		fmt.Printf("oracle: %s failed, and is run once more\n", o.Name)
		second, err := verify(dir, "^"+regexp.QuoteMeta(o.Name)+"$", true)
		if err != nil {
			return err
		}
		outcomes[i].Passed = len(second) == 1 && second[0].Passed
	}
	return nil
}

// lists reads the two lists: the areas, and the waiting scenarios with the part
// that each waits for.
func lists() (areas []string, waiting map[string]string, err error) {
	waiting = map[string]string{}
	for line := range rows(areasText) {
		areas = append(areas, line)
	}
	text := waitingText
	if ofInstants {
		text = pastText
	}
	for line := range rows(text) {
		name, part, ok := strings.Cut(line, " ")
		if !ok {
			return nil, nil, fmt.Errorf("%s: %q gives no reason", list(), line)
		}
		waiting[name] = strings.TrimSpace(part)
	}
	return areas, waiting, nil
}

// list is the name of the list of scenarios that fail.
func list() string {
	if ofInstants {
		return "past.txt"
	}
	return "waiting.txt"
}

func rows(text string) func(func(string) bool) {
	return func(yield func(string) bool) {
		sc := bufio.NewScanner(strings.NewReader(text))
		for sc.Scan() {
			line := strings.TrimSpace(sc.Text())
			if line != "" && !strings.HasPrefix(line, "#") && !yield(line) {
				return
			}
		}
	}
}

// verify runs the scenarios against a fresh server.
func verify(dir, expr string, verbose bool) ([]scenarios.Outcome, error) {
	tmp, err := os.MkdirTemp("", "oracle-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)

	// The scenarios were recorded without a kube-controller-manager, from a server that
	// acts on roles, webhooks and policies. They list all groups, and a kube-apiserver has none of ours.
	s := &tidemark.Server{KubernetesVersion: emulated, Controllers: []string{"-*"}, Admission: tidemark.Admission{NoUnenforcedWarnings: true}, NoChanges: true}
	if throughFollower {
		s.Storage = &datadir.Dir{Path: filepath.Join(tmp, "data")}
	}
	if err := s.Start(context.Background()); err != nil {
		return nil, err
	}
	defer func() { s.Close() }()
	if throughFollower {
		f := &tidemark.Server{Storage: &follower.Copy{Server: s.RESTConfig(), Data: &datadir.Dir{Path: filepath.Join(tmp, "copy")}}, Admission: tidemark.Admission{NoUnenforcedWarnings: true}, NoChanges: true}
		if err := f.Start(context.Background()); err != nil {
			return nil, err
		}
		defer func() { f.Close() }()
		s, f = f, s
	}

	runner, err := scenarios.Build(dir, version, tmp)
	if err != nil {
		return nil, err
	}
	more := []string{"--parallel", "8"}
	if verbose {
		more = append(more, "-v")
	}
	to := s.URL()
	if ofInstants {
		past, err := pastServer(s)
		if err != nil {
			return nil, err
		}
		defer past.Close()
		to = past.URL
	}
	return runner.Verify(to, s.RESTConfig().BearerToken, expr, os.Stdout, more...)
}

// hold compares the outcomes with the list of those that wait.
func hold(outcomes []scenarios.Outcome, waiting map[string]string) error {
	var wrong []string
	seen := map[string]bool{}
	passed := 0
	for _, o := range outcomes {
		seen[o.Name] = true
		part, waits := waiting[o.Name]
		switch {
		case o.Passed && waits:
			wrong = append(wrong, fmt.Sprintf("%s passes, but %s has it (%s): take it out", o.Name, list(), part))
		case !o.Passed && !waits:
			wrong = append(wrong, o.Name+" fails")
		case o.Passed:
			passed++
		}
	}
	for name := range waiting {
		if !seen[name] {
			wrong = append(wrong, name+" is in "+list()+", but there is no such scenario in the built areas")
		}
	}
	fmt.Printf("oracle: %d of %d scenarios pass, %d are in %s\n", passed, len(outcomes), len(waiting), list())
	if len(wrong) > 0 {
		return fmt.Errorf("%d findings:\n  %s", len(wrong), strings.Join(wrong, "\n  "))
	}
	return nil
}
