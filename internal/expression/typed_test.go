package expression

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/randfill"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestTyped compares the values of random objects with those of their JSON.
func TestTyped(t *testing.T) {
	r := testrand.New(t)
	fill := randfill.NewWithSeed(int64(r.Uint64())).NilChance(0.4).NumElements(0, 3).MaxDepth(12).Funcs(
		func(f *metav1.FieldsV1, c randfill.Continue) { f.SetRawBytes([]byte(`{"f:a":{}}`)) },
		func(e *runtime.RawExtension, c randfill.Continue) {
			*e = runtime.RawExtension{Raw: []byte(`{"a":[1,2.5]}`)}
		},
	)
	for range 20 {
		for _, o := range []any{
			&corev1.Pod{}, &corev1.Secret{}, &corev1.ConfigMap{}, &corev1.Service{}, &corev1.Node{}, &appsv1.Deployment{}, &batchv1.CronJob{},
			&autoscalingv2.HorizontalPodAutoscaler{}, &networkingv1.Ingress{}, &admissionregistrationv1.MutatingWebhookConfiguration{},
			&admissionv1.AdmissionRequest{},
		} {
			fill.Fill(o)
			tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				continue // a random value that has no JSON
			}
			want := types.DefaultTypeAdapter.NativeToValue(tree)
			same(t, "", Typed(o, nil), want)
			if Typed(o, nil).Equal(want) != types.True || want.Equal(Typed(o, nil)) != types.True {
				t.Errorf("%T: the values are not equal", o)
			}
			if t.Failed() {
				text, _ := utiljson.Marshal(o)
				t.Fatalf("%s", text)
			}
		}
	}
}

// same compares two values by their members.
func same(t *testing.T, path string, got, want ref.Val) {
	t.Helper()
	if got.Type() != want.Type() {
		t.Errorf("%s: type %v, want %v", path, got.Type(), want.Type())
		return
	}
	switch want := want.(type) {
	case traits.Mapper:
		got := got.(traits.Mapper)
		if _, found := got.Find(types.String("no such member")); found {
			t.Errorf("%s has a member that there is not", path)
		}
		for i := want.Iterator(); i.HasNext() == types.True; {
			key := i.Next()
			value, found := got.Find(key)
			if !found || got.Contains(key) != types.True {
				t.Errorf("%s.%v is missing", path, key)
				continue
			}
			same(t, path+"."+string(key.(types.String)), value, want.Get(key))
		}
		if o, ok := got.(*object); ok && o.shape != nil {
			for name := range o.shape.index {
				_, has := got.Find(types.String(name))
				if _, wanted := want.Find(types.String(name)); has != wanted {
					t.Errorf("%s.%s: found %v, want %v", path, name, has, wanted)
				}
			}
		}
		if got.Size() != want.Size() {
			t.Errorf("%s: size %v, want %v", path, got.Size(), want.Size())
		}
	case traits.Lister:
		got := got.(traits.Lister)
		if got.Size() != want.Size() {
			t.Errorf("%s: size %v, want %v", path, got.Size(), want.Size())
			return
		}
		gi := got.Iterator()
		for i := want.Iterator(); i.HasNext() == types.True; {
			if gi.HasNext() != types.True {
				t.Errorf("%s ends early", path)
				return
			}
			same(t, path+"[]", gi.Next(), i.Next())
		}
	default:
		if got.Equal(want) != types.True {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

// TestManagedFields adds managed fields when an expression looks at them, or at the whole object.
func TestManagedFields(t *testing.T) {
	for text, want := range map[string]int{
		"object.metadata.name == 'p'":                               0,
		"object.metadata.managedFields[0].manager == 'm'":           1,
		"has(object.metadata.managedFields)":                        1,
		"object.metadata == object.metadata":                        1,
		"object.metadata.size() == 2 && object.metadata.size() > 0": 1,
		"object.exists(k, k == 'metadata')":                         1,
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		calls := 0
		o := Typed(pod, func() error {
			calls++
			pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
			return nil
		})
		p, failed := Compile(text, Variables{}, Stored)
		if failed != nil {
			t.Fatal(failed)
		}
		got, err := NewEvaluation(t.Context(), &Input{Object: o}, nil, Budget).Eval(p)
		if err != nil || got != types.True || (calls > 0) != (want > 0) {
			t.Errorf("%s: got %v, %v after %d calls", text, got, err, calls)
		}
	}
}

// TestEqualOfOtherKinds: a map or a list that is compared with a value of another kind is an error, as in Kubernetes 1.37.
func TestEqualOfOtherKinds(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}, Finalizers: []string{"f"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "a", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": quantity.MustParse("1Gi")}}},
		{Name: "b", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": quantity.MustParse("1024Mi")}}},
	}}}
	for text, want := range map[string]string{
		"object == 1":                       "no such overload",
		"object.metadata.labels == 'b'":     "no such overload",
		"object.metadata.finalizers == 'f'": "no such overload",
		"object != 1":                       "",
		"object == object":                  "",
		"object.metadata == {'name': dyn('p'), 'labels': dyn('x'), 'finalizers': dyn(['f'])}":        "no such overload",
		"object.metadata == {'name': dyn('p'), 'labels': dyn({'a': 'b'}), 'finalizers': dyn(['f'])}": "",
		"object.spec.containers[0].resources == object.spec.containers[1].resources":                 "",
		"object.spec.containers[0] != object.spec.containers[1]":                                     "",
		"object.metadata.labels == {'a': 'b'} && object.metadata.finalizers == ['f']":                "",
		"object.metadata.labels != null":                                                             "",
	} {
		p, failed := Compile(text, Variables{}, Stored)
		if failed != nil {
			t.Fatal(failed)
		}
		got, err := NewEvaluation(t.Context(), &Input{Object: Typed(pod, nil)}, nil, Budget).Eval(p)
		if want == "" && (err != nil || got != types.True) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, %v, want %q", text, got, err, want)
		}
	}
}
