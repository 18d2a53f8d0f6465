package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
)

const (
	// defaultRestartPause is the pause before a component starts again. It doubles with each end in a row.
	defaultRestartPause = time.Second
	// maxEnds is how many ends in a row end the cluster.
	maxEnds = 5
	// steady is how long a component runs until an end no longer counts as one in a row.
	steady = 30 * time.Second
	// grace is how long a component has to end before it is killed. Tidemark syncs its log within seconds.
	grace = 15 * time.Second
	// maxLog is the size of a log, in bytes, at which the next start of its component begins a new one.
	maxLog = 16 << 20
	// tailBytes and tailLines limit the part of a log that an error has.
	tailBytes, tailLines = 4 << 10, 4
)

// component is a program to run.
type component struct {
	name, path string
	// args returns the arguments of the next start.
	args func() []string
	// output is called with each line of the standard output; nil: those are in the log too.
	output func(line []byte)
	// once: an end before the component has settled ends the cluster.
	once bool
}

// group keeps components running.
type group struct {
	// ctx ends with its parent, or when a component ends again and again.
	ctx      context.Context
	cancel   context.CancelCauseFunc
	logs     string
	pause    time.Duration
	progress progress.Progress
	starts   chan func() // for the thread that starts processes

	mu  sync.Mutex
	all map[string]*running // guarded by mu
}

// running is a component that is kept running.
type running struct {
	*component
	stop chan struct{} // closed: it does not start again
	done chan struct{} // closed when the component has ended and does not start again

	mu      sync.Mutex
	stopped bool        // guarded by mu; stop is closed
	settled bool        // guarded by mu
	process *os.Process // guarded by mu; nil: none runs
}

func newGroup(parent context.Context, logs string, pause time.Duration, p progress.Progress) *group {
	ctx, cancel := context.WithCancelCause(parent)
	g := &group{ctx: ctx, cancel: cancel, logs: logs, pause: pause, progress: p.Shared(), starts: make(chan func()), all: map[string]*running{}}
	go g.startProcesses()
	return g
}

// startProcesses starts all processes on one thread. On Linux, a process is killed when the thread ends that started it, and
// the Go runtime ends threads.
func (g *group) startProcesses() {
	runtime.LockOSThread()
	for start := range g.starts {
		start()
	}
}

// failure returns why the group ended; nil: its parent did, or stop.
func (g *group) failure() error {
	if cause := context.Cause(g.ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// add starts a component, and keeps it running.
func (g *group) add(c *component) {
	r := &running{component: c, stop: make(chan struct{}), done: make(chan struct{})}
	g.mu.Lock()
	g.all[c.name] = r
	g.mu.Unlock()
	go g.keep(r)
}

// settled records that a component works.
func (g *group) settled(name string) {
	g.mu.Lock()
	r := g.all[name]
	g.mu.Unlock()
	r.mu.Lock()
	r.settled = true
	r.mu.Unlock()
}

// pid returns the process ID of a component; zero: it does not run at the moment.
func (g *group) pid(name string) int {
	g.mu.Lock()
	r := g.all[name]
	g.mu.Unlock()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return 0
	}
	return r.process.Pid
}

// keep runs a component until it is stopped, or ends again and again.
func (g *group) keep(r *running) {
	defer close(r.done)
	ends := 0
	for pause := g.pause; ; pause *= 2 {
		began := time.Now()
		err := g.run(r)
		r.mu.Lock()
		stopped, settled := r.stopped, r.settled
		r.mu.Unlock()
		if stopped {
			return
		}
		if time.Since(began) >= steady {
			ends, pause = 0, g.pause
		}
		if ends++; ends == maxEnds || r.once && !settled {
			g.cancel(fmt.Errorf("%s ended %s: %w; the end of %s: %s", r.name, times(ends), err, g.log(r.name), g.tail(r.name)))
			return
		}
		g.progress.Done("%-24s ended (%v), and starts again in %v: see %s", r.name, err, pause, g.log(r.name))
		select {
		case <-time.After(pause):
		case <-r.stop:
			return
		}
	}
}

func times(n int) string {
	if n == 1 {
		return "at its start"
	}
	return fmt.Sprintf("%d times in a row", n)
}

var errEnded = errors.New("exit status 0")

// run starts the process of a component, and returns when it has ended.
func (g *group) run(r *running) error {
	log, err := g.openLog(r.name)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(r.path, r.args()...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay, cmd.SysProcAttr = log, log, time.Second, processAttributes()
	if r.output != nil {
		cmd.Stdout = &lines{each: r.output}
	}
	fmt.Fprintf(log, "%s starts: %s\n", time.Now().UTC().Format(time.RFC3339), strings.Join(cmd.Args, " "))

	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		return nil
	}
	started := make(chan error)
	g.starts <- func() { started <- cmd.Start() }
	if err = <-started; err == nil {
		r.process = cmd.Process
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	err = cmd.Wait()
	r.mu.Lock()
	r.process = nil
	r.mu.Unlock()
	if err == nil {
		err = errEnded
	}
	return err
}

// end ends a component, and returns when its process has ended.
func (r *running) end() {
	r.mu.Lock()
	if !r.stopped {
		r.stopped = true
		close(r.stop)
	}
	if r.process != nil {
		terminate(r.process)
	}
	r.mu.Unlock()
	select {
	case <-r.done:
		return
	case <-time.After(grace):
	}
	r.mu.Lock()
	if r.process != nil {
		r.process.Kill()
	}
	r.mu.Unlock()
	<-r.done
}

// stop ends all components: those of last after the others. It may be called more than once, but not concurrently.
func (g *group) stop(last string) {
	g.mu.Lock()
	all := g.all
	g.all = nil
	g.mu.Unlock()
	if all == nil {
		return
	}
	var others sync.WaitGroup
	for name, r := range all {
		if name != last {
			others.Go(r.end)
		}
	}
	others.Wait()
	if r := all[last]; r != nil {
		r.end()
	}
	close(g.starts)
	g.cancel(nil)
}

// log returns the path of the log of a component.
func (g *group) log(name string) string { return filepath.Join(g.logs, name+".log") }

// openLog opens the log of a component, and begins a new one if it is large.
func (g *group) openLog(name string) (*os.File, error) {
	path := g.log(name)
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// tail returns the last lines of the log of a component.
func (g *group) tail(name string) string {
	f, err := os.Open(g.log(name))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		f.Seek(max(0, info.Size()-tailBytes), io.SeekStart)
	}
	text, _ := io.ReadAll(io.LimitReader(f, tailBytes))
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-tailLines):], "\n")
}

// lines is a writer that calls a function with each complete line.
type lines struct {
	each func(line []byte)
	rest []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.each(line)
		l.rest = rest
	}
}
