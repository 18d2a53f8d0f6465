package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// Leases count the clients that need a server. A lease is one request that stays open. It ends with
// its connection, so also when the client's process is killed, and the worlds that were created with
// it are deleted. The zero value has no lease. It is safe for concurrent use.
type Leases struct {
	mu     sync.Mutex
	worlds map[string][]string // the names of worlds by lease, guarded by mu
	grace  time.Duration       // guarded by mu
	timer  *time.Timer         // runs while there are no leases; nil before Idle; guarded by mu
	idle   chan struct{}       // closed by the timer; guarded by mu
	ended  bool                // idle is closed, guarded by mu
}

// Idle returns a channel that is closed when there has been no lease for the grace period, which
// begins now if there is none. After that, new leases are rejected. Only the grace period of the
// first call counts.
func (l *Leases) Idle(grace time.Duration) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle == nil {
		l.grace, l.idle = grace, make(chan struct{})
		l.timer = time.AfterFunc(grace, l.end)
	}
	return l.idle
}

// Stop releases the timer. The channel of Idle is not closed after it.
func (l *Leases) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.ended = true
}

func (l *Leases) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.worlds) == 0 && !l.ended {
		l.ended = true
		close(l.idle)
	}
}

// take begins a lease; ok is false if the server is about to end.
func (l *Leases) take() (id string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return "", false
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.worlds == nil {
		l.worlds = map[string][]string{}
	}
	id = uuid.New()
	l.worlds[id] = nil
	return id, true
}

// release ends a lease and returns the worlds that were created with it.
func (l *Leases) release(id string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.worlds[id]
	delete(l.worlds, id)
	if len(l.worlds) == 0 && l.timer != nil && !l.ended {
		l.timer.Reset(l.grace)
	}
	return own
}

func (l *Leases) held(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.worlds[id]
	return ok
}

// bind lets a world end with a lease. It returns false if the lease has ended.
func (l *Leases) bind(id, world string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, ok := l.worlds[id]
	if ok {
		l.worlds[id] = append(own, world)
	}
	return ok
}

// lease responds with the identifier of a lease, and ends the lease when the client goes away.
func (h *handler) lease(w http.ResponseWriter, r *http.Request) error {
	id, ok := h.Leases.take()
	if !ok {
		return fmt.Errorf("a lease: the server is stopping: %w", ErrExpired)
	}
	defer func() {
		for _, world := range h.Leases.release(id) {
			h.Worlds.Delete(world) // an error: it was deleted already
		}
	}()
	line, err := json.Marshal(map[string]string{"lease": id})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Write(append(line, '\n'))
	if err := http.NewResponseController(w).Flush(); err != nil {
		return nil // the client is gone
	}
	<-r.Context().Done()
	return nil
}
