package test

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

const configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app":"x"}},"data":{"k":"1"}}`

// TestKubectl runs the first commands of a newcomer.
func TestKubectl(t *testing.T) {
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	k.want("", []string{"get", "--raw", "/version"}, `"gitVersion": "v1.37.2+tidemark.`)
	k.want("", []string{"cluster-info"}, "is running at")
	k.want("", []string{"api-resources"}, "deployments", "apps/v1", "flowschemas", "customresourcedefinitions")
	k.want("", []string{"api-versions"}, "apps/v1", "resource.k8s.io/v1", "autoscaling/v2", "autoscaling/v1")
	k.want("", []string{"explain", "deployment.spec.strategy"}, "DeploymentStrategy", "rollingUpdate")
	k.want("", []string{"explain", "pod.spec.containers", "--output=plaintext-openapiv2"}, "A single application container")
	k.want("", []string{"get", "namespaces"}, "default", "kube-system", "kube-public", "kube-node-lease")
	k.want("", []string{"auth", "can-i", "--help"}, "Check whether")

	k.want(configMap, []string{"create", "-f", "-"}, "configmap/a created")
	out, err := k.run(configMap, "create", "-f", "-")
	if err == nil || !strings.Contains(out, "AlreadyExists") {
		t.Errorf("a second create: %v\n%s", err, out)
	}
	k.want("", []string{"get", "configmap", "a", "-o", "jsonpath={.data.k}"}, "1")
	k.want("", []string{"get", "cm", "-l", "app=x", "-o", "name"}, "configmap/a")
	k.want("", []string{"get", "cm", "-A", "--field-selector", "metadata.name=a", "-o", "name"}, "configmap/a")
	k.want(strings.Replace(configMap, `"k":"1"`, `"k":"2"`, 1), []string{"replace", "-f", "-"}, "configmap/a replaced")
	k.want("", []string{"wait", "--for=jsonpath={.data.k}=2", "configmap/a", "--timeout=5m"}, "condition met")
	k.want("", []string{"get", "cm", "a", "-o", "yaml"}, `k: "2"`, "resourceVersion:")
	k.want("", []string{"delete", "configmap", "a"}, `configmap "a" deleted`)
	out, err = k.run("", "get", "configmap", "a")
	if err == nil || !strings.Contains(out, `configmaps "a" not found`) {
		t.Errorf("get after delete: %v\n%s", err, out)
	}
	k.want("", []string{"create", "deployment", "web", "--image=nginx"}, "deployment.apps/web created")
	k.want("", []string{"get", "deploy,cm,secrets,pods,svc", "-A"}, "web")
	k.want(shop, []string{"apply", "-f", "-"}, "configmap/shop created", "service/shop created", "deployment.apps/shop created")
	k.want(edited(shop, "size: large", "size: small"), []string{"apply", "-f", "-"}, "configmap/shop configured", "service/shop unchanged", "deployment.apps/shop unchanged")
	k.wantError(edited(configMap, `"data"`, `"dta"`), []string{"create", "-f", "-"}, `unknown field "dta"`) // kubectl asks for strict validation by itself
}

// TestKubectlChunks lists in pages.
func TestKubectlChunks(t *testing.T) {
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	var all strings.Builder
	for i := range 12 {
		fmt.Fprintf(&all, "---\n%s\n", strings.Replace(configMap, `"a"`, fmt.Sprintf(`"c%02d"`, i), 1))
	}
	k.want(all.String(), []string{"create", "-f", "-"}, "configmap/c11 created")
	out := k.want("", []string{"get", "cm", "--chunk-size=5", "-o", "name"})
	if got := strings.Count(out, "configmap/c"); got != 12 {
		t.Errorf("kubectl get --chunk-size=5 printed %d of 12\n%s", got, out)
	}
}

// TestKubectlWatch sees a change through get --watch.
func TestKubectlWatch(t *testing.T) {
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	cmd := k.command(ctx, "", "get", "cm", "--watch", "-o", "name")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); cmd.Wait() }()
	k.want(configMap, []string{"create", "-f", "-"})
	line, err := bufio.NewReader(pipe).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "configmap/a" {
		t.Errorf("the watch printed %q, %v", line, err)
	}
}

// TestKubectlWatchTable prints tables of a watch: as wide ones, with their heads once and
// a line for each change.
func TestKubectlWatchTable(t *testing.T) {
	tier.Full(t)
	onKubectl(t, func(t *testing.T, k *kubectlIn) {
		for _, watch := range []struct {
			args   []string
			expect []string
		}{
			{[]string{"get", "deploy", "-o", "wide", "--watch"}, []string{"NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR", "shop 0/2 0 0 ", "shop 0/3 0 0 "}},
			{[]string{"get", "deploy", "-w", "--output-watch-events"}, []string{"EVENT NAME READY UP-TO-DATE AVAILABLE AGE", "ADDED shop 0/2 0 0 ", "MODIFIED shop 0/3 0 0 "}},
			{[]string{"get", "deploy", "shop", "-w", "-L", "app"}, []string{"NAME READY UP-TO-DATE AVAILABLE AGE APP", "shop 0/2 0 0 ", "shop 0/3 0 0 "}},
		} {
			k.want(shop, []string{"apply", "-f", "-"})
			k.watches(watch.args, watch.expect, func() {
				k.want("", []string{"patch", "deploy", "shop", "--type=merge", "-p", `{"spec":{"replicas":3}}`}, "patched")
			})
			k.want(shop, []string{"delete", "-f", "-"})
		}
	})
}

// watches runs a watch, changes something when it has printed all lines but the last,
// and compares how the lines begin, whatever the space between their words.
func (k *kubectlIn) watches(args, expect []string, change func()) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(k.t.Context())
	cmd := k.command(ctx, "", args...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	defer func() { cancel(); cmd.Wait() }()
	lines := bufio.NewReader(pipe)
	for i, want := range expect {
		if i == len(expect)-1 {
			change()
		}
		line, err := lines.ReadString('\n')
		if got := strings.Join(strings.Fields(line), " "); err != nil || !strings.HasPrefix(got+" ", want) {
			k.t.Errorf("kubectl %s printed %q, %v, want %q", strings.Join(args, " "), got, err, want)
			return
		}
	}
}
