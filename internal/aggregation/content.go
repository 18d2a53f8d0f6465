package aggregation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
)

// Kind is a namespaced kind of an extension server.
type Kind struct {
	of       *Backend
	resource string
	// collection: a request can delete all objects of a namespace.
	collection bool
}

// Resource returns the name "RESOURCE.GROUP".
func (k Kind) Resource() string { return k.resource + "." + k.of.group }

// Namespaced returns the namespaced kinds of extension servers whose objects can be listed and deleted, each in one version,
// and the group versions whose kinds are not known.
func (a *Aggregator) Namespaced() (kinds []Kind, stale []string) {
	seen := map[string]bool{}
	for _, b := range a.table.Load().sorted() {
		v := b.source.version(b.groupVersion)
		if v == nil {
			stale = append(stale, b.groupVersion.String())
			continue
		}
		for i := range v.Resources {
			r := &v.Resources[i]
			k := Kind{b, r.Resource, slices.Contains(r.Verbs, "deletecollection")}
			if r.Scope != apidiscovery.ScopeNamespace || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") || seen[k.Resource()] ||
				strings.Contains(r.Resource, "/") {
				continue
			}
			seen[k.Resource()] = true
			kinds = append(kinds, k)
		}
	}
	return kinds, stale
}

// Remaining describes the objects that are left.
type Remaining struct {
	Objects    int
	Finalizers map[string]int // objects by finalizer
}

// The user as whom the objects of a namespace are deleted.
const namespaceUser = "system:serviceaccount:kube-system:namespace-controller"

var namespaceGroups = []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}

// maxListBytes limits the list of the objects of a namespace.
const maxListBytes = 8 << 20

// Clear deletes the objects of a kind in a namespace, and returns those that are left.
func (a *Aggregator) Clear(ctx context.Context, k Kind, namespace string) (left Remaining, err error) {
	path := "/apis/" + k.of.groupVersion.String() + "/namespaces/" + namespace + "/" + k.resource
	request := func(method, path string) (*fetched, error) {
		return k.of.fetch(ctx, fetched{method: method, path: path, header: http.Header{"Accept": {"application/json"}},
			user: namespaceUser, groups: namespaceGroups, limit: maxListBytes, timeout: openAPITimeout})
	}
	if k.collection {
		if err := succeeded(request(http.MethodDelete, path)); err != nil {
			return left, err
		}
	}
	list := func() (all []remaining, err error) {
		d, err := request(http.MethodGet, path)
		if err := succeeded(d, err); err != nil {
			return nil, err
		}
		var found struct{ Items []remaining }
		if d.code == http.StatusOK {
			err = json.Unmarshal(d.body, &found)
		}
		return found.Items, err
	}
	all, err := list()
	if err == nil && !k.collection && len(all) > 0 {
		for _, o := range all {
			if o.Metadata.DeletionTimestamp != "" || o.Metadata.Name == "" {
				continue
			}
			if err := succeeded(request(http.MethodDelete, path+"/"+o.Metadata.Name)); err != nil {
				return left, err
			}
		}
		all, err = list()
	}
	for _, o := range all {
		left.Objects++
		for _, name := range o.Metadata.Finalizers {
			if left.Finalizers == nil {
				left.Finalizers = map[string]int{}
			}
			left.Finalizers[name]++
		}
	}
	return left, err
}

// remaining is an object in a list.
type remaining struct {
	Metadata struct {
		Name              string
		DeletionTimestamp string
		Finalizers        []string
	}
}

// succeeded returns an error unless a request succeeded. What is not there, or is not supported, is no error.
func succeeded(d *fetched, err error) error {
	switch {
	case err != nil:
		return err
	case d.code < 300, d.code == http.StatusNotFound, d.code == http.StatusMethodNotAllowed, d.code == http.StatusConflict:
		return nil
	}
	return fmt.Errorf("the extension server responded with %d", d.code)
}
