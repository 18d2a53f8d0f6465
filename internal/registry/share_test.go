package registry_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// outlet is where the events of a watch go that shares a connection.
type outlet struct {
	connection string
	deliver    func() store.Delivery
	spare      []registry.Event
	took       []string // by the outlet
	next       []string // by Next, and how it ended
}

// Connection implements registry.Outlet.
func (o *outlet) Connection() any { return o.connection }

// Deliver implements registry.Outlet.
func (o *outlet) Deliver(events []registry.Event) store.Delivery {
	d := o.deliver()
	if d != store.Declined {
		o.took = append(o.took, names(events)...)
	}
	return d
}

// Flush implements registry.Outlet.
func (o *outlet) Flush() {}

func names(events []registry.Event) (all []string) {
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s %s", e.Type, e.Object.Key))
	}
	return all
}

// follow reads the watch to its end.
func (o *outlet) follow(w *registry.Watch) {
	defer w.Close()
	defer func() {
		if v := recover(); v != nil {
			o.next = append(o.next, strings.SplitN(fmt.Sprint(v), "\n", 2)[0])
		}
	}()
	for {
		events, err := w.Next(make([]registry.Event, 0, 1))
		o.next = append(o.next, names(events)...)
		if err != nil {
			if err != io.EOF {
				o.next = append(o.next, err.Error())
			}
			return
		}
	}
}

// TestWatchShare: what an outlet takes, Next does not return; what it declines, Next
// returns; what it panics of, Next panics of, and nobody else.
func TestWatchShare(t *testing.T) {
	rows := []struct {
		name       string
		deliver    func() store.Delivery
		took, next string
	}{
		{"taken", func() store.Delivery { return store.Delivered }, "[ADDED default/a ADDED default/b MODIFIED default/a]", "[]"},
		{"the connection is full", func() store.Delivery { return store.Full }, "[ADDED default/a ADDED default/b MODIFIED default/a]", "[]"},
		{"declined", func() store.Delivery { return store.Declined }, "[]", "[ADDED default/a ADDED default/b MODIFIED default/a]"},
		{"broken", func() store.Delivery { panic("it is broken") }, "[]", "[it is broken, delivering events]"},
	}
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, store.Options{})
		var outlets []*outlet
		lasts := int64(60)
		for i := range 3 * len(rows) {
			o := &outlet{connection: []string{"one", "another"}[i%2], deliver: rows[i%len(rows)].deliver}
			w := s.watch(metainternal.ListOptions{ResourceVersion: version(s.Store.Any().Revision()), TimeoutSeconds: &lasts})
			o.spare = make([]registry.Event, 2)
			w.Share(o, o.spare)
			outlets = append(outlets, o)
			go o.follow(w)
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
		for i, o := range outlets {
			row := rows[i%len(rows)]
			if took, next := fmt.Sprint(o.took), fmt.Sprint(o.next); took != row.took || next != row.next {
				t.Errorf("%s: the outlet took %s, Next returned %s; want %s, %s", row.name, took, next, row.took, row.next)
			}
			for _, e := range o.spare {
				if row.name != "broken" && e.Object != nil {
					t.Errorf("%s: a watch that waits keeps %s", row.name, e.Object.Key)
				}
			}
		}
	})
}
