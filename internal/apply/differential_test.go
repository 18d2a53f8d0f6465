package apply_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

type kindCase struct {
	gvk   schema.GroupVersionKind
	empty func() runtime.Object
	full  string
}

// kinds that the random histories are of, with a large object each.
var kinds = []kindCase{
	{schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, func() runtime.Object { return &corev1.ConfigMap{} }, fullConfigMap},
	{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, func() runtime.Object { return &corev1.Pod{} }, fullPod},
	{schema.GroupVersionKind{Version: "v1", Kind: "Service"}, func() runtime.Object { return &corev1.Service{} }, fullService},
	{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, func() runtime.Object { return &appsv1.Deployment{} }, fullDeployment},
}

const metadata = `"metadata": {"name": "x", "namespace": "default", "labels": {"a": "1", "b": "2", "c<d": "3"},
	"annotations": {"x/y": "1", "z": "<&>"}, "finalizers": ["a/b", "c/d"],
	"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u1", "controller": true}, {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u2"}]}`

const fullConfigMap = `{"apiVersion": "v1", "kind": "ConfigMap", ` + metadata + `, "data": {"k": "1", "l": "", "m.n": "<x>"}, "binaryData": {"b": "AAAA"}, "immutable": false}`

const template = `{"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {
	"containers": [
		{"name": "c", "image": "i", "command": ["a", "b"], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
		 "ports": [{"containerPort": 80, "protocol": "TCP", "name": "http"}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 443, "name": "tls"}],
		 "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
		 "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/w", "readOnly": true}], "imagePullPolicy": "Always",
		 "securityContext": {"runAsUser": 1, "capabilities": {"drop": ["ALL"]}}, "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 3}},
		{"name": "d", "image": "j", "resources": {}}],
	"initContainers": [{"name": "i", "image": "k"}],
	"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}}, {"name": "x", "projected": {"sources": [{"secret": {"name": "s"}}]}}],
	"nodeSelector": {"x": "y", "z": "w"}, "tolerations": [{"key": "k", "operator": "Exists"}], "imagePullSecrets": [{"name": "s"}, {"name": "t"}],
	"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "1"}}}],
	"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["h"]}], "terminationGracePeriodSeconds": 30, "securityContext": {"supplementalGroups": [1, 2]},
	"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}]}},
	"restartPolicy": "Always", "overhead": {"cpu": "1"}, "readinessGates": [{"conditionType": "x"}]}}`

var fullPod = `{"apiVersion": "v1", "kind": "Pod", ` + metadata + `, "spec": ` + template[strings.Index(template, `"spec": `)+8:len(template)-1] + `,
	"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"}, {"type": "Other", "status": "False"}], "podIPs": [{"ip": "1.1.1.1"}],
	"containerStatuses": [{"name": "c", "image": "i", "imageID": "x", "ready": true, "restartCount": 0}], "hostIP": "1.2.3.4"}}`

const fullService = `{"apiVersion": "v1", "kind": "Service", ` + metadata + `, "spec": {"ports": [{"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80}, {"name": "b", "port": 80, "protocol": "UDP", "targetPort": "x"}, {"port": 443}],
	"selector": {"a": "1", "b": "2"}, "externalIPs": ["1.1.1.1"], "clusterIPs": ["10.0.0.1"], "type": "ClusterIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 3}}, "ipFamilies": ["IPv4"]},
	"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ports": [{"port": 1, "protocol": "TCP"}]}]}, "conditions": [{"type": "A", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}]}}`

const fullDeployment = `{"apiVersion": "apps/v1", "kind": "Deployment", ` + metadata + `, "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "1"}}, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}},
	"minReadySeconds": 1, "paused": true, "template": ` + template + `}, "status": {"replicas": 3, "observedGeneration": 2, "conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "True", "reason": "x"}]}}`

// history drives this package and the library's field manager with the same writes.
type history struct {
	t      testing.TB
	rand   *rand.Rand
	kind   int
	ours   *apply.Schema
	theirs map[string]*managedfields.FieldManager // by subresource
	full   map[string]any

	live    runtime.Object // nil: none yet
	managed []byte
}

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

