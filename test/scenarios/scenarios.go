// Package scenarios sends recorded scenarios to a server. Their folder has the runner, a Go program, and the scenarios of
// each recorded version of Kubernetes.
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

// Runner is the program of a folder of scenarios, and the folder of the scenarios that it sends.
type Runner struct {
	scenarios, program string
}

// Recorded returns the folder of the scenarios of the given version of Kubernetes, such as v1.37. Those of the first
// version that was recorded are in the folder scenarios.
func Recorded(folder, version string) string {
	own := filepath.Join(folder, version)
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return filepath.Join(folder, "scenarios")
}

// Outcome is the result of a scenario, as the runner writes it.
type Outcome struct {
	Name   string `json:"name"`
	Area   string `json:"area"`
	Passed bool   `json:"passed"`
}

// Build builds the runner of a folder in another one. It sends the scenarios of the given version.
func Build(folder, version, in string) (*Runner, error) {
	r := &Runner{Recorded(folder, version), filepath.Join(in, "runner")}
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
		"--scenarios", r.scenarios, "--run", run, "--json", results.Name()}, more...)...)
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
