package tidemarktest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// childVariable marks the processes of TestOneServer.
const childVariable = "TIDEMARK_TEST_CHILD"

// TestOneServer: processes that start at once, as those of `go test ./...` do, share one server.
func TestOneServer(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		at, err := url.Parse(Start(t).URL())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("server", at.Host)
		io.Copy(io.Discard, os.Stdin) // until the parent closes it
		return
	}
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	program, err := findProgram(cache)
	if err != nil {
		t.Fatal(err)
	}
	// There is no server yet for another cache directory.
	fresh := t.TempDir()
	environment := append(os.Environ(), childVariable+"=1", "TIDEMARK_BINARY="+program, "XDG_CACHE_HOME="+fresh, "HOME="+fresh, "LocalAppData="+fresh)
	var servers [10]string
	var failures [len(servers)]error
	var ready, done sync.WaitGroup
	ready.Add(len(servers))
	for i := range servers {
		done.Add(1)
		go func() {
			defer done.Done()
			servers[i], failures[i] = child(environment, &ready)
		}()
	}
	done.Wait()
	for i, server := range servers {
		if failures[i] != nil || server != servers[0] {
			t.Errorf("process %d has the server %q, process 0 %q: %v", i, server, servers[0], failures[i])
		}
	}
}

// child runs a process of TestOneServer until all of them are ready, and returns the address of its server.
func child(environment []string, ready *sync.WaitGroup) (server string, err error) {
	c := exec.Command(os.Args[0], "-test.run=^TestOneServer$")
	c.Env = environment
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	if err := errors.Join(err1, err2, c.Start()); err != nil {
		ready.Done()
		return "", err
	}
	var printed strings.Builder
	lines := bufio.NewScanner(out)
	for server == "" && lines.Scan() {
		fmt.Fprintln(&printed, lines.Text())
		server, _ = strings.CutPrefix(lines.Text(), "server ")
		if server == lines.Text() {
			server = ""
		}
	}
	ready.Done()
	ready.Wait()
	in.Close()
	for lines.Scan() {
		fmt.Fprintln(&printed, lines.Text())
	}
	if err := c.Wait(); err != nil {
		return server, fmt.Errorf("%w\n%s", err, &printed)
	}
	return server, nil
}

// TestBuildOnce: of several that want a program, one builds it.
func TestBuildOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	var builds atomic.Int32
	var done sync.WaitGroup
	for range 10 {
		done.Add(1)
		go func() {
			defer done.Done()
			_, err := build(dir, "a test", func(path string) *exec.Cmd {
				builds.Add(1)
				if err := os.WriteFile(path, []byte("program"), 0o700); err != nil {
					t.Error(err)
				}
				return exec.Command("go", "version")
			}, false)
			if err != nil {
				t.Error(err)
			}
		}()
	}
	done.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

// TestIdentity: a program that the Go command touches, because it is up to date, is still the same one.
func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	identity := func(content string, changed time.Time) string {
		t.Helper()
		id, err := "", os.WriteFile(path, []byte(content), 0o700)
		if err == nil {
			err = os.Chtimes(path, changed, changed)
		}
		if err == nil {
			id, err = identify(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	now := time.Now()
	if before, after := identity("one", now), identity("one", now.Add(time.Hour)); before != after {
		t.Errorf("touched, the program has the identity %s instead of %s", after, before)
	}
	if one, two := identity("one", now), identity("two", now); one == two {
		t.Error("two programs have the same identity")
	}
}
