package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/conformance"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
)

// conformanceFlags are the flags of conformance.
type conformanceFlags struct {
	options             conformance.Options
	kubeconfig, context string
	output              string
	restart             string
	template            string
}

func newConformance() *cobra.Command {
	f := &conformanceFlags{options: conformance.Defaults()}
	c := &cobra.Command{
		Use:   "conformance [CHECK...]",
		Short: "Check any Kubernetes API server for conformance",
		Long: `Conformance checks any Kubernetes API server against the documents of the API: API
Concepts, KEP-2523, KEP-5504 and KEP-5866. It runs all checks unless some are named; "tidemark
conformance list" shows them, with the section of the document behind each.

A check passes or fails. It is absent if the server does not have the feature, and
skipped if something else is missing, such as a permission. A failed check shows its
requests, as commands for a shell, and the responses. The server fails if a check of
level MUST fails or is absent; SHOULD and MAY are only reported.

The checks create their objects in a new namespace conformance-..., and remove them at
the end, also after an interrupt. With permission to edit only one namespace, pass
--namespace: checks that need more are skipped, and listed at the end.

With --resource the checks use objects of another type. If that type has required
fields, --template is a file with an object: the checks use everything in it except its
name and its status.

Exit status: 0 if the server passes, 1 if it fails, 2 if it could not be checked (for
example if it is unreachable, the restart command fails, or after an interrupt). Skipped
checks do not count.`,
		Example: `  # Everything, against the current context
  tidemark conformance

  # Watches and lists of a custom resource, as JUnit XML for a build server
  tidemark conformance --area=watch --area=list --resource=foos.example.com/v1 -o junit > result.xml

  # With custom resources that have required fields
  tidemark conformance --resource=foos.example.com/v1 --template=foo.yaml

  # With the role edit in the namespace team-a
  tidemark conformance --namespace=team-a

  # A single check
  tidemark conformance list.exact.limit.n

  # Expired versions, on a server started with --history-retention=5s
  tidemark conformance --area=window --window=5s

  # Restarts as well
  tidemark conformance --restart-command="systemctl restart tidemark"`,
		RunE: func(c *cobra.Command, args []string) error {
			f.options.Checks = args
			if err := f.readTemplate(c.InOrStdin()); err != nil {
				return usageError{err}
			}
			if err := f.check(); err != nil {
				return usageError{err}
			}
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.register(c)
	c.AddCommand(newConformanceList())
	return c
}

func (f *conformanceFlags) register(c *cobra.Command) {
	o, flags := &f.options, c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", clientconfig.Usage)
	flags.StringVar(&f.context, "context", "", "context in the kubeconfig (default: the current one)")
	flags.StringSliceVar(&o.Areas, "area", nil, "run only the checks of this area; can be repeated")
	flags.StringVar(&o.Resource, "resource", o.Resource, "resource that the checks use, such as deployments.apps or foos.example.com/v1")
	flags.StringVar(&f.template, "template", "", "file with an object of --resource in YAML or JSON, if it has required fields; - is stdin")
	flags.StringVar(&o.Namespace, "namespace", "", "existing namespace to use instead of a new one")
	flags.StringVarP(&f.output, "output", "o", "table", "output format: table, json or junit")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the random choices (default: a new one, shown in the result)")
	flags.StringVar(&f.restart, "restart-command", "", "shell command that restarts the server and exits; without it, the area restart is skipped")
	flags.DurationVar(&o.Window, "window", 0, "how long the server keeps history (--history-retention; kube-apiserver: twice --etcd-compaction-interval), for the area window, which waits that long; without it, the area is skipped")
	flags.DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait for a response or an expected event")
	flags.IntVar(&o.Parallel, "parallel", o.Parallel, "number of checks to run at once")
}

// maxTemplateBytes is larger than any object that a server accepts.
const maxTemplateBytes = 16 << 20

func (f *conformanceFlags) readTemplate(stdin io.Reader) (err error) {
	from := stdin
	switch f.template {
	case "":
		return nil
	case "-":
	default:
		file, err := os.Open(f.template)
		if err != nil {
			return fmt.Errorf("--template: %w", err)
		}
		defer file.Close()
		from = file
	}
	if f.options.Template, err = io.ReadAll(io.LimitReader(from, maxTemplateBytes)); err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	if len(f.options.Template) == 0 {
		return fmt.Errorf("--template=%s is empty: want an object in YAML or JSON", f.template)
	}
	return nil
}

func (f *conformanceFlags) check() error {
	switch f.output {
	case "table", "json", "junit":
	default:
		return fmt.Errorf("--output=%q is not supported: want table, json or junit", f.output)
	}
	return f.options.Check()
}

// run checks the server and prints the results, also those from before an interrupt.
func (f *conformanceFlags) run(parent context.Context, stdout, stderr io.Writer) error {
	ctx, stop := untilSignal(parent, exitUsage)
	defer stop()
	if f.restart != "" {
		f.options.Restart = func(ctx context.Context) error {
			command := exec.CommandContext(ctx, "sh", "-c", f.restart)
			if file, ok := stderr.(*os.File); ok { // not a pipe, which a process started by the command could hold open
				command.Stderr = file
			}
			return command.Run()
		}
	}
	config, err := clientconfig.REST(clientconfig.Load(f.kubeconfig, f.context))
	if err != nil {
		return couldNotRun{err}
	}
	report, err := conformance.Run(ctx, config, f.options, progress.Progress{W: stderr, Terminal: isTerminal(stderr)})
	if err != nil {
		return couldNotRun{err}
	}
	write := report.WriteTable
	switch f.output {
	case "json":
		write = report.WriteJSON
	case "junit":
		write = report.WriteJUnit
	}
	if err := write(stdout); err != nil {
		return couldNotRun{err}
	}
	return verdictOf(report)
}

// verdictOf returns nil if the server passes.
func verdictOf(report *conformance.Report) error {
	bad := report.Bad()
	switch {
	case report.Interrupted:
		return couldNotRun{errors.New("interrupted")}
	case len(bad) > 0:
		return fmt.Errorf("%d checks of level MUST failed or are absent", len(bad))
	case report.Unable != "":
		return couldNotRun{errors.New(report.Unable)}
	case !report.Ran():
		return couldNotRun{errors.New("no check could be run: the result shows why each was skipped")}
	default:
		return nil
	}
}

func newConformanceList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the checks and the sections of the documents behind them",
		Example: `  tidemark conformance list`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows := [][]string{{"check", "level", "about", "source", "waits for"}}
			for _, x := range conformance.Checks() {
				rows = append(rows, []string{x.ID, string(x.Level), x.About, x.Source, x.Waits})
			}
			return printTable(c.OutOrStdout(), rows)
		},
	}
}
