package test

import (
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// anchors is a definition, and in the same file an object of it.
const anchors = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: anchors.tidemark.example.net
spec:
  group: tidemark.example.net
  scope: Namespaced
  names: {plural: anchors, singular: anchor, kind: Anchor, shortNames: [anc], categories: [all, moorings]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.chains, statusReplicasPath: .status.chains, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Depth, type: integer, jsonPath: .spec.depth, description: How deep it is}
    - {name: Chains, type: integer, jsonPath: .spec.chains, priority: 1}
    schema:
      openAPIV3Schema:
        description: An Anchor holds a ship
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            properties:
              depth: {type: integer, minimum: 1, description: How deep it is}
              chains: {type: integer, default: 1}
              links: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}, kg: {type: integer}}}}
            x-kubernetes-validations:
            - {rule: "!has(self.depth) || self.depth <= self.chains * 100", message: the chains are too short}
          status:
            type: object
            properties:
              chains: {type: integer}
              selector: {type: string}
              conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}}
`

const anchor = `apiVersion: tidemark.example.net/v1
kind: Anchor
metadata: {name: bow}
spec: {depth: 30, links: [{name: a, kg: 1}]}
`

// TestKubectlCustom: a definition and its objects, as one meets them by kubectl.
func TestKubectlCustom(t *testing.T) {
	tier.Full(t)
	onKubectl(t, func(t *testing.T, k *kubectlIn) {
		crd := "crd/anchors.tidemark.example.net"
		t.Cleanup(func() { k.run("", "delete", crd, "--ignore-not-found", "--wait=false") })
		k.want(anchors, []string{"apply", "-f", "-"}, "anchors.tidemark.example.net created")
		k.want("", []string{"wait", "--for=condition=Established", crd, "--timeout=5m"}, "condition met")
		k.want(anchor, []string{"apply", "-f", "-"}, "anchor.tidemark.example.net/bow created")
		k.want(anchors+"---\n"+anchor, []string{"apply", "-f", "-"}, "bow unchanged")

		k.want("", []string{"get", "anc"}, "NAME   DEPTH", "bow    30")
		k.want("", []string{"get", "anchors", "-o", "wide"}, "DEPTH   CHAINS", "30      1")
		k.want("", []string{"get", "anchor.v1.tidemark.example.net", "bow", "-o", "name"}, "anchor.tidemark.example.net/bow")
		for _, category := range []string{"all", "moorings"} {
			k.want("", []string{"get", category, "-o", "name"}, "anchor.tidemark.example.net/bow")
		}
		k.want("", []string{"api-resources", "--api-group=tidemark.example.net", "-o", "wide"}, "anc", "tidemark.example.net/v1", "Anchor", "all,moorings")
		k.want("", []string{"explain", "anchors"}, "An Anchor holds a ship")
		k.want("", []string{"explain", "anchor.spec.depth"}, "How deep it is", "<integer>")
		k.want("", []string{"explain", "anc.spec", "--recursive"}, "links", "kg")
		k.want("", []string{"describe", "anchor", "bow"}, "Depth:", "30")
	})
}

// TestKubectlCustomWrites changes objects by kubectl. It has a definition of its own, because the tests of one kube-apiserver run
// at the same time.
func TestKubectlCustomWrites(t *testing.T) {
	tier.Full(t)
	rename := strings.NewReplacer("anchor", "buoy", "Anchor", "Buoy", "[anc]", "[buo]", "[all, moorings]", "[all]")
	buoys, buoy := rename.Replace(anchors), rename.Replace(anchor)
	onKubectl(t, func(t *testing.T, k *kubectlIn) {
		crd := "crd/buoys.tidemark.example.net"
		t.Cleanup(func() { k.run("", "delete", crd, "--ignore-not-found", "--wait=false") })
		k.want(buoys, []string{"create", "-f", "-"}, "created")
		k.want("", []string{"wait", "--for=condition=Established", crd, "--timeout=5m"}, "condition met")
		k.want(buoy, []string{"create", "-f", "-"}, "created")

		k.want("", []string{"patch", "buoy", "bow", "--type=merge", "-p", `{"spec":{"depth":50}}`}, "patched")
		k.want("", []string{"patch", "buoy", "bow", "--type=json", "-p", `[{"op":"replace","path":"/spec/links/0/kg","value":2}]`}, "patched")
		k.wantError("", []string{"patch", "buoy", "bow", "-p", `{"spec":{"depth":50}}`}, "application/strategic-merge-patch+json")
		k.wantError("", []string{"patch", "buoy", "bow", "--type=merge", "-p", `{"spec":{"depth":101}}`}, "the chains are too short")
		k.wantError("", []string{"patch", "buoy", "bow", "--type=merge", "-p", `{"spec":{"depth":"x"}}`}, "spec.depth in body must be of type integer")
		k.wantError(strings.Replace(buoy, "depth", "dept", 1), []string{"apply", "-f", "-"}, `unknown field "spec.dept"`)
		k.want(strings.Replace(buoy, "30", "60", 1), []string{"apply", "-f", "-"}, "bow configured")
		k.want("", []string{"scale", "buoy/bow", "--replicas=3"}, "bow scaled")
		k.want("", []string{"get", "buoy", "bow", "-o", "jsonpath={.spec.chains} {.spec.depth} {.spec.links[0].kg} {.metadata.generation}"}, "3 60 1 5")
		k.want("", []string{"patch", "buoy", "bow", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`}, "patched")
		k.want("", []string{"wait", "--for=condition=Ready", "buoy/bow", "--timeout=5m"}, "condition met")

		other := strings.NewReplacer("name: bow", "name: stern", "kg: 1", "kg: 1}, {name: b").Replace(buoy)
		k.want(other, []string{"apply", "--server-side", "-f", "-"}, "serverside-applied")
		k.want(strings.Replace(other, "name: b}", "name: c, kg: 3}", 1), []string{"apply", "--server-side", "--field-manager=other", "-f", "-"}, "serverside-applied")
		k.want("", []string{"get", "buoy", "stern", "-o", "jsonpath={.spec.links[*].name}"}, "a b c")
		k.wantError(strings.Replace(other, "depth: 30", "depth: 31", 1), []string{"apply", "--server-side", "--field-manager=other", "-f", "-"}, "conflict", ".spec.depth")
		k.want("", []string{"label", "buoys", "--all", "side=port"}, "bow labeled", "stern labeled")
		k.want("", []string{"get", "buoys", "-l", "side=port", "-o", "name"}, "bow", "stern")
		k.want("", []string{"delete", "buoys", "--all"}, `"bow" deleted`, `"stern" deleted`)
		k.want("", []string{"delete", crd}, "deleted")
		k.wantError("", []string{"get", "buoys"}, "the server")
	})
}
