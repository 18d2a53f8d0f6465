// Package helm has Helm as a client: a chart with one object of each kind that
// charts mostly have goes through the life of a release.
package helm

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// kinds holds the resources of the chart.
var kinds = []schema.GroupVersionResource{
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Group: "batch", Version: "v1", Resource: "cronjobs"},
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Version: "v1", Resource: "persistentvolumeclaims"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
}

// helmIn is Helm at work in a namespace.
type helmIn struct {
	t         *testing.T
	ctx       context.Context
	config    *action.Configuration
	chart     *chart.Chart
	namespace string
	client    dynamic.Interface
	cs        kubernetes.Interface
	peer      bool
	server    servers.Server
}

func newHelm(t *testing.T, s servers.Server) *helmIn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*s.Kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &path, &s.Namespace
	flags.WrapConfigFn = servers.Quick
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.NewTextHandler(io.Discard, nil)))
	if err := config.Init(flags, s.Namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	loaded, err := loader.Load("testdata/shop")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return &helmIn{t: t, ctx: ctx, config: config, chart: loaded, namespace: s.Namespace, peer: s.Peer, server: s,
		client: dynamic.NewForConfigOrDie(s.Config), cs: kubernetes.NewForConfigOrDie(s.Config)}
}

// now returns the newest revision.
func (h *helmIn) now() string {
	h.t.Helper()
	l, err := h.client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(h.namespace).List(h.ctx, metav1.ListOptions{})
	h.must(err)
	return l.GetResourceVersion()
}

// at returns Helm as it sees the namespace as of a revision.
func (h *helmIn) at(revision string) *helmIn {
	h.t.Helper()
	past := h.server
	past.Kubeconfig, past.Config = past.Kubeconfig.DeepCopy(), rest.CopyConfig(past.Config)
	past.Config.Host += "/at/" + revision
	for _, c := range past.Kubeconfig.Clusters {
		c.Server += "/at/" + revision
	}
	return newHelm(h.t, past)
}

const timeout = time.Minute

func (h *helmIn) install(serverSide bool) error {
	i := action.NewInstall(h.config)
	i.ReleaseName, i.Namespace, i.Timeout = "shop", h.namespace, timeout
	i.ServerSideApply, i.WaitStrategy = serverSide, kube.HookOnlyStrategy
	_, err := i.RunWithContext(h.ctx, h.chart, nil)
	return err
}

type values = map[string]any

func (h *helmIn) upgrade(serverSide string, force bool, v values) error {
	u := action.NewUpgrade(h.config)
	u.Namespace, u.Timeout, u.WaitStrategy = h.namespace, timeout, kube.HookOnlyStrategy
	u.ServerSideApply, u.ForceConflicts = serverSide, force
	_, err := u.RunWithContext(h.ctx, "shop", h.chart, v)
	return err
}

