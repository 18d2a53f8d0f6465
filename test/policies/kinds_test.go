package policies_test

import (
	"fmt"
	"math/rand/v2"
)

// kind is a kind of objects, with the expressions that suit it.
type kind struct {
	group, version, resource string
	hasText                  []string // fields
	booleans, integers       []string
	texts, lists             []string
	applied                  []string // fields of an apply configuration
	patchPaths               []string
	unknownPaths             []string // of fields that the schema lacks
	object                   func(r *rand.Rand) map[string]any
	change                   func(r *rand.Rand) map[string]any // a merge patch
}

func (k *kind) has(r *rand.Rand) string     { return "has(" + pick(r, k.hasText...) + ")" }
func (k *kind) boolean(r *rand.Rand) string { return pick(r, k.booleans...) }
func (k *kind) integer(r *rand.Rand) string { return pick(r, k.integers...) }
func (k *kind) text(r *rand.Rand) string    { return pick(r, k.texts...) }
func (k *kind) list(r *rand.Rand) string    { return pick(r, k.lists...) }

func (k *kind) path(namespace, name string) string {
	path := "/apis/" + k.group + "/" + k.version
	if k.group == "" {
		path = "/api/" + k.version
	}
	path += "/namespaces/" + namespace + "/" + k.resource
	if name != "" {
		path += "/" + name
	}
	return path
}

func randomData(r *rand.Rand) map[string]any {
	data := map[string]any{}
	for range r.IntN(4) {
		data[pick(r, "k1", "k2", "k3", "a", "b")] = pick(r, "", "a", "b", "1", "2", "abc", "10Mi", "10.0.0.1", "a,b", "A b", "https://example.com/x", "1.2.3", "ü☃", "90s", "2024-01-01T00:00:00Z", "<b>&")
	}
	return data
}

var configMaps = &kind{
	version: "v1", resource: "configmaps",
	hasText:  []string{"object.data", "object.data.k1", "object.immutable", "object.nope", "oldObject.data", "object.metadata.name"},
	booleans: []string{"'k1' in object.data", "object.data.all(k, size(k) < 3)", "object.data.exists(k, object.data[k] == 'a')", "object.data == oldObject.data", "object.immutable", "object.data.exists_one(k, k == 'a')", "object.binaryData.size() == 0"},
	integers: []string{"size(object.data)", "int(object.data.k1)", "object.data.size()", "object.metadata.generation"},
	texts:    []string{"object.data.k1", "object.data['k2']", "object.data.nope", "oldObject.data.k1", "object.data.a", "object.immutable"},
	lists:    []string{"object.data.map(k, k).sort()", "object.metadata.finalizers", "[object.data.k1, object.data.k2]"},
	applied:  []string{"data: {%q: %s}", "data: {'k1': %s, 'k2': string(%i)}", "immutable: %b", "data: {'new': object.data.k1}", "nope: %s", "binaryData: {'x': b'abc'}", "data: %i"},
	patchPaths: []string{"/data/k1", "/data/k2", "/data/new", "/data", "/metadata/labels/p", "/metadata/labels/new", "/metadata/annotations", "/metadata/annotations/k1", "/immutable", "/nope", "/metadata/name", "/data/a~1b", "data", "", "/metadata/finalizers/-",
		"/metadata/labels/' + jsonpatch.escapeKey('example.com/x') + '"},
	object: func(r *rand.Rand) map[string]any {
		o := map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}
		if r.IntN(5) > 0 {
			o["data"] = randomData(r)
		}
		if r.IntN(8) == 0 {
			o["immutable"] = r.IntN(2) == 0
		}
		return o
	},
	change: func(r *rand.Rand) map[string]any {
		data := randomData(r)
		data[pick(r, "k1", "k2", "a")] = nil
		return map[string]any{"data": data}
	},
}

