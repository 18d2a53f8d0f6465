// Package startup makes the objects that clients find on every server: namespaces, the
// Service `kubernetes`, RBAC's roles and bindings, priority classes, flow schemas and priority
// levels, the APIServices of the groups that are served here, and the ConfigMap by which
// extension servers verify clients.
//
// Most of them are data: objects.gz holds them as kube-apiserver makes them. Objects that exist
// are reconciled as kube-apiserver does it, kind by kind, and not written if nothing is
// missing in them.
package startup

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

//go:generate go run ../../tools/gen/startup

//go:embed objects.gz
var objects []byte

// Config is what the objects depend on.
type Config struct {
	Registry *registry.Registry
	Catalog  *resource.Catalog
	// Enabled reports whether a feature gate is enabled, which decides about roles and rules; nil: all are.
	Enabled func(gate string) bool
	// Clients is the data of the ConfigMap by which extension servers authenticate clients; empty:
	// there is no such ConfigMap.
	Clients map[string]string
	// Ranges are the ranges of cluster IPs. First is the cluster IP of the server itself.
	Ranges []netip.Prefix
	First  netip.Addr
	// Address is where other machines reach the server. Without a valid IP address, or with
	// one of the loopback interface, there are no endpoints of the Service `kubernetes`.
	Address netip.AddrPort
	// Shared: other servers use the same log. Ensure leaves the endpoints to PutEndpoints, and tries
	// again when another server has written the same objects at the same time.
	Shared bool
	// Now is the wall clock; nil: time.Now.
	Now func() time.Time
}

func (c *Config) now() metav1.Time {
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	return metav1.NewTime(now().UTC().Truncate(time.Second))
}

// The field managers that the objects have on kube-apiserver.
const (
	manager      = "kube-apiserver"
	flowProducer = "api-priority-and-fairness-config-producer-v1"
	flowConsumer = "api-priority-and-fairness-config-consumer-v1"
)

// desired is an object as it should be.
type desired struct {
	target registry.Target
	// labels are the members `labels` and `annotations`, own the members of the kind itself, as
	// the server encodes them in JSON.
	labels, own []byte
}

