package etcdlog_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// refusedAs reports an error that is not a Status of a code whose message has a text.
func refusedAs(t *testing.T, what string, err error, code int32, text string) {
	t.Helper()
	s, ok := err.(apierrors.APIStatus)
	if !ok || s.Status().Code != code || !strings.Contains(s.Status().Message, text) {
		t.Errorf("%s: got %v, want %d with %q", what, err, code, text)
	}
}

// TestLargerThanRequests: an object that etcd does not take is tried without its managed fields, and refused if
// it is still too large.
func TestLargerThanRequests(t *testing.T) {
	_, client := serve(t, startCluster(t, 1, nil))
	ctx := t.Context()
	for _, size := range []int{1600 << 10, 2 << 20, 2900 << 10} { // etcd refuses some, and the client of etcd the others
		data, err := json.Marshal(map[string]string{"x": strings.Repeat("x", size)})
		must(t, err)
		revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: runtime.RawExtension{Raw: data}}
		_, err = client.AppsV1().ControllerRevisions("default").Create(ctx, revision, metav1.CreateOptions{})
		refusedAs(t, fmt.Sprint(size, " bytes"), err, http.StatusRequestEntityTooLarge, "--max-request-bytes")
	}

	maps := client.CoreV1().ConfigMaps("default")
	many := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "many"}, Data: map[string]string{}}
	for i := range 4000 { // as much again in managed fields
		many.Data[fmt.Sprintf("%04d%s", i, strings.Repeat("x", 240))] = ""
	}
	made, err := maps.Create(ctx, many, metav1.CreateOptions{})
	must(t, err)
	if len(made.ManagedFields) > 0 || len(made.Data) != len(many.Data) {
		t.Errorf("created with %d managers and %d keys", len(made.ManagedFields), len(made.Data))
	}
	made.Data["y"] = "1"
	made, err = maps.Update(ctx, made, metav1.UpdateOptions{})
	must(t, err)
	if made.Data["y"] != "1" {
		t.Error("the update was not made")
	}
	if _, err := maps.Patch(ctx, "many", types.MergePatchType, []byte(`{"data":{"y":"2"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a patch: %v", err)
	}
	// An apply is about managed fields. It fails in kube-apiserver, too.
	config := many.DeepCopy()
	config.Name, config.TypeMeta = "applied", metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	body, err := json.Marshal(config)
	must(t, err)
	_, err = maps.Patch(ctx, "applied", types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "a"})
	refusedAs(t, "an apply", err, http.StatusRequestEntityTooLarge, "--max-request-bytes")
}

// TestManyConditions checks that a Service may have more node ports than a transaction of etcd has
// conditions. A write with too many conditions is rejected by name.
func TestManyConditions(t *testing.T) {
	s, client := serve(t, startCluster(t, 1, nil))
	ctx := t.Context()
	services := client.CoreV1().Services("default")
	many := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "many"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}
	for i := range int32(300) {
		many.Spec.Ports = append(many.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: 1 + i})
	}
	made, err := services.Create(ctx, many, metav1.CreateOptions{})
	must(t, err)
	given := map[int32]bool{}
	for _, p := range made.Spec.Ports {
		given[p.NodePort] = true
	}
	if len(given) != 300 || given[0] {
		t.Errorf("the Service has %d node ports, want 300", len(given))
	}
	taken := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "taken"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort,
		Ports: []corev1.ServicePort{{Port: 80, NodePort: made.Spec.Ports[299].NodePort}}}}
	_, err = services.Create(ctx, taken, metav1.CreateOptions{})
	refusedAs(t, "a port that is taken", err, http.StatusUnprocessableEntity, "already allocated")
	made.Spec.Ports = made.Spec.Ports[:299]
	_, err = services.Update(ctx, made, metav1.UpdateOptions{})
	must(t, err)
	_, err = services.Create(ctx, taken, metav1.CreateOptions{})
	must(t, err)
	must(t, services.Delete(ctx, "many", metav1.DeleteOptions{}))

	var names []string
	for i := range 400 {
		names = append(names, fmt.Sprint("w", i))
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{"group": "example.com", "scope": "Namespaced",
			"names":    map[string]any{"plural": "widgets", "kind": "Widget", "shortNames": asAny(names)},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}}},
	}}
	custom, err := dynamic.NewForConfig(s.RESTConfig())
	must(t, err)
	definitions := custom.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err = definitions.Create(ctx, definition, metav1.CreateOptions{})
	refusedAs(t, "a definition with 400 names", err, http.StatusUnprocessableEntity, "etcd accepts 128 (its flag --max-txn-ops)")
	if apierrors.ReasonForError(err) != metav1.StatusReasonInvalid || strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("got %v, want an invalid object, and not because of its name", err)
	}
}

func asAny(texts []string) (all []any) {
	for _, text := range texts {
		all = append(all, text)
	}
	return all
}
