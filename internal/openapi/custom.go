package openapi

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// customInfo is the info of kube-apiserver's documents of custom resources.
var customInfo = tree{"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}

var (
	customTypes   = []string{"application/json", "application/yaml"}
	customPatches = []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"}
)

// custom reports whether a page is about custom resources. In kube-apiserver those pages have
// the resources only, without the resource list and the deprecated paths of watches.
func custom(types []*resource.Type) bool {
	return len(types) > 0 && !slices.ContainsFunc(types, func(t *resource.Type) bool { return t.Custom == nil })
}

// customType adds the operations of a custom kind.
func (p *groupPage) customType(t *resource.Type) {
	at, model := p.placeOf(t), modelOf(t)
	collection := append(slices.Clone(at.parameters), pretty)
	object := append(slices.Clone(collection), parameter{"name", "path", "string", "name of the " + t.Kind})
	list := options(metav1.ListOptions{})
	what := at.scope + t.Kind

	o := operation{method: "get", id: "list" + p.title + what, text: "list objects of kind " + t.Kind, action: "list",
		parameters: append(slices.Clone(collection), list...), responses: []response{{"200", "OK", listModelOf(t)}}}
	p.addCustom(t, at.collection, o)
	if t.Namespaced {
		o.id, o.parameters = "list"+p.title+t.Kind+"ForAllNamespaces", append([]parameter{pretty}, list...)
		p.addCustom(t, p.root+"/"+t.Resource, o)
	}
	create := append(slices.Clone(collection), options(metav1.CreateOptions{})...)
	p.addCustom(t, at.collection, write("post", "create"+p.title+what, article("create", t.Kind), model, nil, create))
	p.addCustom(t, at.collection, operation{method: "delete", id: "delete" + p.title + "Collection" + what, text: "delete collection of " + t.Kind,
		action: "deletecollection", parameters: append(slices.Clone(collection), list...), responses: []response{{"200", "OK", metaPrefix + "Status"}}})

	p.customObject(t, customPart{path: at.collection + "/{name}", id: what, model: model}, object)
	p.addCustom(t, at.collection+"/{name}", remove(p.title, what, article("delete", t.Kind), "delete", metaPrefix+"Status", nil, object))
	for i := range t.Subresources {
		s := &t.Subresources[i]
		p.customObject(t, customPart{
			path: at.collection + "/{name}/" + s.Name, id: what + title(s.Name), of: s.Name + " of ", model: subresourceModel(t, s.Kind),
		}, object)
	}
}

// customPart is an object, or a subresource of it.
type customPart struct {
	path  string
	id    string // in the identifiers of operations, behind verb and group
	of    string // "status of ", of a subresource
	model string
}

// customObject adds the operations that read and change an object, or a subresource.
func (p *groupPage) customObject(t *resource.Type, at customPart, object []parameter) {
	get := append(slices.Clone(object), options(metav1.GetOptions{})...)
	p.addCustom(t, at.path, operation{method: "get", id: "read" + p.title + at.id, text: "read " + at.of + "the specified " + t.Kind, action: "get",
		parameters: get, responses: []response{{"200", "OK", at.model}}})
	update := append(slices.Clone(object), options(metav1.UpdateOptions{})...)
	p.addCustom(t, at.path, write("put", "replace"+p.title+at.id, "replace "+at.of+"the specified "+t.Kind, at.model, nil, update))
	o := patch("patch"+p.title+at.id, "partially update "+at.of+"the specified "+t.Kind, at.model, nil, object)
	o.responses = o.responses[:1]
	p.addCustom(t, at.path, o)
}

// addCustom adds an operation. All of them name the custom kind, those of a Scale too.
func (p *groupPage) addCustom(t *resource.Type, path string, o operation) {
	gvk := t.GroupVersionKind()
	o.kind, o.produces, o.consumes = &gvk, customTypes, customTypes
	if o.method == "patch" {
		o.consumes = customPatches
	}
	p.add(path, o)
}