var converter = applyconfigurations.NewTypeConverter(clientscheme.Scheme)

func newHistory(t testing.TB, r *rand.Rand, kind int) *history {
	k := kinds[kind]
	h := &history{t: t, rand: r, kind: kind, theirs: map[string]*managedfields.FieldManager{}}
	var err error
	if h.ours, err = apply.Builtin(k.gvk, k.empty()); err != nil {
		t.Fatal(err)
	}
	if err := utiljson.Unmarshal([]byte(k.full), &h.full); err != nil {
		t.Fatalf("%s: %v", k.gvk, err)
	}
	for sub, paths := range map[string][]fieldpath.Path{
		"":       {fieldpath.MakePathOrDie("status")},
		"status": {fieldpath.MakePathOrDie("spec")},
	} {
		if sub == "status" && k.gvk.Kind == "Deployment" {
			paths = append(paths, fieldpath.MakePathOrDie("metadata", "labels"))
		}
		if sub == "status" && k.gvk.Kind == "Pod" {
			paths = append(paths, fieldpath.MakePathOrDie("metadata", "deletionTimestamp"), fieldpath.MakePathOrDie("metadata", "ownerReferences"))
		}
		var resets map[fieldpath.APIVersion]fieldpath.Filter
		if k.gvk.Kind != "ConfigMap" {
			resets = fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{
				fieldpath.APIVersion(k.gvk.GroupVersion().String()): fieldpath.NewSet(paths...),
			})
		}
		h.theirs[sub], err = managedfields.NewDefaultFieldManager(converter, clientscheme.Scheme, noDefaults{}, clientscheme.Scheme, k.gvk, k.gvk.GroupVersion(), sub, resets)
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// some takes a random part of a tree, with some values changed; the keys of a
// list's items stay, so that few parts are invalid.
func (h *history) some(v any, key string, keep float64) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, child := range v {
			always := k == "apiVersion" || k == "kind" || k == "name" || k == "metadata" || k == "uid" || k == "type" && v["status"] != nil || k == "ip" ||
				k == "mountPath" || k == "containerPort" || k == "port" || k == "topologyKey" || k == "whenUnsatisfiable" || k == "conditionType"
			if always && h.rand.Float64() < 0.995 || h.rand.Float64() < keep {
				out[k] = h.some(child, k, keep)
			}
		}
		return out
	case []any:
		var out []any
		for _, child := range v {
			if h.rand.Float64() < keep {
				out = append(out, h.some(child, "", keep))
			}
		}
		if len(out) > 1 && h.rand.IntN(6) == 0 {
			h.rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		}
		if len(out) > 0 && h.rand.IntN(200) == 0 {
			out = append(out, out[0])
		}
		if out == nil {
			return []any{}
		}
		return out
	case string:
		switch key {
		case "image", "value", "k", "a", "x/y", "path", "reason", "phase":
			return []string{v, v, v, "other", ""}[h.rand.IntN(5)]
		}
		return v
	case int64:
		switch key {
		case "replicas", "minReadySeconds", "periodSeconds", "targetPort":
			return v + int64(h.rand.IntN(3))
		}
	}
	return v
}

