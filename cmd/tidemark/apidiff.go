package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/internal/features"
)

func newAPIDiff() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "api-diff FROM TO",
		Short: "Show which kinds, fields and feature gates two versions of Kubernetes differ in",
		Long: fmt.Sprintf(`Api-diff prints the kinds, the fields of stable versions and the feature gates that
changed between two minor versions of Kubernetes, for those who upgrade a cluster. It
knows 1.%d to 1.%d, and needs no server.

A line begins with + for what TO has in addition, - for what it has no more, and ~ for
another state: a gate with another default or stage, or a kind or field whose gate is on
in one of the two versions alone. The server drops a field whose gate is off. Kinds of
alpha and beta versions are served only if an administrator asks for them.`, features.Oldest, features.Default().Emulated),
		Example: `  tidemark api-diff 1.36 1.37
  tidemark api-diff 1.34 1.37 -o json`,
		Args: arguments([]string{"FROM", "TO"}, ""),
		RunE: func(c *cobra.Command, args []string) error {
			var of [2]*features.Profile
			for i, version := range args {
				p, err := features.Resolve(features.Choice{Emulated: version})
				if err != nil {
					return usageError{err}
				}
				of[i] = p
			}
			if output != "" && output != "json" {
				return usageError{fmt.Errorf("--output=%q is not known: want json, or nothing for a table", output)}
			}
			return printAPIDiff(c.OutOrStdout(), features.Diff(of[0], of[1]), output == "json")
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json for machines; a table otherwise")
	return c
}

// apiChange is a change in JSON.
type apiChange struct {
	// Change is "added", "removed" or "changed".
	Change string `json:"change"`
	// What is "kind", "field" or "gate".
	What   string `json:"what"`
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
}

func printAPIDiff(w io.Writer, all []features.Change, asJSON bool) error {
	if !asJSON {
		var rows [][]string
		for _, c := range all {
			rows = append(rows, []string{string(c.Sign), c.Of, c.Name, c.Detail})
		}
		return printTable(w, rows)
	}
	changes := []apiChange{}
	for _, c := range all {
		changes = append(changes, apiChange{map[byte]string{'+': "added", '-': "removed", '~': "changed"}[c.Sign], c.Of, c.Name, c.Detail})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(changes)
}
