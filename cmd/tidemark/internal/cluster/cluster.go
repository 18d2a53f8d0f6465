// Package cluster runs a control plane on one machine: Tidemark, kube-controller-manager, kube-scheduler, and kwok if
// there are simulated nodes. Each is a process, and its standard error is a file in a directory of logs.
//
// # Order
//
// Tidemark starts first. When it is ready, its authority signs the certificates of the other components. Then these start,
// and Run waits until each holds its Lease, and until all nodes are ready. At the end, the components end before Tidemark,
// so that they can give up their Leases. A component that ends by itself starts again.
//
// # No process is left
//
// The components have process groups of their own, so a Ctrl-C of the terminal reaches this process alone, which keeps
// the order. On Linux, the kernel kills them when this process ends in any other way. Elsewhere Tidemark notices that
// itself, and the others stay after a kill of this process.
//
// # Files
//
//	data/                    the data directory of Tidemark, with its authority in data/pki
//	kubeconfig               of the administrator
//	controller-manager.conf  kubeconfigs of the components, with certificates of a year
//	scheduler.conf
//	kwok.conf
//	sa.key                   the key of service account tokens
//	kwok.yaml                the stages of simulated nodes and Pods
//	kwok-metrics.yaml        their metrics
//	cluster.json             ports and the number of nodes, for the next start
//	logs/NAME.log            the output of a component; that before 16 MiB is in NAME.log.1
package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/dirlock"
)

// The names of the components, which are those of their programs.
const (
	Tidemark          = "tidemark"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
)

// Components are the names of all components.
var Components = []string{Tidemark, ControllerManager, Scheduler, Kwok}

// MaxNodes limits the simulated nodes: each has a /24 of podRange.
const MaxNodes = 10_000

// Options are the settings of a cluster. Dir and Program are required.
type Options struct {
	// Dir keeps all files of the cluster. It is created if it does not exist.
	Dir string
	// Program is the path of tidemark.
	Program string
	// BinDir has the programs of the other components. PATH has those that it lacks, and all if it is empty.
	BinDir string
	// Port is the port of Tidemark. Nil: that of the last start, or DefaultPort. Zero: a free one.
	Port *int
	// Nodes is the number of simulated nodes. Nil: that of the last start, or none. A smaller number removes no nodes.
	Nodes *int
	// Flags are further flags of the components, by name.
	Flags map[string][]string
	// KwokConfigs are further configuration files of kwok.
	KwokConfigs []string
	// Progress shows a line for each component.
	Progress progress.Progress

	restartPause time.Duration // before the first restart of a component; zero: defaultRestartPause
}

// DefaultPort is the port of a cluster that was not started before.
const DefaultPort = 6443

// Cluster is a cluster whose components run.
type Cluster struct {
	// URL is that of Tidemark.
	URL string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string

	o     Options
	kept  kept
	paths map[string]string // of the programs, by component
	group *group
	api   *client
	lock  *dirlock.Lock
}

// kept is the content of cluster.json.
type kept struct {
	Port     int `json:"port"`
	Nodes    int `json:"kwokNodes,omitempty"`
	KwokPort int `json:"kwokPort,omitempty"`
}

