//go:build unix

package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/cluster"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/internal/await"
)

// stage is a directory with the programs of fakes, and their state.
type stage struct {
	*testing.T
	bin, state string
	out        bytes.Buffer
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{T: t, bin: t.TempDir(), state: t.TempDir()}
	self, err := os.Executable()
	s.must(err)
	for _, name := range append([]string{parent}, cluster.Components...) {
		s.must(os.Symlink(self, filepath.Join(s.bin, name)))
	}
	s.must(os.WriteFile(filepath.Join(s.state, "diary"), nil, 0o600))
	t.Setenv(stateVariable, s.state)
	t.Setenv("PATH", "") // no program is found by chance
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// options are those of a cluster with two nodes on a free port.
func (s *stage) options(dir string) cluster.Options {
	port, nodes := 0, 2
	return cluster.WithPause(cluster.Options{
		Dir: dir, Program: filepath.Join(s.bin, cluster.Tidemark), BinDir: s.bin, Port: &port, Nodes: &nodes,
		Progress: progress.Progress{W: &s.out},
	}, time.Millisecond)
}

// diary returns the lines of the fakes, without process IDs.
func (s *stage) diary() (all []string) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.state, "diary"))
	s.must(err)
	for line := range strings.Lines(string(text)) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		what, _, _ = strings.Cut(what, " ")
		all = append(all, name+" "+what)
	}
	return all
}

// crash lets a component end at its next n starts.
func (s *stage) crash(name string, n string) {
	s.Helper()
	s.must(os.WriteFile(filepath.Join(s.state, "crashes-"+name), []byte(n), 0o600))
}

// TestStartAndStop: each component starts with its own user when the server is ready. The server ends last. A second start
// goes on with the same port and nodes, and does not wait for Leases of the first.
func TestStartAndStop(t *testing.T) {
	s := newStage(t)
	dir := filepath.Join(t.TempDir(), "cluster")
	ctx, cancel := context.WithCancel(t.Context())
	c, err := cluster.Start(ctx, s.options(dir))
	s.must(err)
	url := c.URL
	cancel()
	s.must(c.Wait())

	diary := s.diary()
	if len(diary) != 8 || diary[0] != "tidemark started" || diary[7] != "tidemark ended" {
		t.Errorf("the server does not start first and end last:\n%s", strings.Join(diary, "\n"))
	}
	for _, name := range cluster.Components {
		if !strings.Contains(s.out.String(), name) {
			t.Errorf("no line for %s:\n%s", name, s.out.String())
		}
	}
	for _, file := range []string{"sa.key", "controller-manager.conf", "scheduler.conf", "kwok.conf", "cluster.json", "logs/kwok.log"} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}

	o := s.options(dir)
	o.Port, o.Nodes = nil, nil
	c, err = cluster.Start(t.Context(), o)
	s.must(err)
	if c.URL != url {
		t.Errorf("the second start serves %s, the first %s", c.URL, url)
	}
	if _, err := cluster.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "another tidemark cluster runs") {
		t.Errorf("a second cluster in the directory: %v", err)
	}
	s.must(c.Stop())
	if diary := s.diary()[8:]; !slices.Contains(diary, "kwok started") || diary[7] != "tidemark ended" {
		t.Errorf("the second start:\n%s", strings.Join(diary, "\n"))
	}
}

// TestKwokConfigs: kwok serves metrics at the path that each node names to metrics-server, and a usage of resources in a
// file of the user comes before that of the cluster.
func TestKwokConfigs(t *testing.T) {
	s := newStage(t)
	dir, mine := t.TempDir(), filepath.Join(t.TempDir(), "mine.yaml")
	o := s.options(dir)
	o.KwokConfigs = []string{mine}
	// A node of a version that had no metrics.
	s.must(os.WriteFile(filepath.Join(s.state, "nodes"), []byte(`[{"metadata":{"name":"node-0","annotations":{"kwok.x-k8s.io/node":"fake"}}}]`), 0o600))
	c, err := cluster.Start(t.Context(), o)
	s.must(err)
	s.must(c.Stop())

	args, err := os.ReadFile(filepath.Join(s.state, "args-"+cluster.Kwok))
	s.must(err)
	var files []string
	for line := range strings.SplitSeq(string(args), "\n") {
		if file, ok := strings.CutPrefix(line, "--config="); ok {
			files = append(files, file)
		}
	}
	metrics := filepath.Join(dir, "kwok-metrics.yaml")
	if want := []string{filepath.Join(dir, "kwok.yaml"), mine, metrics}; !slices.Equal(files, want) {
		t.Errorf("the files of kwok are %v, want %v", files, want)
	}
	text, err := os.ReadFile(metrics)
	s.must(err)
	var metric struct{ Spec struct{ Path string } }
	s.must(yaml.Unmarshal([]byte(strings.Split(string(text), "\n---\n")[0]), &metric))
	if metric.Spec.Path == "" {
		t.Errorf("the file has no path first:\n%s", text)
	}

	text, err = os.ReadFile(filepath.Join(s.state, "nodes"))
	s.must(err)
	var nodes []struct {
		Metadata struct {
			Name        string
			Annotations map[string]string
		}
	}
	s.must(json.Unmarshal(text, &nodes))
	for _, n := range nodes {
		want := strings.ReplaceAll(metric.Spec.Path, "{nodeName}", n.Metadata.Name)
		if got := n.Metadata.Annotations["metrics.k8s.io/resource-metrics-path"]; got != want {
			t.Errorf("metrics of %s are at %q, want %q", n.Metadata.Name, got, want)
		}
	}
	if len(nodes) != 2 {
		t.Errorf("%d nodes, want 2", len(nodes))
	}
}

