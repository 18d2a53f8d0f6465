// Package startup makes the objects that clients find on every server: namespaces, the
// Service `kubernetes`, RBAC's roles and bindings, priority classes, flow schemas and priority
// levels, the APIServices of the groups that are served here, and the ConfigMap by which
// extension servers verify clients.
//
// Most of them are data: objects.gz holds them as kube-apiserver makes them. Objects that exist
// are reconciled as kube-apiserver does it, kind by kind, and not written when nothing is
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

// Config is what the objects are made with.
type Config struct {
	Registry *registry.Registry
	Catalog  *resource.Catalog
	// ClientCA holds the certificates (PEM) of the authorities that sign client
	// certificates; empty: there is no ConfigMap with them.
	ClientCA []byte
	// Ranges are the ranges of cluster IPs. First is the cluster IP of the server itself.
	Ranges []netip.Prefix
	First  netip.Addr
	// Address is where other machines reach the server. Without a valid IP address, or with
	// one of the loopback interface, there are no endpoints of the Service `kubernetes`.
	Address netip.AddrPort
}

// The field managers that the objects have on kube-apiserver.
const (
	manager      = "kube-apiserver"
	flowProducer = "api-priority-and-fairness-config-producer-v1"
	flowConsumer = "api-priority-and-fairness-config-consumer-v1"
)

// wanted is an object as it has to be.
type wanted struct {
	target registry.Target
	// labels are the members `labels` and `annotations`, own the members of the kind itself: in
	// JSON, each as the server encodes it.
	labels, own []byte
}

// body is the object as JSON.
func (w *wanted) body() []byte {
	t := w.target.Type
	text := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q`, t.GroupVersion(), t.Kind, w.target.Name)
	if len(w.labels) > 0 {
		text = append(append(text, ','), w.labels...)
	}
	return append(append(append(text, "},"...), w.own...), '}')
}

// same reports whether the stored bytes contain all that is wanted, as the server itself
// encodes it. It may be false for an object that has more, which is then decoded.
func (w *wanted) same(stored *store.Object) bool {
	return bytes.Contains(stored.Bytes(), w.labels) && bytes.Contains(stored.Bytes(), w.own)
}

// width is how many objects are made at a time: a durable log syncs once for all of
// them.
const width = 16

// namespaces are the first objects, since others are in them.
var namespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// Ensure makes what is missing. It returns when everything is there. It may run while
// other clients write.
func Ensure(ctx context.Context, c Config) error {
	var first []func() error
	for _, name := range namespaces {
		t := registry.Target{Type: c.Catalog.Lookup("", "v1", "namespaces"), Name: name}
		if c.stored(t) == nil {
			first = append(first, func() error { return c.write(ctx, t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}) })
		}
	}
	rest, err := c.embedded(ctx)
	rest = append(rest, func() error { return c.ensureClientCA(ctx) }, func() error { return c.ensureService(ctx) })
	if err = errors.Join(err, inParallel(first)); err == nil {
		err = inParallel(rest)
	}
	if err != nil {
		return fmt.Errorf("the objects that every server has cannot be made: %w", err)
	}
	return nil
}

// inParallel calls functions, as many as width at a time.
func inParallel(all []func() error) error {
	errs := make([]error, len(all))
	running := make(chan struct{}, width)
	var wg sync.WaitGroup
	for i, f := range all {
		running <- struct{}{}
		wg.Go(func() {
			errs[i] = f()
			<-running
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// embedded returns what has to be done for the embedded objects.
func (c Config) embedded(ctx context.Context) (all []func() error, err error) {
	err = each(c.Catalog, func(w wanted) {
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
func each(c *resource.Catalog, yield func(wanted)) error {
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
		yield(wanted{registry.Target{Type: t, Namespace: string(f[2]), Name: string(f[3])}, f[4], f[5]})
	}
	return nil
}

// served is the type of a kind.
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
func (c Config) ensure(ctx context.Context, w wanted, stored *store.Object) error {
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

// create makes an object. Another client may have been faster.
func (c Config) create(ctx context.Context, w wanted) error {
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
func (c Config) recreate(ctx context.Context, w wanted) error {
	if _, err := c.Registry.Delete(ctx, w.target, nil, nil); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	err := c.create(ctx, w)
	if apierrors.IsAlreadyExists(err) { // it has finalizers; the next start finds it
		return nil
	}
	return err
}

// errLeave ends an edit that is not needed.
var errLeave = errors.New("nothing is missing")

// edit changes an object, unless it was deleted meanwhile.
func (c Config) edit(ctx context.Context, t registry.Target, by string, change func(metav1.Object) error) error {
	_, err := c.Registry.Edit(ctx, t, by, change)
	if errors.Is(err, errLeave) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
