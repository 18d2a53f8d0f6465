package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// shop is the configuration of a team.
const shop = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: shop
  labels: {app: shop}
data:
  color: red
  size: large
---
apiVersion: v1
kind: Service
metadata:
  name: shop
  labels: {app: shop}
spec:
  selector: {app: shop}
  ports:
  - {name: http, port: 80, protocol: TCP, targetPort: 8080}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop
  labels: {app: shop}
spec:
  replicas: 2
  selector:
    matchLabels: {app: shop}
  template:
    metadata:
      labels: {app: shop}
    spec:
      containers:
      - name: web
        image: shop:1
        env: [{name: COLOR, value: red}]
        ports: [{containerPort: 8080, protocol: TCP}]
      - name: log
        image: log:1
`

// edited is a text with the first of each pair replaced by the second.
func edited(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// TestKubectlApply applies a configuration by client-side apply: kubectl computes the changes, and
// sends a strategic merge patch.
func TestKubectlApply(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlApply)
}

func testKubectlApply(t *testing.T, k *kubectlIn) {
	if out, code := k.exit(shop, "diff", "-f", "-"); code != 1 || !strings.Contains(out, "+  color: red") {
		t.Errorf("diff of a missing object: exit status %d\n%s", code, out)
	}
	k.want(shop, []string{"apply", "-f", "-", "--dry-run=server"}, "deployment.apps/shop created (server dry run)")
	k.wantError("", []string{"get", "cm", "shop"}, `configmaps "shop" not found`)
	k.want(shop, []string{"apply", "-f", "-"}, "configmap/shop created", "service/shop created", "deployment.apps/shop created")
	version := k.value("deploy/shop", "{.metadata.resourceVersion}")
	k.want(shop, []string{"apply", "-f", "-"}, "configmap/shop unchanged", "service/shop unchanged", "deployment.apps/shop unchanged")
	if got := k.value("deploy/shop", "{.metadata.resourceVersion}"); got != version {
		t.Errorf("applying the same again made version %s of %s", got, version)
	}
	if out, code := k.exit(shop, "diff", "-f", "-"); code != 0 {
		t.Errorf("diff of an existing object: exit status %d\n%s", code, out)
	}

	// Other managers own fields that the configuration lacks.
	k.want("", []string{"label", "deploy", "shop", "team=a"}, "labeled")
	k.want("", []string{"patch", "deploy", "shop", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}`}, "patched")
	next := edited(shop, "  color: red\n", "", "size: large", "size: small", "shop:1", "shop:2", "      - name: log\n        image: log:1\n", "",
		"[{name: COLOR, value: red}]", "[{name: SIZE, value: small}]", "replicas: 2", "replicas: 3")
	if out, code := k.exit(next, "diff", "-f", "-"); code != 1 || !strings.Contains(out, "-  color: red\n") || !strings.Contains(out, "image: shop:2") {
		t.Errorf("diff: exit status %d\n%s", code, out)
	}
	k.want(next, []string{"apply", "-f", "-"}, "configmap/shop configured", "service/shop unchanged", "deployment.apps/shop configured")
	if got := k.value("cm/shop", "{.data}"); got != `{"size":"small"}` {
		t.Errorf("the data is %s", got)
	}
	if got := k.value("deploy/shop", "{.spec.template.spec.containers[*].name} {.spec.template.spec.containers[*].env} {.metadata.labels.team} {.metadata.generation} {.spec.replicas}"); got != `side web [{"name":"SIZE","value":"small"}] a 3 3` && got != `web side [{"name":"SIZE","value":"small"}] a 3 3` {
		t.Errorf("the Deployment has %s", got)
	}

	k.want("", []string{"apply", "view-last-applied", "cm/shop"}, "size: small")
	k.want("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bare}\n", []string{"create", "-f", "-"})
	k.want("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bare}\n", []string{"apply", "set-last-applied", "--create-annotation", "-f", "-"}, "configmap/bare configured")
	k.want(next, []string{"apply", "--prune", "-l", "app=shop", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"}, "configmap/shop unchanged")
	_, rest, _ := strings.Cut(next, "---")
	k.want(rest, []string{"apply", "--prune", "-l", "app=shop", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"}, "configmap/shop pruned")
	k.want("", []string{"get", "cm", "bare"})
}

// TestKubectlApplyStrict checks that unknown fields of a configuration are rejected before anything
// is written, or warned about if the user requests it.
func TestKubectlApplyStrict(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlApplyStrict)
}

func testKubectlApplyStrict(t *testing.T, k *kubectlIn) {
	wrong := edited(configMap, `"data"`, `"dta"`)
	k.wantError(wrong, []string{"apply", "-f", "-"}, `unknown field "dta"`)
	k.wantError(wrong, []string{"apply", "-f", "-", "--server-side"}, ".dta: field not declared in schema")
	k.want(wrong, []string{"apply", "-f", "-", "--validate=warn"}, `unknown field "dta"`, "created")
	k.wantError(wrong, []string{"replace", "-f", "-"}, `unknown field "dta"`)
	k.wantError("", []string{"patch", "cm", "a", "-p", `{"metadata":{"label":{}}}`, "--dry-run=nope"}, "Invalid dry-run value")
	k.want("", []string{"patch", "cm", "a", "-p", `{"dta":{}}`}, "no change") // a warning is all
}

// TestKubectlServerSide checks server-side apply: the owners of fields, conflicts, and objects that
// were applied client-side before.
func TestKubectlServerSide(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlServerSide)
}

func testKubectlServerSide(t *testing.T, k *kubectlIn) {
	apply := []string{"apply", "--server-side", "-f", "-"}
	k.want(shop, append(apply, "--dry-run=server"), "configmap/shop serverside-applied (server dry run)")
	k.want(shop, apply, "configmap/shop serverside-applied", "deployment.apps/shop serverside-applied")
	version := k.value("deploy/shop", "{.metadata.resourceVersion}")
	k.want(shop, apply, "configmap/shop serverside-applied")
	if got := k.value("deploy/shop", "{.metadata.resourceVersion}"); got != version {
		t.Errorf("applying the same again made version %s of %s", got, version)
	}
	if got := k.value("cm/shop", "{.metadata.managedFields[*].manager} {.metadata.managedFields[*].operation}"); got != "kubectl Apply" {
		t.Errorf("managers are %s", got)
	}
	small := edited(shop, "size: large", "size: small")
	out := k.wantError(small, append(apply, "--field-manager=other"), "Apply failed with 1 conflict: conflict with \"kubectl\": .data.size", "--force-conflicts")
	if strings.Contains(out, "serverside-applied") && strings.Contains(out, "configmap/shop serverside-applied") {
		t.Errorf("the conflict was written:\n%s", out)
	}
	k.want(small, append(apply, "--field-manager=other", "--force-conflicts"), "configmap/shop serverside-applied")
	if out, code := k.exit(shop, "diff", "--server-side", "-f", "-"); code != 1 && !strings.Contains(out, "conflict") {
		t.Errorf("diff --server-side: exit status %d\n%s", code, out)
	}
	out, code := k.exit(shop, "diff", "--server-side", "--force-conflicts", "-f", "-")
	if code != 1 || !strings.Contains(out, "size: large") {
		t.Errorf("diff --server-side --force-conflicts: exit status %d\n%s", code, out)
	}
	k.want(edited(shop, "  size: large\n", ""), apply, "configmap/shop serverside-applied")
	if got := k.value("cm/shop", "{.data}"); got != `{"color":"red","size":"small"}` {
		t.Errorf("what another manager owns went away: %s", got)
	}
	k.want(edited(small, "  size: small\n", ""), append(apply, "--field-manager=other"), "configmap/shop serverside-applied")
	if got := k.value("cm/shop", "{.data}"); got != `{"color":"red"}` {
		t.Errorf("an object that is no longer applied still exists: %s", got)
	}
	// kubectl patches the object by an update. Apply distinguishes that from its own fields.
	k.want("", []string{"patch", "cm", "shop", "--type=merge", "-p", `{"data":{"color":"blue"}}`}, "patched")
	k.wantError(shop, apply, `conflict with "kubectl-patch" using v1: .data.color`)
}

// TestKubectlMigration applies on the client's side, then server-side, then on the client's
// side again. Fields that are dropped from the configuration are removed each time.
func TestKubectlMigration(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlMigration)
}

