package consistentlist_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidemark-dev/tidemark/consistentlist"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// mirror is a caller's state, kept by events.
type mirror struct {
	state  map[string]int
	synced bool
	at     int
	resets int
}

// take applies an event.
func (m *mirror) take(e consistentlist.Event) error {
	version, _ := strconv.Atoi(e.ResourceVersion)
	switch e.Type {
	case consistentlist.Reset:
		if e.ResourceVersion != "" || e.Object != nil {
			return fmt.Errorf("RESET with %+v", e)
		}
		m.state, m.synced = map[string]int{}, false
		m.resets++
		return nil
	case consistentlist.Synced, watch.Bookmark:
		if e.Object != nil {
			return fmt.Errorf("%s with an object", e.Type)
		}
		m.synced = true
	case watch.Added, watch.Modified, watch.Deleted:
		o, err := meta.Accessor(e.Object)
		if err != nil {
			return err
		}
		if e.Type == watch.Deleted {
			delete(m.state, o.GetName())
		} else {
			m.state[o.GetName()] = version
		}
	}
	if m.synced {
		if version < m.at {
			return fmt.Errorf("back from %d to %d", m.at, version)
		}
		m.at = version
	}
	return nil
}

// follows are the two ways to follow, from a list and from nothing.
var follows = map[string]func(context.Context, clients, consistentlist.Options) (iter.Seq2[consistentlist.Event, error], *mirror, error){
	"Follow": func(ctx context.Context, c clients, o consistentlist.Options) (iter.Seq2[consistentlist.Event, error], *mirror, error) {
		return consistentlist.Follow(ctx, c.dynamic, consistentlist.MostRecent, o), &mirror{}, nil
	},
	"FollowFrom": func(ctx context.Context, c clients, o consistentlist.Options) (iter.Seq2[consistentlist.Event, error], *mirror, error) {
		list, err := collect(ctx, c.typed, consistentlist.MostRecent, o)
		if err != nil {
			return nil, nil, err
		}
		at, _ := strconv.Atoi(list.version)
		return consistentlist.FollowFrom(ctx, list.last.(consistentlist.Page[*corev1.ConfigMapList])), &mirror{state: list.state, synced: true, at: at}, nil
	},
}

// TestFollow writes at random, cuts watches, drops history and rejects requests. After each event
// the caller's state is the server's at that event's version: no gap, and no visible repetition.
func TestFollow(t *testing.T) {
	r := testrand.New(t)
	for _, a := range ages {
		for name, follow := range follows {
			t.Run(a.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(a)
					c := serve(t, m)
					// More refusals in a row than chance gives.
					events, state, err := follow(t.Context(), c, consistentlist.Options{Limit: 3, Retries: 1000})
					if err != nil {
						t.Fatal(err)
					}
					done := make(chan struct{})
					last := 0
					go func() {
						defer close(done)
						last = writeAtRandom(r, m)
					}()
					told := 0
					for e, err := range events {
						if err != nil {
							<-done
							t.Fatalf("after %d events, at %d: %v", told, state.at, err)
						}
						told++
						if err := state.take(e); err != nil {
							t.Fatal(err)
						}
						if state.synced && !maps.Equal(state.state, m.state(state.at)) {
							t.Fatalf("at %d after %s: %v, want %v", state.at, e.Type, state.state, m.state(state.at))
						}
						select {
						case <-done:
							if state.synced && state.at >= last {
								t.Logf("%d events, %d resets, %d revisions", told, state.resets, last-origin)
								return
							}
						default:
						}
					}
					t.Error("the iteration ended without an error")
				})
			})
		}
	}
}

// writeAtRandom writes for some minutes, and returns the last revision.
func writeAtRandom(r *rand.Rand, m *model) int {
	for range 600 {
		switch r.IntN(20) {
		case 0:
			m.cut()
		case 1:
			m.compact(m.now())
			m.cut()
		case 2:
			m.mu.Lock()
			m.refusals = r.IntN(4)
			m.mu.Unlock()
			m.cut()
		case 3:
			time.Sleep(time.Duration(r.IntN(60)) * time.Second)
		default:
			m.write(fmt.Sprintf("object-%02d", r.IntN(12)), r.IntN(3) == 0)
		}
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
	}
	return m.write("the last", false)
}