func (h *history) object(tree any) runtime.Object {
	b, err := json.Marshal(tree)
	if err != nil {
		h.t.Fatal(err)
	}
	o := kinds[h.kind].empty()
	if err := json.Unmarshal(b, o); err != nil {
		h.t.Fatalf("%v: %s", err, b)
	}
	if b, err = json.Marshal(o); err != nil {
		h.t.Fatal(err)
	}
	o = kinds[h.kind].empty() // empty lists are no lists any more
	if err := json.Unmarshal(b, o); err != nil {
		h.t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(kinds[h.kind].gvk)
	return o
}

// bytes is the object's JSON without managed fields: as Go writes it, or with
// sorted members.
func (h *history) bytes(o runtime.Object) []byte {
	o = o.DeepCopyObject()
	o.(metav1.Object).SetManagedFields(nil)
	b, err := json.Marshal(o)
	if err != nil {
		h.t.Fatal(err)
	}
	if h.rand.IntN(3) == 0 {
		var tree map[string]any
		if err := utiljson.Unmarshal(b, &tree); err != nil {
			h.t.Fatal(err)
		}
		if b, err = json.Marshal(tree); err != nil {
			h.t.Fatal(err)
		}
	}
	return b
}

func managedJSON(t testing.TB, o runtime.Object) []byte {
	m := o.(metav1.Object).GetManagedFields()
	if len(m) == 0 {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (h *history) manager() string {
	return []string{"", "one", "two", "three", "kubectl"}[h.rand.IntN(5)]
}

// updates replaces the object, on the object itself or on its status.
func (h *history) update() {
	next := h.object(h.some(h.full, "", 0.8))
	sub := ""
	if h.live != nil {
		if h.rand.IntN(3) == 0 { // a small change
			next = h.object(h.some(h.tree(h.live), "", 0.97))
		}
		if h.rand.IntN(10) == 0 {
			next = h.live.DeepCopyObject()
		}
		if h.rand.IntN(4) == 0 {
			sub = "status"
		}
		next.(metav1.Object).SetUID(h.live.(metav1.Object).GetUID())
	}
	manager := h.manager()
	if h.rand.IntN(3) == 0 {
		manager = fmt.Sprintf("m%d", h.rand.IntN(14))
	}
	var sent []byte
	switch h.rand.IntN(12) {
	case 0:
		sent = []byte("[]")
		next.(metav1.Object).SetManagedFields([]metav1.ManagedFieldsEntry{})
	case 1:
		if h.live != nil {
			sent = h.managed
			next.(metav1.Object).SetManagedFields(h.live.(metav1.Object).GetManagedFields())
		}
	default:
		next.(metav1.Object).SetManagedFields(nil)
	}
	before := h.managed
	if sub == "" {
		before = apply.Before(h.managed, sent)
	}
	was, is := h.live, h.bytes(next)
	var old []byte
	if was == nil {
		was = kinds[h.kind].empty()
	} else {
		old = h.bytes(was)
	}
	got, err := h.ours.Update(before, old, is, apply.Write{Manager: manager, Subresource: sub, Time: time.Now()})
	if err != nil {
		h.t.Fatal(err)
	}
	want := h.theirs[sub].UpdateNoErrors(was.DeepCopyObject(), next.DeepCopyObject(), manager)
	if wanted := managedJSON(h.t, want); string(got) != string(wanted) {
		h.t.Fatalf("update %q by %q\nbefore %s\nold    %s\nnext   %s\n%s", sub, manager, before, old, is, differ(got, wanted))
	}
	h.keep(want, got)
}

func (h *history) keep(o runtime.Object, managed []byte) {
	if o.(metav1.Object).GetUID() == "" {
		o.(metav1.Object).SetUID("uid")
	}
	b, err := json.Marshal(o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.live, h.managed = kinds[h.kind].empty(), managed // as it is read from the store
	if err := json.Unmarshal(b, h.live); err != nil {
		h.t.Fatal(err)
	}
	h.live.GetObjectKind().SetGroupVersionKind(kinds[h.kind].gvk)
}

func (h *history) tree(o runtime.Object) map[string]any {
	var tree map[string]any
	if err := utiljson.Unmarshal(h.bytes(o), &tree); err != nil {
		h.t.Fatal(err)
	}
	return tree
}

// apply applies a random part of the full object.
func (h *history) apply() {
	from := h.full
	if h.live != nil && h.rand.IntN(3) == 0 {
		from = h.tree(h.live)
		delete(from["metadata"].(map[string]any), "uid")
	}
	patch := h.some(from, "", []float64{0.2, 0.5, 0.9, 1}[h.rand.IntN(4)]).(map[string]any)
	if h.rand.IntN(30) == 0 {
		patch["bogus"] = map[string]any{"a": "b"}
	}
	if h.rand.IntN(60) == 0 {
		patch["kind"] = "Secret"
	}
	if h.rand.IntN(8) == 0 && h.live != nil {
		last, _ := json.Marshal(h.some(h.full, "", 0.7))
		h.live.(metav1.Object).SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(last)})
	}
	sent, err := json.Marshal(patch)
	if err != nil {
		h.t.Fatal(err)
	}
	manager, force := h.manager(), h.rand.IntN(2) == 0
	sub := ""
	if h.rand.IntN(5) == 0 {
		sub = "status"
	}
	was := h.live
	var live []byte
	if was == nil {
		was = kinds[h.kind].empty()
		was.GetObjectKind().SetGroupVersionKind(kinds[h.kind].gvk)
	} else {
		live = h.bytes(was)
	}
	w := apply.Write{Manager: manager, Subresource: sub, Time: time.Now()}
	next, managed, err := h.ours.Apply(h.managed, live, sent, w, force)
	want, wantErr := h.theirs[sub].Apply(was.DeepCopyObject(), &unstructured.Unstructured{Object: patch}, manager, force)
	fail := func(format string, args ...any) {
		h.t.Helper()
		h.t.Fatalf("apply %q by %q force %t\nbefore %s\nlive   %s\npatch  %s\n%s", sub, manager, force, h.managed, live, sent, fmt.Sprintf(format, args...))
	}
	if (err == nil) != (wantErr == nil) || err != nil && !sameError(err, wantErr) {
		fail("got error\n%v\nwant\n%v", err, wantErr)
	}
	if err != nil {
		var status *apierrors.StatusError
		if !errors.As(err, &status) || status.ErrStatus.Code >= 500 {
			fail("error is %#v", err)
		}
		return
	}
	if wanted := managedJSON(h.t, want); string(managed) != string(wanted) {
		fail("%s", differ(managed, wanted))
	}
	if next == nil {
		next = live
	}
	got := kinds[h.kind].empty()
	if err := json.Unmarshal(next, got); err != nil {
		h.t.Fatal(err)
	}
	a, b := h.plain(got), h.plain(want)
	if !bytes.Equal(a, b) {
		fail("got  %s\nwant %s", a, b)
	}
	h.keep(want, managed)
}

func (h *history) plain(o runtime.Object) []byte {
	o = o.DeepCopyObject()
	o.(metav1.Object).SetManagedFields(nil)
	o.GetObjectKind().SetGroupVersionKind(kinds[h.kind].gvk)
	b, err := json.Marshal(o)
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

// sameError compares texts and causes; the library has several conflicts and
// several complaints in any order.
func sameError(got, want error) bool {
	var g, w *apierrors.StatusError
	if errors.As(want, &w) {
		if !errors.As(got, &g) || g.ErrStatus.Code != w.ErrStatus.Code || g.ErrStatus.Reason != w.ErrStatus.Reason {
			return false
		}
		if w.ErrStatus.Details != nil && causes(g) != causes(w) {
			return false
		}
	}
	const typed = "failed to create typed patch object"
	if strings.HasPrefix(got.Error(), typed) && strings.HasPrefix(want.Error(), typed) {
		return true // the library stops at an undeclared field, after some others or before
	}
	return lines(got.Error()) == lines(want.Error())
}

func causes(e *apierrors.StatusError) string {
	var all []string
	for _, c := range e.ErrStatus.Details.Causes {
		all = append(all, fmt.Sprint(c))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func lines(text string) string {
	all := strings.Split(text, "\n")
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestHistories compares the results of random sequences of writes with those of the library.
func TestHistories(t *testing.T) {
	r := testrand.New(t)
	n := 4
	if tier.IsFull(t) {
		n = 100
	}
	for kind := range kinds {
		t.Run(kinds[kind].gvk.Kind, func(t *testing.T) {
			for range n {
				synctest.Test(t, func(t *testing.T) {
					h := newHistory(t, r, kind)
					for range 25 {
						time.Sleep(time.Duration(r.IntN(3)) * 600 * time.Millisecond)
						if r.IntN(2) == 0 {
							h.update()
						} else {
							h.apply()
						}
					}
				})
			}
		})
	}
}

// differ shows two texts from a little before where they part.
func differ(got, want []byte) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	from := max(0, n-150)
	return fmt.Sprintf("got  ...%s\nwant ...%s", got[from:], want[from:])
}
