package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// list reads a list to its end and closes it.
func (s *server) list(plural, namespace string, o metainternal.ListOptions) (*registry.List, []string, error) {
	l, err := s.List(context.Background(), s.target(plural, namespace, ""), &o)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	var names []string
	for o, err := range l.Items {
		if err != nil {
			s.t.Fatal(err)
		}
		names = append(names, o.Key)
	}
	return l, names, nil
}

// TestListOfOneWhoLeft checks that a list whose selector drops everything ends with its context,
// although it sends nothing that could fail.
func TestListOfOneWhoLeft(t *testing.T) {
	s := newServer(t, store.Options{})
	for i := range 3000 {
		s.create("configmaps", "default", configMap(fmt.Sprint("a", i), "", ""))
	}
	for _, o := range []metainternal.ListOptions{
		{LabelSelector: labels.SelectorFromSet(labels.Set{"a": "b"})},
		{LabelSelector: labels.SelectorFromSet(labels.Set{"a": "b"}), Limit: 10},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if o.Limit > 0 {
			cancel() // a page is read before List returns
		}
		l, err := s.List(ctx, s.target("configmaps", "", ""), &o)
		if err == nil {
			cancel()
			for _, err = range l.Items {
			}
			l.Close()
		}
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("limit %d: got %v", o.Limit, err)
		}
	}
}

// TestListThatSelectsNothingYields: a list whose selector drops everything lets other requests go
// first, although it sends nothing.
func TestListThatSelectsNothingYields(t *testing.T) {
	for _, limit := range []int64{0, 10} {
		s := newServer(t, store.Options{})
		for i := range 3000 {
			s.create("configmaps", "default", configMap(fmt.Sprint("a", i), "", ""))
		}
		g := fairness.New(fairness.Config{Bytes: 1 << 20})
		g.Configure([]fairness.Level{{Name: "l", Shares: 1, Queues: 2, HandSize: 1, QueueLength: 1}}, 1)
		seat, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 0})
		if err != nil {
			t.Fatal(err)
		}
		executed := make(chan error)
		go func() {
			other, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 1})
			if err == nil {
				other.Release()
			}
			executed <- err
		}()
		await.True(t, "the other request", func() bool { return g.Snapshot(false).Levels[0].Waiting > 0 })
		o := &metainternal.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"a": "b"}), Limit: limit}
		l, err := s.List(fairness.WithSeat(t.Context(), seat), s.target("configmaps", "", ""), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range l.Items {
			t.Error(err)
		}
		if n := g.Snapshot(false).Levels[0].Counts.Dispatched; n != 2 {
			t.Errorf("limit %d: %d requests have executed before the list ended, want 2", limit, n)
		}
		l.Close()
		seat.Release()
		if err := <-executed; err != nil {
			t.Error(err)
		}
	}
}

func version(r store.Revision) string { return fmt.Sprint(uint64(r)) }

func TestGet(t *testing.T) {
	s := newServer(t, store.Options{})
	o := s.create("configmaps", "default", configMap("a", "", ""))
	ctx, target := context.Background(), s.target("configmaps", "default", "a")
	for _, v := range []string{"", "0", "1", version(o.Modified)} {
		if got, err := s.Get(ctx, target, v); err != nil || got.Stored != o {
			t.Errorf("at %q: %v, %v", v, got.Stored, err)
		}
	}
	for v, code := range map[string]int32{"abc": 400, "-1": 400, "1.5": 400, version(o.Modified + 1000): 504} {
		_, err := s.Get(ctx, target, v)
		if got := statusOf(t, err); got.Code != code {
			t.Errorf("at %q: %d %q", v, got.Code, got.Message)
		}
	}
	_, err := s.Get(ctx, target, version(o.Modified+1000))
	got := statusOf(t, err)
	if got.Details.RetryAfterSeconds != 1 || len(got.Details.Causes) != 1 || got.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge ||
		got.Message != fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", o.Modified+1000, o.Modified) {
		t.Errorf("a version in the future: %+v", got)
	}
	if n := testing.AllocsPerRun(100, func() { s.Get(ctx, target, "") }); n > 1 {
		t.Errorf("a get allocates %v times", n)
	}
}

