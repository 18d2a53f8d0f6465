package openapi

import (
	"cmp"
	"slices"
	"strings"
)

// shared splits the parameters of a path's operations into common ones and those of single
// operations, sorted by name.
func shared(operations []operation) (common []parameter, own [][]parameter) {
	count := map[parameter]int{}
	for _, o := range operations {
		for _, p := range o.parameters {
			count[p]++
		}
	}
	for p, n := range count {
		if n == len(operations) {
			common = append(common, p)
		}
	}
	for _, o := range operations {
		var rest []parameter
		for _, p := range o.parameters {
			if count[p] < len(operations) {
				rest = append(rest, p)
			}
		}
		own = append(own, sortParameters(rest))
	}
	return sortParameters(common), own
}

func sortParameters(all []parameter) []parameter {
	slices.SortFunc(all, func(a, b parameter) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.in, b.in))
	})
	return all
}

// writer writes operations for one version of OpenAPI.
type writer struct {
	parameter func(parameter) tree
	operation func(operation, []parameter) tree
}

// paths writes all paths of a page.
func (w writer) paths(all map[string][]operation) tree {
	out := tree{}
	for path, operations := range all {
		common, own := shared(operations)
		item := tree{}
		for i, o := range operations {
			item[o.method] = w.operation(o, own[i])
		}
		if len(common) > 0 {
			item["parameters"] = w.parameters(common)
		}
		out[path] = item
	}
	return out
}

func (w writer) parameters(all []parameter) []any {
	out := make([]any, len(all))
	for i, p := range all {
		out[i] = w.parameter(p)
	}
	return out
}

// common writes the members of an operation that both versions have.
func common(o operation) tree {
	out := tree{"tags": []any{o.tag}, "description": o.text, "operationId": o.id}
	if o.action != "" {
		out["x-kubernetes-action"] = o.action
	}
	if o.kind != nil {
		out["x-kubernetes-group-version-kind"] = tree{"group": o.kind.Group, "version": o.kind.Version, "kind": o.kind.Kind}
	}
	return out
}

var (
	writerV3 = writer{parameterV3, operationV3}
	writerV2 = writer{parameterV2, operationV2}
)

func parameterV3(p parameter) tree {
	out := tree{"name": p.name, "in": p.in, "description": p.text, "schema": tree{"type": p.kind, "uniqueItems": true}}
	if p.in == "path" {
		out["required"] = true
	}
	return out
}

func operationV3(o operation, own []parameter) tree {
	out := common(o)
	if len(own) > 0 {
		out["parameters"] = writer{parameter: parameterV3}.parameters(own)
	}
	if o.body != "" {
		consumes := o.consumes
		if consumes == nil {
			consumes = anyType
		}
		body := tree{"content": contentV3(consumes, o.body)}
		if o.bodyRequired {
			body["required"] = true
		}
		out["requestBody"] = body
	}
	responses := tree{}
	for _, r := range o.responses {
		response := tree{"description": r.text}
		if r.model != "" {
			response["content"] = contentV3(o.produces, r.model)
		}
		responses[r.code] = response
	}
	out["responses"] = responses
	return out
}

func contentV3(types []string, model string) tree {
	schema := tree{"type": "string"}
	if model != "string" {
		schema = tree{"$ref": refV3 + model}
	}
	out := tree{}
	for _, t := range types {
		out[t] = tree{"schema": schema}
	}
	return out
}

func parameterV2(p parameter) tree {
	out := tree{"name": p.name, "in": p.in, "description": p.text, "type": p.kind, "uniqueItems": true}
	if p.in == "path" {
		out["required"] = true
	}
	return out
}

func operationV2(o operation, own []parameter) tree {
	out := common(o)
	out["schemes"] = []any{"https"}
	consumes := o.consumes
	if consumes == nil {
		consumes = anyType
	}
	out["consumes"], out["produces"] = consumes, o.produces
	parameters := writer{parameter: parameterV2}.parameters(own)
	if o.body != "" {
		body := tree{"name": "body", "in": "body", "schema": tree{"$ref": refV2 + o.body}}
		if o.bodyRequired {
			body["required"] = true
		}
		parameters = append([]any{body}, parameters...)
	}
	if len(parameters) > 0 {
		out["parameters"] = parameters
	}
	responses := tree{}
	for _, r := range o.responses {
		response := tree{"description": r.text}
		switch r.model {
		case "":
		case "string":
			response["schema"] = tree{"type": "string"}
		default:
			response["schema"] = tree{"$ref": refV2 + r.model}
		}
		responses[r.code] = response
	}
	out["responses"] = responses
	return out
}
