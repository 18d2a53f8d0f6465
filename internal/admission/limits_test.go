package admission_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pod reads a stored Pod.
func (w *world) pod(key string) *corev1.Pod {
	w.Helper()
	o := w.Store.Any().Get("pods", key)
	if o == nil {
		w.Fatalf("there is no Pod %s", key)
	}
	p := &corev1.Pod{}
	if err := json.Unmarshal(o.Bytes(), p); err != nil {
		w.Fatal(err)
	}
	return p
}

// must creates an object, and fails the test on an error.
func (w *world) must(resource, namespace, body string) {
	w.Helper()
	if _, err := w.create(resource, namespace, body); err != nil {
		w.Fatalf("%s %s: %v", resource, body, err)
	}
}

// refuse checks that creating an object is forbidden with a message.
func (w *world) refuse(resource, namespace, body, why string) {
	w.Helper()
	_, err := w.create(resource, namespace, body)
	if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), `" is forbidden: `+why) {
		w.Errorf("%s %s\n got %v\nwant %s", resource, body, err, why)
	}
}

const limited = `{"metadata":{"name":"l"},"spec":{"limits":[
	{"type":"Container","max":{"cpu":"1","memory":"1Gi"},"min":{"cpu":"100m"},"default":{"cpu":"500m"},"defaultRequest":{"cpu":"200m"},"maxLimitRequestRatio":{"memory":"2"}},
	{"type":"Pod","max":{"cpu":"1500m"},"maxLimitRequestRatio":{"cpu":"3"}},
	{"type":"PersistentVolumeClaim","min":{"storage":"1Gi"},"max":{"storage":"2Gi"}}]}}`

// TestLimitRange compares the messages with those of kube-apiserver v1.36.3.
func TestLimitRange(t *testing.T) {
	w := newWorld(t)
	w.namespace("n", "")
	w.must("limitranges", "n", limited)
	container := func(resources string) string {
		return `{"containers":[{"name":"c","image":"i","resources":` + resources + `}]}`
	}
	w.refuse("pods", "n", pod("p", container(`{"requests":{"cpu":"50m"},"limits":{"cpu":"2","memory":"2Gi"}}`)),
		"[minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 2Gi, maximum cpu usage per Pod is 1500m, but limit is 2, cpu max limit to request ratio per Pod is 3, but provided ratio is 40.000000]")
	w.refuse("pods", "n", pod("p", container(`{"requests":{"memory":"100Mi"},"limits":{"memory":"300Mi"}}`)),
		"memory max limit to request ratio per Container is 2, but provided ratio is 3.000000")
	w.refuse("pods", "n", pod("p", container(`{"limits":{"memory":"0"}}`)),
		"memory max limit to request ratio per Container is 2, but no request is specified or request is 0")
	w.must("pods", "n", pod("p", `{"initContainers":[{"name":"i","image":"i","resources":{"limits":{"cpu":"300m","memory":"1Mi"}}}],"containers":[{"name":"c","image":"i","resources":{"limits":{"memory":"1Mi"}}}]}`))
	p := w.pod("n/p")
	if got, want := p.Annotations["kubernetes.io/limit-ranger"], "LimitRanger plugin set: cpu request for container c; cpu limit for container c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r := p.Spec.Containers[0].Resources
	if r.Requests.Cpu().String() != "200m" || r.Limits.Cpu().String() != "500m" || p.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("the Pod has %v, %v", r, p.Status.QOSClass)
	}
	for _, e := range p.ManagedFields {
		if strings.Contains(e.FieldsV1.GetRawString(), "limit-ranger") {
			t.Errorf("a manager owns defaulted fields: %s", e.FieldsV1)
		}
	}
	claim := func(size string) string {
		return `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"` + size + `"}}}}`
	}
	w.refuse("persistentvolumeclaims", "n", claim("3Gi"), "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")
	w.refuse("persistentvolumeclaims", "n", claim("1Mi"), "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi")
	w.must("persistentvolumeclaims", "n", claim("2Gi"))

	w.namespace("free", "")
	w.must("pods", "free", pod("p", plain))
	if p := w.pod("free/p"); p.Annotations != nil {
		t.Errorf("a Pod elsewhere got %v", p.Annotations)
	}
}

