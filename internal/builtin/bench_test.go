package builtin

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// BenchmarkCatalog measures building the catalog, which each start of a process does.
func BenchmarkCatalog(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		build(features.Default())
	}
}

// usualPod is a Pod as the Deployment of a common Helm chart makes it.
const usualPod = `
metadata:
  name: web-5d7f8b9c6d-x2x7q
  namespace: default
  labels: {app.kubernetes.io/name: web, app.kubernetes.io/instance: rel, pod-template-hash: 5d7f8b9c6d}
  annotations: {checksum/config: 0123456789abcdef, prometheus.io/scrape: "true"}
spec:
  serviceAccountName: web
  securityContext: {fsGroup: 1001, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  initContainers:
  - {name: init, image: "docker.io/library/busybox:1.36", command: [sh, -c, "true"], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - name: web
    image: registry.example.com/team/web:1.2.3
    args: ["--verbose"]
    ports: [{name: http, containerPort: 8080}, {name: metrics, containerPort: 9090}]
    env:
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: web, key: password}}}
    - {name: LOG_LEVEL, value: info}
    envFrom: [{configMapRef: {name: web}}]
    resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: "1", memory: 256Mi}}
    livenessProbe: {httpGet: {path: /livez, port: http}, initialDelaySeconds: 10}
    readinessProbe: {httpGet: {path: /readyz, port: http}}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts: [{name: config, mountPath: /etc/web}, {name: data, mountPath: /data}, {name: kube-api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]
  volumes:
  - {name: config, configMap: {name: web}}
  - {name: data, emptyDir: {}}
  - name: kube-api-access
    projected:
      sources:
      - {serviceAccountToken: {path: token, expirationSeconds: 3607}}
      - {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}
      - {downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app.kubernetes.io/name: web}}}}
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app.kubernetes.io/name: web}}}
  tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]
`

// BenchmarkPod measures the functions of the kind for a create of a Pod. Its part "copy" is the
// cost of the copy that "whole" makes first.
func BenchmarkPod(b *testing.B) {
	var sent corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(usualPod), &sent); err != nil {
		b.Fatal(err)
	}
	types := coreGroup(features.Default()).Versions[0].Types
	t := types[slices.IndexFunc(types, func(t *resource.Type) bool { return t.Resource == "pods" })]
	ctx := context.Background()
	whole := func() runtime.Object {
		o := sent.DeepCopy()
		t.Strategy.Default(o)
		t.Strategy.PrepareCreate(o)
		return o
	}
	made := whole()
	if errs := t.Strategy.Validate(ctx, made); len(errs) > 0 {
		b.Fatal(errs)
	}
	for _, part := range []struct {
		name string
		do   func()
	}{
		{"copy", func() { sent.DeepCopy() }},
		{"whole", func() {
			o := whole()
			t.Strategy.Validate(ctx, o)
			t.Strategy.Warnings(o, nil)
		}},
		{"validate", func() { t.Strategy.Validate(ctx, made) }},
		{"warn", func() { t.Strategy.Warnings(made, nil) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				part.do()
			}
		})
	}
}