// TestPages reads a list in chunks while it changes: every chunk is of the revision of the first
// one.
func TestPages(t *testing.T) {
	s := newServer(t, store.Options{})
	for i := range 7 {
		s.create("configmaps", "default", configMap(fmt.Sprintf("c%d", i), "x", ""))
	}
	var all []string
	var at store.Revision
	o := metainternal.ListOptions{Limit: 3}
	for page := 0; ; page++ {
		l, names, err := s.list("configmaps", "default", o)
		if err != nil {
			t.Fatal(err)
		}
		if page == 0 {
			at = l.Revision
		}
		all = append(all, names...)
		if l.Revision != at {
			t.Errorf("page %d is at %d, the first was at %d", page, l.Revision, at)
		}
		if l.Continue == "" {
			if l.Remaining != nil {
				t.Errorf("the last page has %d remaining", *l.Remaining)
			}
			break
		}
		if l.Remaining == nil || *l.Remaining != int64(7-len(all)) {
			t.Errorf("page %d: remaining %v", page, l.Remaining)
		}
		o.Continue = l.Continue
		s.delete("configmaps", "default", fmt.Sprintf("c%d", 6-page))
		s.create("configmaps", "default", configMap(fmt.Sprintf("d%d", page), "", ""))
	}
	if got := strings.Join(all, " "); got != "default/c0 default/c1 default/c2 default/c3 default/c4 default/c5 default/c6" {
		t.Errorf("the pages held %s", got)
	}
	l, _, err := s.list("configmaps", "default", metainternal.ListOptions{Limit: 1, LabelSelector: labels.SelectorFromSet(labels.Set{"l": "x"})})
	if err != nil || l.Remaining != nil || l.Continue == "" {
		t.Errorf("with a selector: remaining %v, continue %q, %v", l.Remaining, l.Continue, err)
	}
}

