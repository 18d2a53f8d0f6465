package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// TestKubectlChanges changes objects in the ways that are no apply.
func TestKubectlChanges(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlChanges)
}

func testKubectlChanges(t *testing.T, k *kubectlIn) {
	k.want(shop, []string{"create", "-f", "-"}, "deployment.apps/shop created")
	steps := []struct {
		args  []string
		print string // output of kubectl
		what  string // the field that is checked
		want  string
	}{
		{[]string{"label", "cm", "shop", "tier=front"}, "labeled", "cm/shop {.metadata.labels}", `{"app":"shop","tier":"front"}`},
		{[]string{"label", "cm", "shop", "tier=front"}, "not labeled", "cm/shop {.metadata.labels.tier}", "front"},
		{[]string{"label", "cm", "shop", "tier=back", "--overwrite"}, "labeled", "cm/shop {.metadata.labels.tier}", "back"},
		{[]string{"label", "cm", "shop", "tier-"}, "unlabeled", "cm/shop {.metadata.labels}", `{"app":"shop"}`},
		{[]string{"label", "cm,svc", "-l", "app=shop", "all=yes"}, "service/shop labeled", "svc/shop {.metadata.labels.all}", "yes"},
		{[]string{"label", "cm", "shop", "dry=run", "--dry-run=server"}, "labeled (server dry run)", "cm/shop {.metadata.labels.dry}", ""},
		{[]string{"annotate", "cm", "shop", "note=one"}, "annotated", "cm/shop {.metadata.annotations}", `{"note":"one"}`},
		{[]string{"annotate", "cm", "shop", "note-"}, "annotated", "cm/shop {.metadata.annotations}", ""},
		{[]string{"patch", "cm", "shop", "--type=json", "-p", `[{"op":"test","path":"/data/color","value":"red"},{"op":"replace","path":"/data/color","value":"blue"}]`}, "patched", "cm/shop {.data.color}", "blue"},
		{[]string{"patch", "cm", "shop", "--type=merge", "-p", `{"data":{"color":null}}`}, "patched", "cm/shop {.data}", `{"size":"large"}`},
		{[]string{"patch", "deploy", "shop", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"log","$patch":"delete"}]}}}}`}, "patched", "deploy/shop {.spec.template.spec.containers[*].name}", "web"},
		{[]string{"patch", "deploy", "shop", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"web","ports":[{"containerPort":8080,"protocol":"TCP","name":"http"}]}]}}}}`}, "patched", "deploy/shop {.spec.template.spec.containers[0].ports}", `[{"containerPort":8080,"name":"http","protocol":"TCP"}]`},
		{[]string{"patch", "deploy", "shop", "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":2},"spec":{"replicas":9}}`}, "patched", "deploy/shop {.status.replicas} {.spec.replicas}", "2 2"},
		{[]string{"patch", "cm", "shop", "-p", `{"data":{"size":"large"}}`}, "patched (no change)", "cm/shop {.data.size}", "large"},
		{[]string{"set", "image", "deploy/shop", "web=shop:9"}, "image updated", "deploy/shop {.spec.template.spec.containers[0].image}", "shop:9"},
		{[]string{"set", "env", "deploy/shop", "COLOR-", "SIZE=small"}, "env updated", "deploy/shop {.spec.template.spec.containers[0].env}", `[{"name":"SIZE","value":"small"}]`},
		{[]string{"set", "resources", "deploy/shop", "--limits=cpu=100m"}, "resource requirements updated", "deploy/shop {.spec.template.spec.containers[0].resources}", `{"limits":{"cpu":"100m"}}`},
		{[]string{"set", "selector", "svc/shop", "app=other"}, "selector updated", "svc/shop {.spec.selector}", `{"app":"other"}`},
		{[]string{"set", "serviceaccount", "deploy/shop", "worker"}, "serviceaccount updated", "deploy/shop {.spec.template.spec.serviceAccountName}", "worker"},
		{[]string{"autoscale", "deploy/shop", "--max=5", "--name=auto"}, "autoscaled", "hpa/auto {.spec.maxReplicas}", "5"},
		{[]string{"expose", "deploy/shop", "--name=exposed", "--port=80"}, "exposed", "svc/exposed {.spec.ports[0].port}", "80"},
		{[]string{"run", "one", "--image=i", "--labels=a=b"}, "pod/one created", "pod/one {.spec.containers[0].image}", "i"},
		{[]string{"create", "secret", "generic", "s", "--from-literal=a=b"}, "created", "secret/s {.data}", `{"a":"Yg=="}`},
		{[]string{"create", "role", "reader", "--verb=get", "--resource=pods"}, "created", "role/reader {.rules[0].verbs}", `["get"]`},
		{[]string{"create", "rolebinding", "rb", "--role=reader", "--user=u"}, "created", "rolebinding/rb {.subjects[0].name}", "u"},
		{[]string{"set", "subject", "rolebinding", "rb", "--user=v"}, "subjects updated", "rolebinding/rb {.subjects[*].name}", "u v"},
		{[]string{"create", "cronjob", "cj", "--image=i", "--schedule=* * * * *"}, "created", "cj/cj {.spec.schedule}", "* * * * *"},
		{[]string{"create", "job", "j", "--from=cj/cj"}, "created", "job/j {.metadata.ownerReferences[0].kind}", "CronJob"},
		{[]string{"create", "ingress", "in", "--rule=a.b/*=shop:80"}, "created", "ingress/in {.spec.rules[0].host}", "a.b"},
		{[]string{"create", "pdb", "p", "--selector=a=b", "--min-available=1"}, "created", "pdb/p {.spec.minAvailable}", "1"},
		{[]string{"create", "quota", "q", "--hard=pods=1"}, "created", "quota/q {.spec.hard.pods}", "1"},
	}
	for _, step := range steps {
		k.want("", step.args, step.print)
		object, path, _ := strings.Cut(step.what, " ")
		if got := k.value(object, path); got != step.want {
			t.Errorf("after kubectl %s: %s is %s, want %s", strings.Join(step.args, " "), step.what, got, step.want)
		}
	}
	k.wantError("", []string{"label", "cm", "shop", "app=other"}, "already has a value")
	k.wantError("", []string{"label", "cm", "shop", "app=other", "--overwrite", "--resource-version=1"}, "the object has been modified")
	k.wantError("", []string{"patch", "cm", "shop", "--type=json", "-p", `[{"op":"test","path":"/data/size","value":"x"}]`}, "the server rejected our request due to an error in our request")
	k.wantError("", []string{"patch", "cm", "shop", "-p", `{"metadata":{"labels":{"a":"/"}}}`}, `metadata.labels: Invalid value: "/": a valid label must be an empty string or consist of alphanumeric characters`)
}

// TestKubectlReplace: a whole object in place of another.
func TestKubectlReplace(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlReplace)
}

func testKubectlReplace(t *testing.T, k *kubectlIn) {
	k.wantError(configMap, []string{"replace", "-f", "-"}, `configmaps "a" not found`)
	k.want(configMap, []string{"create", "-f", "-", "--save-config"}, "created")
	k.want(edited(configMap, `"k":"1"`, `"k":"2"`), []string{"replace", "-f", "-", "--dry-run=server"}, "replaced (server dry run)")
	old := k.want("", []string{"get", "cm", "a", "-o", "yaml"}, `k: "1"`)
	k.want(edited(old, `k: "1"`, `k: "3"`), []string{"replace", "-f", "-"}, "replaced")
	k.wantError(edited(old, `k: "1"`, `k: "4"`), []string{"replace", "-f", "-"}, "the object has been modified; please apply your changes to the latest version")
	uid := k.value("cm/a", "{.metadata.uid}")
	k.want(configMap, []string{"replace", "--force", "-f", "-"}, `configmap "a" deleted`, "configmap/a replaced")
	if now := k.value("cm/a", "{.metadata.uid} {.data.k}"); strings.HasPrefix(now, uid) || !strings.HasSuffix(now, " 1") {
		t.Errorf("replaced by force: %s, was %s", now, uid)
	}
	k.wantError(old, []string{"replace", "-f", "-"}, "Precondition failed: UID in precondition")
}

// TestKubectlEdit: an editor changes the object, and kubectl sends the difference.
func TestKubectlEdit(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlEdit)
}

func testKubectlEdit(t *testing.T, k *kubectlIn) {
	k.want(shop, []string{"apply", "-f", "-"})
	k.edits(`s/color: red/color: blue/`)
	k.want("", []string{"edit", "cm", "shop"}, "configmap/shop edited")
	k.want("", []string{"edit", "cm", "shop"}, "Edit cancelled, no changes made")
	k.edits(`s/image: shop:1/image: shop:2/`)
	k.want("", []string{"edit", "deploy", "shop", "-o", "json", "--save-config"}, "Edit cancelled, no changes made")
	k.want("", []string{"edit", "deploy", "shop"}, "deployment.apps/shop edited")
	k.edits(`s/size: large/size: small/`)
	k.want("", []string{"apply", "edit-last-applied", "cm", "shop"}, "configmap/shop edited")
	k.edits(`s/replicas: 2/replicas: 7/`)
	k.want("", []string{"edit", "deploy", "shop", "--subresource=status"}, "")
	if got := k.value("cm/shop", "{.data}") + k.value("deploy/shop", " {.spec.template.spec.containers[0].image} {.spec.replicas}"); got != `{"color":"blue","size":"large"} shop:2 2` {
		t.Errorf("edited to %s", got)
	}
	k.want("", []string{"apply", "view-last-applied", "cm/shop"}, "size: small")
}

// TestKubectlScale: the scale subresource, of kinds that have it.
func TestKubectlScale(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlScale)
}

func testKubectlScale(t *testing.T, k *kubectlIn) {
	k.want(shop, []string{"apply", "-f", "-"})
	k.want(`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db"},"spec":{"replicas":1,"serviceName":"db","selector":{"matchLabels":{"app":"db"}},`+
		`"template":{"metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, []string{"create", "-f", "-"})
	k.want("", []string{"scale", "deploy/shop", "--replicas=5"}, "deployment.apps/shop scaled")
	k.want("", []string{"scale", "deploy/shop", "sts/db", "--replicas=3"}, "statefulset.apps/db scaled")
	k.want("", []string{"scale", "deploy/shop", "--replicas=4", "--dry-run=server"}, "scaled (server dry run)")
	k.wantError("", []string{"scale", "deploy/shop", "--current-replicas=9", "--replicas=1"}, "Expected replicas to be 9, was 3")
	k.wantError("", []string{"scale", "cm/shop", "--replicas=1"}, "could not find the requested resource")
	if got := k.value("deploy/shop", "{.spec.replicas} {.metadata.generation}") + k.value("sts/db", " {.spec.replicas}"); got != "3 3 3" {
		t.Errorf("scaled to %s", got)
	}
	k.want("", []string{"get", "deploy", "shop", "--subresource=scale", "-o", "jsonpath={.kind} {.spec.replicas} {.status.selector}"}, "Scale 3 app=shop")
	k.want("", []string{"patch", "deploy", "shop", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":6}}`}, "patched")
	if got := k.value("deploy/shop", "{.spec.replicas}"); got != "6" {
		t.Errorf("patched to %s replicas", got)
	}
}

