package helm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// deployed is the directory with the chart of Tidemark, and with the plain manifests.
const deployed = "../../deploy"

// version is that of the cluster. Without it Helm renders for v1.20, unless its linker sets another one.
var version = &common.KubeVersion{Version: "v1.36.3", Major: "1", Minor: "36"}

// template renders the chart of Tidemark, as helm template does.
func template(t *testing.T, v values) (string, error) {
	t.Helper()
	chart, err := loader.Load(filepath.Join(deployed, "helm/tidemark"))
	if err != nil {
		t.Fatal(err)
	}
	i := action.NewInstall(action.NewConfiguration())
	i.ReleaseName, i.Namespace = "tidemark", "tidemark"
	i.DryRunStrategy, i.WaitStrategy, i.KubeVersion = action.DryRunClient, kube.HookOnlyStrategy, version
	made, err := i.RunWithContext(t.Context(), chart, v)
	if err != nil {
		return "", err
	}
	return made.(*release.Release).Manifest, nil
}

// mustTemplate renders the chart and returns its objects by kind.
func mustTemplate(t *testing.T, v values) map[string]values {
	t.Helper()
	text, err := template(t, v)
	if err != nil {
		t.Fatal(err)
	}
	return byKind(t, text)
}

func byKind(t *testing.T, manifests string) map[string]values {
	t.Helper()
	all := map[string]values{}
	for text := range strings.SplitSeq(manifests, "\n---\n") {
		var o values
		if err := yaml.UnmarshalStrict([]byte(strings.TrimPrefix(text, "---\n")), &o); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if kind, _ := o["kind"].(string); kind != "" {
			all[kind] = o
		}
	}
	return all
}