var pods = &kind{
	version: "v1", resource: "pods",
	hasText: []string{"object.spec.nodeName", "object.spec.securityContext", "object.spec.securityContext.runAsUser", "object.spec.containers[0].resources.limits", "object.spec.volumes", "object.spec.hostNetwork", "object.status.phase"},
	booleans: []string{"object.spec.containers.all(c, c.image.startsWith('registry/'))", "object.spec.containers.exists(c, has(c.securityContext) && c.securityContext.allowPrivilegeEscalation)", "object.spec.hostNetwork", "object.spec.?hostNetwork.orValue(false)", "object.spec.containers.all(c, has(c.resources.limits))",
		"object.spec.containers.all(c, quantity(c.resources.limits['memory']).isLessThan(quantity('1Gi')))", "object.spec.containers.map(c, c.name).isSorted()", "object.spec.restartPolicy == 'Always'", "object.spec == oldObject.spec", "object.spec.containers.all(c, c.ports.all(p, p.containerPort < 9000))"},
	integers: []string{"size(object.spec.containers)", "object.spec.securityContext.runAsUser", "object.spec.terminationGracePeriodSeconds", "object.spec.containers[0].ports[0].containerPort", "object.spec.priority"},
	texts:    []string{"object.spec.containers[0].image", "object.spec.containers[0].name", "object.spec.containers[1].name", "object.spec.nodeName", "object.spec.containers[0].resources.limits['cpu']", "object.status.qosClass", "object.spec.restartPolicy", "oldObject.spec.containers[0].image"},
	lists:    []string{"object.spec.containers.map(c, c.name)", "object.spec.containers.filter(c, c.image == 'i').map(c, c.name)", "object.spec.containers[0].args", "object.spec.containers.map(c, c.image)"},
	applied: []string{"spec: Object.spec{nodeSelector: {%q: %s}}", "spec: Object.spec{containers: [Object.spec.containers{name: 'sidecar', image: %s}]}", "spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: 'Always'})}",
		"spec: Object.spec{containers: [Object.spec.containers{name: 'c0', env: [Object.spec.containers.env{name: 'A', value: %s}]}]}", "spec: Object.spec{tolerations: [Object.spec.tolerations{key: %s, operator: 'Exists'}]}", "spec: Object.spec{hostNetwork: %b}",
		"spec: Object.spec{containers: [Object.spec.containers{name: 'c0', args: %l}]}", "spec: Object.spec{securityContext: Object.spec.securityContext{runAsUser: %i}}", "spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'init', image: 'i', restartPolicy: 'Always'}]}", "spec: Object.spec{terminationGracePeriodSeconds: %i}",
		"spec: Object.spec{volumes: [Object.spec.volumes{name: 'v', emptyDir: Object.spec.volumes.emptyDir{medium: 'Memory'}}]}", "spec: Object.spec{containers: [Object.spec.containers{image: 'x'}]}", "spec: Object.spec{imagePullSecrets: [Object.spec.imagePullSecrets{name: %q}]}"},
	patchPaths: []string{"/spec/containers/0/image", "/spec/containers/-", "/spec/containers/1", "/spec/nodeSelector", "/spec/nodeName", "/metadata/labels/new", "/spec/containers/0/args", "/spec/tolerations/-", "/spec/restartPolicy", "/spec/containers/9/image", "/spec/hostNetwork"},
	object: func(r *rand.Rand) map[string]any {
		var containers []any
		for i := range 1 + r.IntN(3) {
			c := map[string]any{"name": fmt.Sprint("c", i), "image": pick(r, "i", "registry/a:1", "nginx:latest")}
			if r.IntN(2) == 0 {
				c["resources"] = map[string]any{"limits": map[string]any{"cpu": pick(r, "1", "100m"), "memory": pick(r, "10Mi", "2Gi")}}
			}
			if r.IntN(3) == 0 {
				c["securityContext"] = map[string]any{"allowPrivilegeEscalation": r.IntN(2) == 0}
			}
			if r.IntN(3) == 0 {
				c["ports"] = []any{map[string]any{"containerPort": 80 + 10000*r.IntN(2)}}
			}
			if r.IntN(3) == 0 {
				c["args"] = []any{"a", "b"}
			}
			containers = append(containers, c)
		}
		spec := map[string]any{"containers": containers}
		if r.IntN(3) == 0 {
			spec["securityContext"] = map[string]any{"runAsUser": r.IntN(3) * 1000}
		}
		if r.IntN(4) == 0 {
			spec["hostNetwork"] = r.IntN(2) == 0
		}
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}
	},
	change: func(r *rand.Rand) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{"k1": pick(r, "a", "b", "1")}}}
	},
}

