// Command tidemark is a Kubernetes API server in one program.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	if plugin, ok := strings.CutPrefix(name, "kubectl-"); ok && slices.Contains(plugins, plugin) {
		return runPlugin(plugin, args, os.Stdout, os.Stderr)
	}
	if plugin, ok := strings.CutPrefix(name, "kubectl_complete-"); ok && slices.Contains(plugins, plugin) {
		return runPlugin(cobra.ShellCompRequestCmd, append([]string{plugin}, args...), os.Stdout, os.Stderr)
	}
	switch name {
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
	return execute(root, ran, args, stdout, stderr)
}

// plugins are the commands that kubectl runs as plug-ins, if a link to this program has their name after kubectl-.
var plugins = []string{"history", "blame", "undelete", "restore", "at"}

// runPlugin runs a command line of kubectl.
func runPlugin(name string, args []string, stdout, stderr io.Writer) int {
	root, ran := newRoot()
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl"}
	return execute(root, ran, append([]string{name}, args...), stdout, stderr)
}

func execute(root *cobra.Command, ran *bool, args []string, stdout, stderr io.Writer) int {
	shells(root)
	help(root)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	var status exitStatus
	if errors.As(err, &status) && status.err == nil {
		return status.code
	}
	printError(stderr, err)
	var unable couldNotRun
	if errors.As(err, &unable) {
		return exitUsage
	}
	var usage usageError
	if *ran && !errors.As(err, &usage) {
		return max(status.code, exitFailed)
	}
	fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", command.CommandPath())
	return exitUsage
}

// A usageError is a mistake on the command line that a command itself finds.
type usageError struct{ error }

// couldNotRun is an error of conformance itself. exitFailed is for a server that does
// not conform.
type couldNotRun struct{ error }

// oneLine puts joined errors on one line, equal ones in a row once.
func oneLine(err error) string {
	return strings.Join(slices.Compact(strings.Split(strings.TrimSpace(err.Error()), "\n")), "; ")
}

// valueError returns the error for an invalid number, duration or boolean of a flag, with the
// accepted values.
func valueError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	if want := wants(flag, invalid.GetValue(), err); want != "" {
		return fmt.Errorf("--%s=%s: want %s: %s", flag.Name, invalid.GetValue(), want, flag.Usage)
	}
	return err
}

// wants describes the accepted values of a flag with an invalid number, duration or boolean; empty
// if err does.
func wants(flag *pflag.Flag, value string, err error) (want string) {
	if flag.Value.Type() == "duration" {
		return "a duration, such as 90s, 10m or 24h"
	}
	var cause *strconv.NumError
	if !errors.As(err, &cause) {
		return ""
	}
	switch kind := flag.Value.Type(); {
	case kind == "bool":
		want = "true or false"
	case strings.HasPrefix(kind, "uint"):
		want = "a whole number, 0 or more"
	case strings.HasPrefix(kind, "int"):
		want = "a whole number"
	case strings.HasPrefix(kind, "float"):
		want = "a number"
	default:
		return ""
	}
	if errors.Is(cause, strconv.ErrRange) {
		want = "a smaller number"
		if strings.HasPrefix(value, "-") {
			want = "a number closer to 0"
		}
	}
	return want
}

// newRoot returns the command tree. *ran becomes true when cobra has parsed the command
// line and starts a command.
func newRoot() (root *cobra.Command, ran *bool) {
	ran = new(bool)
	root = &cobra.Command{
		Use:   "tidemark",
		Short: "A Kubernetes API server in one program",
		Long: `Tidemark is a Kubernetes API server with an embedded durable store: it needs no etcd, and
can use one. It serves the API of Kubernetes v1.37 without kubelets, and without
controllers that run workloads.`,
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
	root.SetFlagErrorFunc(flagError)
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"run", "Run a server:", []*cobra.Command{newServe(), newFork(), newCluster()}},
		{"past", "Look at the past, and bring it back:", []*cobra.Command{newHistory(), newDiff(), newBlame(), newUndelete(), newRestore(), newAt()}},
		{"operate", "Operate it:", []*cobra.Command{newStatus(), newBackup(), newCheck(), newCompact(), newMigrate(), newPKI(), newKubeconfig()}},
		{"test", "Test and measure:", []*cobra.Command{newAssets(), newAPIDiff(), newBench(), newConformance()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(newVersion())
	return root, ran
}