// plain returns a value without the labels and annotations of Helm and the tags of images.
func plain(v any) any {
	switch v := v.(type) {
	case values:
		for _, key := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart", "checksum/config"} {
			delete(v, key)
		}
		for key, inner := range v {
			inner = plain(inner)
			if m, ok := inner.(values); ok && len(m) == 0 && (key == "annotations" || key == "labels") {
				delete(v, key)
				continue
			}
			v[key] = inner
			if image, ok := inner.(string); ok && key == "image" {
				v[key], _, _ = strings.Cut(image, ":")
			}
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

// TestChartIsManifests: the chart with its own values has the objects of the plain manifests.
func TestChartIsManifests(t *testing.T) {
	tier.Full(t)
	got := mustTemplate(t, nil)
	config := got["ConfigMap"]["data"].(values)["tidemark.yaml"].(string)
	delete(got, "ConfigMap")
	want := map[string]values{}
	for _, name := range []string{"server.yaml", "network.yaml"} {
		text, err := os.ReadFile(filepath.Join(deployed, "kubernetes", name))
		if err != nil {
			t.Fatal(err)
		}
		for kind, o := range byKind(t, string(text)) {
			want[kind] = o
		}
	}
	if len(got) != len(want) {
		t.Errorf("the chart has %d kinds, and the manifests %d", len(got), len(want))
	}
	for kind, o := range want {
		labels := values{"app.kubernetes.io/name": "tidemark"}
		o["metadata"].(values)["labels"] = labels // some of the manifests have none
		if g, w := asJSON(t, plain(got[kind])), asJSON(t, plain(o)); g != w {
			t.Errorf("%s of the chart:\n%s\nof the manifests:\n%s", kind, g, w)
		}
	}

	text, err := os.ReadFile(filepath.Join(deployed, "kubernetes/tidemark.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var configured, wanted values
	if err := yaml.UnmarshalStrict([]byte(config), &configured); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &wanted); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(configured, wanted) {
		t.Errorf("the configuration of the chart is\n%s\nof the manifests:\n%s", config, text)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestChartValues renders the chart with each of its values changed, and with values that it refuses.
func TestChartValues(t *testing.T) {
	tier.Full(t)
	if l := (&action.Lint{Strict: true, KubeVersion: version}).Run([]string{filepath.Join(deployed, "helm/tidemark")}, nil); len(l.Errors) > 0 {
		t.Errorf("helm lint: %v", l.Errors)
	}
	all := mustTemplate(t, values{
		"image":            values{"repository": "registry.example.com/tidemark", "tag": "1.2.3"},
		"imagePullSecrets": []any{values{"name": "pull"}},
		"usersSecret":      "people",
		"config":           values{"history-retention": "6h", "logging-format": nil},
		"tlsSANs":          []any{"api.example.com"},
		"storage":          values{"size": "1Gi", "className": "fast"},
		"service":          values{"type": "LoadBalancer", "port": 6443, "annotations": values{"a": "b"}},
		"networkPolicy":    values{"enabled": false},
		"podAnnotations":   values{"c": "d"},
		"nodeSelector":     values{"disk": "ssd"},
		"tolerations":      []any{values{"operator": "Exists"}},
	})
	if all["NetworkPolicy"] != nil {
		t.Error("there is a NetworkPolicy")
	}
	for kind, want := range map[string][]string{
		"ConfigMap": {`history-retention: 6h\n`, `- tidemark.tidemark.svc\n`, `- api.example.com\n`},
		"Service":   {`"type": "LoadBalancer"`, `"port": 6443`, `"a": "b"`},
		"StatefulSet": {`"image": "registry.example.com/tidemark:1.2.3"`, `"name": "pull"`, `"secretName": "people"`, `"storage": "1Gi"`,
			`"storageClassName": "fast"`, `"c": "d"`, `"disk": "ssd"`, `"operator": "Exists"`},
	} {
		text := asJSON(t, all[kind])
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %s:\n%s", kind, part, text)
			}
		}
	}
	if strings.Contains(asJSON(t, all["ConfigMap"]), "logging-format") {
		t.Error("null does not remove a key of the configuration")
	}
	for want, v := range map[string]values{
		"imag":         {"imag": values{}},
		"/service/por": {"service": values{"port": 70000}},
		"tls-san":      {"config": values{"tls-san": []any{"a"}}},
		"usersSecret":  {"usersSecret": ""},
	} {
		if _, err := template(t, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the values %v: %v, want an error that names %s", v, err, want)
		}
	}
}

// TestChartRelease installs, upgrades and uninstalls the chart in a namespace with the Pod Security Standard restricted,
// which its Pod satisfies. Another configuration makes another Pod.
func TestChartRelease(t *testing.T) {
	tier.Full(t)
	servers.Each(t, func(t *testing.T, s servers.Server) {
		h := newHelm(t, s)
		chart, err := loader.Load(filepath.Join(deployed, "helm/tidemark"))
		h.must(err)
		h.chart = chart
		namespace, err := h.cs.CoreV1().Namespaces().Get(h.ctx, h.namespace, metav1.GetOptions{})
		h.must(err)
		namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
		_, err = h.cs.CoreV1().Namespaces().Update(h.ctx, namespace, metav1.UpdateOptions{})
		h.must(err)

		h.must(h.install(true))
		first := h.pod()
		if _, err := h.cs.CoreV1().Pods(h.namespace).Create(h.ctx, first, metav1.CreateOptions{}); err != nil {
			t.Errorf("the Pod of the StatefulSet: %v", err)
		}
		h.must(h.upgrade("auto", false, values{"config": values{"history-retention": "6h"}}))
		if a, b := first.Annotations["checksum/config"], h.pod().Annotations["checksum/config"]; a == "" || a == b {
			t.Errorf("another configuration changes the annotation %q to %q", a, b)
		}
		uninstall := action.NewUninstall(h.config)
		uninstall.Timeout, uninstall.WaitStrategy = timeout, kube.HookOnlyStrategy
		_, err = uninstall.Run("shop")
		h.must(err)
	})
}

// pod returns the Pod that the chart's StatefulSet makes first.
func (h *helmIn) pod() *corev1.Pod {
	h.t.Helper()
	set, err := h.cs.AppsV1().StatefulSets(h.namespace).Get(h.ctx, "shop", metav1.GetOptions{})
	h.must(err)
	pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
	pod.Name = set.Name + "-0"
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + pod.Name}}})
	return pod
}
