package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// startTimeout bounds the time to ready.
	startTimeout = 2 * time.Minute
	// stopTimeout bounds the time from SIGTERM to the end.
	stopTimeout = time.Minute
	// pollPause keeps the polling from taking a core from the server that starts.
	pollPause = 200 * time.Microsecond
	// memoryAfterReady is when the memory of a started server is looked at.
	memoryAfterReady = time.Second
)

// startRound starts the server once, polls it until it is ready, and stops it. CPU and
// memory cover all processes that the command started.
func startRound(ctx context.Context, b *bed) ([]row, error) {
	s := b.server
	switch {
	case s.StartCommand == "":
		return nil, &skipError{"no --start-command is given"}
	case runtime.GOOS == "windows":
		return nil, &skipError{"there is no SIGTERM on Windows"}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	said, err := os.CreateTemp("", "tidemark-bench-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(said.Name())
	defer said.Close()

	cmd := exec.Command("/bin/sh", "-c", s.StartCommand)
	cmd.Stdout, cmd.Stderr = said, said
	ownGroup(cmd)
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	polls, err := awaitReady(ctx, s, exited)
	if err != nil {
		signalGroup(cmd, syscall.SIGKILL) // it may not have come to where it listens to signals
		text, _ := os.ReadFile(said.Name())
		return nil, fmt.Errorf("%w; its last words: %s", err, text[max(0, len(text)-500):])
	}
	var h histogram
	h.record(time.Since(begin))
	f := Measurements{Ops: 1, Latency: h.latency(), Extra: map[string]float64{"polls": float64(polls)}}
	if cpu, err := readUsage(group(cmd)); err == nil && len(cpu.processes) > 0 {
		used := cpu.since(usage{processes: make([]processUsage, len(cpu.processes))})
		f.ServerCPU = &used
	}
	sleepUntil(ctx, time.Now().Add(min(memoryAfterReady, b.options.Duration)))
	f.Memory, _ = readMemory(group(cmd)) // none, when one of them has just ended
	if err := stopGroup(cmd, exited); err != nil {
		return nil, err
	}
	return []row{{loop: "one start at a time", Measurements: f}}, nil
}

// awaitReady asks /readyz until it is 200. A server may write the kubeconfig while it
// starts, so that the file is read again after each failure.
func awaitReady(ctx context.Context, s Server, exited <-chan error) (polls int, err error) {
	var c *client
	var t *target
	var read time.Time // of the kubeconfig
	for {
		select {
		case <-exited:
			return polls, errors.New("the command ended before the server was ready")
		case <-ctx.Done():
			return polls, fmt.Errorf("the server was not ready after %d polls: %w", polls, err)
		default:
		}
		info, statErr := os.Stat(s.Kubeconfig)
		if statErr != nil || info.Size() == 0 {
			err = fmt.Errorf("the kubeconfig: %w", statErr)
			time.Sleep(pollPause)
			continue
		}
		if c == nil || !info.ModTime().Equal(read) {
			var fresh *conn
			if t, err = loadTarget(s); err == nil {
				fresh, err = t.dial(nil)
			}
			if err != nil {
				time.Sleep(pollPause)
				continue
			}
			if c != nil {
				c.conn.close()
			}
			c, read = newClient(fresh, 0, t.header(acceptJSON, "identity")), info.ModTime()
		}
		polls++
		if _, err = c.small(ctx, http.MethodGet, t.url("/readyz", ""), nil); err == nil {
			c.conn.close()
			return polls, nil
		}
		time.Sleep(pollPause)
	}
}

// stopGroup ends the processes of a command by SIGTERM.
func stopGroup(cmd *exec.Cmd, exited <-chan error) error {
	signalGroup(cmd, syscall.SIGTERM)
	deadline := time.Now().Add(stopTimeout)
	select {
	case <-exited: // with which code says nothing of the start
	case <-time.After(stopTimeout):
	}
	for groupLives(cmd) { // others may take longer than the shell
		if time.Now().After(deadline) {
			signalGroup(cmd, syscall.SIGKILL)
			return fmt.Errorf("the command did not end within %v of SIGTERM, and was killed", stopTimeout)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
