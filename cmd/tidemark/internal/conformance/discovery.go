package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// resourceType is a type as discovery shows it.
type resourceType struct {
	group, version, resource, kind string
	namespaced                     bool
	verbs                          []string
}

// apiVersion returns the apiVersion of the type's objects.
func (r *resourceType) apiVersion() string {
	if r.group == "" {
		return r.version
	}
	return r.group + "/" + r.version
}

// String is "configmaps/v1" or "foos.example.com/v1".
func (r *resourceType) String() string {
	if r.group == "" {
		return r.resource + "/" + r.version
	}
	return r.resource + "." + r.group + "/" + r.version
}

// root is the path above collections.
func (r *resourceType) root() string {
	if r.group == "" {
		return "/api/" + r.version
	}
	return "/apis/" + r.group + "/" + r.version
}

// collection returns the path of the collection in a namespace. An empty namespace means
// all namespaces.
func (r *resourceType) collection(namespace string) string {
	if namespace == "" || !r.namespaced {
		return r.root() + "/" + r.resource
	}
	return r.root() + "/namespaces/" + namespace + "/" + r.resource
}

func (r *resourceType) allows(verb string) bool { return slices.Contains(r.verbs, verb) }

// resourceName is the name of a type: the version may be left out.
type resourceName struct{ resource, group, version string }

// parseResource reads "configmaps", "deployments.apps", "foos.example.com/v1".
func parseResource(text string) (resourceName, error) {
	name, version, versioned := strings.Cut(text, "/")
	resource, group, _ := strings.Cut(name, ".")
	if resource == "" || versioned && (version == "" || strings.Contains(version, "/")) {
		return resourceName{}, fmt.Errorf("the resource is %q: want one as configmaps, deployments.apps or foos.example.com/v1", text)
	}
	return resourceName{resource, group, version}, nil
}

// Limits on discovery documents.
const (
	maxGroupVersions = 1000
	maxTypes         = 5000
)

// discover lists the types in a server's discovery documents, in the same order. If groups
// cannot be read (an aggregated server is down), it returns the types of the others, and an
// error that names those groups.
func (b *bed) discover(ctx context.Context) ([]resourceType, error) {
	var groups []string
	var core struct {
		Versions []string `json:"versions"`
	}
	coreErr := b.fetch(ctx, "/api", &core)
	for _, v := range core.Versions {
		groups = append(groups, "/api/"+v)
	}
	var named struct {
		Groups []struct {
			Versions []struct {
				GroupVersion string `json:"groupVersion"`
			} `json:"versions"`
		} `json:"groups"`
	}
	namedErr := b.fetch(ctx, "/apis", &named)
	for _, g := range named.Groups {
		for _, v := range g.Versions {
			groups = append(groups, "/apis/"+v.GroupVersion)
		}
	}
	if coreErr != nil && namedErr != nil {
		return nil, errors.Join(coreErr, namedErr)
	}
	var all []resourceType
	var errs []error
	for _, path := range groups[:min(len(groups), maxGroupVersions)] {
		types, err := b.discoverGroup(ctx, path)
		all, errs = append(all, types...), append(errs, err)
	}
	return all[:min(len(all), maxTypes)], errors.Join(errs...)
}

func (b *bed) discoverGroup(ctx context.Context, path string) ([]resourceType, error) {
	var l struct {
		GroupVersion string `json:"groupVersion"`
		Resources    []struct {
			Name       string   `json:"name"`
			Kind       string   `json:"kind"`
			Namespaced bool     `json:"namespaced"`
			Verbs      []string `json:"verbs"`
		} `json:"resources"`
	}
	if err := b.fetch(ctx, path, &l); err != nil {
		return nil, err
	}
	group, version, found := strings.Cut(l.GroupVersion, "/")
	if !found {
		group, version = "", group
	}
	var all []resourceType
	for _, x := range l.Resources {
		if !isPlain(x.Name+group+version) || !isPlain(strings.ToLower(x.Kind)) {
			continue // a subresource, or nothing that could be in a URL
		}
		all = append(all, resourceType{group: group, version: version, resource: x.Name, kind: x.Kind, namespaced: x.Namespaced, verbs: x.Verbs})
	}
	return all, nil
}

// isPlain reports whether a text has only characters of the names of types.
func isPlain(text string) bool {
	return text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// find returns the type with a name; of several versions the first, which is the
// one that the server prefers.
func find(types []resourceType, name resourceName) (*resourceType, error) {
	i := slices.IndexFunc(types, func(r resourceType) bool {
		return r.resource == name.resource && r.group == name.group && (name.version == "" || r.version == name.version)
	})
	if i < 0 {
		return nil, fmt.Errorf("discovery shows no resource %q of group %q, version %q%s", name.resource, name.group, name.version, similar(types, name))
	}
	return &types[i], nil
}

// similar lists types of any group whose resource or kind is the requested one, for an
// error message.
func similar(types []resourceType, name resourceName) string {
	var some []string
	for _, r := range types {
		if strings.EqualFold(r.resource, name.resource) || strings.EqualFold(r.kind, name.resource) {
			some = append(some, r.String())
		}
	}
	if len(some) == 0 {
		return ""
	}
	return "; there is " + strings.Join(some[:min(len(some), 5)], ", ")
}

// fetch gets a document from a path.
func (b *bed) fetch(ctx context.Context, path string, into any) error {
	a, err := b.plain(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return err
	}
	if a.code != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, a.describe())
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}
