package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/authz/config"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/features"
)

// completeValues makes shells complete the values of flags that have known ones. Others are completed as files.
func (f *serveFlags) completeValues(c *cobra.Command) {
	byDefault, optional := admission.Modes()
	var controllers, featureGates []string
	for _, name := range controller.Names() {
		controllers = append(controllers, name, "-"+name)
	}
	for name := range features.Known() {
		featureGates = append(featureGates, name+"=true", name+"=false")
	}
	for name, values := range map[string][]string{
		"controllers":               append(controllers, "*", "-*"),
		"feature-gates":             featureGates,
		"enable-admission-plugins":  strings.Split(optional, ", "),
		"disable-admission-plugins": strings.Split(byDefault, ", "),
		"authorization-mode":        slices.Clone(config.Modes()),
		"tls-min-version":           slices.Collect(maps.Keys(tlsVersions)),
		"data-dir-permissions":      {"owner", "group"},
		"logging-format":            {"text", "json"},
	} {
		slices.Sort(values)
		if err := c.RegisterFlagCompletionFunc(name, listOf(values)); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// listOf completes the last one of values that are separated by commas.
func listOf(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := text[:strings.LastIndex(text, ",")+1]
		var all []cobra.Completion
		for _, v := range values {
			if strings.HasPrefix(before+v, text) && !slices.Contains(strings.Split(before, ","), v) {
				all = append(all, before+v)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}