// Start starts a cluster, and returns when all of its components work. The caller must call Wait or Stop. An error means
// that nothing runs.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{o: o, Kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	c.group = newGroup(ctx, c.path("logs"), cmp.Or(o.restartPause, defaultRestartPause), o.Progress)
	if err := c.startAll(c.group.ctx); err != nil {
		if cause := c.group.failure(); cause != nil {
			err = cause
		}
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Wait returns when the context of Start has ended, or when a component ends again and again. It stops the cluster.
func (c *Cluster) Wait() error {
	<-c.group.ctx.Done()
	return errors.Join(c.group.failure(), c.Stop())
}

// Stop ends all components: Tidemark last. It may be called more than once.
func (c *Cluster) Stop() error {
	if c.group != nil {
		c.group.stop(Tidemark)
	}
	if c.lock == nil {
		return nil
	}
	lock := c.lock
	c.lock = nil
	return lock.Close()
}

// PID returns the process ID of a component; zero: it does not run at the moment.
func (c *Cluster) PID(component string) int { return c.group.pid(component) }

// DataDir returns the data directory of the cluster in a directory. It returns the directory itself if it has no cluster.
func DataDir(dir string) (string, error) {
	switch _, err := os.Stat(filepath.Join(dir, "cluster.json")); {
	case errors.Is(err, fs.ErrNotExist):
		return dir, nil
	case err != nil:
		return "", err
	}
	return filepath.Join(dir, "data"), nil
}

// path returns the path of a file of the cluster.
func (c *Cluster) path(name string) string { return filepath.Join(c.o.Dir, name) }

// prepare finds the programs, and makes and locks the directory.
func (c *Cluster) prepare() error {
	if err := c.readKept(); err != nil {
		return err
	}
	var err error
	if c.paths, err = c.o.find(c.kept.Nodes > 0); err != nil {
		return err
	}
	for _, dir := range []string{c.o.Dir, c.path("logs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if c.lock, err = dirlock.Take(c.path(dirlock.File)); errors.Is(err, dirlock.ErrInUse) {
		return fmt.Errorf("%s: another tidemark cluster runs: %w", c.o.Dir, err)
	}
	return err
}

// readKept reads cluster.json. Options take precedence.
func (c *Cluster) readKept() error {
	c.kept.Port = DefaultPort
	text, err := os.ReadFile(c.path("cluster.json"))
	if err == nil {
		err = json.Unmarshal(text, &c.kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w; remove it, and name the port and the nodes again", c.path("cluster.json"), err)
	}
	if c.o.Port != nil {
		c.kept.Port = *c.o.Port
	}
	if c.o.Nodes != nil {
		c.kept.Nodes = *c.o.Nodes
	}
	return nil
}

// keep writes cluster.json.
func (c *Cluster) keep() error {
	text, err := json.Marshal(c.kept)
	if err != nil {
		return err
	}
	return atomicfile.Write(c.path("cluster.json"), append(text, '\n'), 0o600)
}

// startAll starts the components in their order.
func (c *Cluster) startAll(ctx context.Context) error {
	if err := c.startServer(ctx); err != nil {
		return err
	}
	if err := c.writeCredentials(time.Now()); err != nil {
		return err
	}
	if c.kept.Nodes > 0 && c.kept.KwokPort == 0 {
		var err error
		if c.kept.KwokPort, err = freePort(); err != nil {
			return err
		}
	}
	if err := c.keep(); err != nil {
		return err
	}
	if err := c.startLeaders(ctx); err != nil {
		return err
	}
	if c.kept.Nodes > 0 {
		return c.startNodes(ctx)
	}
	return nil
}

// startServer starts Tidemark, and waits until it is ready. It is started again with the same port.
func (c *Cluster) startServer(ctx context.Context) error {
	if err := c.makeKey(); err != nil {
		return err
	}
	began := time.Now()
	ready := make(chan readyLine, 1)
	c.group.add(&component{
		name: Tidemark, path: c.paths[Tidemark], once: true,
		args: func() []string { return c.serverArgs() },
		output: func(line []byte) {
			var r readyLine
			if json.Unmarshal(line, &r) == nil && r.URL != "" {
				select {
				case ready <- r:
				default: // a restart
				}
			}
		},
	})
	select {
	case r := <-ready:
		port, err := r.port()
		if err != nil {
			return err
		}
		c.URL, c.kept.Port = r.URL, port
		c.group.settled(Tidemark)
	case <-ctx.Done():
		return ctx.Err()
	}
	c.done(Tidemark, "serves %s (%.1f s)", c.URL, time.Since(began).Seconds())
	return nil
}

// startLeaders starts the components that work while they hold a Lease, and waits until they do. Leases of the last start
// are deleted first: their holders have ended, and a new one would wait until they expire.
func (c *Cluster) startLeaders(ctx context.Context) error {
	leaders := []string{ControllerManager, Scheduler}
	for _, name := range leaders {
		if err := c.api.deleteLease(ctx, name); err != nil {
			return err
		}
	}
	began := time.Now()
	c.group.add(&component{name: ControllerManager, path: c.paths[ControllerManager], args: c.controllerManagerArgs})
	c.group.add(&component{name: Scheduler, path: c.paths[Scheduler], args: c.schedulerArgs})
	for _, name := range leaders {
		if err := c.api.until(ctx, func() (bool, error) { return c.api.leads(ctx, name) }); err != nil {
			return err
		}
		c.group.settled(name)
		c.done(name, "leads (%.1f s)", time.Since(began).Seconds())
	}
	return nil
}

// startNodes starts kwok, creates the nodes that are missing, and waits until they are ready.
func (c *Cluster) startNodes(ctx context.Context) error {
	began := time.Now()
	for name, content := range map[string][]byte{"kwok.yaml": stages, "kwok-metrics.yaml": metrics} {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return err
		}
	}
	if err := c.api.allowKwok(ctx); err != nil {
		return err
	}
	if err := c.api.deleteNodeLeases(ctx); err != nil { // an instance of kwok leaves the nodes of another one alone
		return err
	}
	c.group.add(&component{name: Kwok, path: c.paths[Kwok], args: c.kwokArgs})
	if err := c.api.createNodes(ctx, c.kept.Nodes); err != nil {
		return err
	}
	if err := c.api.until(ctx, func() (bool, error) { return c.api.nodesReady(ctx, c.kept.Nodes) }); err != nil {
		return err
	}
	c.group.settled(Kwok)
	noun := "nodes are"
	if c.kept.Nodes == 1 {
		noun = "node is"
	}
	c.done(Kwok, "%d %s ready (%.1f s)", c.kept.Nodes, noun, time.Since(began).Seconds())
	return nil
}

// done prints the line of a component.
func (c *Cluster) done(name, format string, args ...any) {
	c.group.progress.Done("%-24s %s", name, fmt.Sprintf(format, args...))
}

// CheckFlag splits a value of the form COMPONENT:--FLAG.
func CheckFlag(text string) (component, flag string, err error) {
	component, flag, _ = strings.Cut(text, ":")
	if !slices.Contains(Components, component) || !strings.HasPrefix(flag, "-") {
		return "", "", fmt.Errorf("%q: want COMPONENT:--FLAG=VALUE, such as %s:--v=4; the components are %s", text, Scheduler, strings.Join(Components, ", "))
	}
	return component, flag, nil
}
