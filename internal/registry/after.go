package registry

import "sync"

// AfterWrites has f called once all writes have ended whose admission has begun: at
// once, or by the one that ends last. Whoever has stored something that admission reads
// learns so when every write heeds it. F must not wait.
func (r *Registry) AfterWrites(f func()) { r.writes.after(f) }

// writes counts those that are under way. The zero value is ready.
type writes struct {
	mu   sync.Mutex
	eras []*era // the oldest first; only the last one may be open
}

// era is the writes that began between two calls of after.
type era struct {
	writes int
	then   func() // what waits for them, and for those before; nil: the era is open
}

// enter begins a write, which has to leave the era.
func (w *writes) enter() *era {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.open()
	e.writes++
	return e
}

// open is the era that goes on. The caller has the lock.
func (w *writes) open() *era {
	if n := len(w.eras); n > 0 && w.eras[n-1].then == nil {
		return w.eras[n-1]
	}
	e := &era{}
	w.eras = append(w.eras, e)
	return e
}

func (w *writes) leave(e *era) {
	w.mu.Lock()
	e.writes--
	due := w.due()
	w.mu.Unlock()
	for _, f := range due {
		f()
	}
}

func (w *writes) after(f func()) {
	w.mu.Lock()
	w.open().then = f
	due := w.due()
	w.mu.Unlock()
	for _, f := range due {
		f()
	}
}

// due takes off the eras that are over. The caller has the lock.
func (w *writes) due() (all []func()) {
	for len(w.eras) > 0 && w.eras[0].writes == 0 && w.eras[0].then != nil {
		all = append(all, w.eras[0].then)
		w.eras = w.eras[1:]
	}
	return all
}