// TestMissing: the error names all programs that are missing, and where they are published.
func TestMissing(t *testing.T) {
	s := newStage(t)
	s.must(os.Remove(filepath.Join(s.bin, cluster.Scheduler)))
	s.must(os.Remove(filepath.Join(s.bin, cluster.Kwok)))
	dir := filepath.Join(t.TempDir(), "cluster")
	_, err := cluster.Start(t.Context(), s.options(dir))
	if err == nil {
		t.Fatal("a cluster without its programs starts")
	}
	for _, want := range []string{"kube-scheduler is not in " + s.bin + " or PATH", "kwok is not in", "sigs.k8s.io/kwok/cmd/kwok@"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in the error: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), cluster.ControllerManager) {
		t.Errorf("the program exists: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
	if diary := s.diary(); len(diary) > 0 {
		t.Errorf("a component was started: %s", diary)
	}
}

// TestRestart: a component that ends starts again, and one that always does ends the cluster with the end of its log. A
// server that cannot start is not tried again.
func TestRestart(t *testing.T) {
	s := newStage(t)
	s.crash(cluster.Scheduler, "2")
	c, err := cluster.Start(t.Context(), s.options(t.TempDir()))
	s.must(err)
	s.must(c.Stop())
	if n := strings.Count(s.out.String(), "starts again"); n != 2 {
		t.Errorf("%d restarts:\n%s", n, s.out.String())
	}

	for _, test := range []struct{ name, want string }{
		{cluster.ControllerManager, "kube-controller-manager ended 5 times in a row: exit status 1"},
		{cluster.Tidemark, "tidemark ended at its start: exit status 1"},
	} {
		s.crash(test.name, "1000")
		before := len(s.diary())
		_, err := cluster.Start(t.Context(), s.options(t.TempDir()))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.name+" has nothing to do") {
			t.Errorf("the error: %v", err)
		}
		if diary := s.diary()[before:]; strings.Count(strings.Join(diary, "\n"), "started") != strings.Count(strings.Join(diary, "\n"), "ended") {
			t.Errorf("a component is left:\n%s", strings.Join(diary, "\n"))
		}
		s.crash(test.name, "0")
	}
}

// TestServerRestart: a server that is killed starts again at the same address.
func TestServerRestart(t *testing.T) {
	s := newStage(t)
	c, err := cluster.Start(t.Context(), s.options(t.TempDir()))
	s.must(err)
	defer c.Stop()
	kill(t, c.PID(cluster.Tidemark))
	await.True(t, "the server starts again", func() bool {
		return strings.Count(strings.Join(s.diary(), "\n"), "tidemark started") == 2
	})
}

// kill kills a process.
func kill(t *testing.T, pid int) {
	t.Helper()
	if pid == 0 {
		t.Fatal("the process has ended")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestCheckFlag: a flag of a component has its name in front.
func TestCheckFlag(t *testing.T) {
	component, flag, err := cluster.CheckFlag("kube-scheduler:--v=4")
	if component != cluster.Scheduler || flag != "--v=4" || err != nil {
		t.Errorf("%q, %q, %v", component, flag, err)
	}
	for _, text := range []string{"", "--v=4", "kube-proxy:--v=4", "kwok:v=4", "kwok"} {
		if _, _, err := cluster.CheckFlag(text); err == nil {
			t.Errorf("%q is a flag of a component", text)
		}
	}
}
