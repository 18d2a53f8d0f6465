package policies_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator makes policies and requests.
type generator struct {
	*rand.Rand
	namespace string
}

// policy is a policy with its bindings, as documents. Requests whose object has its label reach it
// alone: the order of several policies is not defined.
type policy struct {
	name, label string
	kind        *kind
	mutating    bool
	document    map[string]any
	bindings    []map[string]any
}

type object = map[string]any

// some returns true once in n times.
func (g *generator) some(n int) bool { return g.IntN(n) == 0 }

func (g *generator) policy(name, label string) *policy {
	p := &policy{name: name, label: label, kind: pick(g.Rand, kinds...), mutating: g.IntN(5) < 2}
	c := &cel{Rand: g.Rand, kind: p.kind, params: g.some(3)}
	bindings := 1
	if !p.mutating && !c.params && g.some(4) { // missing parameters of a binding deny, in any order
		bindings = 2
	}
	rule := object{"apiGroups": []any{p.kind.group}, "apiVersions": []any{pick(g.Rand, "*", p.kind.version)}, "operations": []any{"CREATE", "UPDATE"}, "resources": []any{pick(g.Rand, p.kind.resource, p.kind.resource, "*")}}
	if g.some(20) {
		rule["resourceNames"] = []any{"a", "b"}
	}
	if g.some(15) {
		rule["scope"] = pick(g.Rand, "Namespaced", "Cluster")
	}
	if g.some(8) {
		rule["operations"] = []any{pick(g.Rand, "CREATE", "UPDATE")}
	}
	if !p.mutating && g.some(2) {
		rule["operations"] = []any{"*"}
	}
	constraints := object{"resourceRules": []any{rule}, "namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": g.namespace}}, "objectSelector": g.selector(label)}
	if g.some(10) {
		constraints["excludeResourceRules"] = []any{object{"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "operations": []any{pick(g.Rand, "CREATE", "DELETE")}, "resources": []any{"*"}, "resourceNames": []any{"a"}}}
	}
	spec := object{"matchConstraints": constraints, "failurePolicy": pick(g.Rand, "Fail", "Fail", "Fail", "Ignore")}
	if c.params {
		spec["paramKind"] = object{"apiVersion": "v1", "kind": "ConfigMap"}
	}
	var conditions, variables []any
	for i := range g.IntN(4) / 3 {
		d := &cel{Rand: g.Rand, kind: p.kind}
		conditions = append(conditions, object{"name": fmt.Sprint("c", i), "expression": d.decision(1)})
	}
	for i := range g.IntN(4) {
		of := pick(g.Rand, "s", "i", "b")
		text := map[string]func(int) string{"s": c.text, "i": c.integer, "b": c.boolean}[of](2)
		variables = append(variables, object{"name": fmt.Sprint(of, i), "expression": text})
		c.names = append(c.names, fmt.Sprint(of, i))
	}
	spec["matchConditions"], spec["variables"] = conditions, variables
	if p.mutating {
		g.mutations(c, spec)
	} else {
		g.validations(c, spec, bindings)
	}
	if g.some(10) {
		g.damage(c, spec)
	}
	p.document = object{"metadata": object{"name": name}, "spec": spec}
	g.bind(p, bindings, c.params)
	return p
}

// selector selects objects with a label, and sometimes with more.
func (g *generator) selector(label string) object {
	s := object{"matchLabels": object{"p": label}}
	if g.some(8) {
		s["matchExpressions"] = []any{pick(g.Rand,
			object{"key": "app", "operator": "Exists"}, object{"key": "app", "operator": "DoesNotExist"},
			object{"key": "app", "operator": "In", "values": []any{"a", "b"}}, object{"key": "app", "operator": "NotIn", "values": []any{"a"}})}
	}
	return s
}

func (g *generator) validations(c *cel, spec object, bindings int) {
	var all []any
	for range 1 + g.IntN(4) {
		v := object{"expression": c.decision(1 + g.IntN(3))}
		switch g.IntN(5) {
		case 0:
			v["message"] = pick(g.Rand, "a message", "ünicode <&>", "with 'quotes'")
		case 1:
			v["messageExpression"] = c.message(2)
		case 2:
			v["message"], v["messageExpression"] = "instead", c.message(1)
		}
		if g.some(4) {
			v["reason"] = pick(g.Rand, "Forbidden", "Invalid", "RequestEntityTooLarge")
			if g.some(30) {
				v["reason"] = "Unauthorized" // refused
			}
		}
		all = append(all, v)
	}
	spec["validations"] = all
	switch {
	case !g.some(6):
	case bindings > 1:
		// An annotation that fails denies the request for each binding, whatever its actions are,
		// and kube-apiserver keeps the bindings of a policy in no order.
		spec["auditAnnotations"] = []any{object{"key": "note", "valueExpression": "'n' + string(1)"}}
	default:
		spec["auditAnnotations"] = []any{object{"key": "note", "valueExpression": c.noAuthorizer(func() string { return "'n' + string(" + c.integer(1) + ")" })}}
	}
}

// decision returns an expression whose type is bool, most often: others are refused.
func (c *cel) decision(depth int) string {
	if c.IntN(10) == 0 {
		return c.boolean(depth)
	}
	return "(" + c.boolean(depth) + ") == true"
}

// message returns an expression whose type is string, most often.
func (c *cel) message(depth int) string {
	return c.noAuthorizer(func() string {
		if c.IntN(10) == 0 {
			return c.text(depth)
		}
		return "string(" + c.text(depth) + ")"
	})
}

// noAuthorizer repeats until the expression does without the authorizer: most messages that
// name it are refused.
func (c *cel) noAuthorizer(make func() string) string {
	for {
		if s := make(); !strings.Contains(s, "authorizer") || c.IntN(30) == 0 {
			return s
		}
	}
}

func (g *generator) mutations(c *cel, spec object) {
	var all []any
	c.literals = !g.some(3)
	n, paths := 1+g.IntN(3)/2, c.kind.patchPaths
	if n == 1 {
		// An apply configuration after it would see the unknown field, or not: docs/admission.md.
		paths = slices.Concat(paths, c.kind.unknownPaths)
	}
	for range n {
		if g.some(2) {
			fields := []string{c.f(1+g.IntN(4)/3, pick(g.Rand, c.kind.applied...))}
			if g.some(2) {
				fields = append(fields, c.f(1+g.IntN(4)/3, "metadata: Object.metadata{labels: {'new': %s}, annotations: {%q: string(%i)}}"))
			}
			text := "Object{" + strings.Join(fields, ", ") + "}"
			if g.some(6) {
				text = "(" + c.boolean(1) + " ? " + text + " : Object{})"
			}
			all = append(all, object{"patchType": "ApplyConfiguration", "applyConfiguration": object{"expression": text}})
			continue
		}
		var ops []string
		for range 1 + g.IntN(3) {
			value := pick(g.Rand, c.text(1), c.text(0), c.literal(), "{"+c.literal()+": "+c.text(1)+"}", c.integer(1), "[dyn(1), dyn('a')]", "{'name': 'new', 'image': 'i'}", "Object.spec{}", c.list(1))
			ops = append(ops, fmt.Sprintf("JSONPatch{op: '%s', path: '%s', value: %s}", pick(g.Rand, "add", "add", "add", "add", "replace", "test", "remove"), pick(g.Rand, paths...), value))
			if g.some(5) {
				op := pick(g.Rand, "copy", "move")
				if c.kind == things {
					op = "move" // a copy of an absent value adds a null: docs/admission.md
				}
				ops = append(ops, fmt.Sprintf("JSONPatch{op: '%s', from: '%s', path: '%s'}", op, pick(g.Rand, paths...), pick(g.Rand, paths...)))
			}
		}
		all = append(all, object{"patchType": "JSONPatch", "jsonPatch": object{"expression": "[" + strings.Join(ops, ", ") + "]"}})
	}
	spec["mutations"], spec["reinvocationPolicy"] = all, pick(g.Rand, "Never", "IfNeeded")
}

// damage makes an expression of a policy invalid, most often.
func (g *generator) damage(c *cel, spec object) {
	field := pick(g.Rand, "validations", "mutations", "variables", "matchConditions")
	list, _ := spec[field].([]any)
	if len(list) == 0 {
		return
	}
	item := pick(g.Rand, list...).(object)
	for _, inner := range []string{"applyConfiguration", "jsonPatch"} {
		if m, ok := item[inner].(object); ok {
			item = m
		}
	}
	if text, ok := item["expression"].(string); ok && text != "" {
		item["expression"] = c.broken(text)
	}
}

// bind makes n bindings: one that denies, and perhaps another that warns.
func (g *generator) bind(p *policy, n int, params bool) {
	for i := range n {
		spec := object{"policyName": p.name}
		if !p.mutating {
			spec["validationActions"] = []any{[]string{"Deny", "Warn"}[i]}
			if i == 0 && g.some(6) {
				spec["validationActions"] = []any{"Warn", "Audit"}
			}
		}
		if g.some(4) {
			spec["matchResources"] = object{"objectSelector": g.selector(p.label)}
		}
		if params && !g.some(8) {
			ref := object{"parameterNotFoundAction": pick(g.Rand, "Allow", "Deny")}
			switch g.IntN(4) {
			case 0: // of the params, only one has the label
				ref["selector"] = object{"matchLabels": object{"set": pick(g.Rand, "one", "none")}}
			default:
				ref["name"] = pick(g.Rand, "param-0", "param-1", "param-1", "param-2")
			}
			if g.some(2) {
				ref["namespace"] = g.namespace
			}
			spec["paramRef"] = ref
		}
		p.bindings = append(p.bindings, object{"metadata": object{"name": fmt.Sprintf("%s-%d", p.name, i)}, "spec": spec})
	}
}

// request is a write that changes nothing: a dry-run.
type request struct {
	method, path, contentType string
	body                      object
	user                      string
}

// request makes a request that a policy may decide.
func (g *generator) request(p *policy) request {
	k := p.kind
	q := request{contentType: "application/json", user: pick(g.Rand, "", "", "", "someone")}
	if q.user != "" { // who may write in the namespace
		q.user = g.namespace + "-user"
	}
	labels := object{"p": p.label}
	if !g.some(4) {
		labels["app"] = pick(g.Rand, "a", "b", "c")
	}
	meta := object{"labels": labels}
	if !g.some(4) {
		meta["annotations"] = object{"k1": pick(g.Rand, "a", "1", "abc")}
	}
	switch g.IntN(10) {
	case 0, 1:
		q.method, q.path, q.contentType = "PATCH", k.path(g.namespace, storedName(g.IntN(3)+3)), "application/merge-patch+json"
		q.body = k.change(g.Rand)
		if m, ok := q.body["metadata"].(object); ok {
			m["labels"] = labels
		} else {
			q.body["metadata"] = meta
		}
	case 2:
		i := slices.Index(storedLabels, p.label)
		if i < 0 && g.some(4) {
			i = 3 + g.IntN(3) // no policy sees it
		}
		if i < 0 {
			g.create(&q, k, meta)
			break
		}
		q.method, q.path = "DELETE", k.path(g.namespace, storedName(i))
	case 3:
		q.method, q.path, q.contentType = "PATCH", k.path(g.namespace, "applied"), "application/apply-patch+yaml"
		q.body = k.object(g.Rand)
		meta["name"] = "applied"
		q.body["metadata"] = meta
	default:
		g.create(&q, k, meta)
	}
	separator := "?"
	if q.contentType == "application/apply-patch+yaml" {
		q.path, separator = q.path+"?fieldManager=test", "&"
	}
	q.path += separator + "dryRun=All"
	return q
}

func (g *generator) create(q *request, k *kind, meta object) {
	q.method, q.path = "POST", k.path(g.namespace, "")
	q.body = k.object(g.Rand)
	meta["name"] = pick(g.Rand, "a", "b", "new", "1")
	q.body["metadata"] = meta
}
