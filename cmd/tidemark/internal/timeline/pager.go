package timeline

import (
	"io"
	"os"
	"os/exec"
	"strings"
)

// Page starts a pager for a terminal, as git does. The commands write to the result, and then call wait, which returns
// when the user leaves the pager. The pager is that of $TIDEMARK_PAGER or $PAGER, otherwise less; "cat" and "" mean
// none. Without a pager, the result is the terminal.
func Page(terminal *os.File, stderr io.Writer, getenv func(string) string, lookup func(string) (string, bool)) (out io.Writer, wait func()) {
	none := func() {}
	command, set := lookup("TIDEMARK_PAGER")
	if !set {
		command, set = lookup("PAGER")
	}
	if !set {
		command = "less"
	}
	words := strings.Fields(command)
	if len(words) == 0 || words[0] == "cat" {
		return terminal, none
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return terminal, none
	}
	cmd := exec.Command(path, words[1:]...)
	cmd.Stdout, cmd.Stderr = terminal, stderr
	cmd.Env = os.Environ()
	if getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX")
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return terminal, none
	}
	if err := cmd.Start(); err != nil {
		return terminal, none
	}
	return in, func() {
		in.Close()
		cmd.Wait() // its exit code says nothing about the command
	}
}
