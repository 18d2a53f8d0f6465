package gated_test

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin/gated"
	"github.com/tidemark-dev/tidemark/internal/features"
)

func profile(t testing.TB, emulated string, gates map[string]bool) *features.Profile {
	t.Helper()
	p, err := features.Resolve(features.Choice{Emulated: emulated, Gates: gates})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ptr[T any](v T) *T { return &v }

// volumes returns a spec whose volumes and mounts use two features that are off.
func volumes(mode *int32, options bool) corev1.PodSpec {
	spec := corev1.PodSpec{
		Volumes:    []corev1.Volume{{Name: "a"}, {Name: "b", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory", Mode: mode}}}},
		Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "b"}}}},
	}
	if options {
		spec.Containers[0].VolumeMounts[0].BindMountOptions = []string{"noexec"}
	}
	return spec
}

func template(s corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: s}}}
}

func signalled(s *corev1.Signal) *corev1.Pod {
	c := corev1.Container{Name: "c"}
	if s != nil {
		c.Lifecycle = &corev1.Lifecycle{StopSignal: s}
	}
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
}

func driver(prevent *bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: prevent}}
}

// TestClear checks which fields go, and that those of a feature stay that the stored object uses.
func TestClear(t *testing.T) {
	on := map[string]bool{"EmptyDirVolumeMode": true}
	slice := func(kept bool) *resourcev1.ResourceSlice {
		a := resourcev1.DeviceAttribute{}
		if kept {
			a.BoolValues = []bool{true}
		}
		return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Devices: []resourcev1.Device{{Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"a": a}}}}}
	}
	claim := corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{HealthStatus: &corev1.VolumeHealthStatus{}}}
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claim}}}
	for name, c := range map[string]struct {
		version      string
		gates        map[string]bool
		o, old, want runtime.Object
	}{
		"of a new Pod":               {o: &corev1.Pod{Spec: volumes(ptr[int32](7), true)}, want: &corev1.Pod{Spec: volumes(nil, false)}},
		"of a template":              {o: template(volumes(ptr[int32](7), true)), want: template(volumes(nil, false))},
		"of an enabled feature":      {gates: on, o: &corev1.Pod{Spec: volumes(ptr[int32](7), true)}, want: &corev1.Pod{Spec: volumes(ptr[int32](7), false)}},
		"used by the stored object":  {o: &corev1.Pod{Spec: volumes(ptr[int32](7), true)}, old: &corev1.Pod{Spec: volumes(ptr[int32](5), false)}, want: &corev1.Pod{Spec: volumes(ptr[int32](7), false)}},
		"not used by it":             {o: &corev1.Pod{Spec: volumes(ptr[int32](7), false)}, old: &corev1.Pod{Spec: volumes(nil, false)}, want: &corev1.Pod{Spec: volumes(nil, false)}},
		"in the values of a map":     {o: slice(true), want: slice(false)},
		"of the newest version":      {o: driver(ptr(true)), want: driver(ptr(true))},
		"of a version without it":    {version: "1.36", o: driver(ptr(true)), want: driver(nil)},
		"that leave nothing":         {o: signalled(ptr(corev1.SIGTERM)), want: signalled(nil)},
		"of a kind that has none":    {o: &corev1.ConfigMap{Data: map[string]string{"a": "b"}}, want: &corev1.ConfigMap{Data: map[string]string{"a": "b"}}},
		"of a claim":                 {o: claim.DeepCopy(), want: &corev1.PersistentVolumeClaim{}},
		"of a template of claims":    {o: set.DeepCopy(), want: set},
		"of an object without them":  {o: &corev1.Pod{Spec: volumes(nil, false)}, want: &corev1.Pod{Spec: volumes(nil, false)}},
		"of a version of all fields": {version: "1.33", o: &corev1.Pod{Spec: corev1.PodSpec{HostnameOverride: ptr("a")}}, want: &corev1.Pod{}},
	} {
		f := gated.New(profile(t, c.version, c.gates))
		changes := !reflect.DeepEqual(c.o, c.want)
		before := c.o.DeepCopyObject()
		if got := f.Clear(c.o, c.old, true); got != changes || !reflect.DeepEqual(c.o, before) {
			t.Errorf("fields %s: reports %t, and may have cleared some", name, got)
		}
		if got := f.Clear(c.o, c.old, false); got != changes || !reflect.DeepEqual(c.o, c.want) {
			t.Errorf("fields %s: reports %t, got %+v", name, got, c.o)
		}
	}
}

func BenchmarkClear(b *testing.B) {
	f := gated.New(features.Default())
	p := &corev1.Pod{Spec: volumes(nil, false)}
	p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
	for b.Loop() {
		f.Clear(p, nil, true)
	}
}
