package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRecord: commands share a shell, the home directory is not shown, and a failure ends the recording.
func TestRecord(t *testing.T) {
	home := t.TempDir()
	bin := filepath.Join(home, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "greet"), []byte("#!/bin/sh\necho hello $1\necho from $HOME >&2\n"), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	all, err := record(t.Context(), []step{{command: "name=x"}, {command: "greet $name"}, {command: "(echo warming; echo Ready in 1 ms; exec sleep 600) &", until: "Ready in"}, {command: "printf end"}}, home, bin)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, s := range all {
		texts = append(texts, "$ "+s.command)
		for _, l := range s.lines {
			texts = append(texts, l.text)
		}
	}
	want := "$ name=x\n$ greet $name\nhello x\nfrom ~\n$ (echo warming; echo Ready in 1 ms; exec sleep 600) &\nwarming\nReady in 1 ms\n$ printf end\nend"
	if got := strings.Join(texts, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if _, err := record(t.Context(), []step{{command: "echo no; false"}}, home, bin); err == nil || !strings.Contains(err.Error(), "exit code 1") {
		t.Errorf("a command that fails: %v", err)
	}
	if _, err := record(t.Context(), []step{{command: "exit 3"}}, home, bin); err == nil {
		t.Error("the end of the shell was no error")
	}
}

// TestSchedule: output follows its command, long lines are wrapped, and a slow machine is not waited for.
func TestSchedule(t *testing.T) {
	screen, length := schedule([]shown{
		{command: "one", lines: []line{{strings.Repeat("x", columns+1), time.Millisecond}, {"", time.Minute}}, took: time.Minute},
		{command: "two", took: time.Millisecond},
	})
	if len(screen) != 5 || screen[2].text != "x" || screen[3].text != "" || !screen[4].command {
		t.Fatalf("%+v", screen)
	}
	for i := 1; i < len(screen); i++ {
		if screen[i].at < screen[i-1].at {
			t.Errorf("row %d appears before row %d", i, i-1)
		}
	}
	if length > 10*time.Second {
		t.Errorf("it takes %v", length)
	}
}

// TestAnimate: the picture is well-formed, and scrolls to its end.
func TestAnimate(t *testing.T) {
	s := shown{command: "a <b> &"}
	for range rows + 3 {
		s.lines = append(s.lines, line{"line", 0})
	}
	picture := string(animate([]shown{s}))
	wellFormed(t, picture)
	for _, want := range []string{"a &lt;b&gt; &amp;", "#s{transform:translateY(-72.0px)}", "100%{transform:translateY(-72.0px)}"} {
		if !strings.Contains(picture, want) {
			t.Errorf("it has no %q", want)
		}
	}
}

// TestCurrent: the recording in the documents has the commands of this program, in a quarter of a minute or a bit more.
func TestCurrent(t *testing.T) {
	picture, err := os.ReadFile("../../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, string(picture))
	all := make([]shown, 0, len(steps))
	for _, s := range steps {
		all = append(all, shown{command: s.command})
		if !strings.Contains(string(picture), ">"+strings.NewReplacer("&", "&amp;", ">", "&gt;").Replace(s.command)+"<") {
			t.Errorf("%s does not have %q: run go run ./tools/gen/recording", file, s.command)
		}
		if n := len(s.command) + 2; n > columns {
			t.Errorf("%q has %d columns, more than %d", s.command, n, columns)
		}
	}
	if _, length := schedule(all); length > 25*time.Second {
		t.Errorf("the commands alone take %v", length)
	}
}

func wellFormed(t *testing.T, picture string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, picture)
		}
	}
}
