package admission_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/admission/defaultclass"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

type classWorld struct {
	*testing.T
	*registry.Registry
	now time.Time
}

func newClassWorld(t *testing.T) *classWorld {
	s, err := stores.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &classWorld{T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Registry: &registry.Registry{Store: s, Plugins: []registry.Plugin{defaultclass.StorageClass(), defaultclass.Resize(), defaultclass.IngressClass()}}}
	w.Now = func() time.Time { return w.now }
	w.create("", "namespaces", "", `{"metadata":{"name":"n"}}`)
	return w
}

func (w *classWorld) create(group, resource, namespace, body string) *store.Object {
	w.Helper()
	t := registry.Target{Type: builtin.Catalog().Lookup(group, "v1", resource), Namespace: namespace}
	made, err := w.Create(w.Context(), t, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made.Stored
}

// class creates a class; mark is the value of the annotation of a default class.
func (w *classWorld) class(group, resource, name, annotation, mark, more string) {
	w.Helper()
	w.create(group, resource, "", fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{%q:%q}}%s}`, name, annotation, mark, more))
}

const storageMark = "storageclass.kubernetes.io/is-default-class"

func (w *classWorld) storageClass(name, mark string) {
	w.Helper()
	w.class("storage.k8s.io", "storageclasses", name, storageMark, mark, `,"provisioner":"p"`)
}

const claimSpec = `"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}`

// TestStorageClass checks that a claim without a class gets the default class, if there is one.
func TestStorageClass(t *testing.T) {
	w := newClassWorld(t)
	claim := func(name, metadata, spec string) *string {
		t.Helper()
		c, err := registry.Decode[corev1.PersistentVolumeClaim](w.create("", "persistentvolumeclaims", "n", fmt.Sprintf(`{"metadata":{"name":%q%s},"spec":{%s%s}}`, name, metadata, claimSpec, spec)))
		if err != nil {
			t.Fatal(err)
		}
		return c.Spec.StorageClassName
	}
	w.storageClass("plain", "false")
	if got := claim("none", "", ""); got != nil {
		t.Errorf("without a default class: %q", *got)
	}
	w.storageClass("b", "true")
	w.storageClass("a", "true") // of classes with the same age, the first by name
	for name, c := range map[string]struct{ metadata, spec, want string }{
		"default": {"", "", "a"},
		"named":   {"", `,"storageClassName":"plain"`, "plain"},
		"empty":   {"", `,"storageClassName":""`, ""},
	} {
		if got := claim(name, c.metadata, c.spec); ptr.Deref(got, "nil") != c.want {
			t.Errorf("%s: %v, want %s", name, ptr.Deref(got, "nil"), c.want)
		}
	}
	w.now = w.now.Add(time.Minute)
	w.storageClass("z", "true")
	if got := claim("newest", "", ""); ptr.Deref(got, "nil") != "z" {
		t.Errorf("with a newer default class: %q", ptr.Deref(got, "nil"))
	}
	if got := claim("annotated", `,"annotations":{"volume.beta.kubernetes.io/storage-class":"plain"}`, ""); got != nil {
		t.Errorf("with the class in an annotation: %q", *got)
	}
}

// TestIngressClass checks that an Ingress without a class gets the default class.
func TestIngressClass(t *testing.T) {
	w := newClassWorld(t)
	w.class("networking.k8s.io", "ingressclasses", "d", networkingv1.AnnotationIsDefaultIngressClass, "true", `,"spec":{"controller":"example.com/c"}`)
	for name, c := range map[string]struct{ metadata, spec, want string }{
		"default":   {"", "", "d"},
		"named":     {"", `"ingressClassName":"x",`, "x"},
		"annotated": {`,"annotations":{"kubernetes.io/ingress.class":"x"}`, "", "nil"},
	} {
		o := w.create("networking.k8s.io", "ingresses", "n", fmt.Sprintf(`{"metadata":{"name":%q%s},"spec":{%s"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}`, name, c.metadata, c.spec))
		i, err := registry.Decode[networkingv1.Ingress](o)
		if err != nil {
			t.Fatal(err)
		}
		if got := ptr.Deref(i.Spec.IngressClassName, "nil"); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestClaimResize checks that a bound claim grows only if its class allows expansion.
func TestClaimResize(t *testing.T) {
	w := newClassWorld(t)
	w.storageClass("fixed", "false")
	w.class("storage.k8s.io", "storageclasses", "grows", storageMark, "false", `,"provisioner":"p","allowVolumeExpansion":true`)
	claims := builtin.Catalog().Lookup("", "v1", "persistentvolumeclaims")
	for class, allowed := range map[string]bool{"fixed": false, "grows": true, "absent": false} {
		w.create("", "persistentvolumeclaims", "n", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{%s,"storageClassName":%[1]q}}`, class, claimSpec))
		patch := func(subresource, body string) error {
			at := registry.Target{Type: claims, Namespace: "n", Name: class, Subresource: subresource}
			_, err := w.Patch(t.Context(), at, registry.Patch{Type: types.MergePatchType, Bytes: []byte(body)}, registry.WriteOptions{})
			return err
		}
		if err := patch("status", `{"status":{"phase":"Bound"}}`); err != nil {
			t.Fatal(err)
		}
		if err := patch("", `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
			t.Errorf("%s: an update of labels: %v", class, err)
		}
		err := patch("", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
		if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", class, err)
		}
	}
}
