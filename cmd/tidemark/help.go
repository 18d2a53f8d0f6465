package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is the width of the help for flags.
const helpColumns = 100

// flagGroup is the annotation of a flag with the title of its group.
const flagGroup = "tidemark_group"

// inGroup registers flags, and gives them the title of a group in the help.
func inGroup(flags *pflag.FlagSet, title string, register func()) {
	before := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
	register()
	flags.VisitAll(func(f *pflag.Flag) {
		if !before[f.Name] {
			f.Annotations = map[string][]string{flagGroup: {title}}
		}
	})
}

// groupedUsage prints the usage of a command with its flags in groups, in the order in which they were registered.
func groupedUsage(c *cobra.Command) error {
	w := c.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", c.UseLine())
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	var titles []string
	groups := map[string]*pflag.FlagSet{}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		title := "Other flags"
		if all := f.Annotations[flagGroup]; len(all) > 0 {
			title = all[0]
		}
		if groups[title] == nil {
			groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			groups[title].SortFlags = false
			titles = append(titles, title)
		}
		groups[title].AddFlag(f)
	})
	for _, title := range titles {
		if _, err := fmt.Fprintf(w, "\n%s:\n%s", title, groups[title].FlagUsagesWrapped(helpColumns)); err != nil {
			return err
		}
	}
	return nil
}

// suggestion is the text of cobra before the commands that it suggests for an unknown one.
// flagError uses it for flags.
const suggestion = "\n\nDid you mean this?\n"

// printError prints an error on one line, and the commands or flags that are suggested for an unknown one on lines of their own.
func printError(w io.Writer, err error) {
	text, suggested, _ := strings.Cut(err.Error(), suggestion)
	fmt.Fprintf(w, "Error: %s\n", oneLine(errors.New(text)))
	if names := strings.Fields(suggested); len(names) > 0 {
		fmt.Fprintf(w, "Did you mean this?\n  %s\n", strings.Join(names, "\n  "))
	}
}
