package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// The flood is a number of clients that list as fast as they can. It runs in a process of its own: in
// the process of the clients whose latency is measured, they would wait for its goroutines. The process
// has a low priority, as if it ran on another machine.

// floodNice is the niceness of the process of the flood.
const floodNice = "19"

// flood describes a flood to its process, which reads it from its standard input.
type flood struct {
	Kubeconfig string
	Context    string
	// URL is the list that the clients request, Header the header of their requests.
	URL     string
	Header  http.Header
	Clients int
	// LinkMbit is the bandwidth of the link to the server in megabits a second; zero does not limit it.
	LinkMbit int
}

// floodResult is the standard output of the process.
type floodResult struct {
	Measurements Measurements
	Error        string
}

// maxFloodBytes bounds a message between the processes.
const maxFloodBytes = 1 << 20

// Flood is the process of a flood. It reads a line of JSON that describes the flood, lists until its
// input ends, and writes the measurements to its output as JSON.
func Flood(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(io.LimitReader(in, maxFloodBytes))
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading what to list: %w", err)
	}
	var f flood
	if err := json.Unmarshal(line, &f); err != nil {
		return fmt.Errorf("reading what to list: %w", err)
	}
	if f.Clients < 0 || f.Clients > maxClients {
		return fmt.Errorf("clients is %d: want 0 to %d", f.Clients, maxClients)
	}
	t, err := loadTarget(Server{Kubeconfig: f.Kubeconfig, Context: f.Context})
	if err != nil {
		return err
	}
	if f.LinkMbit > 0 {
		t.link = newLink(f.LinkMbit)
	}
	n, err := f.begin(ctx, t)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, lines) // until the parent has measured, or is gone
	return json.NewEncoder(out).Encode(floodResult{Measurements: n.end()})
}

// floodProcess describes where the flood runs.
func (b *bed) floodProcess() string {
	if b.options.Executable == "" {
		return "in this process"
	}
	return "in a process of niceness " + floodNice
}

// running is a flood that was started.
type running struct {
	noise *noise // in this process; or nil

	cmd   *exec.Cmd // or nil
	stdin io.WriteCloser
	out   chan floodResult
}

// startFlood starts a flood. Without clients it does nothing.
func (b *bed) startFlood(ctx context.Context, u *url.URL, clients int) (*running, error) {
	f := flood{Kubeconfig: b.server.Kubeconfig, Context: b.server.Context, URL: u.String(), Header: b.asUser("bench-noisy", "bench"), Clients: clients, LinkMbit: b.options.LinkMbit}
	if clients == 0 || b.options.Executable == "" {
		n, err := f.begin(ctx, b.target)
		return &running{noise: n}, err
	}
	name, args := b.options.Executable, []string{"bench", "flood"}
	if nice, err := exec.LookPath("nice"); err == nil {
		name, args = nice, append([]string{"-n", floodNice, name}, args...)
	}
	r := &running{cmd: exec.CommandContext(ctx, name, args...), out: make(chan floodResult, 1)}
	r.cmd.Stderr = os.Stderr
	ownSession(r.cmd)
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the process that lists: %w", err)
	}
	lowerSession(r.cmd.Process.Pid, floodNice)
	go func() {
		var result floodResult
		if err := json.NewDecoder(io.LimitReader(stdout, maxFloodBytes)).Decode(&result); err != nil {
			result.Error = fmt.Sprintf("reading what the process that lists has measured: %v", err)
		}
		r.out <- result
	}()
	line, err := json.Marshal(f)
	if err == nil {
		_, err = r.stdin.Write(append(line, '\n'))
	}
	if err != nil {
		_, ended := r.end()
		return nil, errors.Join(err, ended)
	}
	return r, nil
}

// end ends the flood and returns its measurements.
func (r *running) end() (Measurements, error) {
	if r.cmd == nil {
		return r.noise.end(), nil
	}
	r.stdin.Close()
	result := <-r.out
	err := r.cmd.Wait()
	if result.Error != "" {
		err = errors.Join(errors.New(result.Error), err)
	}
	if s := r.cmd.ProcessState; s != nil {
		own := (s.UserTime() + s.SystemTime()).Seconds()
		result.Measurements.OwnCPU = &own
	}
	return result.Measurements, err
}

// noise is the clients of a flood.
type noise struct {
	stop             context.CancelFunc
	wg               sync.WaitGroup
	conns            []*conn
	began            time.Time
	lists, bytes     atomic.Int64
	rejected, failed atomic.Int64
	latencies        histogram
}

// begin starts the clients.
func (f *flood) begin(ctx context.Context, t *target) (*noise, error) {
	u, err := url.Parse(f.URL)
	if err != nil {
		return nil, err
	}
	n := &noise{began: time.Now()}
	ctx, n.stop = context.WithCancel(ctx)
	for i := range f.Clients {
		if i%noisyStreams == 0 {
			c, err := t.dial(nil)
			if err != nil {
				n.end()
				return nil, err
			}
			n.conns = append(n.conns, c)
		}
		one := newClient(n.conns[len(n.conns)-1], i, f.Header)
		n.wg.Go(func() {
			for ctx.Err() == nil {
				n.list(ctx, one, u)
			}
		})
	}
	return n, nil
}

// list lists once.
func (n *noise) list(ctx context.Context, c *client, u *url.URL) {
	begin := time.Now()
	resp, err := c.send(ctx, http.MethodGet, u, c.json, nil)
	switch {
	case isRejected(err):
		n.rejected.Add(1)
		sleepUntil(ctx, time.Now().Add(time.Second))
		return
	case err != nil:
		if ctx.Err() == nil {
			n.failed.Add(1)
			sleepUntil(ctx, time.Now().Add(time.Second))
		}
		return
	}
	defer resp.Body.Close()
	got, err := io.Copy(io.Discard, resp.Body)
	n.bytes.Add(got)
	if err == nil {
		n.lists.Add(1)
		n.latencies.record(time.Since(begin))
	} else if ctx.Err() == nil {
		n.failed.Add(1)
	}
}

// end stops the clients.
func (n *noise) end() Measurements {
	m := Measurements{
		Ops: n.lists.Load(), Seconds: time.Since(n.began).Seconds(), Latency: n.latencies.latency(), Bytes: n.bytes.Load(),
		Extra: map[string]float64{"rejected": float64(n.rejected.Load()), "failed": float64(n.failed.Load())},
	}
	n.stop()
	n.wg.Wait()
	for _, c := range n.conns {
		c.close()
	}
	return m
}
