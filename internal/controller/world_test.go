package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// world is a store with the verbs and the loops, as a server has them.
type world struct {
	testing.TB
	log    *mortal
	config controller.Config
	memory int64 // of the history; zero: as it comes
	// plugins are the admission chain from the next restart on.
	plugins []registry.Plugin
	// quotas has writes charged, from the next restart on.
	quotas bool
	// services has Services get addresses, from the next restart on.
	services bool
	// flows has FlowSchemas and levels maintained, from the next restart on.
	flows bool
	store *store.Store
	*registry.Registry
	loops *controller.Loops
	types func() *resource.Catalog
	dead  chan struct{} // closed when the log was killed
}

// newWorld begins with the namespaces "default" and "n", and with the loops that
// are named; none: with all.
func newWorld(t testing.TB, enabled ...string) *world {
	t.Helper()
	w := &world{TB: t, log: &mortal{Log: memlog.New()}, config: controller.Config{Enabled: enabled, RootCA: func() []byte { return []byte("the authority") }, Aggregated: new(controller.Aggregated)}}
	w.log.live(-1)
	w.types = builtin.Catalog
	w.open()
	t.Cleanup(w.close)
	for _, name := range []string{"default", "n"} {
		w.make("namespaces", "", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	}
	return w
}

// protecting returns the plugin that adds the finalizers which controllers remove.
func protecting(s *store.Store) []registry.Plugin {
	return slices.DeleteFunc(admission.Chain(admission.Config{Store: s}), func(p registry.Plugin) bool { return p.Name != "StorageObjectInUseProtection" })
}

func (w *world) open() {
	w.Helper()
	w.dead = make(chan struct{})
	dead := w.dead
	s, err := stores.Open(context.Background(), store.Options{Log: w.log, MaxMemory: w.memory, OnFatal: func(error) { close(dead) }})
	if err != nil {
		w.Fatal(err)
	}
	w.store, w.Registry = s, &registry.Registry{Store: s, Plugins: append(slices.Clone(w.plugins), protecting(s)...)}
	w.config.Registry = w.Registry
	if w.services {
		kind := w.kind("ipaddresses.networking.k8s.io")
		a, err := addresses.New(addresses.Config{Store: s, Type: kind, Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")}})
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(a.Close)
		w.config.Addresses = &addresses.Repair{Registry: w.Registry, Type: kind}
		w.Plugins = append(w.Plugins, a.Plugins()...)
	}
	if w.flows {
		if w.config.Flows, err = startup.NewFlows(startup.Config{Registry: w.Registry, Catalog: builtin.Catalog()}); err != nil {
			w.Fatal(err)
		}
	}
	if w.quotas {
		w.config.Quotas = &quota.Ledger{Quotas: w.kind(quota.Collection)}
		w.Plugins = append(w.Plugins, w.config.Quotas.Plugins()...)
	}
	if w.config.Catalog == nil {
		w.config.Catalog = builtin.Catalog
	}
	if w.config.Log == nil {
		w.config.Log = slog.New(slog.DiscardHandler)
	}
	if w.loops, err = controller.Start(w.config); err != nil {
		w.Fatal(err)
	}
}

func (w *world) close() {
	w.loops.Stop()
	if err := w.store.Close(); err != nil {
		w.Error(err)
	}
}

// restart replaces the loops, as a kill and a new process do.
func (w *world) restart() {
	w.Helper()
	w.close()
	w.open()
}

func (w *world) settle() {
	w.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := w.loops.Settled(ctx); err != nil {
		w.Fatalf("the controllers do not settle: %v", err)
	}
}

// kind finds a type by its collection.
func (w *world) kind(collection string) *resource.Type {
	w.Helper()
	for t := range w.types().Types() {
		if t.Collection == collection && t.Conversion == nil {
			return t
		}
	}
	w.Fatalf("no type %s", collection)
	return nil
}

func (w *world) target(collection, key string) registry.Target {
	w.Helper()
	t := registry.Target{Type: w.kind(collection), Name: key}
	if t.Type.Namespaced {
		t.Namespace, t.Name, _ = strings.Cut(key, "/")
	}
	return t
}

// make creates an object and returns its UID.
func (w *world) make(collection, namespace, body string) string {
	w.Helper()
	made, err := w.Create(w.Context(), registry.Target{Type: w.kind(collection), Namespace: namespace}, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{})
	if err != nil {
		w.Fatalf("create %s %s: %v", collection, body, err)
	}
	return string(registry.MetadataOf(made.Stored).UID)
}

// owned makes a ConfigMap with owners, each as reference makes it.
func (w *world) owned(namespace, name string, owners ...string) string {
	w.Helper()
	return w.make("configmaps", namespace, fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":[%s]}}`, name, strings.Join(owners, ",")))
}

func reference(kind, name, uid string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"name":%q,"uid":%q}`, kind, name, uid)
}

func blocking(kind, name, uid string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":true}`, kind, name, uid)
}

// erase deletes an object with a propagation policy; "" for none.
func (w *world) erase(collection, key string, policy metav1.DeletionPropagation) {
	w.Helper()
	o := &metav1.DeleteOptions{}
	if policy != "" {
		o.PropagationPolicy = &policy
	}
	if _, err := w.Delete(w.Context(), w.target(collection, key), o, nil); err != nil {
		w.Fatalf("delete %s %s: %v", collection, key, err)
	}
}

// change edits an object.
func (w *world) change(collection, key, subresource string, edit func(metav1.Object)) {
	w.Helper()
	t := w.target(collection, key)
	t.Subresource = subresource
	if _, err := w.Edit(w.Context(), t, "test", func(o metav1.Object) error { edit(o); return nil }); err != nil {
		w.Fatalf("edit %s %s: %v", collection, key, err)
	}
}

func (w *world) release(collection, key string) {
	w.Helper()
	w.change(collection, key, "", func(o metav1.Object) { o.SetFinalizers(nil) })
}

func (w *world) get(collection, key string) *store.Object {
	return w.store.Any().Get(collection, key)
}

func (w *world) want(collection, key string, there bool) {
	w.Helper()
	o := w.get(collection, key)
	switch {
	case there && o == nil:
		w.Errorf("%s %s is gone", collection, key)
	case !there && o != nil:
		w.Errorf("%s %s is still there: %s", collection, key, o.Bytes())
	}
}

// keys are those of a collection below a prefix.
func (w *world) keys(collection, prefix string) []string {
	var all []string
	for o := range w.store.Any().Snapshot(collection).Scan(prefix, "") {
		all = append(all, o.Key)
	}
	return all
}

func (w *world) owners(collection, key string) []string {
	w.Helper()
	all, err := registry.MetadataOf(w.get(collection, key)).Owners()
	if err != nil {
		w.Fatal(err)
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Name)
	}
	return names
}

func (w *world) namespace(name string) *corev1.Namespace {
	w.Helper()
	var n corev1.Namespace
	o := w.get("namespaces", name)
	if o == nil {
		w.Fatalf("the namespace %s is gone", name)
	}
	if err := json.Unmarshal(o.Bytes(), &n); err != nil {
		w.Fatal(err)
	}
	return &n
}

// recorded are the changes of all collections from now on.
func (w *world) recorded() func() []store.CollectionChange {
	w.Helper()
	f, err := w.store.Feed(w.store.Any().Revision())
	if err != nil {
		w.Fatal(err)
	}
	return func() []store.CollectionChange {
		var all []store.CollectionChange
		buf := make([]store.CollectionChange, 64)
		for {
			n, err := f.TryNext(context.Background(), buf)
			if err != nil {
				w.Fatal(err)
			}
			if n == 0 {
				f.Close()
				return all
			}
			all = append(all, slices.Clone(buf[:n])...)
		}
	}
}

// mortal is a log that can be killed: from a point on nothing is written any more,
// and nothing of a write that was under way.
type mortal struct {
	*memlog.Log
	left atomic.Int64
}

var errKilled = errors.New("killed")

// live has the log live for so many appends; below zero: for ever.
func (m *mortal) live(appends int64) {
	if appends < 0 {
		appends = 1 << 60
	}
	m.left.Store(appends)
}

func (m *mortal) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	if m.left.Add(-1) < 0 {
		return errKilled
	}
	return m.Log.Append(ctx, group, mark)
}

// killEverywhere makes a world, calls begin, and kills the log after one append, in the next world
// after two, and so on, each time with a restart, until the work completes before the kill. Then it
// calls check.
func killEverywhere(t *testing.T, prepare, begin, check func(w *world)) {
	for appends := int64(0); ; appends++ {
		w := newWorld(t)
		prepare(w)
		w.settle()
		begin(w)
		w.log.live(appends)
		killed := w.runOrDie()
		w.log.live(-1)
		w.restart()
		w.settle()
		check(w)
		if t.Failed() {
			t.Fatalf("killed after %d appends", appends)
		}
		if !killed {
			t.Logf("killed at %d points", appends)
			return
		}
	}
}

// runOrDie waits until the loops have settled, or the log was killed.
func (w *world) runOrDie() (killed bool) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	settled := make(chan error, 1)
	go func() { settled <- w.loops.Settled(ctx) }()
	select {
	case err := <-settled:
		if err != nil {
			w.Fatal(err)
		}
		return false
	case <-w.dead:
		stop()
		<-settled
		return true
	}
}

func status(err error) metav1.StatusReason { return apierrors.ReasonForError(err) }
