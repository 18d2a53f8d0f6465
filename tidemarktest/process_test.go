package tidemarktest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/tidemarktest/internal/tier"
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

// failed is a test that has failed. It keeps its log lines.
type failed struct {
	TB
	log      strings.Builder
	cleanups []func()
}

func (f *failed) Failed() bool                   { return true }
func (f *failed) Cleanup(c func())               { f.cleanups = append(f.cleanups, c) }
func (f *failed) Logf(format string, a ...any)   { fmt.Fprintf(&f.log, format+"\n", a...) }
func (f *failed) Errorf(format string, a ...any) { f.Logf(format, a...) }

// TestDumpOpens: the commands that a failed test prints open its states.
func TestDumpOpens(t *testing.T) {
	t.Setenv("TIDEMARK_DUMP", t.TempDir())
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	program, err := findProgram(cache)
	if err != nil {
		t.Fatal(err)
	}
	w := World{CRDDirectoryPaths: []string{"testdata/crd"}}
	f := &failed{TB: t}
	w.Fork(f) // another one must not be in the way
	env := w.Fork(f)
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: seen}, data: {step: '1'}}", "{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}, spec: {size: 1}}")
	env.Changes(f).Of("configmaps", "default/seen").Never(Match{Verb: "apply"})
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: seen}, data: {step: '2'}}", "{apiVersion: example.com/v1, kind: Widget, metadata: {name: one}, spec: {size: 2}}")
	for _, c := range f.cleanups {
		c()
	}
	commands := regexp.MustCompile(`(?m)to open (?:it|the state): (\S+) serve (\S+) --at (\d+) --secure-port=0$`).FindAllStringSubmatch(f.log.String(), -1)
	if len(commands) != 3 {
		t.Fatalf("%d commands in:\n%s", len(commands), &f.log)
	}
	for i, want := range map[int][]string{0: {`"step":"1"`}, 2: {`"step":"2"`, `"size":2`}} {
		program, dir, at := commands[i][1], commands[i][2], commands[i][3]
		text := opened(t, program, dir, at, "/api/v1/configmaps", "/apis/example.com/v1/widgets")
		for _, part := range append(want, `"resourceVersion":"`+at+`"`) {
			if !strings.Contains(text, part) {
				t.Errorf("tidemark serve %s --at %s lacks %s:\n%s", dir, at, part, text)
			}
		}
	}
	c := exec.Command(program, "serve", commands[2][2], "--at", "1", "--port=0")
	if text, err := c.CombinedOutput(); err == nil || !strings.Contains(string(text), "the state at resource version 1 is not in "+commands[2][2]+", which has those from ") {
		t.Errorf("a state that the dump does not have: %v %s", err, text)
	}
}

// TestOtherProgram: the error says that a program is not that of the server.
func TestOtherProgram(t *testing.T) {
	other, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{other, text} {
		if _, err := launch(t.Context(), program, filepath.Join(t.TempDir(), "log")); err == nil || !strings.Contains(err.Error(), program) || !strings.HasSuffix(err.Error(), "the program tidemark?") {
			t.Errorf("%s: %v", program, err)
		}
	}
}

// TestHangingProgram: a program that says nothing, and whose child keeps its output open, does not hang the test.
func TestHangingProgram(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no shell")
	}
	dir := t.TempDir()
	script, begun := filepath.Join(dir, "script"), filepath.Join(dir, "begun")
	if out, err := exec.Command("mkfifo", begun).CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\nsleep 1000 &\necho $! >'"+begun+"'\nwait\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		text, err := os.ReadFile(begun) // the child runs when the script opens it
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if child, found := os.FindProcess(pid); err != nil || found != nil || pid == 0 {
			t.Errorf("no child: %q, %v", text, err)
		} else {
			t.Cleanup(func() { child.Kill() })
		}
	}()
	if _, err := launch(ctx, script, filepath.Join(t.TempDir(), "log")); err == nil || !strings.Contains(err.Error(), "it is not ready") {
		t.Errorf("got %v", err)
	}
}

// opened runs `tidemark serve DIR --at R`, and returns its responses to reads.
func opened(t *testing.T, program, dir, at string, paths ...string) string {
	t.Helper()
	c := exec.Command(program, "serve", dir, "--at", at, "--port=0", "--ready-fd=1")
	var problems strings.Builder
	c.Stderr = &problems
	out, err := c.StdoutPipe()
	if err := errors.Join(err, c.Start()); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	var ready struct{ URL, Kubeconfig string }
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		c.Wait()
		t.Fatalf("tidemark serve %s --at %s: %v\n%s", dir, at, err, &problems)
	}
	kubeconfig, err := os.ReadFile(ready.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`token: "?([^"\s]+)`).FindSubmatch(kubeconfig)
	if token == nil {
		t.Fatalf("there is no token in the kubeconfig")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // of this test's own process
	defer transport.CloseIdleConnections()
	var all strings.Builder
	for _, path := range paths {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ready.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+string(token[1]))
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(&all, response.Body)
		response.Body.Close()
	}
	return all.String()
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
			_, err := build(dir, "a test", func(_ context.Context, path string) *exec.Cmd {
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

// TestBuildEnds: a build ends before go test ends the process, and says what to do.
func TestBuildEnds(t *testing.T) {
	if _, ok := testLimit(); !ok {
		t.Skip("without a -timeout there is no limit")
	}
	before := started
	started = time.Time{} // so the limit has passed
	defer func() { started = before }()
	_, err := build(filepath.Join(t.TempDir(), "bin"), "a test", func(ctx context.Context, path string) *exec.Cmd {
		return exec.CommandContext(ctx, "sleep", "600")
	}, false)
	if !errors.Is(err, errSlowBuild) {
		t.Errorf("the error is %v", err)
	}
}

// TestBuildSource: a source tree is built with its own modules, whatever GOFLAGS and GOWORK select for the
// tests that use it.
func TestBuildSource(t *testing.T) {
	tier.Full(t)
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	used, err := usedModule()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -mod=vendor -modfile=none.mod")
	t.Setenv("GOWORK", filepath.Join(t.TempDir(), "none.work"))
	if _, err := buildSource(cache, filepath.Dir(used.Dir)); err != nil {
		t.Error(err)
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

// TestCacheDir: a cache that cannot be written is an error that names the variable to set.
func TestCacheDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} { // one of them, by the operating system
		t.Setenv(name, file)
	}
	if _, err := cacheDir(); err == nil || !strings.Contains(err.Error(), "set XDG_CACHE_HOME or HOME") {
		t.Errorf("the error is %v", err)
	}
}
