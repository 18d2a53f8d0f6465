package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/bench"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
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
		Long: `Bench puts load on any Kubernetes API server and measures it: operations per second
and latency. With --pid, for a server on this machine, it also measures CPU per
operation and memory (RSS, and its anonymous part). It runs all scenarios unless some
are named; "tidemark bench list" describes them.

With --against-kubeconfig it measures a second server as well, alternating between the
two round by round, and prints the ratios. The second server is the baseline.

Bench creates its objects in new namespaces bench-..., and custom resource definitions
in groups ending in bench.tidemark.dev. It removes them at the end, also after an
interrupt. Do not run it against a cluster whose users would notice the load.

Every response is checked. A write counts if the object contains what was written, and
a deletion if nothing is left. In a closed loop a client waits for each response before
it sends the next request. In an open loop (--rate) each request has an intended start
time, from which its latency is counted.`,
		Example: `  # Everything, against the current context
  tidemark bench

  # Reads from a server on this machine, with CPU and memory
  tidemark bench get list-identity list-gzip --kubeconfig=./kubeconfig --pid=1234 --objects=10000

  # Two servers side by side; the second consists of two processes
  tidemark bench get list-identity --kubeconfig=./a --pid=1234 --against-kubeconfig=./b --against-pid=2345 --against-pid=2346 --equal-bytes

  # Writes that track managed fields, and deletions of 10,000 objects
  tidemark bench update-pods patch-pods apply-configmap apply-deployment apply-unchanged delete-collection delete-namespace --pid=1234

  # Custom resources, on a server with 1,000 definitions
  tidemark bench crd-first-object crd-apply crd-index custom-get custom-list custom-watch custom-create --definitions=1000 --pid=1234

  # Time from start to ready
  tidemark bench start --kubeconfig=/tmp/k --start-command="tidemark serve --in-memory --secure-port=0 --kubeconfig-out=/tmp/k"

  # Two servers on one etcd: reads after writes, definitions, requests while idle, and an outage
  tidemark bench list-fresh crd-other-server idle-etcd outage --kubeconfig=./a --other-kubeconfig=./b --etcd-metrics=http://127.0.0.1:2379/metrics --outage-command=./kill-leader --repair-command=./start-member

  # Save the results and compare them with others later
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
	c.AddCommand(newBenchList(), newBenchCompare(), newBenchPlot(), newBenchRatios(), newBenchFlood())
	return c
}

func (f *benchFlags) register(c *cobra.Command) {
	o, flags := &f.options, c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.server.Kubeconfig, "kubeconfig", "", clientconfig.Usage)
	flags.StringVar(&f.server.Context, "context", "", "context in the kubeconfig (default: the current one)")
	flags.IntSliceVar(&f.server.PIDs, "pid", nil, "process ID of the server on this machine, to measure CPU and memory; can be repeated")
	flags.IntVar(&f.server.Pad, "pad", 0, "bytes to add to each pod")
	flags.StringVar(&f.server.StartCommand, "start-command", "", "shell command that runs the server in the foreground, for the scenario start; bench stops it with SIGTERM")
	flags.StringVar(&f.server.OtherKubeconfig, "other-kubeconfig", "", "kubeconfig of another server on the same etcd, for the scenarios list-fresh, crd-other-server and outage")
	flags.StringVar(&f.server.OutageCommand, "outage-command", "", "shell command that makes something fail, for the scenario outage; for example, it kills the leader of etcd or a server")
	flags.StringVar(&f.server.RepairCommand, "repair-command", "", "shell command that undoes --outage-command after each round; what it starts must run in the background")
	flags.StringSliceVar(&f.server.EtcdMetrics, "etcd-metrics", nil, "URL of the metrics of a member of etcd, such as http://127.0.0.1:2379/metrics, for the scenario idle-etcd; can be repeated")

	flags.StringVar(&f.against.Kubeconfig, "against-kubeconfig", "", "kubeconfig of the baseline server")
	flags.StringVar(&f.against.Context, "against-context", "", "context in --against-kubeconfig (default: the current one)")
	flags.IntSliceVar(&f.against.PIDs, "against-pid", nil, "process ID of the baseline server; can be repeated")
	flags.IntVar(&f.against.Pad, "against-pad", 0, "bytes to add to each pod on the baseline server")
	flags.StringVar(&f.against.StartCommand, "against-start-command", "", "shell command that runs the baseline server")
	flags.StringVar(&f.against.OtherKubeconfig, "against-other-kubeconfig", "", "kubeconfig of another server on the etcd of the baseline server")
	flags.StringVar(&f.against.OutageCommand, "against-outage-command", "", "shell command that makes something of the baseline fail")
	flags.StringVar(&f.against.RepairCommand, "against-repair-command", "", "shell command that undoes --against-outage-command after each round")
	flags.StringSliceVar(&f.against.EtcdMetrics, "against-etcd-metrics", nil, "URL of the metrics of a member of the baseline's etcd; can be repeated")
	flags.BoolVar(&o.EqualBytes, "equal-bytes", false, "pad pods, ConfigMaps and Deployments on one server so that both servers return the same number of bytes")

	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "number of times to measure each scenario")
	flags.DurationVar(&o.Duration, "duration", o.Duration, "length of a round; operations in flight are completed")
	flags.IntVar(&o.Objects, "objects", o.Objects, "number of pods to read and list")
	flags.IntVar(&o.Definitions, "definitions", o.Definitions, "number of custom resource definitions for the crd scenarios")
	flags.IntVar(&o.Watchers, "watchers", 0, "maximum number of watchers (default: the number in the scenario's name)")
	flags.IntVar(&o.WatchesPerConnection, "watches-per-connection", o.WatchesPerConnection, "watches per HTTP/2 connection; 1 gives each watch its own client, as kubelets have")
	flags.IntVar(&o.Clients, "clients", 0, "number of concurrent clients (default: set by the scenario)")
	flags.IntVar(&o.Connections, "connections", o.Connections, "number of HTTP/2 connections that the clients share")
	flags.Float64Var(&o.Rate, "rate", 0, "requests per second, in an open loop (default: a closed loop)")
	flags.IntVar(&o.LinkMbit, "link-mbit", 0, "megabits per second that the clients of overload receive together, as if through a link (default: no limit)")
	flags.Int64Var(&o.MaxOps, "max-ops", o.MaxOps, "maximum number of operations per round")
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the generated objects; equal seeds give equal objects")
	flags.BoolVar(&o.Keep, "keep", false, "keep the created objects, to inspect them or to start a server with them")
	flags.StringVarP(&f.output, "output", "o", "table", "output format: table or json")
	flags.StringVar(&f.out, "out", "", "also write the results as JSON to this file, for compare and plot")
}

func (f *benchFlags) check() error {
	a := f.against
	switch {
	case f.output != "table" && f.output != "json":
		return fmt.Errorf("--output=%q is not supported: want table or json", f.output)
	case a.Kubeconfig == "" && (a.Context != "" || len(a.PIDs) > 0 || a.Pad != 0 || a.StartCommand != "" || a.OtherKubeconfig != "" || a.OutageCommand != "" || a.RepairCommand != "" || len(a.EtcdMetrics) > 0 || f.options.EqualBytes):
		return errors.New("the --against flags and --equal-bytes require --against-kubeconfig")
	case f.server.StartCommand != "" && f.server.Kubeconfig == "":
		return errors.New("--start-command requires --kubeconfig: the kubeconfig of the server that it starts")
	case f.server.RepairCommand != "" && f.server.OutageCommand == "":
		return errors.New("--repair-command requires --outage-command")
	case a.RepairCommand != "" && a.OutageCommand == "":
		return errors.New("--against-repair-command requires --against-outage-command")
	}
	return f.options.Check()
}

// run measures and prints the results, also those from before an interrupt or a failure.
func (f *benchFlags) run(parent context.Context, stdout, stderr io.Writer) error {
	ctx, stop := untilSignal(parent, exitFailed)
	defer stop()
	servers := []bench.Server{f.server}
	if f.against.Kubeconfig != "" {
		servers = append(servers, f.against)
	}
	if exe, err := os.Executable(); err == nil {
		f.options.Executable = exe
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

// isTerminal reports whether w is a terminal, on which a line can be overwritten.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// newBenchFlood is the process that the scenario overload starts for its load.
func newBenchFlood() *cobra.Command {
	return &cobra.Command{
		Use:    "flood",
		Short:  "Send the load of the scenario overload",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return bench.Flood(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
}

func newBenchList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the scenarios and what they measure",
		Example: `  tidemark bench list`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows := [][]string{{"scenario", "measures", "loop"}}
			for _, s := range bench.Scenarios() {
				rows = append(rows, []string{s.Name, s.Measures, s.Loop})
			}
			return printTable(c.OutOrStdout(), rows)
		},
	}
}

func newBenchCompare() *cobra.Command {
	return &cobra.Command{
		Use:   "compare A.json [B.json]",
		Short: "Compare two results; the second is the baseline",
		Long: `Compare prints the ratios between two results written with --out. B is the baseline: a
