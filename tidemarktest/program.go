package tidemarktest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	module     = "github.com/tidemark-dev/tidemark"
	testModule = module + "/tidemarktest"
	command    = module + "/cmd/tidemark"
)

// Program returns the path of the server's program that tests of this process use, and builds it if there is none. Tests find
// it by themselves; package prebuild calls it before them, because a first build takes minutes.
func Program() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	return findProgram(cache)
}

// findProgram returns the path of the server's program, and builds it if there is none.
func findProgram(cache string) (string, error) {
	if path := os.Getenv("TIDEMARK_BINARY"); path != "" {
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			return "", fmt.Errorf("TIDEMARK_BINARY: %s is a directory: want the program tidemark", path)
		case err != nil && !filepath.IsAbs(path):
			return "", fmt.Errorf("TIDEMARK_BINARY: %w: go test runs in the directory of the package, so use an absolute path", err)
		case err != nil:
			return "", fmt.Errorf("TIDEMARK_BINARY: %w", err)
		}
		return filepath.Abs(path)
	}
	used, err := usedModule()
	if err != nil {
		return "", fmt.Errorf("the API server's program cannot be found or built: %w. Set TIDEMARK_BINARY to a program tidemark that was built before", err)
	}
	source := filepath.Dir(used.Dir)
	if _, err := os.Stat(filepath.Join(source, "cmd", "tidemark", "main.go")); err == nil && used.Dir != "" {
		return buildSource(cache, source)
	}
	if out, err := exec.Command("go", "tool", "-n", "tidemark").Output(); err == nil {
		return strings.TrimSpace(string(out)), nil
	}
	return install(cache, versionOf(used.Version))
}

// moduleInfo is the part of `go list -m -json` that matters here.
type moduleInfo struct {
	Version, Dir string
	Replace      *moduleInfo
}

// usedModule returns this module as the module of the test uses it.
func usedModule() (moduleInfo, error) {
	var stderr bytes.Buffer
	list := exec.Command("go", "list", "-m", "-json", testModule)
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return moduleInfo{}, errors.New("there is no command go in PATH")
		}
		return moduleInfo{}, fmt.Errorf("go list -m %s: %w: %s", testModule, err, bytes.TrimSpace(stderr.Bytes()))
	}
	var m moduleInfo
	if err := json.Unmarshal(out, &m); err != nil {
		return m, err
	}
	if m.Replace != nil {
		m = *m.Replace
	}
	return m, nil
}

// versionOf returns the version of the server that belongs to a version of this module. Both are
// tagged together; between tags, both are the same commit.
func versionOf(version string) string {
	parts := strings.Split(version, "-")
	if last := parts[len(parts)-1]; len(parts) >= 3 && len(last) == 12 {
		return last
	}
	return version
}

// buildSource builds the program of a source tree that is being worked on, unless nothing has changed. What GOFLAGS says about the modules of the test, such as -mod=vendor, does not
// count here.
func buildSource(cache, source string) (string, error) {
	sum := sha256.Sum256([]byte(source))
	dir := filepath.Join(cache, "bin", "source-"+hex.EncodeToString(sum[:8]))
	state, err := sourceState(source)
	if err != nil {
		return "", err
	}
	program, mark := filepath.Join(dir, executable("tidemark")), filepath.Join(dir, "state")
	if built, err := os.ReadFile(mark); err == nil && string(built) == state {
		if _, err := os.Stat(program); err == nil {
			return program, nil
		}
	}
	if program, err = build(dir, "its source in "+source, func(ctx context.Context, path string) *exec.Cmd {
		c := exec.CommandContext(ctx, "go", "build", "-v", "-mod=readonly", "-modfile=", "-o", path, "./cmd/tidemark")
		c.Dir, c.Env = source, append(os.Environ(), "GOWORK=off")
		return c
	}, true); err != nil {
		return "", err
	}
	return program, writeAtomically(mark, []byte(state))
}

