package main

import (
	"strings"
	"testing"
)

// TestHelpGroups: the flags of serve are in groups, on short lines, and each is in one.
func TestHelpGroups(t *testing.T) {
	_, out, _ := command("serve", "--help")
	_, flags, _ := strings.Cut(out, "\nAddresses:\n")
	if !strings.Contains(flags, "\nAuthentication:\n") || !strings.Contains(flags, "\nConfiguration:\n") {
		t.Fatalf("there are no groups:\n%s", out)
	}
	_, others, _ := strings.Cut(flags, "\nOther flags:\n")
	if got := strings.Count(others, "--"); got != 1 { // --help
		t.Errorf("%d flags are in no group:\n%s", got, others)
	}
	for line := range strings.Lines(flags) {
		if words := strings.Fields(line); len(line) > helpColumns+1 && len(words) > 1 && longest(words) < helpColumns/2 {
			t.Errorf("this line has %d characters: %s", len(line), line)
		}
	}
	_, out, _ = command("--help")
	for _, title := range []string{"Run a server:\n", "Operate it:\n", "Test and measure:\n"} {
		if !strings.Contains(out, title) {
			t.Errorf("the help lacks the group %q:\n%s", title, out)
		}
	}
}

// TestHelpSame: all ways to the help of the program and of a command print the same.
func TestHelpSame(t *testing.T) {
	for _, name := range []string{"", "serve", "bench", "bench list"} {
		args := strings.Fields(name)
		_, want, _ := command(append(args, "--help")...)
		if _, got, _ := command(append([]string{"help"}, args...)...); got != want {
			t.Errorf("help %s prints\n%s\nwant, as --help,\n%s", name, got, want)
		}
	}
	_, want, _ := command("--help")
	if _, got, _ := command(); got != want || !strings.Contains(got, "--version") {
		t.Errorf("the program without arguments prints\n%s\nwant, as --help,\n%s", got, want)
	}
}

func longest(words []string) (n int) {
	for _, word := range words {
		n = max(n, len(word))
	}
	return n
}

// TestSuggestions: the commands that an unknown one may mean are on lines of their own.
func TestSuggestions(t *testing.T) {
	code, _, err := command("serv")
	const want = "Error: unknown command \"serv\" for \"tidemark\"\nDid you mean this?\n  serve\nRun 'tidemark --help' for usage.\n"
	if code != exitUsage || err != want {
		t.Errorf("%d %q, want %q", code, err, want)
	}
}

// TestCompletion: known values are completed, also in a list.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"--logging-format=":                  "json text",
		"--data-dir-permissions=g":           "group",
		"--controllers=-garbage":             "-garbage-collector",
		"--controllers=*,-garbage":           "*,-garbage-collector",
		"--authorization-mode=Node,A":        "Node,ABAC Node,AlwaysAllow Node,AlwaysDeny",
		"--authorization-mode=RBAC,R":        "",
		"--feature-gates=CBORServingAndS":    "CBORServingAndStorage=false CBORServingAndStorage=true",
		"--disable-admission-plugins=LimitR": "LimitRanger",
		"--tls-min-version=VersionTLS13":     "VersionTLS13",
	} {
		_, out, _ := command("__complete", "serve", line)
		values, _, _ := strings.Cut(out, ":4\n") // no files
		if got := strings.Join(strings.Fields(values), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// TestHelpUnknown checks that help for an unknown command fails, and suggests one.
func TestHelpUnknown(t *testing.T) {
	for args, want := range map[string]string{
		"help serv":      "Did you mean this?\n  serve\n",
		"help bench lis": `"lis" is no command of tidemark bench`,
		"help nothing":   "unknown command",
	} {
		if code, out, errs := command(strings.Fields(args)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s%s, want %q", args, code, out, errs, want)
		}
	}
	for _, args := range []string{"help", "help serve", "help bench list"} {
		if code, out, errs := command(strings.Fields(args)...); code != exitOK || !strings.Contains(out, "Usage:") {
			t.Errorf("%s: %d %s%s", args, code, out, errs)
		}
	}
}

// TestTableWidth: a table that is too wide for the terminal has no line that is.
func TestTableWidth(t *testing.T) {
	rows := [][]string{{"name", "measures", "loop"}, {"get", strings.Repeat("many words ", 20), "closed"}, {"list", "", strings.Repeat("x", 30)}}
	for _, columns := range []int{80, 40} {
		var out strings.Builder
		if err := printTableIn(&out, rows, columns); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > columns+1 {
				t.Errorf("%d columns: %q", columns, line)
			}
		}
	}
	var out strings.Builder
	if err := printTableIn(&out, rows, 0); err != nil || strings.Count(out.String(), "\n") != len(rows) {
		t.Errorf("without a terminal: %v, %s", err, out.String())
	}
}