// TestExpired checks that a list below the history is 410, and that an expired token comes with one
// that continues in the newest state.
func TestExpired(t *testing.T) {
	s := newServer(t, store.Options{MaxMemory: 64 << 10})
	for i := range 4 {
		s.create("configmaps", "default", configMap(fmt.Sprintf("c%d", i), "", ""))
	}
	first, _, err := s.list("configmaps", "default", metainternal.ListOptions{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ { // until the history has moved on
		if floor, _ := s.Store.Bounds(); floor > first.Revision {
			break
		}
		s.update("configmaps", "default", "c0", configMap("c0", "", strings.Repeat("x", 1000)+fmt.Sprint(i)))
	}
	_, _, err = s.list("configmaps", "default", metainternal.ListOptions{ResourceVersion: version(first.Revision), ResourceVersionMatch: "Exact"})
	if got := statusOf(t, err); got.Code != 410 || got.Reason != "Expired" || got.Message != "The resourceVersion for the provided list is too old." {
		t.Errorf("exact below the history: %+v", got)
	}
	_, _, err = s.list("configmaps", "default", metainternal.ListOptions{Continue: first.Continue, Limit: 2})
	got := statusOf(t, err)
	if got.Code != 410 || got.ListMeta.Continue == "" || !strings.HasPrefix(got.Message, "The provided continue parameter is too old") {
		t.Fatalf("an expired token: %+v", got)
	}
	rest, names, err := s.list("configmaps", "default", metainternal.ListOptions{Continue: got.ListMeta.Continue, Limit: 10})
	if err != nil || strings.Join(names, " ") != "default/c2 default/c3" || rest.Revision <= first.Revision {
		t.Errorf("going on inconsistently: %v, %v", names, err)
	}
	w := s.watch(metainternal.ListOptions{ResourceVersion: version(first.Revision), Watch: true})
	defer w.Close()
	events, err := next(w, make([]registry.Event, 0, 4))
	var asked, oldest store.Revision
	if err != nil || len(events) != 1 || events[0].Type != registry.Error || events[0].Status.Code != 410 {
		t.Fatalf("a watch below the history: %+v, %v", events, err)
	}
	if _, err := fmt.Sscanf(events[0].Status.Message, "too old resource version: %d (%d)", &asked, &oldest); err != nil || asked != first.Revision {
		t.Errorf("%s: %v", events[0].Status.Message, err)
	}
	if floor, _ := s.Store.Bounds(); oldest != floor { // the oldest one that a watch may begin at
		t.Errorf("the oldest revision is %d, and the message says %d", floor, oldest)
	}
	if _, err := next(w, make([]registry.Event, 0, 4)); err != io.EOF {
		t.Errorf("after the ERROR: %v", err)
	}
}

func (s *server) watch(o metainternal.ListOptions) *registry.Watch {
	s.t.Helper()
	o.Watch = true
	w, err := s.Watch(context.Background(), s.target("configmaps", "default", ""), &o)
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// take reads events, one line each, until there are as many.
func take(t testing.TB, w *registry.Watch, n int) []string {
	t.Helper()
	var all []string
	for len(all) < n {
		events, err := next(w, make([]registry.Event, 0, n-len(all)))
		if err != nil {
			t.Fatalf("after %v: %v", all, err)
		}
		for _, e := range events {
			switch {
			case e.Object != nil:
				all = append(all, fmt.Sprintf("%s %s", e.Type, e.Object.Key))
			case e.InitialEventsEnd:
				all = append(all, "END")
			default:
				all = append(all, string(e.Type))
			}
		}
	}
	return all
}

func yes() *bool { v := true; return &v }

func TestWatchSelector(t *testing.T) {
	s := newServer(t, store.Options{})
	s.create("configmaps", "default", configMap("a", "off", "0"))
	w := s.watch(metainternal.ListOptions{ResourceVersion: version(s.Store.Any().Revision()), LabelSelector: labels.SelectorFromSet(labels.Set{"l": "on"})})
	defer w.Close()
	s.update("configmaps", "default", "a", configMap("a", "off", "1"))
	s.update("configmaps", "default", "a", configMap("a", "on", "2"))
	s.update("configmaps", "default", "a", configMap("a", "on", "3"))
	left := s.update("configmaps", "default", "a", configMap("a", "off", "4"))
	events, err := next(w, make([]registry.Event, 0, 8))
	for err == nil && len(events) < 3 {
		events, err = next(w, events)
	}
	if err != nil || len(events) != 3 {
		t.Fatalf("%+v, %v", events, err)
	}
	if events[0].Type != registry.Added || events[1].Type != registry.Modified || events[2].Type != registry.Deleted {
		t.Errorf("the events are %v %v %v", events[0].Type, events[1].Type, events[2].Type)
	}
	gone := events[2].Object
	if gone.Modified != left.Modified || meta(t, gone).ResourceVersion != version(left.Modified) || !strings.Contains(string(gone.Bytes()), `"v":"3"`) {
		t.Errorf("what left the selector is %s, at %d", gone.Bytes(), gone.Modified)
	}
}

// TestWatchBegins checks the first events of a watch, and that it gets the next change.
func TestWatchBegins(t *testing.T) {
	s := newServer(t, store.Options{})
	s.create("configmaps", "default", configMap("a", "", ""))
	b := s.create("configmaps", "default", configMap("b", "", ""))
	no := false
	rows := []struct {
		name string
		o    metainternal.ListOptions
		want []string
	}{
		{"unset", metainternal.ListOptions{}, []string{"ADDED default/a", "ADDED default/b"}},
		{"unset, with bookmarks", metainternal.ListOptions{AllowWatchBookmarks: true}, []string{"ADDED default/a", "ADDED default/b", "END"}},
		{"zero", metainternal.ListOptions{ResourceVersion: "0"}, []string{"ADDED default/a", "ADDED default/b"}},
		{"the revision before", metainternal.ListOptions{ResourceVersion: version(b.Modified - 1)}, []string{"ADDED default/b"}},
		{"the newest revision", metainternal.ListOptions{ResourceVersion: version(b.Modified)}, nil},
		{"initial events", metainternal.ListOptions{SendInitialEvents: yes(), ResourceVersionMatch: "NotOlderThan", AllowWatchBookmarks: true}, []string{"ADDED default/a", "ADDED default/b", "END"}},
		{"initial events at a number", metainternal.ListOptions{SendInitialEvents: yes(), ResourceVersionMatch: "NotOlderThan", AllowWatchBookmarks: true, ResourceVersion: version(b.Modified)}, []string{"ADDED default/a", "ADDED default/b", "END"}},
		{"initial events, no bookmark", metainternal.ListOptions{SendInitialEvents: yes(), ResourceVersionMatch: "NotOlderThan"}, []string{"ADDED default/a", "ADDED default/b"}},
		{"no initial events", metainternal.ListOptions{SendInitialEvents: &no, ResourceVersionMatch: "NotOlderThan"}, nil},
	}
	var watches []*registry.Watch
	for _, row := range rows {
		w := s.watch(row.o)
		defer w.Close()
		watches = append(watches, w)
	}
	s.create("configmaps", "default", configMap("c", "", ""))
	for i, row := range rows {
		if got, want := take(t, watches[i], len(row.want)+1), append(row.want, "ADDED default/c"); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", row.name, got, want)
		}
	}
}

// TestWatchTimes checks bookmarks every minute and shortly before the end, a clean end at
// timeoutSeconds, and an ERROR for a revision that is not reached in time.
func TestWatchTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, store.Options{})
		s.FutureWait = 3 * time.Second
		seconds := int64(150)
		begin := time.Now()
		w := s.watch(metainternal.ListOptions{ResourceVersion: version(s.Store.Any().Revision()), AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
		s.create("secrets", "default", `{"metadata":{"name":"elsewhere"}}`)
		var times []time.Duration
		var last store.Revision
		for {
			events, err := next(w, make([]registry.Event, 0, 4))
			if err == io.EOF {
				times = append(times, time.Since(begin))
				break
			}
			if err != nil || len(events) != 1 || events[0].Type != registry.Bookmark || events[0].InitialEventsEnd {
				t.Fatalf("%+v, %v", events, err)
			}
			times = append(times, time.Since(begin))
			if last = events[0].Revision; last != s.Store.Any().Revision() {
				t.Errorf("a bookmark of a quiet kind is at %d, the store at %d", last, s.Store.Any().Revision())
			}
		}
		if got := fmt.Sprint(times); got != "[1m0s 2m0s 2m28s 2m30s]" {
			t.Errorf("bookmarks and the end came at %s", got)
		}
		w.Close()

		begin, seconds = time.Now(), -1
		w = s.watch(metainternal.ListOptions{TimeoutSeconds: &seconds})
		if events, err := next(w, make([]registry.Event, 0, 4)); err != io.EOF || len(events) > 0 || time.Since(begin) > 0 {
			t.Errorf("a negative timeoutSeconds: %+v, %v after %v", events, err, time.Since(begin))
		}
		w.Close()

		s.create("configmaps", "default", configMap("a", "", ""))
		s.create("configmaps", "default", configMap("b", "", ""))
		seconds = 10
		w = s.watch(metainternal.ListOptions{TimeoutSeconds: &seconds})
		for i := range 3 { // a watch that is behind ends all the same
			events, err := next(w, make([]registry.Event, 0, 1))
			if late := i == 2; late != (err == io.EOF) || late != (len(events) == 0) {
				t.Errorf("after %d s of 10: %+v, %v", 5*i+1, events, err)
			}
			s.create("configmaps", "default", configMap(fmt.Sprintf("more-%d", i), "", ""))
			time.Sleep(5*time.Second + 1)
		}
		w.Close()

		w = s.watch(metainternal.ListOptions{SendInitialEvents: yes(), ResourceVersionMatch: "NotOlderThan"})
		if events, err := next(w, make([]registry.Event, 0, 1)); err != nil || events[0].Type != registry.Added {
			t.Errorf("the first initial event: %+v, %v", events, err)
		}
		time.Sleep(time.Minute + 1)
		if events, err := next(w, make([]registry.Event, 0, 1)); err != nil || events[0].Type != registry.Error || events[0].Status.Code != 504 {
			t.Errorf("an initial event after more than a minute: %+v, %v", events, err)
		}
		w.Close()

		ctx, cancel := context.WithCancel(context.Background())
		begin = time.Now()
		w, err := s.Watch(ctx, s.target("nodes", "", ""), &metainternal.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, cancel)
		if events, err := next(w, make([]registry.Event, 0, 4)); err != io.EOF || len(events) > 0 || time.Since(begin) != time.Second {
			t.Errorf("a watch whose context ends after a second: %+v, %v after %v", events, err, time.Since(begin))
		}
		w.Close()

		begin = time.Now()
		w = s.watch(metainternal.ListOptions{ResourceVersion: version(s.Store.Any().Revision() + 10), SendInitialEvents: yes(), ResourceVersionMatch: "NotOlderThan"})
		events, err := next(w, make([]registry.Event, 0, 4))
		if err != nil || len(events) != 1 || events[0].Type != registry.Error || events[0].Status.Code != 504 || time.Since(begin) != 3*time.Second {
			t.Errorf("a version in the future: %+v, %v after %v", events, err, time.Since(begin))
		}
		w.Close()
	})
}

