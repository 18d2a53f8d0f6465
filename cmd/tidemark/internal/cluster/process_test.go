//go:build unix

package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/cluster"
)

// parent is the name of this binary when it runs a cluster in a process of its own: parent DIR.
const parent = "cluster-parent"

func runParent() int {
	port, nodes := 0, 1
	bin := filepath.Dir(os.Args[0])
	c, err := cluster.Start(context.Background(), cluster.Options{Dir: os.Args[1], Program: filepath.Join(bin, cluster.Tidemark), BinDir: bin, Port: &port, Nodes: &nodes})
	if err == nil {
		err = c.Wait()
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// TestKilledParent: on Linux, no component is left when the process of the cluster is killed. The diary is a pipe, which
// ends with the last of its writers.
func TestKilledParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a process with its parent")
	}
	s := newStage(t)
	path := filepath.Join(s.state, "diary")
	s.must(os.Remove(path))
	s.must(syscall.Mkfifo(path, 0o600))
	cmd := exec.Command(filepath.Join(s.bin, parent), t.TempDir())
	cmd.Stderr = os.Stderr
	s.must(cmd.Start())
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		if unblock, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil { // the test waits for a writer
			unblock.Close()
		}
	}()
	defer cmd.Process.Kill()
	diary, err := os.Open(path)
	s.must(err)
	defer diary.Close()
	lines := bufio.NewScanner(diary)
	for range cluster.Components {
		if !lines.Scan() || !strings.Contains(lines.Text(), " started ") {
			t.Fatalf("not all components start: %q, %v", lines.Text(), lines.Err())
		}
	}
	s.must(cmd.Process.Kill())
	<-ended
	if rest, err := io.ReadAll(diary); err != nil || len(rest) > 0 {
		t.Errorf("a component goes on: %q, %v", rest, err)
	}
}