func (h *helmIn) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// objects returns the chart's objects that exist, as resource/name.
func (h *helmIn) objects() []string {
	h.t.Helper()
	var all []string
	for _, gvr := range kinds {
		l, err := h.client.Resource(gvr).Namespace(h.namespace).List(h.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=shop"})
		h.must(err)
		for _, o := range l.Items {
			all = append(all, gvr.Resource+"/"+o.GetName())
		}
	}
	return all
}

// configMap returns the chart's ConfigMap.
func (h *helmIn) configMap() *corev1.ConfigMap {
	h.t.Helper()
	cm, err := h.cs.CoreV1().ConfigMaps(h.namespace).Get(h.ctx, "shop", metav1.GetOptions{})
	h.must(err)
	return cm
}

func (h *helmIn) history() []string {
	h.t.Helper()
	found, err := action.NewHistory(h.config).Run("shop")
	h.must(err)
	var all []string
	for _, r := range found {
		all = append(all, string(r.(*release.Release).Info.Status))
	}
	return all
}

// TestRelease installs, upgrades, rolls back and uninstalls: by server-side apply,
// and by patches that Helm makes itself.
func TestRelease(t *testing.T) {
	tier.Full(t)
	for name, serverSide := range map[string]bool{"server-side": true, "client-side": false} {
		t.Run(name, func(t *testing.T) {
			servers.Each(t, func(t *testing.T, s servers.Server) { testRelease(newHelm(t, s), serverSide) })
			t.Run("fork", func(t *testing.T) { testRelease(newHelm(t, servers.Fork(t)), serverSide) })
		})
	}
}

func testRelease(h *helmIn, serverSide bool) {
	t := h.t
	h.must(h.install(serverSide))
	if got := h.objects(); len(got) != len(kinds) {
		t.Fatalf("installed %d of %d kinds: %v", len(got), len(kinds), got)
	}
	if err := h.install(serverSide); err == nil || !strings.Contains(err.Error(), "cannot reuse a name that is still in use") {
		t.Errorf("installed again: %v", err)
	}
	version := h.configMap().ResourceVersion
	h.must(h.upgrade("auto", false, nil))
	if got := h.configMap().ResourceVersion; got != version {
		t.Errorf("an upgrade to the same wrote: version %s of %s", got, version)
	}
	// Fields of other managers stay.
	_, err := h.cs.AppsV1().Deployments(h.namespace).Patch(h.ctx, "shop", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"labels":{"team":"a"}},"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}`), metav1.PatchOptions{FieldManager: "injector"})
	h.must(err)
	h.must(h.upgrade("auto", false, values{"image": "shop:2", "color": "", "ingress": false, "extra": true, "replicas": 3}))
	h.checkUpgraded()

	rollback := action.NewRollback(h.config)
	rollback.Version, rollback.Timeout, rollback.WaitStrategy = 1, timeout, kube.HookOnlyStrategy
	h.must(rollback.Run("shop"))
	if got := h.objects(); len(got) != len(kinds) || !slices.Contains(got, "ingresses/shop") {
		t.Errorf("rolled back to %v", got)
	}
	if data := h.configMap().Data; data["color"] != "red" || data["image"] != "shop:1" {
		t.Errorf("rolled back to the data %v", data)
	}
	if got := strings.Join(h.history(), " "); got != "superseded superseded superseded deployed" {
		t.Errorf("the history is %s", got)
	}

	if h.peer { // and no controller removes the finalizer of a claim
		_, err = h.cs.CoreV1().PersistentVolumeClaims(h.namespace).Patch(h.ctx, "shop", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		h.must(err)
	}
	before := h.now()
	uninstall := action.NewUninstall(h.config)
	uninstall.Timeout, uninstall.WaitStrategy = timeout, kube.StatusWatcherStrategy
	_, err = uninstall.Run("shop")
	h.must(err)
	if got := h.objects(); len(got) != 0 {
		t.Errorf("uninstalled but for %v", got)
	}
	secrets, err := h.cs.CoreV1().Secrets(h.namespace).List(h.ctx, metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil || len(secrets.Items) != 0 {
		t.Errorf("the release left %d secrets: %v", len(secrets.Items), err)
	}
	if !h.peer {
		h.at(before).checkReleased()
	}
}

// checkReleased checks that the release is there after its rollback.
func (h *helmIn) checkReleased() {
	h.t.Helper()
	l, err := action.NewList(h.config).Run()
	h.must(err)
	if len(l) != 1 || l[0].(*release.Release).Name != "shop" {
		h.t.Errorf("the releases are %v", l)
	}
	if got := strings.Join(h.history(), " "); got != "superseded superseded superseded deployed" {
		h.t.Errorf("the history is %s", got)
	}
	if got := h.objects(); len(got) != len(kinds) {
		h.t.Errorf("%d of %d kinds: %v", len(got), len(kinds), got)
	}
}

func (h *helmIn) checkUpgraded() {
	h.t.Helper()
	got := h.objects()
	if len(got) != len(kinds) || slices.Contains(got, "ingresses/shop") || !slices.Contains(got, "configmaps/shop-extra") {
		h.t.Errorf("upgraded to %v", got)
	}
	if data := h.configMap().Data; len(data) != 1 || data["image"] != "shop:2" {
		h.t.Errorf("upgraded to the data %v", data)
	}
	d, err := h.cs.AppsV1().Deployments(h.namespace).Get(h.ctx, "shop", metav1.GetOptions{})
	h.must(err)
	var containers []string
	for _, c := range d.Spec.Template.Spec.Containers {
		containers = append(containers, c.Image)
	}
	slices.Sort(containers)
	if *d.Spec.Replicas != 3 || d.Labels["team"] != "a" || strings.Join(containers, " ") != "shop:2 side:1" {
		h.t.Errorf("upgraded to %d replicas, labels %v, containers %v", *d.Spec.Replicas, d.Labels, containers)
	}
	secret, err := h.cs.CoreV1().Secrets(h.namespace).Get(h.ctx, "shop", metav1.GetOptions{})
	if err != nil || string(secret.Data["image"]) != "shop:2" {
		h.t.Errorf("upgraded to the secret %s, %v", secret.Data, err)
	}
	hook, err := h.cs.CoreV1().ConfigMaps(h.namespace).Get(h.ctx, "shop-hook", metav1.GetOptions{})
	if err != nil || hook.Data["revision"] != "3" {
		h.t.Errorf("the hook left %v, %v", hook.Data, err)
	}
}

// TestConflict: an upgrade by server-side apply takes over fields of another manager only
// with force.
func TestConflict(t *testing.T) {
	tier.Full(t)
	servers.Each(t, func(t *testing.T, s servers.Server) {
		h := newHelm(t, s)
		h.must(h.install(true))
		_, err := h.cs.CoreV1().ConfigMaps(h.namespace).Patch(h.ctx, "shop", types.MergePatchType,
			[]byte(`{"data":{"color":"green"}}`), metav1.PatchOptions{FieldManager: "painter"})
		h.must(err)
		err = h.upgrade("true", false, values{"color": "blue"})
		if err == nil || !strings.Contains(err.Error(), `conflict with "painter" using v1: .data.color`) {
			t.Errorf("an upgrade against another manager: %v", err)
		}
		h.must(h.upgrade("true", true, values{"color": "blue"}))
		if got := h.configMap().Data["color"]; got != "blue" {
			t.Errorf("by force the color is %s", got)
		}
	})
}

// TestMigration checks that a release that was installed by patches continues with server-side
// apply: the fields that Helm owned as an updater it owns as an applier.
func TestMigration(t *testing.T) {
	tier.Full(t)
	servers.Each(t, func(t *testing.T, s servers.Server) {
		h := newHelm(t, s)
		h.must(h.install(false))
		h.must(h.upgrade("true", false, values{"color": ""}))
		cm := h.configMap()
		if len(cm.Data) != 1 {
			t.Errorf("what the chart no longer has is still there: %v", cm.Data)
		}
		if len(cm.ManagedFields) != 1 || cm.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("managed fields are %v", cm.ManagedFields)
		}
	})
}
