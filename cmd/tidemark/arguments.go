package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// arguments returns a check for a command with exactly these arguments. An error names the one that is missing, or the
// first one too many; hint is where that belongs.
func arguments(names []string, hint string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing: %s", names[len(args)], strings.Join(append([]string{c.CommandPath()}, names...), " "))
		case len(args) == len(names):
			return nil
		case len(names) == 0:
			return fmt.Errorf("%q: %s has no arguments%s", args[0], c.CommandPath(), hint)
		}
		return fmt.Errorf("%q is one argument too many: %s", args[len(names)], strings.Join(append([]string{c.CommandPath()}, names...), " "))
	}
}

// atMostOne returns a check for a command with one argument that may be missing.
func atMostOne(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%q is one argument too many: %s %s", args[1], c.CommandPath(), name)
		}
		return nil
	}
}

// shells makes the command for completion scripts refuse shells that it does not know.
func shells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil || c == root {
		return
	}
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		var known []string
		for _, shell := range c.Commands() {
			known = append(known, shell.Name())
		}
		return usageError{fmt.Errorf("%q is not a shell with completion: want one of %s", args[0], strings.Join(known, ", "))}
	}
}

// help makes the help command reject unknown commands, with a suggestion.
func help(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	c, _, err := root.Find([]string{"help"})
	if err != nil || c == root {
		return
	}
	c.Run = nil
	c.RunE = func(c *cobra.Command, args []string) error {
		of, rest, err := c.Root().Find(args)
		if err != nil {
			return usageError{err}
		}
		if len(rest) > 0 && of.HasSubCommands() {
			return usageError{fmt.Errorf("%q is no command of %s", rest[0], of.CommandPath())}
		}
		of.InitDefaultHelpFlag()
		of.InitDefaultVersionFlag()
		return of.Help()
	}
}

// flagError adds advice to the error of a flag that cannot be parsed.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return valueError(err)
	}
	if names := similarFlags(c.Flags(), unknown.GetSpecifiedName()); len(names) > 0 {
		return fmt.Errorf("%w%s--%s", err, suggestion, strings.Join(names, "\n--"))
	}
	return err
}

// similarFlags returns the flags whose names are similar to an unknown one, in their order: those
// that differ only in dashes, otherwise those with the fewest other letters.
func similarFlags(flags *pflag.FlagSet, name string) (names []string) {
	plain := strings.NewReplacer("-", "", "_", "")
	name, least := strings.ToLower(plain.Replace(name)), len(name)/4+1 // of letters that differ
	flags.VisitAll(func(f *pflag.Flag) {
		switch n := distance(name, plain.Replace(strings.ToLower(f.Name))); {
		case f.Hidden || n > least || n >= len(name):
		case n < least:
			names, least = []string{f.Name}, n
		default:
			names = append(names, f.Name)
		}
	})
	return names
}

// distance returns how many letters are to be inserted, deleted or replaced to make one text of the other.
func distance(a, b string) int {
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		diagonal := last[0]
		last[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, last[j+1] = last[j+1], min(last[j+1]+1, last[j]+1, diagonal+cost)
		}
	}
	return last[len(b)]
}