// TestFollowState looks at how each age is asked for a state.
func TestFollowState(t *testing.T) {
	for _, c := range []struct {
		age   age
		wait  time.Duration
		asked []string // the requests, one by one
	}{
		{ages[0], 11 * time.Second, []string{"sendInitialEvents=true", "limit=500", "resourceVersion=100&"}},
		{ages[1], time.Second, []string{"sendInitialEvents=true", "limit=500", "resourceVersion=100&"}},
		{ages[2], time.Second, []string{"sendInitialEvents=true", "limit=500", "resourceVersion=100&"}},
		{ages[3], time.Second, []string{"sendInitialEvents=true"}},
	} {
		t.Run(c.age.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(c.age)
				clients := serve(t, m)
				ctx, cancel := context.WithTimeoutCause(t.Context(), c.wait, io.ErrClosedPipe)
				defer cancel()
				var types []watch.EventType
				var last error
				for e, err := range consistentlist.Follow(ctx, clients.metadata, consistentlist.MostRecent, consistentlist.Options{}) {
					types, last = append(types, e.Type), err
				}
				if last != io.ErrClosedPipe {
					t.Errorf("ended with %v, want the context's cause", last)
				}
				want := "[RESET ADDED SYNCED ]"
				if c.age.streams == ignored {
					want = "[RESET ADDED RESET ADDED SYNCED ]"
				}
				if got := fmt.Sprint(types); got != want {
					t.Errorf("events %s, want %s", got, want)
				}
				asked := m.requests()
				if len(asked) != len(c.asked) {
					t.Fatalf("requests %q", asked)
				}
				for i, a := range asked {
					if !strings.Contains(a+"&", c.asked[i]) || strings.Contains(a, "watch") && !strings.Contains(a, "allowWatchBookmarks=true") {
						t.Errorf("request %q lacks %q", a, c.asked[i])
					}
				}
			})
		})
	}
}

// TestFollowGuarantee begins a state with each guarantee.
func TestFollowGuarantee(t *testing.T) {
	for _, a := range ages {
		for _, c := range []struct {
			guarantee consistentlist.Guarantee
			synced    string
			kind      consistentlist.Kind
		}{
			{consistentlist.Any, "110", ""},
			{consistentlist.NotOlderThan("107"), "110", ""},
			{consistentlist.NotOlderThan("999"), "", consistentlist.NotReached},
			{consistentlist.Exact("107"), "107", ""},
			{consistentlist.Exact("101"), "", consistentlist.Expired},
			{consistentlist.Exact(""), "", consistentlist.Invalid},
		} {
			t.Run(a.name+"/"+c.guarantee.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(a)
					for i := range 10 {
						m.write(fmt.Sprintf("object-%02d", i), false)
					}
					m.compact(105)
					var state mirror
					for e, err := range consistentlist.Follow(t.Context(), serve(t, m).typed, c.guarantee, consistentlist.Options{Limit: -1, Retries: 2}) {
						if err != nil {
							if kindOf(err) != c.kind {
								t.Errorf("%v, want %q", err, c.kind)
							}
							return
						}
						if err := state.take(e); err != nil {
							t.Fatal(err)
						}
						if state.synced && state.at == 110 {
							break
						}
						if e.Type == consistentlist.Synced && e.ResourceVersion != c.synced {
							t.Errorf("synced at %s, want %s", e.ResourceVersion, c.synced)
						}
					}
					if c.kind != "" || !maps.Equal(state.state, m.state(110)) {
						t.Errorf("%v, want an error %q or %v", state.state, c.kind, m.state(110))
					}
				})
			})
		}
	}
}

