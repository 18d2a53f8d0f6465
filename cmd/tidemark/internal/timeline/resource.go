package timeline

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

// Resource is a resource that a server serves, in one version.
type Resource struct {
	Group, Version         string
	Plural, Singular, Kind string
	Short                  []string
	Namespaced             bool
	Status                 bool // a write of the object ignores the status
	Verbs                  []string
}

// Name returns the resource with its group: deployments.apps, pods.
func (r *Resource) Name() string {
	if r.Group == "" {
		return r.Plural
	}
	return r.Plural + "." + r.Group
}

// path returns the path of an object, or of the collection if the name is empty.
func (r *Resource) path(namespace, name string) string {
	path := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if r.Namespaced && namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += "/" + r.Plural
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// groupList is the aggregated discovery of a server.
type groupList struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Versions []struct {
			Version   string `json:"version"`
			Resources []struct {
				Resource     string `json:"resource"`
				ResponseKind struct {
					Kind string `json:"kind"`
				} `json:"responseKind"`
				Scope        string   `json:"scope"`
				Singular     string   `json:"singularResource"`
				ShortNames   []string `json:"shortNames"`
				Verbs        []string `json:"verbs"`
				Subresources []struct {
					Subresource string `json:"subresource"`
				} `json:"subresources"`
			} `json:"resources"`
		} `json:"versions"`
	} `json:"items"`
}

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// Resources returns the resources that are served below a path: empty for the present, or that of an instant. The preferred
// version of a group comes first.
func (e *Env) Resources(ctx context.Context, below string) ([]Resource, error) {
	if all, ok := e.found[below]; ok {
		return all, nil
	}
	var all []Resource
	for _, path := range []string{"/api", "/apis"} {
		text, _, err := e.fetch(ctx, below+path, aggregated)
		if err != nil {
			return nil, err
		}
		var l groupList
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("discovery at %s: %w", path, err)
		}
		for _, g := range l.Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					found := Resource{Group: g.Metadata.Name, Version: v.Version, Plural: r.Resource, Singular: r.Singular, Kind: r.ResponseKind.Kind,
						Short: r.ShortNames, Namespaced: r.Scope == "Namespaced", Verbs: r.Verbs}
					for _, s := range r.Subresources {
						found.Status = found.Status || s.Subresource == "status"
					}
					all = append(all, found)
				}
			}
		}
	}
	if e.found == nil {
		e.found = map[string][]Resource{}
	}
	e.found[below] = all
	return all, nil
}

// is reports whether a user may mean the resource: deploy, Deployment, deployments.apps, deployments.v1.apps.
func (r *Resource) is(name string) bool {
	name = strings.ToLower(name)
	for _, own := range append([]string{r.Plural, r.Singular, strings.ToLower(r.Kind)}, r.Short...) {
		if own == "" {
			continue
		}
		if name == own || name == own+"."+r.Group || name == own+"."+r.Version+"."+r.Group {
			return true
		}
	}
	return false
}

// find returns the resource that a user means, looking at the states below the paths in their order.
func (e *Env) find(ctx context.Context, name string, below ...string) (*Resource, error) {
	for _, path := range below {
		all, err := e.Resources(ctx, path)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if all[i].is(name) && !slices.Equal(all[i].Verbs, []string{"create"}) { // reviews are no objects
				return &all[i], nil
			}
		}
	}
	if !strings.Contains(name, ".") {
		return nil, fmt.Errorf("the server doesn't have a resource type %q: if its definition left the history, name its group, too, as in %s.example.com", name, name)
	}
	return nil, fmt.Errorf("the server doesn't have a resource type %q", name)
}

// gone returns the resource that a user means if its definition is gone: without a version, because none is served. It returns
// nil if the history has no such definition, or if the user may not read definitions.
func (e *Env) gone(ctx context.Context, name string) *Resource {
	q := query{terms: map[string]string{changes.SelectResource: definitions, changes.SelectField: "metadata.uid"}} // made or removed
	var found *Resource
	_, err := e.each(ctx, q, func(c *changes.Change) (bool, error) {
		if r := definedBy(c); r != nil && r.is(name) {
			found = r
		}
		return found == nil, nil
	})
	e.Progress.Step("")
	if err != nil {
		return nil
	}
	return found
}

// definitions is the resource of the definitions of custom resources.
const definitions = "customresourcedefinitions.apiextensions.k8s.io"

// definedBy returns the resource of the definition that a change removed; nil: it removed none.
func definedBy(c *changes.Change) *Resource {
	if !c.Deletes() {
		return nil
	}
	r := &Resource{}
	for i := range c.Fields {
		f := &c.Fields[i]
		var into any
		switch f.Path {
		case "spec.group":
			into = &r.Group
		case "spec.names.plural":
			into = &r.Plural
		case "spec.names.singular":
			into = &r.Singular
		case "spec.names.kind":
			into = &r.Kind
		case "spec.names.shortNames":
			into = &r.Short
		case "spec.scope":
			var scope string
			_ = json.Unmarshal(f.From, &scope)
			r.Namespaced = scope == "Namespaced"
			continue
		default:
			continue
		}
		_ = json.Unmarshal(f.From, into) // what cannot be read matches no name
	}
	if r.Plural == "" || r.Group == "" {
		return nil
	}
	return r
}

// target is what arguments name: a kind, or an object of it.
type target struct {
	resource *Resource
	name     string // empty: all objects
}

// targets reads arguments as kubectl does: TYPE, TYPE/NAME ..., TYPE NAME ..., TYPE,TYPE.
func (e *Env) targets(ctx context.Context, args []string, below ...string) (all []target, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	add := func(kind, name string) error {
		r, err := e.find(ctx, kind, below...)
		if err != nil {
			if apierrors.IsForbidden(err) {
				return err
			}
			if r = e.gone(ctx, kind); r == nil {
				parts := strings.SplitN(kind, ".", 2)
				if len(parts) < 2 {
					return err
				}
				r = &Resource{Plural: parts[0], Group: parts[1], Namespaced: true} // of a definition that left the history, too
			}
		}
		all = append(all, target{r, name})
		return nil
	}
	if !strings.Contains(args[0], "/") {
		for kind := range strings.SplitSeq(args[0], ",") {
			names := args[1:]
			if len(names) == 0 {
				names = []string{""}
			}
			for _, name := range names {
				if strings.Contains(name, "/") {
					return nil, usagef("there is no need to specify a resource type as a separate argument when passing arguments in resource/name form (%s)", name)
				}
				if err := add(kind, name); err != nil {
					return nil, err
				}
			}
		}
		return all, nil
	}
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
			return nil, usagef("%q: want RESOURCE/NAME, such as deploy/web", arg)
		}
		if err := add(kind, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// one reads arguments that name one object.
func (e *Env) one(ctx context.Context, args []string, below ...string) (target, error) {
	all, err := e.targets(ctx, args, below...)
	if err == nil && (len(all) != 1 || all[0].name == "") {
		err = usagef("want one object, such as deploy/web")
	}
	if err != nil {
		return target{}, err
	}
	return all[0], nil
}

// query selects the changes of a target.
func (t target) query(namespace string) query {
	q := query{terms: map[string]string{}}
	if t.resource == nil {
		q.namespace = namespace
		return q
	}
	q.terms["resource"], q.terms["name"] = t.resource.Name(), t.name
	if t.resource.Namespaced {
		q.namespace = namespace
	}
	return q
}

// String returns the target as users write it.
func (t target) String() string { return t.resource.Name() + "/" + t.name }
