package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/bench"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	options         bench.Options
	server, against bench.Server
	output, out     string
}

func newBench() *cobra.Command {
	f := &benchFlags{options: bench.Defaults()}
	c := &cobra.Command{
		Use:   "bench [SCENARIO...]",
		Short: "Measure a Kubernetes API server, or two side by side",
		Long: `Bench loads any Kubernetes API server that a kubeconfig leads to, and measures it:
operations a second, latencies, and, when it is told which processes on this
machine are the server, their CPU and memory for each operation. Without names all
scenarios are run; "tidemark bench list" explains them.

With --against-kubeconfig a second server is measured too, round by round in
turn, and the ratios are printed: the second server is the baseline.

All objects are made in new namespaces bench-..., definitions of custom resources in
groups ...bench.tidemark.dev, and removed in the end, also after an interrupt. Run it against a cluster that may be loaded: it is a load.

Answers are checked: an update, a patch or an apply counts when the object has what
was written, a deletion when nothing is left. In a closed loop a client waits for an answer before it asks
again; in an open loop (--rate) requests have intended times, which their latency
is counted from.`,
		Example: `  # Everything, against the current context
  tidemark bench

  # Reads of a server on this machine, with its CPU and memory
  tidemark bench get list-identity list-gzip --kubeconfig=./kubeconfig --pid=1234 --objects=10000

  # Two servers in turn, the second one made of two processes
  tidemark bench get list-identity --kubeconfig=./a --pid=1234 --against-kubeconfig=./b --against-pid=2345 --against-pid=2346 --equal-bytes

  # Writes that managed fields are kept for, and deletions of 10,000 objects
  tidemark bench update-pods patch-pods apply-configmap apply-deployment apply-unchanged delete-collection delete-namespace --pid=1234

  # Custom resources, beside a thousand definitions
  tidemark bench crd-first-object crd-apply crd-index custom-get custom-list custom-watch custom-create --definitions=1000 --pid=1234

  # Start to ready
  tidemark bench start --kubeconfig=/tmp/k --start-command="tidemark serve --in-memory --secure-port=0 --kubeconfig-out=/tmp/k"

  # Keep the figures, and compare them with others later
  tidemark bench get --out=today.json
  tidemark bench compare today.json yesterday.json`,
		RunE: func(c *cobra.Command, args []string) error {
			f.options.Scenarios = args
			if err := f.check(); err != nil {
				return usageError{err}
			}
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.register(c)
	c.AddCommand(newBenchList(), newBenchCompare(), newBenchPlot())
	return c
}

func (f *benchFlags) register(c *cobra.Command) {
	o, flags := &f.options, c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.server.Kubeconfig, "kubeconfig", "", "file that leads to the server (default: as kubectl finds it)")
	flags.StringVar(&f.server.Context, "context", "", "context of the file (default: its current one)")
	flags.IntSliceVar(&f.server.PIDs, "pid", nil, "a process of the server on this machine, for CPU and memory; can be repeated")
	flags.IntVar(&f.server.Pad, "pad", 0, "bytes to make each pod larger by, as sent")
	flags.StringVar(&f.server.StartCommand, "start-command", "", "shell command that runs the server in the foreground, for the scenario start; what it starts gets SIGTERM")

	flags.StringVar(&f.against.Kubeconfig, "against-kubeconfig", "", "file that leads to the server to measure against: the baseline")
	flags.StringVar(&f.against.Context, "against-context", "", "context of --against-kubeconfig (default: its current one)")
	flags.IntSliceVar(&f.against.PIDs, "against-pid", nil, "a process of that server; can be repeated")
	flags.IntVar(&f.against.Pad, "against-pad", 0, "bytes to make each pod larger by, as sent to that server")
	flags.StringVar(&f.against.StartCommand, "against-start-command", "", "shell command that runs that server")
	flags.BoolVar(&o.EqualBytes, "equal-bytes", false, "pad the pods, ConfigMaps and Deployments of one server so that both serve as many bytes for each")

	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "how often each scenario is measured")
	flags.DurationVar(&o.Duration, "duration", o.Duration, "how long a round takes; what has begun is finished")
	flags.IntVar(&o.Objects, "objects", o.Objects, "number of pods that are read and listed")
	flags.IntVar(&o.Definitions, "definitions", o.Definitions, "number of definitions of custom resources that are applied, or that one more is made beside")
	flags.IntVar(&o.Watchers, "watchers", 0, "at most so many watchers (default: as the scenario's name says)")
	flags.IntVar(&o.WatchesPerConnection, "watches-per-connection", o.WatchesPerConnection, "watches that share an HTTP/2 connection; 1 is a client for each, as kubelets are")
	flags.IntVar(&o.Clients, "clients", 0, "number of clients that send requests (default: as the scenario says)")
	flags.IntVar(&o.Connections, "connections", o.Connections, "HTTP/2 connections that the clients share")
	flags.Float64Var(&o.Rate, "rate", 0, "requests a second, for an open loop (default: a closed loop)")
	flags.Int64Var(&o.MaxOps, "max-ops", o.MaxOps, "at most so many operations in a round")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "makes the same objects again")
	flags.BoolVar(&o.Keep, "keep", false, "leave what was made, for a look at it, or for a start with it")
	flags.StringVarP(&f.output, "output", "o", "table", "what to print: table, or json")
	flags.StringVar(&f.out, "out", "", "file to write the JSON to as well, which compare reads")
}