// TestFollowBrokenServers follows servers that keep no promise: an error in bounded
// time, and never a wrong order.
func TestFollowBrokenServers(t *testing.T) {
	event := func(kind, version string) []map[string]any {
		return []map[string]any{{"type": kind, "object": map[string]any{"kind": "ConfigMap", "apiVersion": "v1",
			"metadata": map[string]any{"name": "x", "resourceVersion": version}}}}
	}
	live := func(e map[string]any) bool {
		return e["object"].(map[string]any)["metadata"].(map[string]any)["name"] == "live"
	}
	for _, c := range []struct {
		name  string
		spoil func(m *model)
		kind  consistentlist.Kind
		says  string
	}{
		{"goes back in time", func(m *model) {
			m.spoil = func(e map[string]any) []map[string]any {
				if live(e) {
					return event("MODIFIED", "42")
				}
				return []map[string]any{e}
			}
		}, consistentlist.NotHonoured, "MODIFIED after version"},
		{"bookmark goes back", func(m *model) {
			m.spoil = func(e map[string]any) []map[string]any {
				if live(e) {
					return event("BOOKMARK", "42")
				}
				return []map[string]any{e}
			}
		}, consistentlist.NotHonoured, "BOOKMARK after version"},
		{"event without a version", func(m *model) {
			m.spoil = func(e map[string]any) []map[string]any {
				if live(e) {
					return event("MODIFIED", "")
				}
				return []map[string]any{e}
			}
		}, consistentlist.NotHonoured, "without a resource version"},
		{"watches end at once", func(m *model) {
			m.before = func(w http.ResponseWriter, r *http.Request) bool {
				return r.URL.Query().Has("watch") && !r.URL.Query().Has("sendInitialEvents")
			}
		}, "", "watches end at once"},
		{"every watch is expired", func(m *model) {
			m.age = ages[2]
			m.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Has("watch") && !r.URL.Query().Has("sendInitialEvents") {
					reply(w, 200, map[string]any{"type": "ERROR", "object": status(410, metav1.StatusReasonExpired, "too old", "", 0)})
					return true
				}
				return false
			}
		}, consistentlist.Expired, "too old"},
		{"restored from a backup", func(m *model) {
			m.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("resourceVersion") == "" {
					return false
				}
				if r.URL.Query().Has("sendInitialEvents") {
					tooLargeVersion(w)
					return true
				}
				reply(w, 200, map[string]any{"type": "ERROR", "object": status(410, metav1.StatusReasonExpired, "too old", "", 0)})
				return true
			}
		}, consistentlist.NotReached, "Too large"},
		{"the state has no version", func(m *model) {
			m.age = ages[2]
			m.tamper = func(_ *http.Request, page *response) { page.version = "" }
		}, consistentlist.NotHonoured, "no version to watch from"},
		{"garbage in the stream", func(m *model) {
			m.before = func(w http.ResponseWriter, r *http.Request) bool {
				if !r.URL.Query().Has("watch") || r.URL.Query().Has("sendInitialEvents") {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Nonsense","apiVersion":"?"}}`)
				return true
			}
		}, "", "unable to decode"},
		{"unreachable", func(m *model) {
			m.before = func(w http.ResponseWriter, r *http.Request) bool {
				if !r.URL.Query().Has("watch") || r.URL.Query().Has("sendInitialEvents") {
					return false
				}
				panic(http.ErrAbortHandler)
			}
		}, "", "cannot be reached"},
		{"forbidden", func(m *model) {
			m.before = func(w http.ResponseWriter, r *http.Request) bool {
				fail(w, 403, metav1.StatusReasonForbidden, "watch is forbidden", "", 0)
				return true
			}
		}, "", "watch is forbidden"},
		{"a watch that is never responded", func(m *model) {
			m.before = func(w http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
		}, "", "no response to a watch within 2m0s"},
		{"429 for a year", func(m *model) {
			m.before = func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Retry-After", "31536000")
				w.WriteHeader(429)
				return true
			}
		}, "", "no response to a watch within 2m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(ages[3])
				c.spoil(m)
				live := time.AfterFunc(time.Minute, func() { m.write("live", false) })
				cut := time.AfterFunc(2*time.Minute, m.cut)
				defer live.Stop()
				defer cut.Stop()
				began := time.Now()
				var last error
				for e, err := range consistentlist.Follow(t.Context(), serve(t, m).typed, consistentlist.MostRecent, consistentlist.Options{}) {
					if version, _ := strconv.Atoi(e.ResourceVersion); version == 42 {
						t.Error("an old event was yielded")
					}
					last = err
				}
				if last == nil || kindOf(last) != c.kind || !strings.Contains(last.Error(), c.says) {
					t.Errorf("%v, want %q that says %q", last, c.kind, c.says)
				}
				most := time.Hour
				if strings.Contains(c.says, "2m0s") {
					most = 3 * time.Minute
				}
				if took := time.Since(began); took > most {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}

// TestFollowOpaque follows a server whose versions are no integers, through a 410.
func TestFollowOpaque(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(ages[2])
		m.opaque = true
		expired := false
		m.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Has("watch") && !r.URL.Query().Has("sendInitialEvents") && !expired {
				expired = true
				m.write("second", false)
				reply(w, 200, map[string]any{"type": "ERROR", "object": status(410, metav1.StatusReasonExpired, "too old", "", 0)})
				return true
			}
			return false
		}
		var synced []string
		for e, err := range consistentlist.Follow(t.Context(), serve(t, m).dynamic, consistentlist.MostRecent, consistentlist.Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == consistentlist.Synced {
				if synced = append(synced, e.ResourceVersion); len(synced) == 2 {
					break
				}
			}
		}
		if got := fmt.Sprint(synced); got != "[rev-64 rev-65]" {
			t.Errorf("synced at %s", got)
		}
	})
}

