package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark"
)

// versionInfo is the output of "version -o json".
type versionInfo struct {
	Version    string `json:"version"`
	Kubernetes string `json:"kubernetes"`
	GitVersion string `json:"gitVersion"`
	Commit     string `json:"commit,omitempty"`
	CommitTime string `json:"commitTime,omitempty"`
	GoVersion  string `json:"goVersion"`
	Platform   string `json:"platform"`
}

// ownVersion returns the version of this program, such as "0.1.0".
func ownVersion() string {
	_, own, _ := strings.Cut(tidemark.Version(), "+tidemark.")
	return own
}

func readVersion() versionInfo {
	v := versionInfo{
		Version:    ownVersion(),
		GitVersion: tidemark.Version(),
		GoVersion:  runtime.Version(),
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
	v.Kubernetes, _, _ = strings.Cut(v.GitVersion, "+")
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.CommitTime = s.Value
		}
	}
	return v
}

func newVersion() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  tidemark version
  tidemark version -o json`,
		Args: arguments(nil, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			v := readVersion()
			switch output {
			case "":
				commit := ""
				if v.Commit != "" {
					commit = ", commit " + v.Commit[:min(12, len(v.Commit))]
				}
				fmt.Fprintf(c.OutOrStdout(), "tidemark %s, serving the API of Kubernetes %s (%s %s%s)\n", v.Version, v.Kubernetes, v.GoVersion, v.Platform, commit)
				return nil
			case "json":
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(v)
			}
			return usageError{fmt.Errorf("--output=%q is not known: want json, or nothing for a line of text", output)}
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json for machines; a line of text otherwise")
	return c
}
