package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// The flags of serve have three sources: the command line, the environment, and the file of --config. The
// first one that names a flag counts.

// maxConfigBytes bounds the file of --config.
const maxConfigBytes = 1 << 20

// alternatives are flags that exclude each other. If one source names a flag, a later one cannot name its
// alternative: --in-memory is not refused because the environment has a data directory. --in-memory=false names nothing.
var alternatives = map[string]string{"data-dir": "in-memory", "in-memory": "data-dir"}

// complete gives the flags that the command line does not name the values of the environment and of the file.
func (f *serveFlags) complete(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	before := namedIn(flags)
	if err := fromEnvironment(flags, lookup); err != nil {
		return err
	}
	f.sourced.fixed, f.sourced.from = namedIn(flags), map[string]string{}
	for name := range added(before, f.sourced.fixed) {
		f.sourced.from[name] = variable(name)
	}
	if f.config == "" {
		return nil
	}
	if err := fromFile(flags, f.config); err != nil {
		return fmt.Errorf("--config=%s: %w", f.config, err)
	}
	for name := range added(f.sourced.fixed, namedIn(flags)) {
		f.sourced.from[name] = "the key " + name + " in " + f.config
	}
	f.sourced.values = valuesOf(flags)
	return nil
}

// added yields the flags that a source names and the sources before it do not.
func added(before, after map[string]bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, named := range after {
			if named && !before[name] && !yield(name) {
				return
			}
		}
	}
}

// flagInText is a flag in an error.
var flagInText = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

// explain adds to an error about flags where their values come from, unless that is the command line.
func (s *sourced) explain(err error) error {
	if err == nil {
		return nil
	}
	var all []string
	for _, flag := range flagInText.FindAllString(err.Error(), -1) {
		from := s.from[strings.TrimPrefix(flag, "--")]
		if text := fmt.Sprintf("%s is from %s", flag, from); from != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(all, ", "))
}

// variable returns the environment variable of a flag.
func variable(flag string) string {
	return "TIDEMARK_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets flags from their variables. An empty variable is as one that is not set.
func fromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	open := unnamed(flags)
	for _, name := range slices.Sorted(maps.Keys(open)) {
		value, _ := lookup(variable(name))
		if value == "" || name == "help" {
			continue
		}
		if err := open[name].Value.Set(value); err != nil {
			if want := wants(open[name], value, err); want != "" {
				err = fmt.Errorf("want %s: %s", want, open[name].Usage)
			}
			errs = append(errs, fmt.Errorf("%s=%q: %w", variable(name), value, err))
		}
		open[name].Changed = true
	}
	return errors.Join(errs...)
}

// misspelt returns a message for each environment variable that resembles that of a flag. Other
// variables that begin with TIDEMARK_ are valid: Kubernetes sets some for a Service tidemark.
func misspelt(flags *pflag.FlagSet, environ []string) (all []string) {
	names := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { names[variable(f.Name)] = true })
	for _, one := range environ {
		name, value, _ := strings.Cut(one, "=")
		rest, ok := strings.CutPrefix(name, "TIDEMARK_")
		if !ok || value == "" || names[name] || otherVariables[name] {
			continue
		}
		if near := similarFlags(flags, rest); len(near) > 0 {
			all = append(all, fmt.Sprintf("the environment variable %s belongs to no flag: did you mean %s?", name, variable(near[0])))
		}
	}
	slices.Sort(all)
	return all
}

// otherVariables are read by tidemark and are of no flag of serve, or are those of a flag's other name.
var otherVariables = map[string]bool{"TIDEMARK_PORT": true, "TIDEMARK_BINARY": true, "TIDEMARK_DUMP": true, "TIDEMARK_TIER": true}

// fromFile sets flags from a file of YAML, whose keys are the names of flags.
func fromFile(flags *pflag.FlagSet, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return errors.Unwrap(err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxConfigBytes+1))
	if err != nil {
		return err
	}
	if len(text) > maxConfigBytes {
		return fmt.Errorf("the file has more than %d bytes", maxConfigBytes)
	}
	var content any
	if err := yaml.UnmarshalStrict(text, &content, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }); err != nil {
		return plainYAMLError(err)
	}
	values, ok := content.(map[string]any)
	if content != nil && !ok {
		return errors.New("want YAML with the names of flags and their values, such as secure-port: 6443")
	}
	var errs []error
	open := unnamed(flags)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		one := flags.Lookup(name)
		switch {
		case name == "help" || name == "config":
			errs = append(errs, fmt.Errorf("%s: there is no such flag for a file", name))
		case one == nil:
			errs = append(errs, fmt.Errorf("%s: there is no such flag%s", name, similar(flags, name)))
		case open[one.Name] != nil:
			if err := setTo(one.Value, values[name]); err != nil {
				if want := wants(one, fmt.Sprint(values[name]), err); want != "" {
					err = fmt.Errorf("%v: want %s: %s", values[name], want, one.Usage)
				}
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
			one.Changed = true
		}
	}
	return errors.Join(errs...)
}

// plainYAMLError removes parts of an error that do not help the reader of a file: that the YAML
// becomes JSON, and the heading of a list.
func plainYAMLError(err error) error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: unmarshal errors:\n")
	return errors.New(strings.ReplaceAll(strings.TrimSpace(strings.TrimPrefix(text, "yaml: ")), "\n  ", "; "))
}

// unnamed returns the flags that no source has named yet.
func unnamed(flags *pflag.FlagSet) map[string]*pflag.Flag {
	open := map[string]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		other := flags.Lookup(alternatives[f.Name]) // nil: it has none
		if !f.Changed && (other == nil || !other.Changed || other.Value.String() == "false") {
			open[f.Name] = f
		}
	})
	return open
}

// setTo sets a flag to a value of the file: a string, a number, a boolean, or a list or a map of these.
func setTo(v pflag.Value, value any) error {
	var all []string
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			text, err := scalar(one)
			if err != nil {
				return err
			}
			all = append(all, text)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			text, err := scalar(value[key])
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			all = append(all, key+"="+text)
		}
	default:
		text, err := scalar(value)
		if err != nil {
			return err
		}
		return v.Set(text)
	}
	if slice, ok := v.(pflag.SliceValue); ok {
		return slice.Replace(all)
	}
	return v.Set(strings.Join(all, ","))
}

// scalar returns a value as the command line has it.
func scalar(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case bool, json.Number:
		return fmt.Sprint(value), nil
	case nil:
		return "", errors.New("there is no value")
	}
	return "", errors.New("want a string, a number or a boolean")
}

// similar suggests a flag for an unknown key of the file.
func similar(flags *pflag.FlagSet, name string) string {
	if names := similarFlags(flags, name); len(names) > 0 {
		return ": did you mean " + names[0] + "?"
	}
	return ""
}