ratio of 2 means that A uses half the CPU or memory, has half the latency, or twice the
rate. Given one file, it compares the two servers in it.`,
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
	var o bench.PlotOptions
	c := &cobra.Command{
		Use:   "plot RESULT.json...",
		Short: "Draw how a metric grows with objects or watchers, as SVG",
		Long: `Plot reads results written with --out, from runs with different numbers of objects or
watchers. It writes an SVG to standard output, with a panel for each scenario and a line
for each server. Both axes are logarithmic: a horizontal line means that the cost does not
grow.`,
		Example: `  # Three runs, then the picture
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
			p, err := bench.NewPlot(o, reports)
			if err != nil {
				return usageError{err}
			}
			return p.WriteSVG(c.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.X, "x", "objects", "x axis: "+strings.Join(bench.PlotInputs(), ", "))
	flags.StringVar(&o.Y, "y", "cpu", "y axis: "+strings.Join(bench.PlotMetrics(), ", "))
	flags.StringSliceVar(&o.Scenarios, "scenario", nil, "draw only this scenario, without its number of watchers; can be repeated, and sets the order")
	flags.StringSliceVar(&o.Servers, "server", nil, "name of a server in the results and in the picture, as NAME=LABEL; can be repeated, and sets the order of the colors")
	flags.StringVar(&o.Title, "title", "", "title of the picture")
	return c
}

func newBenchRatios() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "ratios LIST.tsv",
		Short: "Draw how two servers compare, as bars or as a table",
		Long: `Ratios reads a list of operations, and results of two servers written with --out. It
writes the CPU time of each operation on both servers and the ratio, as SVG or as a
Markdown table. The first line of the list has a title and the names of the two servers,
separated by tabs. Each other line has the file of a result, relative to the list, the
name of a row in it, and a label. A fourth field compares something else than CPU time:
p50, p99, rss or anon. Lines that begin with # are comments.`,
		Example: `  printf 'CPU time\tnew\told\nboth.json\tget\tGET of a pod\n' > list.tsv
  tidemark bench ratios list.tsv > ratios.svg`,
		Args: arguments([]string{"LIST.tsv"}, ""),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := bench.ReadBars(args[0])
			if err != nil {
				return err
			}
			switch output {
			case "svg":
				return b.WriteSVG(c.OutOrStdout())
			case "markdown":
				return b.WriteMarkdown(c.OutOrStdout())
			}
			return usageError{fmt.Errorf("--output=%q is not supported: want svg or markdown", output)}
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "svg", "output format: svg or markdown")
	return c
}