// thingsDefinition defines the custom resources.
const thingsDefinition = `{"metadata": {"name": "things.policies.example.com"}, "spec": {"group": "policies.example.com", "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
	"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
		"size": {"type": "integer", "default": 3}, "name": {"type": "string"}, "on": {"type": "boolean"}, "ratio": {"type": "number"}, "port": {"x-kubernetes-int-or-string": true},
		"atoms": {"type": "array", "items": {"type": "string"}}, "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
		"items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
		"map": {"type": "object", "additionalProperties": {"type": "string"}}, "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		"__odd": {"type": "string"}, "namespace": {"type": "string"}, "a-b": {"type": "string"}, "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": {"type": "string"}}}
	}}}}}}]}}`

var things = &kind{
	group: "policies.example.com", version: "v1", resource: "things",
	hasText:  []string{"object.spec", "object.spec.name", "object.spec.items", "object.spec.any.deep", "object.spec.map", "object.spec.on", "object.spec.__namespace__", "object.spec.a__dash__b"},
	booleans: []string{"object.spec.on", "object.spec.items.all(i, i.v > 1)", "object.spec.ratio > 0.5", "object.spec.set.exists(s, s == 'a')", "object.spec.any.deep.deeper == 1", "object.spec.port == 80", "object.spec.port == 'http'", "type(object.spec.port) == int", "object.spec.map['a'] == 'b'", "object.spec.ratio == 1", "object.spec.atoms == ['a', 'b']"},
	integers: []string{"object.spec.size", "object.spec.items[0].v", "size(object.spec.items)", "object.spec.port", "int(object.spec.ratio)", "object.spec.any.n"},
	texts:    []string{"object.spec.name", "object.spec.map.a", "object.spec.items[0].k", "object.spec.atoms[1]", "string(object.spec.ratio)", "object.spec.port", "object.spec.any.s", "object.spec.__namespace__", "object.spec['a-b']"},
	lists:    []string{"object.spec.atoms", "object.spec.set", "object.spec.items.map(i, i.k)"},
	applied: []string{"spec: Object.spec{name: %s}", "spec: Object.spec{size: %i}", "spec: Object.spec{items: [Object.spec.items{k: %s, v: %i}]}", "spec: Object.spec{atoms: %l}", "spec: Object.spec{set: %l}", "spec: Object.spec{map: {%q: %s}}", "spec: Object.spec{any: Object.spec.any{n: %i}}",
		"spec: Object.spec{atomic: Object.spec.atomic{x: %s}}", "spec: Object.spec{nope: %s}", "spec: Object.spec{port: %i}", "spec: Object.spec{on: %b}", "spec: Object.spec{ratio: 1.5}"},
	patchPaths:   []string{"/spec/name", "/spec/size", "/spec/items/0", "/spec/items/-", "/spec/atoms/-", "/spec/any/n", "/spec", "/spec/map/a"},
	unknownPaths: []string{"/spec/nope", "/status"},
	object: func(r *rand.Rand) map[string]any {
		spec := map[string]any{}
		if r.IntN(2) == 0 {
			spec["name"] = pick(r, "a", "abc", "", "1")
		}
		if r.IntN(2) == 0 {
			spec["size"] = r.IntN(10)
		}
		if r.IntN(2) == 0 {
			spec["items"] = []any{map[string]any{"k": pick(r, "a", "b"), "v": r.IntN(3)}, map[string]any{"k": "c"}}
		}
		if r.IntN(2) == 0 {
			spec["atoms"] = []any{"a", pick(r, "b", "c")}
		}
		if r.IntN(3) == 0 {
			spec["set"] = []any{"a", "z"}
		}
		if r.IntN(3) == 0 {
			spec["any"] = map[string]any{"n": r.IntN(3), "s": "x", "deep": map[string]any{"deeper": 1}}
		}
		if r.IntN(3) == 0 {
			spec["port"] = pick[any](r, 80, "http")
		}
		if r.IntN(3) == 0 {
			spec["ratio"] = pick[any](r, 1, 0.25, 1.5)
		}
		if r.IntN(3) == 0 {
			spec["map"] = map[string]any{"a": "b"}
		}
		if r.IntN(3) == 0 {
			spec["namespace"], spec["a-b"], spec["on"] = "n", "d", r.IntN(2) == 0
		}
		return map[string]any{"apiVersion": "policies.example.com/v1", "kind": "Thing", "spec": spec}
	},
	change: func(r *rand.Rand) map[string]any {
		return map[string]any{"spec": map[string]any{"size": r.IntN(10), "name": pick[any](r, nil, "a", "changed")}}
	},
}

var kinds = []*kind{configMaps, pods, things}