// TestServiceAccount compares the messages with those of kube-apiserver v1.36.3.
func TestServiceAccount(t *testing.T) {
	w := newWorld(t, "ServiceAccount")
	w.namespace("n", "")
	w.refuse("pods", "n", pod("p", `{"serviceAccountName":"x","containers":[{"name":"c","image":"i"}]}`), `error looking up service account n/x: serviceaccount "x" not found`)
	w.must("serviceaccounts", "n", `{"metadata":{"name":"default"},"imagePullSecrets":[{"name":"pull"}]}`)
	w.must("serviceaccounts", "n", `{"metadata":{"name":"none"},"automountServiceAccountToken":false}`)
	w.must("serviceaccounts", "n", `{"metadata":{"name":"strict","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}},"secrets":[{"name":"s"}]}`)

	w.must("pods", "n", pod("p", plain))
	spec := w.pod("n/p").Spec
	c := spec.Containers[0]
	if spec.ServiceAccountName != "default" || spec.DeprecatedServiceAccount != "default" || len(spec.ImagePullSecrets) != 1 || len(spec.Volumes) != 1 || len(c.VolumeMounts) != 1 {
		t.Fatalf("the Pod is %+v", spec)
	}
	if v := spec.Volumes[0]; !strings.HasPrefix(v.Name, "kube-api-access-") || len(v.Projected.Sources) != 3 || c.VolumeMounts[0].Name != v.Name || c.VolumeMounts[0].MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" {
		t.Errorf("the Pod has the volume %+v and mounts %+v", v, c.VolumeMounts)
	}
	w.must("pods", "n", pod("q", `{"serviceAccountName":"none","containers":[{"name":"c","image":"i"}]}`))
	if spec := w.pod("n/q").Spec; len(spec.Volumes) != 0 {
		t.Errorf("the Pod has %+v", spec.Volumes)
	}
	w.refuse("pods", "n", pod("r", `{"serviceAccountName":"strict","containers":[{"name":"c","image":"i","envFrom":[{"secretRef":{"name":"t"}}]}]}`),
		`container c with envFrom referencing secret.secretName="t" is not allowed because service account strict does not reference that secret`)
	w.refuse("pods", "n", `{"metadata":{"name":"m","annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"serviceAccountName":"default","nodeName":"n","containers":[{"name":"c","image":"i"}]}}`,
		"a mirror pod may not reference service accounts")
	w.must("pods", "n", `{"metadata":{"name":"m","annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
	if spec := w.pod("n/m").Spec; spec.ServiceAccountName != "" || len(spec.Volumes) != 0 {
		t.Errorf("a mirror was changed: %+v", spec)
	}
}

// TestServiceAccountWaits checks that a Pod waits for the default account of a new namespace.
func TestServiceAccountWaits(t *testing.T) {
	w := newWorld(t, "ServiceAccount")
	w.namespace("n", "")
	made := make(chan error)
	go func() {
		_, err := w.create("pods", "n", pod("p", plain))
		made <- err
	}()
	w.must("serviceaccounts", "n", `{"metadata":{"name":"default"}}`)
	if err := <-made; err != nil {
		t.Error(err)
	}
}

// TestWithoutServiceAccount checks that Pods need no account unless the plugin is enabled.
func TestWithoutServiceAccount(t *testing.T) {
	w := newWorld(t)
	w.namespace("n", "")
	w.must("pods", "n", pod("p", plain))
	if spec := w.pod("n/p").Spec; spec.ServiceAccountName != "" || slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return len(c.VolumeMounts) > 0 }) {
		t.Errorf("the Pod got %+v", spec)
	}
}
