package registry_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestWatchWholeRevisions: a watch returns the events of a revision together, and the end of the watch does
// not split one. All have the revision of the deletion.
func TestWatchWholeRevisions(t *testing.T) {
	const objects = 300
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		s := newServer(t, store.Options{Shared: log.Open()})
		lasts := int64(60)
		whole := s.watch(metainternal.ListOptions{ResourceVersion: version(s.Store.Any().Revision()), TimeoutSeconds: &lasts})
		ending := s.watch(metainternal.ListOptions{ResourceVersion: version(s.Store.Any().Revision()), TimeoutSeconds: &lasts})
		defer whole.Close()
		defer ending.Close()
		var keys []string
		for i := range objects {
			s.create("configmaps", "default", configMap(fmt.Sprint("m", i), "", ""))
			keys = append(keys, fmt.Sprint("default/m", i))
		}
		r := log.Expire("configmaps", keys...)
		synctest.Wait()
		seen := map[string]bool{}
		for len(seen) < objects {
			events, err := whole.TryNext(make([]registry.Event, 0, 7))
			if err != nil || len(events) == 0 {
				t.Fatalf("%d events, %v", len(events), err)
			}
			if events[0].Type != registry.Deleted {
				continue
			}
			if len(events) != objects {
				t.Fatalf("a batch of %d events of a revision with %d", len(events), objects)
			}
			for _, e := range events {
				if e.Object.Modified != r {
					t.Errorf("%s %s at %d, want %d", e.Type, e.Object.Key, e.Object.Modified, r)
				}
				seen[e.Object.Key] = true
			}
		}
		events, ok := ending.Recent(make([]registry.Event, 0, 7))
		for ok && len(events) > 0 && events[0].Type == registry.Added {
			events, ok = ending.Recent(make([]registry.Event, 0, 7))
		}
		if !ok || len(events) != objects {
			t.Errorf("recent: %d events, %v", len(events), ok)
		}
		time.Sleep(2 * time.Minute)
		if events, err := ending.TryNext(make([]registry.Event, 0, 7)); err != io.EOF || len(events) > 0 {
			t.Errorf("at the end: %d events, %v", len(events), err)
		}
	})
}

// TestSharedErrors: the responses while a log that others share does not work.
func TestSharedErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		member := log.Open()
		s := newServer(t, store.Options{Shared: member})
		s.create("configmaps", "default", configMap("a", "", ""))
		create := func(ctx context.Context, name string) error {
			_, err := s.Create(ctx, s.target("configmaps", "default", ""), body(configMap(name, "", "")), registry.WriteOptions{})
			return err
		}
		read := func(version string) error {
			_, err := s.Get(t.Context(), s.target("configmaps", "default", "a"), version)
			return err
		}
		member.Cut(true)
		for _, c := range []struct {
			what        string
			err         error
			code, retry int32
		}{
			{"a write", create(t.Context(), "b"), 503, 1},
			{"a read of the most recent state", read(""), 504, 1},
		} {
			got := statusOf(t, c.err)
			if got.Code != c.code || got.Details == nil || got.Details.RetryAfterSeconds != c.retry {
				t.Errorf("%s: %+v", c.what, got)
			}
		}
		if err := read("0"); err != nil {
			t.Errorf("a read of any state: %v", err)
		}
		member.Cut(false)
		member.Pause()
		errs := make(chan error, 600)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range cap(errs) {
			go func() { errs <- create(ctx, fmt.Sprint("many-", i)) }()
		}
		codes := map[int32]int{}
		for range cap(errs) {
			got := statusOf(t, <-errs)
			codes[got.Code]++
			if retry := got.Details.RetryAfterSeconds; got.Code == 504 && retry != 0 || got.Code == 429 && retry == 0 {
				t.Errorf("%+v", got)
			}
		}
		if codes[504] != 512 || codes[429] != 600-512 {
			t.Errorf("responses of a store that is behind: %v", codes)
		}
		member.Resume()
	})
}