// revision is a ReplicaSet as the controller of Deployments would have made it.
const revision = `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"shop-%d","labels":{"app":"shop"},` +
	`"annotations":{"deployment.kubernetes.io/revision":"%d"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"shop","uid":"%s","controller":true}]},` +
	`"spec":{"replicas":0,"selector":{"matchLabels":{"app":"shop"}},"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"web","image":"shop:%d"}]}}}}`

// TestKubectlRollout: as far as no controller is needed; the test plays its part.
func TestKubectlRollout(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlRollout)
}

func testKubectlRollout(t *testing.T, k *kubectlIn) {
	k.want(shop, []string{"apply", "-f", "-"})
	for n := 1; n <= 2; n++ {
		k.want(fmt.Sprintf(revision, n, n, k.value("deploy/shop", "{.metadata.uid}"), n), []string{"create", "-f", "-"})
	}
	k.want("", []string{"rollout", "history", "deploy/shop"}, "REVISION", "1", "2")
	k.want("", []string{"rollout", "history", "deploy/shop", "--revision=2"}, "shop:2")
	k.want("", []string{"rollout", "undo", "deploy/shop", "--to-revision=2"}, "rolled back")
	if got := k.value("deploy/shop", "{.spec.template.spec.containers[*].image}"); got != "shop:2" {
		t.Errorf("rolled back to %s", got)
	}
	k.want("", []string{"rollout", "restart", "deploy/shop"}, "restarted")
	if got := k.value("deploy/shop", `{.spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt}`); got == "" {
		t.Error("the restart left no trace")
	}
	k.want("", []string{"rollout", "pause", "deploy/shop"}, "paused")
	k.want("", []string{"rollout", "resume", "deploy/shop"}, "resumed")
	k.want("", []string{"rollout", "status", "deploy/shop", "--watch=false"}, "Waiting for deployment spec update to be observed")
	generation := k.value("deploy/shop", "{.metadata.generation}")
	k.want("", []string{"patch", "deploy", "shop", "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status":{"observedGeneration":%s,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2}}`, generation)}, "patched")
	k.want("", []string{"rollout", "status", "deploy/shop", "--timeout=5m"}, "successfully rolled out")
}

// TestKubectlDelete: kubectl waits for deletions, and prints them.
func TestKubectlDelete(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlDelete)
}

func testKubectlDelete(t *testing.T, k *kubectlIn) {
	held := edited(configMap, `"name":"a"`, `"name":"held","finalizers":["example.com/keep"]`)
	k.want(held, []string{"create", "-f", "-"})
	k.want("", []string{"delete", "cm", "held", "--wait=false"}, `configmap "held" deleted`)
	k.wantError("", []string{"delete", "cm", "held", "--timeout=1s"}, "timed out waiting for the condition")
	k.wantError(held, []string{"create", "-f", "-"}, `object is being deleted: configmaps "held" already exists`)
	k.wantError("", []string{"patch", "cm", "held", "--type=merge", "-p", `{"metadata":{"finalizers":["a.b/c"]}}`}, "no new finalizers can be added if the object is being deleted")
	k.want("", []string{"patch", "cm", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`}, "patched")
	k.wantError("", []string{"get", "cm", "held"}, "not found")
	k.want("", []string{"delete", "cm", "held", "--ignore-not-found"})

	for _, name := range []string{"a", "b", "c", "d"} {
		label := map[bool]string{true: "x", false: "y"}[name < "c"]
		k.want(edited(configMap, `"name":"a"`, `"name":"`+name+`"`, `"app":"x"`, `"app":"`+label+`"`), []string{"create", "-f", "-"})
	}
	k.want("", []string{"delete", "cm", "-l", "app=x", "--dry-run=server"}, `configmap "a" deleted`, "(server dry run)")
	k.want("", []string{"delete", "cm", "-l", "app=x"}, `configmap "a" deleted`, `configmap "b" deleted`)
	k.want("", []string{"delete", "cm", "--all", "--now"}, `configmap "c" deleted`, `configmap "d" deleted`)
	k.want("", []string{"get", "cm"}, "No resources found")

	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n","terminationGracePeriodSeconds":30,"containers":[{"name":"c","image":"i"}]}}`
	k.want(pod, []string{"create", "-f", "-"})
	k.want("", []string{"delete", "pod", "p", "--now", "--wait=false"}, "deleted")
	if got := k.value("pod/p", "{.metadata.deletionGracePeriodSeconds}"); got != "1" {
		t.Errorf("delete --now left %s seconds", got)
	}
	k.want("", []string{"delete", "pod", "p", "--force", "--grace-period=0"}, "force deleted")
	k.wantError("", []string{"get", "pod", "p"}, "not found")
	k.wantError("", []string{"delete", "ns", "kube-system"}, "this namespace may not be deleted")
}

