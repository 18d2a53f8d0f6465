package http2

import (
	"net/http"
	"sync"
)

// idleWorkers is how many goroutines wait for the next request, of all connections.
const idleWorkers = 64

// workers run handlers, in goroutines that have run others: a fresh one spends a
// fifth of a GET on growing its stack. The zero value is ready.
type workers struct {
	mu      sync.Mutex
	idle    []chan job // the one that worked last is the last one
	stopped bool
}

// job is a request to be handled.
type job struct {
	stream  *stream
	handler http.Handler
}

// run has a job done. It does not wait.
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
	var c chan job // when it has to wait: a watch may never
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

// wait says that c's goroutine has nothing to do; false: it is not needed.
func (w *workers) wait(c chan job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || len(w.idle) == idleWorkers {
		return false
	}
	w.idle = append(w.idle, c)
	return true
}

// stop ends those that wait, and later each that has nothing to do.
func (w *workers) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, c := range w.idle {
		close(c)
	}
	w.idle = nil
}