// TestFollowFromRefuses gives FollowFrom pages that do not finish a list.
func TestFollowFromRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(ages[3])
		m.write("second", false)
		c := serve(t, m)
		pages := []consistentlist.Page[*corev1.ConfigMapList]{{}}
		for page := range consistentlist.List(t.Context(), c.typed, consistentlist.MostRecent, consistentlist.Options{Limit: 1}) {
			pages = append(pages, page)
			break
		}
		m.tamper = func(_ *http.Request, page *response) { page.version = "" }
		for page := range consistentlist.List(t.Context(), c.typed, consistentlist.MostRecent, consistentlist.Options{}) {
			pages = append(pages, page)
		}
		for _, page := range pages {
			for e, err := range consistentlist.FollowFrom(t.Context(), page) {
				if kindOf(err) != consistentlist.Invalid {
					t.Errorf("%+v, %v", e, err)
				}
			}
		}
	})
}

// TestFollowInconsistent follows a list whose version expired while it was read: the
// changes that its pages missed are not lost, since a new state comes.
func TestFollowInconsistent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(ages[3])
		for i := range 10 {
			m.write(fmt.Sprintf("object-%02d", i), false)
		}
		served := 0
		m.tamper = func(*http.Request, *response) {
			if served++; served == 2 {
				m.write("object-00", true)
				m.compact(m.write("object-09", false))
			}
		}
		list, err := collect(t.Context(), serve(t, m).typed, consistentlist.MostRecent, consistentlist.Options{Limit: 3, Inconsistent: true})
		if err != nil || !list.inconsistent {
			t.Fatal(list, err)
		}
		state := mirror{state: list.state}
		for e, err := range consistentlist.FollowFrom(t.Context(), list.last.(consistentlist.Page[*corev1.ConfigMapList])) {
			if err != nil {
				t.Fatal(err)
			}
			if err := state.take(e); err != nil {
				t.Fatal(err)
			}
			if e.Type == consistentlist.Synced {
				break
			}
		}
		if state.resets != 1 || !maps.Equal(state.state, m.state(m.now())) {
			t.Errorf("%d resets, %v, want %v", state.resets, state.state, m.state(m.now()))
		}
	})
}

// scripted is a client whose watch sends prepared events, and then cancels the context.
type scripted struct {
	listClient
	events []watch.Event
}

func (s scripted) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(len(s.events), false)
	for _, e := range s.events {
		w.Action(e.Type, e.Object)
	}
	return w, nil
}

// TestFollowAllocations follows a state of one page, and events. The follower must not
// allocate for each object.
func TestFollowAllocations(t *testing.T) {
	cost := func(objects int) float64 {
		list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: make([]corev1.ConfigMap, objects)}
		client := scripted{listClient{func(metav1.ListOptions) (*corev1.ConfigMapList, error) { return list, nil }}, nil}
		ctx := context.Background()
		return testing.AllocsPerRun(20, func() {
			for e, err := range consistentlist.Follow(ctx, client, consistentlist.Exact("7"), consistentlist.Options{}) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Type == consistentlist.Synced {
					break
				}
			}
		})
	}
	few, many := cost(1), cost(10_000)
	t.Logf("%v allocations for a state of 1 object, %v for one of 10,000", few, many)
	if many > few+2 {
		t.Errorf("%v allocations for a state of 1 object, %v for one of 10,000", few, many)
	}
}

func TestFollowUnknownEvent(t *testing.T) {
	client := scripted{listClient{}, []watch.Event{{Type: "MOVED", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}}}}
	var last error
	for _, err := range consistentlist.Follow(t.Context(), client, consistentlist.MostRecent, consistentlist.Options{}) {
		last = err
	}
	if e, ok := errors.AsType[*consistentlist.Error](last); !ok || e.Kind != consistentlist.NotHonoured || !strings.Contains(e.Detail, "MOVED") {
		t.Errorf("%v", last)
	}
}

// TestFollowPlainBookmark lets a bookmark come before the initial events are
// complete: it does not end them, and silence does.
func TestFollowPlainBookmark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(version string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
		}
		list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}
		client := scripted{listClient{func(metav1.ListOptions) (*corev1.ConfigMapList, error) { return list, nil }},
			[]watch.Event{{Type: watch.Added, Object: at("5")}, {Type: watch.Bookmark, Object: at("7")}}}
		began := time.Now()
		for e, err := range consistentlist.Follow(t.Context(), client, consistentlist.MostRecent, consistentlist.Options{}) {
			if err != nil || e.Type == watch.Bookmark {
				t.Fatalf("%+v, %v", e, err)
			}
			if e.Type == consistentlist.Synced {
				if e.ResourceVersion != "9" || time.Since(began) != 10*time.Second {
					t.Errorf("synced at %s after %v, want 9 after 10 s", e.ResourceVersion, time.Since(began))
				}
				break
			}
		}
	})
}
