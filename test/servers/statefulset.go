package servers

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FirstPod returns the manifest of the first Pod of a StatefulSet, as kube-controller-manager makes it. The StatefulSet
// is JSON. An empty node leaves the Pod to a scheduler.
func FirstPod(t testing.TB, statefulSet []byte, node string) []byte {
	t.Helper()
	var set appsv1.StatefulSet
	if err := json.Unmarshal(statefulSet, &set); err != nil {
		t.Fatalf("%v\n%s", err, statefulSet)
	}
	pod := corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: set.Name + "-0", Namespace: set.Namespace, Labels: set.Spec.Template.Labels, Annotations: set.Spec.Template.Annotations,
		},
		Spec: set.Spec.Template.Spec,
	}
	pod.Spec.NodeName = node
	for _, claim := range set.Spec.VolumeClaimTemplates {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name},
		}})
	}
	text, err := json.Marshal(&pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
