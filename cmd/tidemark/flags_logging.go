package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/world"
)

// logging has the flags of the log.
type logging struct {
	verbosity  int
	format     logFormat
	components verbosities
	levels     *levels // in effect; set by logger
}

func (l *logging) register(flags *pflag.FlagSet, s *tidemark.Server) {
	l.format = "text"
	flags.IntVarP(&l.verbosity, "v", "v", 0, "log level: 2 logs requests that failed or took more than half a second, with the time of their parts; 4 and above logs every request and everything else")
	flags.Var(&l.components, "vmodule", "log levels of components, which replace --v for them: requests=4,controllers=2; * stands for any characters; the components are "+strings.Join(world.LogComponents(), ", "))
	flags.Var(&l.format, "logging-format", "format of the log: text or json")
	flags.DurationVar(&s.Diagnostics.SlowRequest, "trace-slow", 0, "log requests that take longer at every log level, with the time of their parts; 0 for the rule of --v")
}

func (l *logging) check(s *tidemark.Server) error {
	if l.verbosity < 0 {
		return fmt.Errorf("--v=%d: want 0 or more", l.verbosity)
	}
	if s.Diagnostics.SlowRequest < 0 {
		return errors.New("--trace-slow is negative: want a duration, or 0")
	}
	return nil
}

// logger returns the log. Level -n of package slog is --v=n.
func (l *logging) logger(to io.Writer) *slog.Logger {
	l.levels = new(levels)
	l.set(l.verbosity, l.components)
	options := slog.HandlerOptions{ReplaceAttr: l.format.attribute}
	var h slog.Handler = slog.NewTextHandler(to, &options)
	if l.format == jsonFormat {
		h = slog.NewJSONHandler(to, &options)
	}
	log := slog.New(&componentHandler{Handler: h, levels: l.levels})
	for _, v := range l.components {
		if !slices.ContainsFunc(world.LogComponents(), v.matches) {
			log.Warn("--vmodule names no component of the log", "pattern", v.pattern, "components", world.LogComponents())
		}
	}
	return log
}

// set changes the levels of the log.
func (l *logging) set(verbosity int, components verbosities) {
	l.levels.Store(&levelSet{level: slog.Level(-verbosity), of: components})
}

// levels are the levels in effect.
type levels struct{ atomic.Pointer[levelSet] }

// levelSet has the levels of all components.
type levelSet struct {
	level slog.Level // of components that no pattern matches
	of    verbosities
}

// levelOf returns the level of a component.
func (s *levelSet) levelOf(component string) slog.Level {
	if i := slices.IndexFunc(s.of, func(v verbosity) bool { return v.matches(component) }); i >= 0 && component != "" {
		return s.of[i].level
	}
	return s.level
}

const jsonFormat logFormat = "json"

// logFormat is the value of --logging-format.
type logFormat string

// String implements pflag.Value.
func (f *logFormat) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *logFormat) Set(text string) error {
	if text != "text" && text != string(jsonFormat) {
		return errors.New("want text or json")
	}
	*f = logFormat(text)
	return nil
}

// Type implements pflag.Value.
func (f *logFormat) Type() string { return "format" }

// attribute is for HandlerOptions.ReplaceAttr. Levels below Info are "v", as in the logs of Kubernetes, and in
// JSON the time is "ts", in milliseconds since 1970. Errors are their messages, on one line.
func (f *logFormat) attribute(groups []string, a slog.Attr) slog.Attr {
	// Handlers print some errors with the stack of the goroutine that made them.
	if err, ok := a.Value.Any().(error); ok && a.Value.Kind() == slog.KindAny {
		return slog.String(a.Key, oneLine(err))
	}
	if len(groups) > 0 {
		return a
	}
	switch level, _ := a.Value.Any().(slog.Level); {
	case a.Key == slog.LevelKey && level < slog.LevelInfo:
		return slog.Int("v", -int(level))
	case *f != jsonFormat:
		return a
	case a.Key == slog.LevelKey:
		return slog.String(a.Key, strings.ToLower(level.String()))
	case a.Key == slog.TimeKey:
		return slog.Float64("ts", float64(a.Value.Time().UnixMicro())/1000)
	case a.Value.Kind() == slog.KindDuration:
		return slog.String(a.Key, a.Value.Duration().String())
	}
	return a
}

// verbosity is the log level of the components whose names match a pattern.
type verbosity struct {
	pattern string
	level   slog.Level
}

func (v verbosity) matches(component string) bool {
	ok, _ := path.Match(v.pattern, component)
	return ok
}

// verbosities is the value of --vmodule. The first pattern that matches counts.
type verbosities []verbosity

// String implements pflag.Value.
func (v *verbosities) String() string {
	var all []string
	for _, one := range *v {
		all = append(all, one.pattern+"="+strconv.Itoa(-int(one.level)))
	}
	return strings.Join(all, ",")
}

// Set implements pflag.Value.
func (v *verbosities) Set(text string) error {
	var all verbosities
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		pattern, number, _ := strings.Cut(part, "=")
		n, err := strconv.ParseUint(number, 10, 16)
		if _, bad := path.Match(pattern, ""); err != nil || bad != nil || pattern == "" {
			return fmt.Errorf("%s: want a component, =, and a log level, such as requests=4", part)
		}
		all = append(all, verbosity{pattern, slog.Level(-int(n))})
	}
	*v = all
	return nil
}

// Type implements pflag.Value.
func (v *verbosities) Type() string { return "component=N,..." }

// componentHandler gives each component its level.
type componentHandler struct {
	slog.Handler
	levels    *levels
	component string // empty: none
}

// Enabled implements slog.Handler.
func (h *componentHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.levels.Load().levelOf(h.component)
}

// WithAttrs implements slog.Handler.
func (h *componentHandler) WithAttrs(all []slog.Attr) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithAttrs(all)
	for _, a := range all {
		if a.Key == "component" {
			next.component = a.Value.String()
		}
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *componentHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithGroup(name)
	return &next
}
