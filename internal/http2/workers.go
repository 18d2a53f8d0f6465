package http2

import (
	"net/http"
	"sync"
)

// idleWorkers bounds the goroutines that wait for a request.
const idleWorkers = 64

// workers run handlers, in goroutines that have run other handlers: a new goroutine spends a
// fifth of the time of a GET on growing its stack. The zero value is ready.
type workers struct {
	mu      sync.Mutex
	idle    []chan job // guarded by mu; the most recently used last
	stopped bool       // guarded by mu
}

// job is a request to be handled.
type job struct {
	stream  *stream
	handler http.Handler
}

// run runs a job in another goroutine.
func (w *workers) run(j job) {
	w.mu.Lock()
	last := len(w.idle) - 1
	if last < 0 {
		w.mu.Unlock()
		go w.work(j)
		return
	}
	c := w.idle[last]
	w.idle[last] = nil
	w.idle = w.idle[:last]
	w.mu.Unlock()
	c <- j
}

func (w *workers) work(j job) {
	var c chan job // made when the goroutine is first idle: a watch may never be
	for more := true; more; j, more = <-c {
		j.stream.run(j.handler)
		j = job{}
		if c == nil {
			c = make(chan job, 1)
		}
		if !w.wait(c) {
			return
		}
	}
}

// wait adds c's goroutine to the idle ones. It reports false if the goroutine should end.
func (w *workers) wait(c chan job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || len(w.idle) == idleWorkers {
		return false
	}
	w.idle = append(w.idle, c)
	return true
}

// stop ends the idle goroutines, and the others when they become idle.
func (w *workers) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, c := range w.idle {
		close(c)
	}
	w.idle = nil
}
