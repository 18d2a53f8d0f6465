package tidemarktest

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// startTimeout limits the start of the server.
	startTimeout = time.Minute
	// exitIdle is how long the server waits for another test process after the last one.
	exitIdle = 10 * time.Second
)

// openShared takes a lease of the server of this user and this program, and starts it if there is
// none.
func openShared() (*session, error) {
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	program, err := findProgram(cache)
	if err != nil {
		return nil, err
	}
	identity, err := identify(program)
	if err != nil {
		return nil, err
	}
	place := filepath.Join(cache, "run", identity)
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(place + ".lock") // so that one process starts it
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if socket, err := os.ReadFile(place); err == nil {
		if s, err := attach(ctx, string(socket)); err == nil {
			s.program = program
			return s, nil
		} // it has ended, or is ending
	}
	socket, err := launch(ctx, program, place+".log")
	if err != nil {
		return nil, err
	}
	s, err := attach(ctx, socket)
	if err != nil {
		return nil, err
	}
	s.program = program
	return s, writeAtomically(place, []byte(socket))
}

// cacheDir returns the directory of this package in the user's cache. Only the user can read it.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no place for the server: %w; set XDG_CACHE_HOME or HOME", err)
	}
	dir := filepath.Join(base, "tidemark")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("there is no place for the server: %w; set XDG_CACHE_HOME or HOME to a directory that can be written", err)
	}
	return dir, nil
}

// identify returns a name for a program by its content: another one never shares its server. The time
// of its last change says less: the Go command sets it even if the program is up to date.
func identify(program string) (string, error) {
	file, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// origin returns the name of a program for messages, with the variable that it is from.
func origin(program string) string {
	if os.Getenv("TIDEMARK_BINARY") != "" {
		return "TIDEMARK_BINARY=" + program
	}
	return program
}

// launch starts a server that outlives this process, and returns its control socket when it is ready.
func launch(ctx context.Context, program, logFile string) (string, error) {
	var random [8]byte
	rand.Read(random[:])
	// Paths of sockets have at most about 100 bytes, so it cannot be in the cache.
	socket := filepath.Join(os.TempDir(), "tidemark-"+hex.EncodeToString(random[:]), "control.sock")
	cmd := exec.Command(program, "serve", "--in-memory", "--port=0", "--ready-fd=1", "--control="+socket, "--exit-idle="+exitIdle.String())
	cmd.Dir = filepath.Dir(logFile)
	cmd.Env = serverEnvironment(os.Environ())
	cmd.SysProcAttr = detached()
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer log.Close()
	// Not the test's own files: go test waits until those are closed.
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("the server does not start: %w; is %s the program tidemark?", err, origin(program))
	}
	defer stdout.Close()
	defer context.AfterFunc(ctx, func() {
		cmd.Process.Kill()
		stdout.Close() // a child of the program may keep the other end open
	})()
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	var ready struct{ Control string }
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		text, _ := os.ReadFile(logFile)
		return "", fmt.Errorf("the server does not start: %s serve: %s", origin(program), reason(text, ctx.Err()))
	}
	go cmd.Wait() // releases what belongs to it, if it ends first
	return ready.Control, nil
}

// reason says why a server did not start.
func reason(log []byte, err error) string {
	if err != nil {
		return fmt.Sprintf("it is not ready after %v\n%s", startTimeout, log)
	}
	if text := strings.TrimSpace(string(log)); text != "" {
		return text
	}
	return "it ended without a message; is it the program tidemark?"
}

// serverEnvironment leaves out the variables that set flags of the server.
func serverEnvironment(all []string) []string {
	var kept []string
	for _, v := range all {
		if !strings.HasPrefix(v, "TIDEMARK_") || strings.HasPrefix(v, "TIDEMARK_TEST_") {
			kept = append(kept, v)
		}
	}
	return kept
}

// writeAtomically replaces a file.
func writeAtomically(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}