// TestKubectlCascade checks the deletion of dependents. The garbage collector is the server's own,
// so that there is no kube-apiserver to compare with.
func TestKubectlCascade(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	family := func() {
		k.want(shop, []string{"apply", "-f", "-"})
		k.want(fmt.Sprintf(revision, 1, 1, k.value("deploy/shop", "{.metadata.uid}"), 1), []string{"create", "-f", "-"}, "replicaset.apps/shop-1 created")
		k.want(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"shop-1-a","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"shop-1","uid":%q,"controller":true,"blockOwnerDeletion":true}]},`+
			`"spec":{"containers":[{"name":"c","image":"i"}]}}`, k.value("rs/shop-1", "{.metadata.uid}")), []string{"create", "-f", "-"}, "pod/shop-1-a created")
	}
	family()
	k.want("", []string{"delete", "deploy", "shop"}, `deployment.apps "shop" deleted`)
	k.want("", []string{"wait", "--for=delete", "rs/shop-1", "pod/shop-1-a", "--timeout=5m"})

	family()
	k.want("", []string{"delete", "rs", "shop-1", "--cascade=foreground"}, `replicaset.apps "shop-1" deleted`)
	k.want("", []string{"get", "rs,pods"}, "No resources found") // the dependents went first
	k.want("", []string{"delete", "deploy", "shop"})

	family()
	k.want("", []string{"delete", "deploy", "shop", "--cascade=orphan"}, "deleted")
	if got := k.value("rs/shop-1", "{.metadata.ownerReferences}"); got != "" {
		t.Errorf("the orphan has the owners %s", got)
	}
	k.want("", []string{"delete", "rs", "shop-1", "--cascade=orphan"}, "deleted")
	k.want("", []string{"get", "pod", "shop-1-a"})

	k.want("", []string{"create", "namespace", "team"}, "namespace/team created")
	k.want(shop, []string{"apply", "-n", "team", "-f", "-"}, "created")
	k.want("", []string{"delete", "namespace", "team"}, `namespace "team" deleted`) // waits
	k.wantError("", []string{"get", "namespace", "team"}, "not found")
	k.want("", []string{"get", "deploy,svc", "-n", "team"}, "No resources found")
	k.wantError(shop, []string{"apply", "-n", "team", "-f", "-"}, `namespaces "team" not found`)
}

