// Package scenarios sends recorded scenarios to a server. Their folder has the runner, a Go program, and the scenarios.
package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Runner is the program of a folder of scenarios.
type Runner struct {
	folder, program string
}

// Outcome is the result of a scenario, as the runner writes it.
type Outcome struct {
	Name   string `json:"name"`
	Area   string `json:"area"`
	Passed bool   `json:"passed"`
}

// Build builds the runner of a folder in another one.
func Build(folder, in string) (*Runner, error) {
	r := &Runner{folder, filepath.Join(in, "runner")}
	build := exec.Command("go", "build", "-o", r.program, ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the runner in %s: %w\n%s", folder, err, out)
	}
	return r, nil
}

// Verify sends the scenarios that match an expression to a server, all if it is empty, and writes differences to out. A
// scenario that fails is no error. More arguments are those of the runner.
func (r *Runner) Verify(url, token, run string, out io.Writer, more ...string) ([]Outcome, error) {
	results, err := os.CreateTemp(filepath.Dir(r.program), "results-*.json")
	if err != nil {
		return nil, err
	}
	results.Close()
	defer os.Remove(results.Name())
	cmd := exec.Command(r.program, append([]string{"verify", "--server", url, "--token", token, "--insecure",
		"--scenarios", filepath.Join(r.folder, "scenarios"), "--run", run, "--json", results.Name()}, more...)...)
	cmd.Stdout, cmd.Stderr = out, out
	ran := cmd.Run()
	if exit := (*exec.ExitError)(nil); ran != nil && !(errors.As(ran, &exit) && exit.ExitCode() == 1) { // 1: a scenario failed
		return nil, fmt.Errorf("the runner: %w", ran)
	}
	data, err := os.ReadFile(results.Name())
	if err != nil {
		return nil, err
	}
	var outcomes []Outcome
	return outcomes, json.Unmarshal(data, &outcomes)
}
