package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// step is a line that is typed at the prompt.
type step struct {
	command string
	// until is in the last line of the output of a command in the background. Empty: the command ends by itself.
	until string
}

// shown is the output of a step on the screen.
type shown struct {
	command string
	lines   []line
	// took is the time from the start of the command to its end.
	took time.Duration
}

// line is a line of output, and the time since the start of its command.
type line struct {
	text  string
	after time.Duration
}

// endMark ends the output of a command. Its exit code follows.
const endMark = "\x01"

// record runs steps in one shell, in a home directory that no output names, with the programs in a directory before all others.
// A command that fails is an error.
func record(ctx context.Context, steps []step, home, bin string) ([]shown, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "--norc", "--noprofile")
	c.Dir = home
	c.Env = append(os.Environ(), "HOME="+home, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"KUBECONFIG=", "XDG_DATA_HOME=", "XDG_CACHE_HOME=", "XDG_CONFIG_HOME=")
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		return nil, err
	}
	defer c.Wait() //nolint:errcheck // its commands have been checked
	defer in.Close()
	// The jobs of the shell, such as a server, end with it.
	fmt.Fprintln(in, "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT")
	lines := bufio.NewScanner(out)
	var all []shown
	for _, s := range steps {
		fmt.Fprintf(in, "%s\n", s.command)
		if s.until == "" {
			fmt.Fprintf(in, "echo %s$?\n", endMark)
		}
		x, err := s.read(lines, home)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.command, err)
		}
		all = append(all, x)
	}
	return all, nil
}

// read reads the output of a step.
func (s step) read(lines *bufio.Scanner, home string) (shown, error) {
	x := shown{command: s.command}
	begin := time.Now()
	for lines.Scan() {
		text := strings.ReplaceAll(lines.Text(), home, "~")
		x.took = time.Since(begin)
		before, code, ended := strings.Cut(text, endMark)
		if ended && code != "0" {
			return x, fmt.Errorf("exit code %s: %v", code, x.lines)
		}
		if !ended || before != "" {
			x.lines = append(x.lines, line{before, x.took})
		}
		if ended || s.until != "" && strings.Contains(text, s.until) {
			return x, nil
		}
	}
	return x, fmt.Errorf("the shell has ended: %v", lines.Err())
}
