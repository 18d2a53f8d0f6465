// Package startup makes the objects that clients find on every server: RBAC's roles
// and bindings, priority classes, flow schemas and priority levels, the APIServices
// of the groups that are served here, and what extension servers know clients by.
//
// They are data: objects.gz holds them as kube-apiserver makes them. What is
// there already is mended as kube-apiserver does, kind by kind, and not written when
// nothing is missing in it.
package startup

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

//go:generate go run ../../tools/gen/startup

//go:embed objects.gz
var embedded []byte

// Config is what the objects are made with.
type Config struct {
	Registry *registry.Registry
	Catalog  *resource.Catalog
	// ClientCA holds the certificates (PEM) that sign those of clients; empty: nobody
	// is told.
	ClientCA []byte
}

// The field managers that the objects have on kube-apiserver.
const (
	manager      = "kube-apiserver"
	flowProducer = "api-priority-and-fairness-config-producer-v1"
	flowConsumer = "api-priority-and-fairness-config-consumer-v1"
)

// wanted is an object as it shall be.
type wanted struct {
	target registry.Target
	// labels are those and the annotations, own what is the kind's: members of JSON, as
	// the server writes them in one piece each.
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

// same reports whether the stored bytes have all that is wanted, as the server itself
// writes it. False may also be said of an object that has more, which is then looked
// at closely.
func (w *wanted) same(stored *store.Object) bool {
	return bytes.Contains(stored.Bytes(), w.labels) && bytes.Contains(stored.Bytes(), w.own)
}

// width is how many objects are made at a time: a durable log syncs once for all of
// them.
const width = 16

// Ensure makes what is missing. It returns when everything is there. It may run while
// others write.
func Ensure(ctx context.Context, c Config) error {
	var errs []error
	done, pending := make(chan error, width), 0
	run := func(do func() error) {
		if pending == width {
			errs = append(errs, <-done)
			pending--
		}
		pending++
		go func() { done <- do() }()
	}
	errs = append(errs, each(c.Catalog, func(w wanted) {
		stored := c.Registry.Store.Any().Get(w.target.Type.Collection, key(w.target))
		if stored != nil && w.same(stored) {
			return
		}
		run(func() error {
			if err := c.ensure(ctx, w, stored); err != nil {
				return fmt.Errorf("%s %s: %w", w.target.Type.Kind, w.target.Name, err)
			}
			return nil
		})
	}))
	run(func() error { return c.ensureClientCA(ctx) })
	for range pending {
		errs = append(errs, <-done)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the objects that every server has cannot be made: %w", err)
	}
	return nil
}

// each reads what is embedded.
func each(c *resource.Catalog, yield func(wanted)) error {
	r, err := gzip.NewReader(bytes.NewReader(embedded))
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

func key(t registry.Target) string {
	if t.Type.Namespaced {
		return t.Namespace + "/" + t.Name
	}
	return t.Name
}

// ensure makes an object, or mends the one that is stored.
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
	mend, by := mends(want.Object.(metav1.Object))
	err = c.edit(ctx, w.target, by, mend)
	if errors.Is(err, errAnotherRole) {
		return c.recreate(ctx, w)
	}
	return err
}

// create makes an object. Somebody else may have been faster.
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

// recreate makes a binding of another role of the one that there is.
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

// edit mends an object, unless it is gone meanwhile.
func (c Config) edit(ctx context.Context, t registry.Target, by string, mend func(metav1.Object) error) error {
	_, err := c.Registry.Edit(ctx, t, by, mend)
	if errors.Is(err, errLeave) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
