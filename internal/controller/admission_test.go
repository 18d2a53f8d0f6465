package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
)

// guard is a validating webhook for the deletion of ConfigMaps: it denies the deletion of those
// named "kept", and sends no response for those named "hung".
type guard struct {
	mu   sync.Mutex
	seen map[string]bool // users
	open bool
}

func (g *guard) plugin() registry.Plugin {
	g.seen = map[string]bool{}
	return registry.Plugin{Clients: true, Validate: func(ctx context.Context, a *registry.Attributes) error {
		g.mu.Lock()
		g.seen[string(a.Operation)+" "+a.Type.Collection+" "+a.Client().Name] = true
		open := g.open
		g.mu.Unlock()
		if open || a.Operation != "DELETE" || a.Type.Collection != "configmaps" {
			return nil
		}
		name := a.Old.(metav1.Object).GetName()
		if strings.HasPrefix(name, "kept") {
			return a.Forbidden("it is protected")
		}
		if !strings.HasPrefix(name, "hung") {
			return nil
		}
		select {
		case <-time.After(10 * time.Second):
			return errors.New("the webhook does not respond")
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

// TestNamespaceAdmitted checks that the content of a namespace is deleted by a user that admission
// sees, that protected objects stay, and that the other objects go.
func TestNamespaceAdmitted(t *testing.T) { synctest.Test(t, testNamespaceAdmitted) }

func testNamespaceAdmitted(t *testing.T) {
	w, g := newWorld(t, "namespace"), &guard{}
	w.plugins = append(w.plugins, g.plugin())
	w.make("secrets", "n", `{"metadata":{"name":"s"}}`)
	w.make("configmaps", "n", `{"metadata":{"name":"a-kept"}}`)
	w.make("configmaps", "n", `{"metadata":{"name":"kept"}}`)
	for i := range 600 {
		w.make("configmaps", "n", fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, i))
	}
	w.restart()
	w.erase("namespaces", "n", "")
	time.Sleep(time.Second)
	w.want("secrets", "n/s", false)
	if left := w.keys("configmaps", "n/"); len(left) != 1 || left[0] != "n/kept" {
		t.Errorf("%d ConfigMaps are left: %.200s", len(left), left)
	}
	if inTheWay, _ := w.conditions("n"); !strings.Contains(inTheWay, `Failed to delete all resource types, 1 remaining: configmaps "kept" is forbidden: it is protected`) {
		t.Errorf("the conditions say:\n%s", inTheWay)
	}
	g.mu.Lock()
	g.open = true
	for _, want := range []string{"DELETE configmaps", "DELETE secrets", "UPDATE namespaces"} {
		if !g.seen[want+" system:serviceaccount:kube-system:namespace-controller"] {
			t.Errorf("%s was not seen: %v", want, g.seen)
		}
	}
	g.mu.Unlock()
	time.Sleep(2 * time.Minute)
	w.want("namespaces", "n", false)
}

// TestHungWebhook checks that a webhook that does not respond delays the garbage collection of its
// own collection only.
func TestHungWebhook(t *testing.T) { synctest.Test(t, testHungWebhook) }

func testHungWebhook(t *testing.T) {
	w, g := newWorld(t, "garbage-collector"), &guard{}
	w.plugins = append(w.plugins, g.plugin())
	owner := w.make("secrets", "n", `{"metadata":{"name":"owner"}}`)
	for i := range 400 {
		w.owned("n", fmt.Sprintf("hung%d", i), reference("Secret", "owner", owner))
	}
	later := w.make("secrets", "n", `{"metadata":{"name":"later"}}`)
	w.make("secrets", "n", fmt.Sprintf(`{"metadata":{"name":"dependent","ownerReferences":[%s]}}`, reference("Secret", "later", later)))
	w.restart()
	w.erase("secrets", "n/owner", "")
	time.Sleep(time.Minute) // all workers have met the webhook
	w.erase("secrets", "n/later", "")
	time.Sleep(2 * time.Second)
	w.want("secrets", "n/dependent", false)
	if left := w.keys("configmaps", "n/"); len(left) != 400 {
		t.Errorf("%d ConfigMaps are left", len(left))
	}
	g.mu.Lock()
	g.open = true
	g.mu.Unlock()
	time.Sleep(3 * time.Minute)
	if left := w.keys("configmaps", "n/"); len(left) != 0 {
		t.Errorf("%d ConfigMaps are left after the webhook is gone", len(left))
	}
	if g.mu.Lock(); !g.seen["DELETE configmaps system:serviceaccount:kube-system:generic-garbage-collector"] {
		t.Errorf("seen: %v", g.seen)
	}
	g.mu.Unlock()
}

// TestOwnWork checks that admission does not apply to the internal writes of the server.
func TestOwnWork(t *testing.T) { synctest.Test(t, testOwnWork) }

func testOwnWork(t *testing.T) {
	w, g := newWorld(t), &guard{}
	w.config.EventTTL = time.Minute
	w.plugins = append(w.plugins, g.plugin())
	w.restart()
	w.make("events", "n", event("e"))
	time.Sleep(2 * time.Minute)
	w.want("events", "n/e", false)
	g.mu.Lock()
	defer g.mu.Unlock()
	for seen := range g.seen {
		if strings.Contains(seen, "events") {
			t.Errorf("admission saw %s", seen)
		}
	}
}
