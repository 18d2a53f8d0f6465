package timeline

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// Complete completes an argument: the resources that can be listed, and the names of objects. spaced is true if the
// argument may end there.
func (e *Env) Complete(ctx context.Context, args []string, text string) (all []string, spaced bool) {
	kind, name, named := strings.Cut(text, "/")
	before := kind + "/"
	if len(args) > 0 && !strings.Contains(args[0], "/") { // TYPE NAME
		kind, name, named, before = args[0], text, true, ""
	}
	if !named {
		served, err := e.Resources(ctx, "")
		if err != nil {
			return nil, true
		}
		for i := range served {
			if r := &served[i]; slices.Contains(r.Verbs, "list") && strings.HasPrefix(r.Name(), text) && !slices.Contains(all, r.Name()) {
				all = append(all, r.Name())
			}
		}
		slices.Sort(all)
		return all, false
	}
	r, err := e.find(ctx, kind, "")
	if err != nil {
		return nil, true
	}
	body, _, err := e.fetch(ctx, r.path(e.namespaceOf(r), "")+"?limit=500", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	if err != nil {
		return nil, true
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if json.Unmarshal(body, &list) != nil {
		return nil, true
	}
	for _, o := range list.Items {
		if strings.HasPrefix(o.Metadata.Name, name) {
			all = append(all, before+o.Metadata.Name)
		}
	}
	return all, true
}
