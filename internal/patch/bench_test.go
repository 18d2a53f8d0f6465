package patch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/patch"
)

// pod is one of about 7 KB as it is stored: with a status and the managed fields of
// three managers.
func pod(tb testing.TB) []byte {
	tb.Helper()
	probe := `{"httpGet":{"path":"/livez","port":"http","scheme":"HTTP"},"initialDelaySeconds":5,"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}`
	container := func(name string) string {
		return `{"name":"` + name + `","image":"registry.example.com/shop/web:v1","args":["--listen=:8080","--log-level=info"],` +
			`"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,"protocol":"TCP"}],` +
			`"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}},{"name":"DATABASE_URL","value":"postgres://shop-db.example.com:5432/shop"}],` +
			`"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"livenessProbe":` + probe + `,"readinessProbe":` + probe +
			`,"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}`
	}
	var names strings.Builder
	for i := range 16 {
		fmt.Fprintf(&names, `"f:terminationMessagePath%d":{},`, i)
	}
	fields := `{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},` + names.String() + `"f:name":{}}}}}`
	manager := func(name string) string {
		return `{"manager":"` + name + `","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":` + fields + `}`
	}
	condition := func(of string) string {
		return `{"type":"` + of + `","observedGeneration":1,"status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z"}`
	}
	p := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1","namespace":"default","uid":"5d1c5bd4-95ba-4a4e-9a21-3c1c8f7a2c10","resourceVersion":"77","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z",` +
		`"labels":{"app":"web","slot":"1"},"annotations":{"checksum":"abc"},"finalizers":["a.b/c"],"managedFields":[` + manager("controller") + "," + manager("kubelet") + "," + manager("kubectl") + `]},` +
		`"spec":{"containers":[` + container("web") + "," + container("side") + `],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"nodeName":"n",` +
		`"tolerations":[{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]},` +
		`"status":{"observedGeneration":1,"phase":"Running","conditions":[` + condition("Initialized") + "," + condition("Ready") + "," + condition("ContainersReady") + `],"podIP":"198.51.100.7","qosClass":"Burstable"}}`
	if !json.Valid([]byte(p)) {
		tb.Fatal("the pod is no JSON")
	}
	return []byte(p)
}

// BenchmarkPatch patches a pod with managed fields as a kubelet and as kubectl do.
func BenchmarkPatch(b *testing.B) {
	const (
		status = `{"metadata":{"uid":"5d1c5bd4-95ba-4a4e-9a21-3c1c8f7a2c10"},"status":{"$setElementOrder/conditions":[{"type":"Initialized"},{"type":"Ready"},{"type":"ContainersReady"}],` +
			`"conditions":[{"type":"Ready","status":"False","lastTransitionTime":"2026-01-01T00:00:07Z"}],"containerStatuses":[{"name":"web","ready":false,"restartCount":7}]}}`
		label = `{"metadata":{"labels":{"slot":"2"}}}`
	)
	document := pod(b)
	for _, x := range []struct {
		name, patch string
		apply       function
	}{
		{"strategic-status", status, strategicPod}, {"strategic-label", label, strategicPod},
		{"merge-status", `{"status":{"phase":"Failed"}}`, byMerge}, {"merge-label", label, byMerge},
		{"json-label", `[{"op":"replace","path":"/metadata/labels/slot","value":"2"}]`, byJSON},
	} {
		b.Run(x.name, func(b *testing.B) {
			b.SetBytes(int64(len(document)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.apply(document, []byte(x.patch)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func strategicPod(document, change []byte) (patch.Patched, error) {
	return patch.Strategic(document, change, &corev1.Pod{})
}