func (f *benchFlags) check() error {
	a := f.against
	switch {
	case f.output != "table" && f.output != "json":
		return fmt.Errorf("--output=%q is not known: want table or json", f.output)
	case a.Kubeconfig == "" && (a.Context != "" || len(a.PIDs) > 0 || a.Pad != 0 || a.StartCommand != "" || f.options.EqualBytes):
		return errors.New("the --against flags and --equal-bytes want --against-kubeconfig")
	case f.server.StartCommand != "" && f.server.Kubeconfig == "":
		return errors.New("--start-command wants --kubeconfig: the file that leads to the server that it starts")
	}
	return f.options.Check()
}

// run measures and prints. What was measured before an interrupt or a failure is
// printed too.
func (f *benchFlags) run(parent context.Context, stdout, stderr io.Writer) error {
	ctx, stop := untilSignal(parent, exitFailed)
	defer stop()
	servers := []bench.Server{f.server}
	if f.against.Kubeconfig != "" {
		servers = append(servers, f.against)
	}
	report, failure := bench.Run(ctx, f.options, servers, progress.Progress{W: stderr, Terminal: isTerminal(stderr)})
	if report == nil || len(report.Servers) == 0 {
		return failure
	}
	report.Command = os.Args
	failure = errors.Join(failure, f.print(report, stdout))
	if failed := report.Failures(); len(failed) > 0 {
		failure = errors.Join(failure, errors.New(strings.Join(failed, "; ")))
	}
	if report.Interrupted {
		failure = errors.Join(failure, errors.New("interrupted"))
	}
	return failure
}

func (f *benchFlags) print(report *bench.Report, stdout io.Writer) error {
	var errs []error
	if f.out != "" {
		var b strings.Builder
		errs = append(errs, report.WriteJSON(&b), atomicfile.Write(filepath.Clean(f.out), []byte(b.String()), 0o644))
	}
	if f.output == "json" {
		return errors.Join(append(errs, report.WriteJSON(stdout))...)
	}
	return errors.Join(append(errs, report.WriteTable(stdout))...)
}

// isTerminal reports whether a line can be written over.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func newBenchList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the scenarios, what each measures, and how it makes its load",
		Example: `  tidemark bench list`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "scenario\tmeasures\tloop")
			for _, s := range bench.Scenarios() {
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Measures, s.Loop)
			}
			return w.Flush()
		},
	}
}

func newBenchCompare() *cobra.Command {
	return &cobra.Command{
		Use:   "compare A.json [B.json]",
		Short: "Compare two results: the second one is the baseline",
		Long: `Compare prints the ratios between two results that --out wrote. B is the baseline:
a ratio above 1 says that A is better, by so many times less CPU, latency or
memory, or so many times the rate. With one file its two servers are compared.`,
		Example: `  tidemark bench compare today.json yesterday.json
  tidemark bench compare both.json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			var reports [2]*bench.Report
			for i, path := range args {
				r, err := bench.ReadReport(path)
				if err != nil {
					return err
				}
				reports[i] = r
			}
			comparison, err := bench.Compare(reports[0], reports[1])
			if err != nil {
				return err
			}
			return comparison.WriteTable(c.OutOrStdout())
		},
	}
}

func newBenchPlot() *cobra.Command {
	var title, x, y string
	var scenarios []string
	c := &cobra.Command{
		Use:   "plot RESULT.json...",
		Short: "Draw how a figure grows with objects or watchers, as SVG",
		Long: `Plot reads results that --out wrote, of runs with different numbers of objects or of
watchers, and writes a picture to standard output: a line for each scenario and
server. Both axes are logarithmic: a level line costs the same everywhere.`,
		Example: `  # Five runs, then the picture
  for n in 1000 10000 100000; do tidemark bench get list-selector --objects=$n --out=$n.json --pid=1234; done
  tidemark bench plot 1000.json 10000.json 100000.json --x=objects --y=cpu > growth.svg`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var reports []*bench.Report
			for _, path := range args {
				r, err := bench.ReadReport(path)
				if err != nil {
					return err
				}
				reports = append(reports, r)
			}
			p, err := bench.NewPlot(title, x, y, scenarios, reports)
			if err != nil {
				return usageError{err}
			}
			return p.WriteSVG(c.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&x, "x", "objects", "what grows: "+strings.Join(bench.PlotInputs(), ", "))
	flags.StringVar(&y, "y", "cpu", "what is drawn: "+strings.Join(bench.PlotFigures(), ", "))
	flags.StringSliceVar(&scenarios, "scenario", nil, "draw this one alone, over watchers without its number; can be repeated")
	flags.StringVar(&title, "title", "", "text above the picture")
	return c
}
