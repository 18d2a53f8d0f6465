package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark/internal/reload"
)

// reloadable are the flags whose values in the file of --config change while the server runs.
var reloadable = []string{"v", "vmodule"}

// sourced remembers where the values of flags come from.
type sourced struct {
	fixed  map[string]bool   // flags that the command line or the environment names
	from   map[string]string // where the environment or the file sets a flag: "TIDEMARK_V", "v in tidemark.yaml"
	values map[string]string // of all flags, when the server started
}

// namedIn returns the flags that a source before the file of --config names.
func namedIn(flags *pflag.FlagSet) map[string]bool {
	named := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { named[f.Name] = f.Changed })
	return named
}

// valuesOf returns the values of all flags as text.
func valuesOf(flags *pflag.FlagSet) map[string]string {
	all := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Value.String() })
	return all
}

// configFile is a version of the file of --config.
type configFile struct {
	verbosity  int
	components verbosities
	restart    []string // flags with other values than those of the start, which count from the next start on
}

// readAgain reads the file of --config as the start did.
func (f *serveFlags) readAgain() (*configFile, error) {
	next := new(serveFlags)
	flags := newServeFor(next).Flags()
	for name := range alternatives { // unnamed compares their values
		if f.sourced.fixed[name] {
			if err := flags.Set(name, f.sourced.values[name]); err != nil {
				return nil, err
			}
		}
	}
	flags.VisitAll(func(one *pflag.Flag) { one.Changed = f.sourced.fixed[one.Name] })
	if err := fromFile(flags, f.config); err != nil {
		return nil, fmt.Errorf("--config=%s: %w", f.config, err)
	}
	if err := next.logging.check(&next.server); err != nil {
		return nil, fmt.Errorf("--config=%s: %w", f.config, err)
	}
	c := &configFile{verbosity: next.logging.verbosity, components: next.logging.components}
	if f.sourced.fixed["v"] {
		c.verbosity = f.logging.verbosity
	}
	if f.sourced.fixed["vmodule"] {
		c.components = f.logging.components
	}
	now := valuesOf(flags)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if !f.sourced.fixed[name] && !slices.Contains(reloadable, name) && now[name] != f.sourced.values[name] {
			c.restart = append(c.restart, name)
		}
	}
	return c, nil
}

// followConfig reads the file of --config again when it changes, until the context ends.
func (f *serveFlags) followConfig(ctx context.Context) error {
	if f.config == "" {
		return nil
	}
	file, err := reload.New(reload.Config[*configFile]{Files: []string{f.config}, Load: f.readAgain, Log: f.server.Logger})
	if err != nil { // it has changed since the start began
		return err
	}
	go func() {
		tick := time.NewTicker(reload.Interval)
		defer tick.Stop()
		last := new(configFile)
		for {
			last = f.use(file.Get(), last)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// use applies a version of the file of --config, unless it is the last one.
func (f *serveFlags) use(c, last *configFile) *configFile {
	if c == last {
		return last
	}
	f.logging.set(c.verbosity, c.components)
	if len(c.restart) > 0 && !slices.Equal(c.restart, last.restart) {
		f.server.Logger.Warn("these flags in the file of --config have changed, and count from the next start on", "flags", strings.Join(c.restart, ", "))
	}
	return c
}
