package test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/tidemark-dev/tidemark/consistentlist"
	"github.com/tidemark-dev/tidemark/resourceversion"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// own selects the objects of these tests: kube-apiserver's controllers make others.
const own = "own=yes"

// history is the writes of a test: the state at each version.
type history struct {
	t          *testing.T
	configMaps interface {
		Create(context.Context, *corev1.ConfigMap, metav1.CreateOptions) (*corev1.ConfigMap, error)
		Update(context.Context, *corev1.ConfigMap, metav1.UpdateOptions) (*corev1.ConfigMap, error)
		Delete(context.Context, string, metav1.DeleteOptions) error
	}

	mu     sync.Mutex
	states map[string]map[string]string // version -> name -> version; guarded by mu
	now    map[string]string            // guarded by mu
}

// put creates or updates an object, and returns its version.
func (h *history) put(ctx context.Context, name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"own": "yes"}},
		Data: map[string]string{"n": strconv.Itoa(len(h.states))}}
	var err error
	if _, there := h.now[name]; there {
		object, err = h.configMaps.Update(ctx, object, metav1.UpdateOptions{})
	} else {
		object, err = h.configMaps.Create(ctx, object, metav1.CreateOptions{})
	}
	if err != nil {
		h.t.Error(err)
		return ""
	}
	h.now[name] = object.ResourceVersion
	h.states[object.ResourceVersion] = maps.Clone(h.now)
	return object.ResourceVersion
}

// TestConsistentList lists with each guarantee by each client, in pages and whole, and compares the
// results with the writes.
func TestConsistentList(t *testing.T) {
	servers.Each(t, func(t *testing.T, s servers.Server) {
		config, namespace := s.Config, s.Namespace
		ctx := t.Context()
		cs := kubernetes.NewForConfigOrDie(config)
		h := &history{t: t, configMaps: cs.CoreV1().ConfigMaps(namespace), states: map[string]map[string]string{}, now: map[string]string{}}
		var versions []string
		for i := range 30 {
			versions = append(versions, h.put(ctx, fmt.Sprintf("object-%02d", i%17)))
		}
		gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
		for _, limit := range []int64{0, 5, -1} {
			o := consistentlist.Options{Limit: limit, LabelSelector: own}
			listAs(t, ctx, h, versions, cs.CoreV1().ConfigMaps(namespace), o)
			listAs(t, ctx, h, versions, dynamic.NewForConfigOrDie(config).Resource(gvr).Namespace(namespace), o)
			listAs(t, ctx, h, versions, metadata.NewForConfigOrDie(config).Resource(gvr).Namespace(namespace), o)
		}
	})
}

func listAs[L consistentlist.Collection](t *testing.T, ctx context.Context, h *history, versions []string, client consistentlist.Client[L], o consistentlist.Options) {
	t.Helper()
	last := versions[len(versions)-1]
	for g, want := range map[consistentlist.Guarantee]string{
		consistentlist.MostRecent:                 last,
		consistentlist.Any:                        "", // whatever
		consistentlist.NotOlderThan(versions[20]): versions[20],
		consistentlist.NotOlderThan(last):         last,
		consistentlist.Exact(versions[3]):         versions[3],
		consistentlist.Exact(versions[20]):        versions[20],
		consistentlist.Exact(last):                last,
	} {
		state, version := map[string]string{}, ""
		for page, err := range consistentlist.List(ctx, client, g, o) {
			if err != nil {
				t.Errorf("%T, limit %d, %v: %v", client, o.Limit, g, err)
				return
			}
			if page.First {
				state, version = map[string]string{}, page.List.GetResourceVersion()
			}
			err := meta.EachListItem(page.List, func(object runtime.Object) error {
				m, err := meta.Accessor(object)
				if err == nil {
					state[m.GetName()] = m.GetResourceVersion()
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		if want == "" {
			continue
		}
		if older, err := resourceversion.Less(version, want); err != nil || older {
			t.Errorf("%T, limit %d, %v: version %s, %v", client, o.Limit, g, version, err)
		}
		if g != consistentlist.Exact(want) {
			want = last // without concurrent writes, a newer state is the last one
			if older, err := resourceversion.Less(version, last); err != nil || older {
				continue // a cache that lags, as NotOlderThan allows
			}
		}
		if !maps.Equal(state, h.states[want]) {
			t.Errorf("%T, limit %d, %v: %v, want %v", client, o.Limit, g, state, h.states[want])
		}
	}
}

// TestFollowFrom writes while a list is read and followed. At each event's version the follower's
// state is the written one: no gap between list and watch.
func TestFollowFrom(t *testing.T) {
	servers.Each(t, func(t *testing.T, s servers.Server) {
		config, namespace := s.Config, s.Namespace
		r := random(t)
		ctx := t.Context()
		client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(namespace)
		h := &history{t: t, configMaps: client, states: map[string]map[string]string{}, now: map[string]string{}}
		for i := range 20 {
			h.put(ctx, fmt.Sprintf("object-%02d", i))
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 200 {
				h.put(ctx, fmt.Sprintf("object-%02d", r.IntN(30)))
			}
			h.put(ctx, lastName)
		}()
		o := consistentlist.Options{Limit: 5, LabelSelector: own}
		var last consistentlist.Page[*corev1.ConfigMapList]
		state := map[string]string{}
		for page, err := range consistentlist.List(ctx, client, consistentlist.MostRecent, o) {
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range page.List.Items {
				state[object.Name] = object.ResourceVersion
			}
			last = page
		}
		followed := consume(t, h, state, consistentlist.FollowFrom(ctx, last))
		fresh := consume(t, h, map[string]string{}, consistentlist.Follow(ctx, client, consistentlist.NotOlderThan(last.List.ResourceVersion), o))
		<-done
		t.Logf("%d events after the list, %d from nothing", followed, fresh)
	})
}

// lastName is the object that is written last.
const lastName = "the-last"

// consume reads events until the last write has come.
func consume(t *testing.T, h *history, state map[string]string, events iter.Seq2[consistentlist.Event, error]) int {
	t.Helper()
	n, synced := 0, len(state) > 0
	for e, err := range events {
		if err != nil {
			t.Fatalf("after %d events: %v", n, err)
		}
		n++
		switch e.Type {
		case consistentlist.Reset:
			clear(state)
			synced = false
		case consistentlist.Synced:
			synced = true
		case watch.Added, watch.Modified:
			state[e.Object.(*corev1.ConfigMap).Name] = e.ResourceVersion
		}
		h.mu.Lock() // waits for the write whose event this is
		want, known := h.states[e.ResourceVersion]
		h.mu.Unlock()
		if synced && known && !maps.Equal(state, want) {
			t.Fatalf("at %s: %v, want %v", e.ResourceVersion, state, want)
		}
		if _, last := state[lastName]; last && synced {
			if !known && e.Type != consistentlist.Synced {
				t.Fatalf("the last event has version %s, which no write has", e.ResourceVersion)
			}
			return n
		}
	}
	t.Fatal("the iteration ended without an error")
	return n
}