func testKubectlMigration(t *testing.T, k *kubectlIn) {
	k.want(shop, []string{"apply", "-f", "-"}, "configmap/shop created")
	k.want(edited(shop, "  color: red\n", ""), []string{"apply", "--server-side", "-f", "-"}, "configmap/shop serverside-applied", "deployment.apps/shop serverside-applied")
	// kubectl has the annotation applied by a manager of its own.
	if got := k.value("cm/shop", "{.data} {.metadata.managedFields[*].manager} {.metadata.managedFields[*].operation}"); got != `{"size":"large"} kubectl-last-applied kubectl Apply Apply` && got != `{"size":"large"} kubectl kubectl-last-applied Apply Apply` {
		t.Errorf("after the migration: %s", got)
	}
	k.want("", []string{"apply", "view-last-applied", "cm/shop"}, "size: large")
	k.want(edited(shop, "  size: large\n", "  weight: heavy\n", "  color: red\n", ""), []string{"apply", "-f", "-"}, "configmap/shop configured")
	if got := k.value("cm/shop", "{.data}"); got != `{"weight":"heavy"}` {
		t.Errorf("applied the old way again: %s", got)
	}
}

// TestKubectlKustomize applies the output of kustomize.
func TestKubectlKustomize(t *testing.T) {
	tier.Full(t)
	onKubectl(t, testKubectlKustomize)
}

func testKubectlKustomize(t *testing.T, k *kubectlIn) {
	dir := t.TempDir()
	files := map[string]string{
		"shop.yaml": shop,
		"kustomization.yaml": "resources: [shop.yaml]\nnamePrefix: my-\nlabels: [{pairs: {stage: test}}]\n" +
			"configMapGenerator: [{name: made, literals: [a=b]}]\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"created", "unchanged"} {
		k.want("", []string{"apply", "-k", dir}, "deployment.apps/my-shop "+want)
	}
	k.want("", []string{"delete", "-k", dir}, `service "my-shop" deleted`)
}
