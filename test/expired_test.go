package test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/consistentlist"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/resourceversion"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// peerForgets says that the kube-apiserver of servers.PeerKubeconfig forgets old versions
// within seconds: it was started with a short --etcd-compaction-interval.
const peerForgets = "TIDEMARK_TEST_PEER_FORGETS"

// onForgetful runs a test against servers that forget old versions soon.
func onForgetful(t *testing.T, test func(t *testing.T, config *rest.Config, namespace string)) {
	t.Run("tidemark", func(t *testing.T) {
		s := &tidemark.Server{Memory: tidemark.Memory{MaxHistoryBytes: 64 << 10}}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, servers.Quick(s.RESTConfig()), "default")
	})
	if os.Getenv(peerForgets) != "" {
		servers.Peer(t, func(t *testing.T, s servers.Server) { test(t, s.Config, s.Namespace) })
	}
}

// forget writes until a version is gone.
func forget(t *testing.T, ctx context.Context, client typedcorev1.ConfigMapInterface, version string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "noise"}}
	if _, err := client.Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	n := 0
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		n++
		object.Data = map[string]string{"n": fmt.Sprint(n), "text": strings.Repeat(fmt.Sprint(n), 10_000)}
		if _, err := client.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return false, err
		}
		_, err := client.List(ctx, metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 1})
		if apierrors.IsResourceExpired(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		t.Fatalf("version %s is not forgotten after %d writes: %v", version, n, err)
	}
}

// pulled is a list that is read page by page.
type pulled struct {
	next func() (consistentlist.Page[*corev1.ConfigMapList], error, bool)
	stop func()
	seen map[string]string
}

func pull(ctx context.Context, client typedcorev1.ConfigMapInterface, g consistentlist.Guarantee, o consistentlist.Options) *pulled {
	next, stop := iter.Pull2(consistentlist.List(ctx, client, g, o))
	return &pulled{next: next, stop: stop, seen: map[string]string{}}
}

// page takes the next one; false at the end of the list.
func (p *pulled) page(t *testing.T) (page consistentlist.Page[*corev1.ConfigMapList], more bool) {
	t.Helper()
	page, err, more := p.next()
	if err != nil {
		t.Fatal(err)
	}
	if more {
		if page.First {
			clear(p.seen)
		}
		for _, object := range page.List.Items {
			p.seen[object.Name] = object.ResourceVersion
		}
	}
	return page, more
}

// TestExpires checks versions that a real server compacts between two pages, before a list at
// exactly one of them, and between a list and a watch.
func TestExpires(t *testing.T) {
	tier.Full(t)
	onForgetful(t, func(t *testing.T, config *rest.Config, namespace string) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(namespace)
		h := &history{t: t, configMaps: client, states: map[string]map[string]string{}, now: map[string]string{}}
		for i := range 12 {
			h.put(ctx, fmt.Sprintf("object-%02d", i))
		}
		o := consistentlist.Options{Limit: 5, LabelSelector: own}
		going := o
		going.Inconsistent = true
		again, on := pull(ctx, client, consistentlist.MostRecent, o), pull(ctx, client, consistentlist.MostRecent, going)
		whole := pull(ctx, client, consistentlist.MostRecent, o)
		defer again.stop()
		defer on.stop()
		defer whole.stop()
		first, _ := again.page(t)
		on.page(t)
		version := first.List.ResourceVersion
		exact := pull(ctx, client, consistentlist.Exact(version), o)
		defer exact.stop()
		exact.page(t)
		var last consistentlist.Page[*corev1.ConfigMapList]
		for page, more := whole.page(t); more; page, more = whole.page(t) {
			last = page
		}
		h.put(ctx, "object-11")
		forget(t, ctx, client, last.List.ResourceVersion)

		restarted, inconsistent := 0, 0
		for page, more := again.page(t); more; page, more = again.page(t) {
			if page.First {
				restarted++
			}
		}
		for page, more := on.page(t); more; page, more = on.page(t) {
			if page.Inconsistent {
				inconsistent++
			}
			if page.First {
				t.Error("a list that may go on begins again")
			}
		}
		if restarted != 1 || !maps.Equal(again.seen, h.now) {
			t.Errorf("the list began again %d times, and ends with %v, want %v", restarted, again.seen, h.now)
		}
		if inconsistent == 0 || !maps.Equal(on.seen, h.now) { // the change was on a later page
			t.Errorf("%d pages are of a newer state, and the list ends with %v, want %v", inconsistent, on.seen, h.now)
		}
		if _, err, _ := exact.next(); kindOf(err) != consistentlist.Expired {
			t.Errorf("a list at exactly a forgotten version goes on: %v", err)
		}
		for _, err := range consistentlist.List(ctx, client, consistentlist.Exact(version), o) {
			if kindOf(err) != consistentlist.Expired {
				t.Errorf("a list at exactly a forgotten version: %v", err)
			}
		}
		followExpired(t, ctx, last, whole.seen, h.now)
	})
}

// followExpired follows a list whose version is forgotten: a new state comes, or the
// changes since from a server that forgets them later.
func followExpired(t *testing.T, ctx context.Context, last consistentlist.Page[*corev1.ConfigMapList], listed, want map[string]string) {
	t.Helper()
	state, synced := maps.Clone(listed), true
	for e, err := range consistentlist.FollowFrom(ctx, last) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case consistentlist.Reset:
			clear(state)
			synced = false
		case watch.Added, watch.Modified:
			state[e.Object.(*corev1.ConfigMap).Name] = e.ResourceVersion
		case consistentlist.Synced:
			synced = true
			if older, err := resourceversion.Less(e.ResourceVersion, last.List.ResourceVersion); err != nil || older {
				t.Errorf("the new state is of version %s, the list was of %s: %v", e.ResourceVersion, last.List.ResourceVersion, err)
			}
		}
		if synced && maps.Equal(state, want) {
			return
		}
	}
	t.Errorf("the iteration ended with %v, want %v", state, want)
}

func kindOf(err error) consistentlist.Kind {
	if e, ok := errors.AsType[*consistentlist.Error](err); ok {
		return e.Kind
	}
	return ""
}

// TestNotReached requests a version that is never reached. The error must come long before
// client-go gives up, and contain the server's version.
func TestNotReached(t *testing.T) {
	tier.Full(t)
	servers.Each(t, func(t *testing.T, s servers.Server) {
		ctx, config, namespace := t.Context(), s.Config, s.Namespace
		typed := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(namespace)
		l, err := typed.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		future := l.ResourceVersion + "0000"
		untyped := dynamic.NewForConfigOrDie(config).Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)
		for name, last := range map[string]func() error{
			"not older": func() (last error) {
				for _, last = range consistentlist.List(ctx, typed, consistentlist.NotOlderThan(future), consistentlist.Options{}) {
				}
				return last
			},
			"exact": func() (last error) {
				for _, last = range consistentlist.List(ctx, untyped, consistentlist.Exact(future), consistentlist.Options{}) {
				}
				return last
			},
			"follow": func() (last error) {
				for _, last = range consistentlist.Follow(ctx, typed, consistentlist.NotOlderThan(future), consistentlist.Options{}) {
				}
				return last
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				err := last()
				took := time.Since(began)
				if e, ok := errors.AsType[*consistentlist.Error](err); !ok || e.Kind != consistentlist.NotReached || e.Got == "" || took > 30*time.Second {
					t.Errorf("after %v: %v, want that the server is older", took, err)
				}
				t.Logf("%v: %v", took.Round(time.Millisecond), err)
			})
		}
	})
}