// TestKubectlWait waits for conditions and for the end of an object.
func TestKubectlWait(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlWait)
}

func testKubectlWait(t *testing.T, k *kubectlIn) {
	k.want("", []string{"run", "one", "--image=i"}, "pod/one created")
	waiting := k.background("wait", "--for=condition=Ready", "pod/one", "--timeout=5m")
	k.want("", []string{"patch", "pod", "one", "--subresource=status", "-p", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`}, "patched")
	waiting("condition met")
	waiting = k.background("wait", "--for=delete", "pod/one", "--timeout=5m")
	k.want("", []string{"delete", "pod", "one"}, "deleted")
	waiting("")
	waiting = k.background("wait", "--for=create", "cm/a", "--timeout=5m")
	k.want(configMap, []string{"create", "-f", "-"}, "created")
	waiting("condition met")
}

// TestKubectlNodes runs the commands of administrators for nodes.
func TestKubectlNodes(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlNodes)
}

func testKubectlNodes(t *testing.T, k *kubectlIn) {
	k.want(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`, []string{"create", "-f", "-"})
	k.want("", []string{"cordon", "n"}, "node/n cordoned")
	k.want("", []string{"taint", "node", "n", "a=b:NoSchedule"}, "node/n tainted")
	k.want("", []string{"taint", "node", "n", "a-"}, "node/n untainted")
	k.want("", []string{"uncordon", "n"}, "node/n uncordoned")
	if got := k.value("node/n", `{.spec.taints[?(@.key=="a")]}`); got != "" {
		t.Errorf("the node is left with the taint %s", got)
	}
	k.want("", []string{"delete", "node", "n"}, "deleted")
}

// edits makes kubectl edit use sed.
func (k *kubectlIn) edits(script string) {
	k.t.Helper()
	k.editor = filepath.Join(k.home, "editor")
	text := fmt.Sprintf("#!/bin/sh\nsed '%s' \"$1\" > \"$1.new\" && cat \"$1.new\" > \"$1\" && rm \"$1.new\"\n", script)
	if err := os.WriteFile(k.editor, []byte(text), 0o700); err != nil {
		k.t.Fatal(err)
	}
}
