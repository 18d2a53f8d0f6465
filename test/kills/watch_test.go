package kills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// event is a change as a watch showed it.
type event struct {
	what     string // ADDED, MODIFIED, DELETED
	revision int64
	key      string
	value    string
	seen     int64 // when
}

// span is the part of the history that a watcher has read: all changes after one revision up to
// another.
type span struct {
	after, upTo int64
	start       map[string]version // the state at after
}

// watcher watches the objects at one server, or at another one after each cut, and goes on from the
// last revision that it has read.
type watcher struct {
	name   string
	r      *recorder
	server *server // nil: another one after each cut
	chance *rand.Rand

	mu      sync.Mutex
	spans   []span
	events  []event
	cuts    int
	wrong   []string
	relists int
}

func (w *watcher) after() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spans[len(w.spans)-1].upTo
}

func (w *watcher) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, w.name+": "+fmt.Sprintf(format, args...))
}

// run watches until the context ends.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		s := w.server
		if s == nil {
			s = w.r.w.servers[w.chance.IntN(three)]
		}
		if expired := w.watch(ctx, s); expired && ctx.Err() == nil {
			w.relist(ctx, s)
		}
		w.mu.Lock()
		w.cuts++
		w.mu.Unlock()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// watch reads one watch until it ends, and reports whether it expired.
func (w *watcher) watch(ctx context.Context, s *server) (expired bool) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // so that a roaming watcher moves
	defer cancel()
	path := fmt.Sprintf("%s%s?watch=true&allowWatchBookmarks=true&resourceVersion=%d", s.base, collection, w.after())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		w.fail("%v", err)
		return false
	}
	response, err := s.client.Do(r)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusGone:
		return true
	case http.StatusGatewayTimeout, http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return false
	default:
		w.fail("%s responded to a watch with %d", s.name, response.StatusCode)
		return false
	}
	for d := json.NewDecoder(response.Body); ; {
		var e struct {
			Type   string
			Object struct {
				objectJSON
				Code    int
				Message string
			}
		}
		if d.Decode(&e) != nil {
			return false
		}
		if e.Type == "ERROR" {
			if e.Object.Code != http.StatusGone && e.Object.Code != http.StatusGatewayTimeout {
				w.fail("%s ended a watch with %d %s", s.name, e.Object.Code, e.Object.Message)
			}
			return e.Object.Code == http.StatusGone
		}
		w.take(s, e.Type, &e.Object.objectJSON)
	}
}

// take adds an event.
func (w *watcher) take(s *server, what string, o *objectJSON) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := &w.spans[len(w.spans)-1]
	r := o.version()
	if r < last.upTo || r == last.upTo && what != "BOOKMARK" {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: %s sent %s %s at %d after %d", w.name, s.name, what, o.Metadata.Name, r, last.upTo))
		return
	}
	last.upTo = r
	if what != "BOOKMARK" && strings.HasPrefix(o.Metadata.Name, namePrefix) {
		w.events = append(w.events, event{what, r, o.Metadata.Name, o.Data.Value, w.r.now()})
	}
}

// relist lists again after 410, which is right only if etcd has compacted unread changes.
func (w *watcher) relist(ctx context.Context, s *server) {
	after := w.after()
	if !w.compacted(ctx, after) {
		w.fail("%s responded 410 to a watch from %d, which etcd still has", s.name, after)
	}
	for ctx.Err() == nil {
		code, text, err := s.do(requestTimeout, http.MethodGet, collection, "", nil)
		var got objectJSON
		if err == nil && code == http.StatusOK && json.Unmarshal(text, &got) == nil {
			o := &op{kind: list}
			w.r.read(o, &got)
			w.mu.Lock()
			w.relists++
			w.spans = append(w.spans, span{o.version, o.version, o.items})
			w.mu.Unlock()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// compacted reports whether etcd has compacted a revision.
func (w *watcher) compacted(ctx context.Context, at int64) bool {
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := w.r.w.etcd.Get(try, "/none", clientv3.WithRev(at))
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrCompacted) {
			return err != nil
		}
	}
	return true
}
