package registry

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FuzzValidLabels checks that the library accepts all labels that the fast check accepts.
func FuzzValidLabels(f *testing.F) {
	for _, s := range []string{"a", "a/b", "a.b-c/D_e.f", "/", "a/", "/a", "a//b", "-", "a-", "-a/b", "a..b/c", "a-.b/c", "a.-b/c", "A/b", "a/-", "a@", "aà", "a\x10b", "\x19", "[", "`", "a.", ".a",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 253) + "/a", strings.Repeat("a", 254) + "/a", "a/" + strings.Repeat("a", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, labels := range []map[string]string{{s: ""}, {"k": s}, {s: s}} {
			if errs := v1validation.ValidateLabels(labels, field.NewPath("labels")); validLabels(labels) && len(errs) > 0 {
				t.Errorf("%q is taken for right: %v", labels, errs)
			}
			if errs := validation.ValidateAnnotations(labels, field.NewPath("annotations")); validAnnotations(labels) && len(errs) > 0 {
				t.Errorf("%q are taken for right: %v", labels, errs)
			}
		}
	})
}

// TestValidLabels checks that common labels pass the fast check, and that no other metadata is left
// out.
func TestValidLabels(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Labels: map[string]string{"app.kubernetes.io/name": "Web_1.2", "slot": ""}, Annotations: map[string]string{"Checksum/config": "x"},
		Finalizers: []string{"a"},
	}}
	if withoutValidLabels(p) != metav1.Object(p) {
		t.Error("a key with a large letter before its slash is not for sure right")
	}
	p.Annotations = map[string]string{"checksum/config": "ä ö", "b": ""}
	got := withoutValidLabels(p)
	if got.GetLabels() != nil || got.GetAnnotations() != nil || got.GetName() != "web" || len(got.GetFinalizers()) != 1 || len(p.Labels) != 2 {
		t.Errorf("%+v of %+v", got, p)
	}
	p.Annotations["b"] = strings.Repeat("x", validation.TotalAnnotationSizeLimitB)
	if withoutValidLabels(p) != metav1.Object(p) {
		t.Error("annotations that are too large are taken for right")
	}
}

// BenchmarkValidate validates the metadata of a pod.
func BenchmarkValidate(b *testing.B) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-5c689d88bb-0000001", Namespace: "default", Labels: map[string]string{}, Annotations: map[string]string{}}}
	for i := range 5 {
		p.Labels[fmt.Sprintf("app.kubernetes.io/name-%d", i)] = "web-1"
	}
	for i := range 4 {
		p.Annotations[fmt.Sprintf("bench.tidemark.dev/mark-%d", i)] = "anything"
	}
	typ := typeOf(b, "", "pods")
	b.ReportAllocs()
	for b.Loop() {
		if errs := validateMeta(typ, p, typ.Strategy.Metadata.ValidateName); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
