package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/cluster"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
)

// clusterFlags are the flags of cluster.
type clusterFlags struct {
	binDir      string
	port, nodes int
	kwokConfigs []string
	components  []string // COMPONENT:--FLAG
}

func newCluster() *cobra.Command {
	f := new(clusterFlags)
	c := &cobra.Command{
		Use:   "cluster DIR",
		Short: "Run a control plane that schedules, on this machine",
		Long: `Cluster runs Tidemark, kube-controller-manager and kube-scheduler, and with --kwok-nodes also
kwok, which plays nodes and the Pods on them. Deployments, Jobs and the other workloads then
work as in a cluster, but no container runs. It is for tests and demonstrations: all ports are
on 127.0.0.1.

The programs are not part of Tidemark. They are looked for in --bin-dir, and then in PATH. The
command names those that it does not find, and where they are published.

DIR keeps everything: the objects, certificates, a kubeconfig for each component with its own
user, and logs. Ctrl-C ends the components, and Tidemark last. A second start goes on with the
same objects, port and nodes. A component that ends by itself starts again, Tidemark too. If it
ends five times in a row, the cluster ends, with the last lines of its log.`,
		Example: `  # A control plane, and in another terminal: kubectl
  tidemark cluster ./cluster --bin-dir=./bin
  export KUBECONFIG=./cluster/kubeconfig

  # With ten nodes, on which Pods run at once
  tidemark cluster ./cluster --bin-dir=./bin --kwok-nodes=10
  kubectl create deployment web --image=web --replicas=30

  # On a free port, with another flag for a component
  tidemark cluster ./cluster --secure-port=0 --component-flag=kube-scheduler:--v=4

  # Logs, exec and port-forward of Pods, as a file for kwok describes them
  tidemark cluster ./cluster --kwok-nodes=1 --kwok-config=logs.yaml`,
		Args: arguments([]string{"DIR"}, ""),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := f.options(args[0], c.Flags().Changed)
			if err != nil {
				return usageError{err}
			}
			return runCluster(c.Context(), o, c.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.binDir, "bin-dir", "", "directory with the programs kube-controller-manager, kube-scheduler and kwok (default: they are in PATH)")
	flags.IntVar(&f.nodes, "kwok-nodes", 0, fmt.Sprintf("number of nodes that kwok plays, up to %d; a smaller number than before removes none (default: that of the last start, at first 0)", cluster.MaxNodes))
	flags.IntVar(&f.port, "secure-port", cluster.DefaultPort, "port of Tidemark on 127.0.0.1; 0 picks a free one (default: that of the last start, at first 6443)")
	flags.Lookup("secure-port").DefValue = "0" // the usage has the default
	flags.StringArrayVar(&f.kwokConfigs, "kwok-config", nil, "further configuration file of kwok, such as one with ClusterLogs; can be repeated")
	flags.StringArrayVar(&f.components, "component-flag", nil, "further flag of a component, COMPONENT:--FLAG=VALUE; the components are "+strings.Join(cluster.Components, ", ")+"; can be repeated")
	return c
}

// options checks the flags.
func (f *clusterFlags) options(dir string, changed func(string) bool) (o cluster.Options, err error) {
	o = cluster.Options{BinDir: f.binDir, Flags: map[string][]string{}}
	if o.Dir, err = filepath.Abs(dir); err != nil {
		return o, err
	}
	if changed("secure-port") {
		o.Port = &f.port
	}
	if changed("kwok-nodes") {
		o.Nodes = &f.nodes
	}
	switch {
	case f.port < 0 || f.port > 65535:
		return o, fmt.Errorf("--secure-port=%d is no port: want 1 to 65535, or 0 for a free one", f.port)
	case f.nodes < 0 || f.nodes > cluster.MaxNodes:
		return o, fmt.Errorf("--kwok-nodes=%d: want 0 to %d", f.nodes, cluster.MaxNodes)
	case slices.Contains(f.kwokConfigs, ""):
		return o, errors.New("--kwok-config is empty: name a file, or leave it out")
	}
	for _, file := range f.kwokConfigs {
		if file, err = filepath.Abs(file); err == nil {
			_, err = os.Stat(file)
		}
		if err != nil {
			return o, fmt.Errorf("--kwok-config: %w", err)
		}
		o.KwokConfigs = append(o.KwokConfigs, file)
	}
	for _, text := range f.components {
		component, flag, err := cluster.CheckFlag(text)
		if err != nil {
			return o, fmt.Errorf("--component-flag: %w", err)
		}
		o.Flags[component] = append(o.Flags[component], flag)
	}
	o.Program, err = os.Executable()
	return o, err
}

// runCluster runs a cluster until a signal arrives.
func runCluster(parent context.Context, o cluster.Options, out io.Writer) error {
	ctx, stop := untilSignal(parent, exitFailed)
	defer stop()
	o.Progress = progress.Progress{W: out}
	c, err := cluster.Start(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil // interrupted during the start
		}
		return err
	}
	fmt.Fprintf(out, "\n    export KUBECONFIG=%s\n\nLogs are in %s. Ctrl-C stops the cluster; the next start goes on.\n", shellQuote(c.Kubeconfig), filepath.Join(o.Dir, "logs"))
	return c.Wait()
}