// TestListAndWatch checks at random times, with concurrent writers, that a list at R and the events
// up to R' make the list at R'.
func TestListAndWatch(t *testing.T) {
	rng := testrand.New(t)
	s := newServer(t, store.Options{})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var writers sync.WaitGroup
	for w := range 3 {
		own := rng.Uint64()
		writers.Go(func() { churn(ctx, s, w, own) })
	}
	for range 10 {
		state := map[string]store.Revision{}
		l, err := s.List(ctx, s.target("configmaps", "default", ""), &metainternal.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for o := range l.Items {
			state[o.Key] = o.Modified
		}
		l.Close()
		w := s.watch(metainternal.ListOptions{ResourceVersion: version(l.Revision)})
		var at store.Revision
		for range 30 + rng.IntN(100) {
			events, err := next(w, make([]registry.Event, 0, 1+rng.IntN(9)))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Object.Modified <= at {
					t.Fatalf("an event at %d after one at %d", e.Object.Modified, at)
				}
				at = e.Object.Modified
				if state[e.Object.Key] = at; e.Type == registry.Deleted {
					delete(state, e.Object.Key)
				}
			}
		}
		w.Close()
		same(t, s, state, at)
	}
	stop()
	writers.Wait()
}

func same(t *testing.T, s *server, state map[string]store.Revision, at store.Revision) {
	t.Helper()
	l, err := s.List(context.Background(), s.target("configmaps", "default", ""), &metainternal.ListOptions{ResourceVersion: version(at), ResourceVersionMatch: "Exact"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	for o, err := range l.Items {
		if n++; err != nil || state[o.Key] != o.Modified {
			t.Errorf("at %d the list has %s at %d, the events say %d (%v)", at, o.Key, o.Modified, state[o.Key], err)
		}
	}
	if n != len(state) || l.Revision != at {
		t.Errorf("the list at %d (%d) has %d objects, the events leave %d", at, l.Revision, n, len(state))
	}
}

// churn writes objects of its own until the context ends.
func churn(ctx context.Context, s *server, writer int, seed uint64) {
	for i := 0; ctx.Err() == nil; i++ {
		seed = seed*6364136223846793005 + 1442695040888963407
		name := fmt.Sprintf("w%d-%d", writer, seed>>33%6)
		target := s.target("configmaps", "default", name)
		var err error
		if seed>>60%4 == 0 {
			_, err = s.Delete(ctx, target, nil, nil)
		} else if _, err = s.Update(ctx, target, body(configMap(name, "", fmt.Sprint(i))), registry.WriteOptions{}); err != nil {
			target.Name = ""
			_, err = s.Create(ctx, target, body(configMap(name, "", fmt.Sprint(i))), registry.WriteOptions{})
		}
		if errors.Is(err, context.Canceled) {
			return
		}
	}
}

func TestInvalidWatches(t *testing.T) {
	s := newServer(t, store.Options{})
	for want, o := range map[string]metainternal.ListOptions{
		"resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided": {ResourceVersion: "1", ResourceVersionMatch: "NotOlderThan"},
		"sendInitialEvents requires setting resourceVersionMatch to NotOlderThan":          {ResourceVersion: "1", SendInitialEvents: yes()},
		"Invalid value: \"abc\"": {ResourceVersion: "abc"},
	} {
		o.Watch = true
		_, err := s.Watch(context.Background(), s.target("configmaps", "default", ""), &o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func BenchmarkList(b *testing.B) {
	s := newServer(b, store.Options{})
	for i := range 10_000 {
		label := "no"
		if i%100 == 0 {
			label = "yes"
		}
		s.create("configmaps", "default", configMap(fmt.Sprintf("c%d", i), label, strings.Repeat("x", 1000)))
	}
	run := func(o metainternal.ListOptions) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, err := s.List(context.Background(), s.target("configmaps", "default", ""), &o)
				if err != nil {
					b.Fatal(err)
				}
				for range l.Items {
				}
				l.Close()
			}
		}
	}
	b.Run("all", run(metainternal.ListOptions{}))
	b.Run("page", run(metainternal.ListOptions{Limit: 500}))
	b.Run("1%", run(metainternal.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"l": "yes"})}))
}

// next waits for the first events of TryNext.
func next(w *registry.Watch, buf []registry.Event) ([]registry.Event, error) {
	for {
		events, err := w.TryNext(buf)
		if len(events) > len(buf) || err != nil {
			return events, err
		}
		w.Wait()
	}
}