// body returns the object as JSON.
func (w *desired) body() []byte {
	t := w.target.Type
	text := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q`, t.GroupVersion(), t.Kind, w.target.Name)
	if len(w.labels) > 0 {
		text = append(append(text, ','), w.labels...)
	}
	return append(append(append(text, "},"...), w.own...), '}')
}

// same reports whether the stored bytes contain everything that is desired. It may be false for an
// object that contains more, which is decoded then.
func (w *desired) same(stored *store.Object) bool {
	return bytes.Contains(stored.Bytes(), w.labels) && bytes.Contains(stored.Bytes(), w.own)
}

// maxParallel is how many objects are written at a time: a durable log syncs once for all of them.
const maxParallel = 16

// namespaces are created first, since other objects are in them.
var namespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// Ensure creates the objects that are missing and updates the others. It returns when all are
// stored. Other clients may write at the same time.
func Ensure(ctx context.Context, c Config) error {
	ctx = registry.WithLoop(ctx, "startup")
	err := c.ensureAll(ctx)
	for tries := 1; err != nil && c.Shared && tries < sharedTries && ctx.Err() == nil; tries++ {
		if _, failed := c.Registry.Store.MostRecent(ctx); failed != nil {
			break
		}
		err = c.ensureAll(ctx)
	}
	return err
}

// sharedTries is how often servers that start at the same time try.
const sharedTries = 4

func (c Config) ensureAll(ctx context.Context) error {
	var first []func() error
	for _, name := range namespaces {
		t := registry.Target{Type: c.Catalog.Lookup("", "v1", "namespaces"), Name: name}
		if c.stored(t) == nil {
			first = append(first, func() error { return c.write(ctx, t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}) })
		}
	}
	rest, err := c.embedded(ctx)
	rest = append(rest, func() error { return c.ensureClients(ctx) }, func() error { return c.ensureService(ctx) })
	if err = errors.Join(err, c.inParallel(first)); err == nil {
		err = c.inParallel(rest)
	}
	if err != nil {
		return fmt.Errorf("the objects that every server has cannot be made: %w", err)
	}
	return nil
}

// inParallel calls functions, up to maxParallel at a time. The goroutines are few, so that their stacks grow once.
func (c *Config) inParallel(all []func() error) error {
	errs := make([]error, len(all))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(c.Registry.Width(maxParallel), len(all)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				errs[i] = all[i]()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// embedded returns the functions that create or update the embedded objects.
func (c Config) embedded(ctx context.Context) (all []func() error, err error) {
	err = each(c.Catalog, func(w desired) {
		if !c.adapt(&w) {
			return
		}
		stored := c.stored(w.target)
		if stored != nil && w.same(stored) {
			return
		}
		all = append(all, func() error {
			if err := c.ensure(ctx, w, stored); err != nil {
				return fmt.Errorf("%s %s: %w", w.target.Type.Kind, w.target.Name, err)
			}
			return nil
		})
	})
	return all, err
}

// each yields the embedded objects.
func each(c *resource.Catalog, yield func(desired)) error {
	r, err := gzip.NewReader(bytes.NewReader(objects))
	if err != nil {
		return fmt.Errorf("the embedded objects: %w", err)
	}
	all, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("the embedded objects: %w", err)
	}
	for line := range bytes.Lines(all) {
		f := bytes.Split(bytes.TrimSuffix(line, []byte("\n")), []byte("\t"))
		t := served(c, string(f[0]), string(f[1]))
		if t == nil {
			return fmt.Errorf("the embedded objects: %s in %s is not served", f[1], f[0])
		}
		yield(desired{registry.Target{Type: t, Namespace: string(f[2]), Name: string(f[3])}, f[4], f[5]})
	}
	return nil
}

// served returns the type of a kind, nil if it is not served.
func served(c *resource.Catalog, apiVersion, kind string) *resource.Type {
	for t := range c.Types() {
		if t.Kind == kind && t.GroupVersion().String() == apiVersion {
			return t
		}
	}
	return nil
}

// stored returns the object of a target, nil if it does not exist.
func (c Config) stored(t registry.Target) *store.Object {
	return c.Registry.Store.Any().Get(t.Type.Collection, key(t))
}

func key(t registry.Target) string {
	if t.Type.Namespaced {
		return t.Namespace + "/" + t.Name
	}
	return t.Name
}

// ensure makes an object, or reconciles the one that is stored.
func (c Config) ensure(ctx context.Context, w desired, stored *store.Object) error {
	if stored == nil {
		err := c.create(ctx, w)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	want, err := wire.Decode(w.target.Type, wire.JSON, w.body())
	if err != nil {
		return err
	}
	edit, by := reconcilerOf(want.Object.(metav1.Object))
	err = c.edit(ctx, w.target, by, edit)
	if errors.Is(err, errAnotherRole) {
		return c.recreate(ctx, w)
	}
	return err
}

// create creates an object. AlreadyExists means that another client was faster.
func (c Config) create(ctx context.Context, w desired) error {
	by, kind := manager, w.target.Type.Kind
	if kind == "FlowSchema" || kind == "PriorityLevelConfiguration" {
		by = flowProducer
	}
	t := w.target
	t.Name = ""
	_, err := c.Registry.Create(ctx, t, registry.Body{Media: wire.JSON, Bytes: w.body()}, registry.WriteOptions{FieldManager: by})
	if err != nil || kind != "FlowSchema" {
		return err
	}
	return c.notDangling(ctx, w)
}

// recreate replaces a binding that refers to another role.
func (c Config) recreate(ctx context.Context, w desired) error {
	if _, err := c.Registry.Delete(ctx, w.target, nil, nil); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	err := c.create(ctx, w)
	if apierrors.IsAlreadyExists(err) { // its finalizers delay the deletion; the next start tries again
		return nil
	}
	return err
}

// errUnchanged ends an edit that changes nothing.
var errUnchanged = errors.New("nothing is missing")

// edit changes an object. A deleted object is no error.
func (c Config) edit(ctx context.Context, t registry.Target, by string, change func(metav1.Object) error) error {
	_, err := c.Registry.Edit(ctx, t, by, change)
	if errors.Is(err, errUnchanged) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
