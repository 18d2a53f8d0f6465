package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"text/tabwriter"

	"github.com/spf13/cobra"

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
		Short: "Check whether a Kubernetes API server keeps the promises of the API's documents",
		Long: `Conformance asks any Kubernetes API server that a kubeconfig leads to whether it keeps
the promises of API Concepts, KEP-2523 and KEP-5504, check by check. Without names all
checks are run; "tidemark conformance list" shows them, with the section of the
document that each comes from.

A check passes or fails; it is absent when the server has not got the feature, and
skipped when something else is missing, as a right. What fails shows its requests, to
be pasted into a shell, and their answers. Failed and absent checks of the level MUST
make the server fail; SHOULD and MAY are told.

All objects are made in a new namespace conformance-..., or in that of --namespace,
and removed in the end, also after an interrupt; so are the few that belong to no
namespace. Who may edit in one namespace, and no more, names it with --namespace: checks
that need more are skipped, and listed in the end.

With --resource the checks are made with objects of another type. Where these want more
than a name, --template is a file with one: its labels, annotations and all that is
beside metadata and status are taken, the names are those of the checks.

The exit status is 0 when the server passes, 1 when it fails, 2 when it could not be
checked: it cannot be reached, there is no namespace, it takes no object, no check could
be run, the restart command fails, or an interrupt. Skipped checks do not count.`,
		Example: `  # Everything, against the current context
  tidemark conformance

  # Watches and lists of a type, as a build server wants the result
  tidemark conformance --area=watch --area=list --resource=foos.example.com/v1 -o junit > result.xml

  # With custom resources that have required fields
  tidemark conformance --resource=foos.example.com/v1 --template=foo.yaml

  # By somebody who has the role edit in the namespace team-a
  tidemark conformance --namespace=team-a

  # One check, with its requests
  tidemark conformance list.exact.limit.n

  # While the history window of a server ends that was started with --history-retention=5s
  tidemark conformance --area=window --window=5s

  # Across restarts too
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
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "file that leads to the server (default: as kubectl finds it)")
	flags.StringVar(&f.context, "context", "", "context of the file (default: its current one)")
	flags.StringSliceVar(&o.Areas, "area", nil, "check this area alone; can be repeated")
	flags.StringVar(&o.Resource, "resource", o.Resource, "type whose objects the checks are made with, as deployments.apps or foos.example.com/v1")
	flags.StringVar(&f.template, "template", "", "file with an object of --resource in YAML or JSON, for a type that wants more than a name; - reads stdin")
	flags.StringVar(&o.Namespace, "namespace", "", "namespace that is there, to be used instead of a new one")
	flags.StringVarP(&f.output, "output", "o", "table", "what to print: table, json, or junit")
	flags.Uint64Var(&o.Seed, "seed", 0, "makes the same random choices again (default: a fresh one, which the result tells)")
	flags.StringVar(&f.restart, "restart-command", "", "shell command that restarts the server, and ends; without it the area restart is skipped")
	flags.DurationVar(&o.Window, "window", 0, "how long the server keeps its history (--history-retention; kube-apiserver: twice --etcd-compaction-interval), for the area window, which waits for its end; without it that area is skipped")
	flags.DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait for an answer, or for an event that has to come")
	flags.IntVar(&o.Parallel, "parallel", o.Parallel, "how many checks run at once")
}

// maxTemplateBytes is more than any server takes as an object.
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
		return fmt.Errorf("--output=%q is not known: want table, json or junit", f.output)
	}
	return f.options.Check()
}

// run checks and prints. What was found before an interrupt is printed too.
func (f *conformanceFlags) run(parent context.Context, stdout, stderr io.Writer) error {
	ctx, stop := untilSignal(parent, exitUsage)
	defer stop()
	if f.restart != "" {
		f.options.Restart = func(ctx context.Context) error {
			command := exec.CommandContext(ctx, "sh", "-c", f.restart)
			if file, ok := stderr.(*os.File); ok { // no pipe: what the command starts may hold it open
				command.Stderr = file
			}
			return command.Run()
		}
	}
	config, err := conformance.Load(f.kubeconfig, f.context)
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

// verdictOf is the error for what a report says of the server; nil: it passes.
func verdictOf(report *conformance.Report) error {
	bad := report.Bad()
	switch {
	case report.Interrupted:
		return couldNotRun{errors.New("interrupted")}
	case len(bad) > 0:
		return fmt.Errorf("%d checks of the level MUST failed, or are of features that are absent", len(bad))
	case report.Unable != "":
		return couldNotRun{errors.New(report.Unable)}
	case !report.Ran():
		return couldNotRun{errors.New("no check could be run: the result says why each was skipped")}
	default:
		return nil
	}
}

func newConformanceList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the checks: what each is about, and the section that it comes from",
		Example: `  tidemark conformance list`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "check\tlevel\tabout\tsource\twaits for")
			for _, x := range conformance.Checks() {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", x.ID, x.Level, x.About, x.Source, x.Waits)
			}
			return w.Flush()
		},
	}
}