// sourceState returns the input of a build of a source tree: the sizes and times of its files, and
// the Go command. The Go command finds that nothing has changed, too, but needs a second for it.
func sourceState(source string) (string, error) {
	sum := sha256.New()
	add := func(path string, info fs.FileInfo) {
		fmt.Fprintln(sum, path, info.Size(), info.Mode(), info.ModTime().UnixNano())
	}
	if path, err := exec.LookPath("go"); err == nil {
		if info, err := os.Stat(path); err == nil {
			add(path, info)
		}
	}
	for _, name := range []string{"GOFLAGS", "GOTOOLCHAIN", "GOEXPERIMENT", "CGO_ENABLED", "GOAMD64", "GOARM64"} {
		fmt.Fprintln(sum, name, os.Getenv(name))
	}
	err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() {
			if path != source && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		} else if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".md") {
			return nil
		}
		info, err := entry.Info()
		if err == nil {
			add(path, info)
		}
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// install builds the program of a version.
func install(cache, version string) (string, error) {
	if version == "" {
		return "", fmt.Errorf("the version of %s is unknown; build the server and set TIDEMARK_BINARY", testModule)
	}
	dir := filepath.Join(cache, "bin", fmt.Sprintf("%s-%s-%s", version, runtime.GOOS, runtime.GOARCH))
	return build(dir, version, func(ctx context.Context, path string) *exec.Cmd {
		c := exec.CommandContext(ctx, "go", "install", "-v", command+"@"+version)
		c.Dir = cache // in no module
		c.Env = append(os.Environ(), "GOBIN="+filepath.Dir(path), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
		return c
	}, false)
}

// build builds the program in a directory with a command that writes it to a path. Of the processes
// that want it, one builds, and the others wait. What was built is built again only if always is set.
func build(dir, what string, commandFor func(ctx context.Context, path string) *exec.Cmd, always bool) (string, error) {
	program := filepath.Join(dir, executable("tidemark"))
	exists := func() bool {
		_, err := os.Stat(program)
		return err == nil
	}
	if exists() && !always {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists() && !always {
		return program, nil
	}
	path := program
	if !always { // so that no half of a program is found
		fresh, err := os.MkdirTemp(dir, "new-*")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(fresh)
		path = filepath.Join(fresh, executable("tidemark"))
	}
	if err := runBuild(func(ctx context.Context) *exec.Cmd { return commandFor(ctx, path) }, what, !exists()); err != nil {
		return "", err
	}
	if path != program {
		err = os.Rename(path, program)
	}
	return program, err
}

const (
	// buildProgress is how often a build reports that it goes on.
	buildProgress = 10 * time.Second
	// buildMargin is how long before go test's time limit a build ends, so that it says why.
	buildMargin = 5 * time.Second
)

// started is when this process began, about.
var started = time.Now()

// errSlowBuild is the cause of the end of a build that takes longer than the tests may.
var errSlowBuild = errors.New("it has not ended within the -timeout of go test: before the tests, run `go run " + testModule + "/prebuild`, which shows its progress")

// testLimit returns when go test ends this process, if it does.
func testLimit() (end time.Time, ok bool) {
	f := flag.Lookup("test.timeout")
	if f == nil {
		return end, false
	}
	limit, err := time.ParseDuration(f.Value.String())
	return started.Add(limit), err == nil && limit > 0
}

// runBuild runs a command of the Go command with -v, which prints the packages that it compiles. It reports on the standard
// error that it takes its time, if it may. The command ends before this process must.
func runBuild(commandFor func(ctx context.Context) *exec.Cmd, what string, report bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if end, ok := testLimit(); ok {
		ctx, cancel = context.WithDeadlineCause(ctx, end.Add(-buildMargin), errSlowBuild)
		defer cancel()
	}
	begin := time.Now()
	c := commandFor(ctx)
	out := &buildOutput{}
	c.Stdout, c.Stderr = out, out
	if report {
		fmt.Fprintf(os.Stderr, "tidemarktest: building the API server of %s; this happens once and takes some minutes if nothing of it is in Go's build cache\n", what)
		out.progress = func(packages int) {
			fmt.Fprintf(os.Stderr, "tidemarktest: %d packages compiled after %v\n", packages, time.Since(begin).Round(time.Second))
		}
		out.next = begin.Add(buildProgress)
	}
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("building the server of %s: %w", what, context.Cause(ctx))
		}
		return fmt.Errorf("building the server of %s: %w\n%s\nWithout a network, set TIDEMARK_BINARY to a program tidemark that was built before", what, err, lastLines(out.text.String(), 10))
	}
	if report {
		fmt.Fprintf(os.Stderr, "tidemarktest: built in %v\n", time.Since(begin).Round(100*time.Millisecond))
	}
	return nil
}

// buildOutput is the output of a build. It reports from time to time how many packages were compiled.
type buildOutput struct {
	text     bytes.Buffer
	progress func(packages int) // nil: it does not
	next     time.Time
}

func (o *buildOutput) Write(p []byte) (int, error) {
	o.text.Write(p)
	if now := time.Now(); o.progress != nil && now.After(o.next) {
		o.progress(bytes.Count(o.text.Bytes(), []byte("\n")))
		o.next = now.Add(buildProgress)
	}
	return len(p), nil
}

// lastLines returns the last lines of a text, with a line for those before.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if skipped := len(lines) - n; skipped > 1 {
		lines = append([]string{fmt.Sprintf("... %d lines before", skipped)}, lines[skipped:]...)
	}
	return strings.Join(lines, "\n")
}

func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}
