package test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// playDir has a script for each document whose commands can run, and the list of those that a script does not run.
const playDir = "testdata/documents"

var (
	fence      = regexp.MustCompile("^ *```(\\w*)")
	program    = regexp.MustCompile(`^((kubectl|tidemark|go|curl|openssl|git|make|kubebuilder|setup-envtest|helm|systemctl|docker|bash|mv|cp|rm|cat|echo|printf|sed|grep|jq|mkdir|chmod|chown|tar|umask|export|source|\$tide)( |$)|(\.ci|deploy|bench)/\S|[A-Za-z_]+=)`)
	comment    = regexp.MustCompile(`\s+# .*$`)
	hereDoc    = regexp.MustCompile(`<<-?'?([A-Z]+)'?`)
	testNamed  = regexp.MustCompile(`^Test\w+`)
	testName   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	longFlag   = regexp.MustCompile(` (--[a-z][a-z0-9-]+)`)
	subcommand = regexp.MustCompile(`^tidemark (backup restore|[a-z-]+(?: plot)?)`)
)

// commandsOf returns the commands of a document: the lines of its shell blocks, and those of its other blocks without
// a language and of its indented text that begin with the name of a program. A command ends after its last
// continuation and here-document, and has no comment.
func commandsOf(text string) (all []string) {
	lines := strings.Split(text, "\n")
	language, inFence := "", false
	for i := 0; i < len(lines); i++ {
		if m := fence.FindStringSubmatch(lines[i]); m != nil {
			inFence, language = !inFence, m[1]
			continue
		}
		line := strings.TrimLeft(lines[i], " ")
		indent := len(lines[i]) - len(line)
		line = strings.TrimPrefix(line, "$ ")
		switch {
		case line == "" || strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "#!"):
			continue
		case inFence && (language == "sh" || language == "bash" || language == "console"):
		case (inFence && language == "" || !inFence && indent >= 4) && program.MatchString(line):
		default:
			continue
		}
		if strings.HasPrefix(line, "#!") { // the block is a script
			all = append(all, line)
			for i++; i < len(lines) && !fence.MatchString(lines[i]); i++ {
			}
			inFence = false
			continue
		}
		command := comment.ReplaceAllString(line, "")
		end := ""
		if m := hereDoc.FindStringSubmatch(command); m != nil {
			end = m[1]
		}
		for i+1 < len(lines) && (end != "" || strings.HasSuffix(command, `\`)) {
			i++
			next := lines[i]
			next = next[min(indent, len(next)-len(strings.TrimLeft(next, " "))):]
			command += "\n" + next
			if strings.TrimSpace(next) == end {
				end = ""
			}
		}
		all = append(all, command)
	}
	return all
}

// documents returns the commands of README, CONTRIBUTING and everything in docs/, by path.
func documents(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	read := func(path string) error {
		text, err := os.ReadFile(path)
		if commands := commandsOf(string(text)); len(commands) > 0 {
			all[strings.TrimPrefix(filepath.ToSlash(path), "../")] = commands
		}
		return err
	}
	err := filepath.WalkDir("../docs", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		return read(path)
	})
	for _, path := range []string{"../README.md", "../CONTRIBUTING.md"} {
		if err == nil {
			err = read(path)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// script returns the path of the script of a document.
func script(document string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(document, "docs/"), ".md")
	return filepath.Join(playDir, strings.ReplaceAll(name, "/", "-")+".sh")
}

// An exception is a command that the script of its document does not run.
type exception struct {
	document, command string
	why               string // "TestX", which runs it, or the reason in words
}

func exceptions(t *testing.T) (all []exception) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(playDir, "not-run.txt"))
	if err != nil {
		t.Fatal(err)
	}
	document, why := "", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "== "):
			document, why = line[len("== "):], ""
		case strings.HasPrefix(line, "-- "):
			why = line[len("-- "):]
		case document == "" || why == "":
			t.Fatalf("not-run.txt: %q has no document, or no reason", line)
		default:
			all = append(all, exception{document, line, why})
		}
	}
	return all
}

// TestCommands: each command of the documents is run by the script of its document, or is in not-run.txt with the test
// that runs it or the reason why none does.
func TestCommands(t *testing.T) {
	notRun := exceptions(t)
	tests := testNames(t)
	unused := map[exception]bool{}
	for _, e := range notRun {
		unused[e] = true
		if name := testNamed.FindString(e.why); name != "" && !tests[name] {
			t.Errorf("not-run.txt: there is no %s, which should run %s", name, e.command)
		}
	}
	all := documents(t)
	for document, commands := range all {
		played, err := os.ReadFile(script(document))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, command := range commands {
			first, _, _ := strings.Cut(command, "\n")
			i := slices.IndexFunc(notRun, func(e exception) bool { return e.document == document && e.command == first })
			switch {
			case i >= 0:
				delete(unused, notRun[i])
			case !runs(string(played), command):
				t.Errorf("%s: no test runs this command. Add it to test/%s, or to not-run.txt there with the reason:\n%s", document, script(document), command)
			}
		}
	}
	for e := range unused {
		t.Errorf("not-run.txt is stale: %s does not have %s", e.document, e.command)
	}
	scripts, err := filepath.Glob(filepath.Join(playDir, "*.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		known := func(document string) bool { return script(document) == path }
		if filepath.Base(path) != "begin.sh" && !slices.ContainsFunc(slices.Collect(maps.Keys(all)), known) {
			t.Errorf("%s is stale: there is no document with commands of that name", path)
		}
	}
}

// runs reports whether a script runs a command, on lines of its own.
func runs(script, command string) bool {
	for at := 0; ; {
		i := strings.Index(script[at:], command)
		if i < 0 {
			return false
		}
		begin, end := at+i, at+i+len(command)
		before := script[strings.LastIndex(script[:begin], "\n")+1 : begin]
		after, _, _ := strings.Cut(script[end:], "\n")
		if (before == "" || before == "fails ") && (after == "" || after == " &") {
			return true
		}
		at = end
	}
}

// testNames returns the names of all tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testName.FindAllSubmatch(text, -1) {
			all[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFlagsOfCommands: the program knows the flags of its commands in the documents, also of those that no script runs.
func TestFlagsOfCommands(t *testing.T) {
	helps := map[string]string{}
	for document, commands := range documents(t) {
		for _, command := range commands {
			m := subcommand.FindStringSubmatch(command)
			if m == nil {
				continue
			}
			if _, known := helps[m[1]]; !known {
				out, err := exec.CommandContext(t.Context(), testprogram.Path(t), append(strings.Fields(m[1]), "--help")...).CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %s: %v\n%s", document, command, err, out)
				}
				helps[m[1]] = string(out)
			}
			for _, flag := range longFlag.FindAllStringSubmatch(command, -1) {
				if !regexp.MustCompile(flag[1]+`\b`).MatchString(helps[m[1]]) && flag[1] != "--port" {
					t.Errorf("%s: tidemark %s has no flag %s: %s", document, m[1], flag[1], command)
				}
			}
		}
	}
}

// TestDocuments runs the scripts of the documents, each in a directory of its own.
func TestDocuments(t *testing.T) {
	tier.Full(t)
	scripts, err := filepath.Glob(filepath.Join(playDir, "*.sh"))
	if err != nil {
		t.Fatal(err)
	}
	begin, err := filepath.Abs(filepath.Join(playDir, "begin.sh"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	// By default kubectl waits half a minute for the first OpenAPI document, which is too short on a busy machine.
	kubectl := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' --request-timeout=5m \"$@\"\n", asKubectl, kubectlProgram(t))
	if err := os.WriteFile(filepath.Join(programs, "kubectl"), []byte(kubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(testprogram.Path(t), filepath.Join(programs, "tidemark")); err != nil {
		t.Fatal(err)
	}
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output() // not that of the new home
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		if filepath.Base(path) == "begin.sh" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".sh"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if line, _, _ := bytes.Cut(text, []byte("\n")); bytes.HasPrefix(line, []byte("# needs ")) {
				for program := range strings.FieldsSeq(string(line[len("# needs "):])) {
					if _, err := exec.LookPath(program); err != nil {
						t.Skipf("there is no %s", program)
					}
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			home := t.TempDir()
			cmd := exec.CommandContext(ctx, "bash", "-c", ". '"+begin+"'\n"+string(text))
			cmd.Dir = filepath.Join(home, "work")
			if err := os.Mkdir(cmd.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(os.Environ(), "HOME="+home, "XDG_DATA_HOME="+filepath.Join(home, ".local", "share"), "ROOT="+root, "GOCACHE="+strings.TrimSpace(string(cache)),
				"PATH="+programs+string(os.PathListSeparator)+os.Getenv("PATH"), "KUBECONFIG=")
			cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
			cmd.WaitDelay = 10 * time.Second
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", path, err, out)
			}
		})
	}
}
