package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark"
)

func TestLogLevels(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string // messages that are logged
	}{
		{nil, "info"},
		{[]string{"-v=2"}, "info general2 requests2 store2"},
		{[]string{"--vmodule=requests=2"}, "info requests2"},
		{[]string{"-v=2", "--vmodule=re*=0,store=4"}, "info general2 store2"},
	} {
		var l logging
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		l.register(flags, new(tidemark.Server))
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := l.logger(&out)
		log.Info("info")
		log.Log(t.Context(), slog.Level(-2), "general2")
		for _, component := range []string{"requests", "store"} {
			log.With("component", component).Log(t.Context(), slog.Level(-2), component+"2")
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(line, "msg=")
			got = append(got, strings.Fields(rest)[0])
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%v: %q, want %q", test.args, text, test.want)
		}
	}
}

func TestLogFormat(t *testing.T) {
	l := logging{verbosity: 2, format: jsonFormat, components: verbosities{{"none", 0}}}
	var out bytes.Buffer
	l.logger(&out).Log(t.Context(), slog.Level(-2), "m")
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, one)
	}
	if len(lines) != 2 || lines[0]["level"] != "warn" || lines[0]["pattern"] != "none" || lines[1]["v"] != 2.0 || lines[1]["msg"] != "m" || lines[1]["ts"].(float64) < 1e12 {
		t.Errorf("%s", out.String())
	}
}

func TestWrongLoggingFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"--vmodule=requests":   "requests: want a component, =, and a log level, such as requests=4",
		"--vmodule=[=1":        "[=1: want a component",
		"--logging-format=xml": "want text or json",
		"-v=-1":                "--v=-1: want 0 or more",
		"--trace-slow=-1s":     "--trace-slow is negative",
	} {
		var l logging
		s := new(tidemark.Server)
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		l.register(flags, s)
		err := flags.Parse([]string{arg})
		if err == nil {
			err = l.check(s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}

// stackError is as the errors of some libraries: printed with %+v, it has the stack of its goroutine.
type stackError struct{}

func (stackError) Error() string { return "damaged\nin the middle" }
func (stackError) Format(f fmt.State, _ rune) {
	fmt.Fprint(f, "(1) attached stack trace\n", strings.Repeat("  | main.main\n", 100))
}

// TestLogErrors: an error takes one line of the log, and has no stack.
func TestLogErrors(t *testing.T) {
	for _, format := range []logFormat{"text", jsonFormat} {
		l := logging{format: format}
		var out bytes.Buffer
		log := l.logger(&out)
		log.Error("one", "error", stackError{})
		log.WithGroup("g").Error("two", slog.Group("h", "error", error(stackError{})))
		if text := out.String(); strings.Contains(text, "stack") || strings.Count(text, "damaged; in the middle") != 2 || strings.Count(text, "\n") != 2 {
			t.Errorf("%s: %s", &format, text)
		}
	}
}
