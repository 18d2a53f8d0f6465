// Command tidemark is a Kubernetes API server in one program.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes. They are part of the interface: docs/operations.md.
const (
	exitOK     = 0
	exitFailed = 1 // wrong configuration, a start that failed, a log that failed
	exitUsage  = 2 // an unknown command or flag, a value that is none; conformance: could not run
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs a command line and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	root, ran := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "Error: %s\n", oneLine(err))
	var unable couldNotRun
	if errors.As(err, &unable) {
		return exitUsage
	}
	var usage usageError
	if *ran && !errors.As(err, &usage) {
		return exitFailed
	}
	fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", command.CommandPath())
	return exitUsage
}

// usageError is one that a command finds itself in how it is called.
type usageError struct{ error }

// couldNotRun is an error of a command whose failure says something else: that what
// it looked at is not as it should be.
type couldNotRun struct{ error }

// oneLine joins the lines of errors that were joined, and what cobra suggests for an
// unknown command.
func oneLine(err error) string {
	if text, suggested, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n"); ok {
		return text + ": did you mean " + strings.Join(strings.Fields(suggested), " or ") + "?"
	}
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

// newRoot returns the command tree. Ran turns true when the command line was
// understood and a command begins.
func newRoot() (root *cobra.Command, ran *bool) {
	ran = new(bool)
	root = &cobra.Command{
		Use:   "tidemark",
		Short: "A Kubernetes API server in one program",
		Long: `Tidemark is a Kubernetes API server: the API of Kubernetes v1.36, with an embedded
durable store, and without kubelets, controllers of workloads, or etcd.`,
		Example: `  # Start a server that keeps its objects in the user's data directory
  tidemark serve

  # In another terminal
  export KUBECONFIG=~/.local/share/tidemark/kubeconfig
  kubectl get namespaces`,
		Version:          ownVersion(),
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { *ran = true },
	}
	root.SetVersionTemplate("tidemark {{.Version}}\n")
	root.AddCommand(newServe(), newBench(), newConformance(), newVersion())
	return root, ran
}
