package registry_test

import (
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/notify"
)

// sharer reads a watch that shares a group.
type sharer struct {
	*registry.Watch
	accepts  notify.Delivery // or Declined
	left     []registry.Event
	shared   []string // delivered by the leader
	returned []string // to the watch's own goroutine
}

// Deliver implements notify.Reader.
func (s *sharer) Deliver() notify.Delivery {
	for {
		events, ok := s.Recent(make([]registry.Event, 0, 2))
		switch {
		case !ok:
			return notify.Declined
		case len(events) == 0:
			return s.accepts
		case s.accepts == notify.Declined:
			s.left = events
			return notify.Declined
		}
		s.shared = append(s.shared, names(events)...)
	}
}

// Flush implements notify.Reader.
func (s *sharer) Flush() {}

func names(events []registry.Event) (all []string) {
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s %s", e.Type, e.Object.Key))
	}
	return all
}

// follow reads the watch to its end.
func (s *sharer) follow(t *testing.T) {
	defer s.Close()
	for {
		events, err := s.TryNext(make([]registry.Event, 0, 1))
		s.returned = append(s.returned, names(events)...)
		if err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			return
		}
		if len(events) == 0 {
			s.Wait()
			s.returned = append(s.returned, names(s.left)...)
			s.left = nil
		}
	}
}

// TestWatchShare checks that the leader of a group delivers the events of a shared watch or, if it
// declines, the watch's own goroutine does: each event once and in order, until the end.
func TestWatchShare(t *testing.T) {
	const all, none = "[ADDED default/a ADDED default/b MODIFIED default/a]", "[]"
	rows := []struct {
		accepts          notify.Delivery
		shared, returned string
	}{
		{notify.Delivered, all, none},
		{notify.Full, all, none},
		{notify.Declined, none, all},
	}
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, store.Options{})
		var groups [2]notify.Fanout
		var sharers []*sharer
		lasts := int64(60)
		for i := range 4 * len(rows) {
			w := s.watch(metainternal.ListOptions{ResourceVersion: version(s.Store.Any().Revision()), TimeoutSeconds: &lasts})
			one := &sharer{Watch: w, accepts: rows[i%len(rows)].accepts}
			w.Share(&groups[i%len(groups)], one)
			sharers = append(sharers, one)
			go one.follow(t)
		}
		for _, write := range []func(){
			func() { s.create("configmaps", "default", configMap("a", "", "")) },
			func() {
				s.create("configmaps", "default", configMap("b", "", ""))
				s.update("configmaps", "default", "a", configMap("a", "", "1"))
			},
		} {
			synctest.Wait()
			write()
		}
		synctest.Wait()
		for i, one := range sharers {
			row := rows[i%len(rows)]
			if shared, returned := fmt.Sprint(one.shared), fmt.Sprint(one.returned); shared != row.shared || returned != row.returned {
				t.Errorf("watch %d: the leader delivered %s, its own goroutine got %s; want %s, %s", i, shared, returned, row.shared, row.returned)
			}
		}
	})
}
