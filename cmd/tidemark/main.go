// Command tidemark is a Kubernetes API server in one program.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes. They are part of the interface: docs/operations.md.
const (
	exitOK     = 0
	exitFailed = 1 // wrong configuration, failed start, failed log
	exitUsage  = 2 // unknown command or flag, invalid value; conformance: could not run
)

func main() { os.Exit(runAs(os.Args[0], os.Args[1:])) }

// runAs runs the program that was called: tidemark, or one that it stands in for.
func runAs(path string, args []string) int {
	switch strings.TrimSuffix(filepath.Base(path), ".exe") {
	case asAPIServer:
		return runAPIServer(args, os.Stdout, os.Stderr)
	case asEtcd:
		return runEtcd(args, os.Stdout, os.Stderr)
	}
	return run(args, os.Stdout, os.Stderr)
}

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

// A usageError is a mistake on the command line that a command itself finds.
type usageError struct{ error }

// couldNotRun is an error of conformance itself. exitFailed is for a server that does
// not conform.
type couldNotRun struct{ error }

// oneLine puts joined errors, and cobra's suggestions for an unknown command, on one line.
func oneLine(err error) string {
	if text, suggested, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n"); ok {
		return text + ": did you mean " + strings.Join(strings.Fields(suggested), " or ") + "?"
	}
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

// newRoot returns the command tree. *ran becomes true when cobra has parsed the command
// line and starts a command.
func newRoot() (root *cobra.Command, ran *bool) {
	ran = new(bool)
	root = &cobra.Command{
		Use:   "tidemark",
		Short: "A Kubernetes API server in one program",
		Long: `Tidemark is a Kubernetes API server with an embedded durable store. It serves the API
of Kubernetes v1.36 without etcd, kubelets, or controllers that run workloads.`,
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
	root.AddCommand(newServe(), newFork(), newAssets(), newBench(), newConformance(), newVersion())
	return root, ran
}
