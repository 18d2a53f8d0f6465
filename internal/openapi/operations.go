package openapi

import (
	"reflect"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// parameter is a parameter of an operation or of a path.
type parameter struct {
	name, in, kind, text string // kind is a JSON type
}

// response is one possible response.
type response struct {
	code, text string
	model      string // "": none; "string": text
}

// operation is a method of a path, in a form for both versions of OpenAPI.
type operation struct {
	method, id, text, tag string
	action                string // x-kubernetes-action; "": none
	kind                  *schema.GroupVersionKind
	parameters            []parameter
	body                  string // model
	bodyRequired          bool
	consumes              []string // nil: anything
	produces              []string
	responses             []response
}

var (
	objectTypes = []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
	streamTypes = append(slices.Clone(objectTypes), "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
	patchTypes  = []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"}
	anyType     = []string{"*/*"}
)

// alsoCBOR maps media types to those that are served in addition if CBOR is enabled.
var alsoCBOR = map[string]string{
	"application/vnd.kubernetes.protobuf":              "application/cbor",
	"application/vnd.kubernetes.protobuf;stream=watch": "application/cbor-seq",
	"application/apply-patch+yaml":                     "application/apply-patch+cbor",
}

// addCBOR adds the media types of CBOR to the operations of a page.
func (p *groupPage) addCBOR() {
	with := func(types []string) []string {
		var all []string
		for _, t := range types {
			all = append(all, t)
			if more := alsoCBOR[t]; more != "" {
				all = append(all, more)
			}
		}
		return all
	}
	for _, operations := range p.paths {
		for i := range operations {
			operations[i].consumes, operations[i].produces = with(operations[i].consumes), with(operations[i].produces)
		}
	}
}

var unauthorized = response{"401", "Unauthorized", ""}

// options turns the fields of an options type into query parameters; the texts
// are the type's own.
func options(o documented, without ...string) []parameter {
	texts := o.SwaggerDoc()
	var all []parameter
	t := reflect.TypeOf(o)
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "preconditions" || slices.Contains(without, name) {
			continue
		}
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Slice {
			ft = ft.Elem() // a parameter that may be repeated
		}
		kind := "string"
		switch ft.Kind() {
		case reflect.Bool:
			kind = "boolean"
		case reflect.Int, reflect.Int32, reflect.Int64:
			kind = "integer"
		}
		all = append(all, parameter{name, "query", kind, texts[name]})
	}
	return all
}

var pretty = parameter{"pretty", "query", "string", "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."}

// connectOptions are the parameters of the connecting subresources.
var connectOptions = map[string]documented{
	"PodAttachOptions":      corev1.PodAttachOptions{},
	"PodExecOptions":        corev1.PodExecOptions{},
	"PodPortForwardOptions": corev1.PodPortForwardOptions{},
	"PodProxyOptions":       corev1.PodProxyOptions{},
	"NodeProxyOptions":      corev1.NodeProxyOptions{},
	"ServiceProxyOptions":   corev1.ServiceProxyOptions{},
}

// groupPage collects the operations of one group and version by path.
type groupPage struct {
	root  string // "/apis/apps/v1"
	title string // "AppsV1"
	tag   string // "apps_v1"
	paths map[string][]operation
}

func newGroupPage(group, version string) *groupPage {
	p := &groupPage{root: "/apis/" + group + "/" + version, paths: map[string][]operation{}}
	if group == "" {
		p.root, group = "/api/"+version, "core"
	}
	group = strings.TrimSuffix(group, ".k8s.io")
	p.title = word(group, true) + word(version, true)
	p.tag = word(group, false) + "_" + word(version, false)
	return p
}

// word is a name in the form that operations have: a letter that follows something
// else than a letter or a digit is a capital, and so is the first if asked for.
func word(name string, capital bool) string {
	var b strings.Builder
	for i, r := range name {
		if !unicode.IsLetter(r) && r != '_' && (i == 0 || !unicode.IsDigit(r)) {
			capital = true
			continue
		}
		if capital {
			r, capital = unicode.ToUpper(r), false
		}
		b.WriteRune(r)
	}
	return b.String()
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func (p *groupPage) add(path string, o operation) {
	o.tag = p.tag
	o.responses = append(o.responses, unauthorized)
	p.paths[path] = append(p.paths[path], o)
}

// resources adds the page's own list.
func (p *groupPage) resources() {
	p.add(p.root+"/", operation{method: "get", id: "get" + p.title + "APIResources", text: "get available resources",
		consumes: objectTypes, produces: objectTypes, responses: []response{{"200", "OK", metaPrefix + "APIResourceList"}}})
}

// place is the path of a type, its parameters, and the word of its operations.
type place struct {
	collection, watch string
	scope             string // "Namespaced" or ""
	parameters        []parameter
}

func (p *groupPage) placeOf(t *resource.Type) place {
	if !t.Namespaced {
		return place{p.root + "/" + t.Resource, p.root + "/watch/" + t.Resource, "", nil}
	}
	ns := parameter{"namespace", "path", "string", "object name and auth scope, such as for teams and projects"}
	return place{p.root + "/namespaces/{namespace}/" + t.Resource, p.root + "/watch/namespaces/{namespace}/" + t.Resource, "Namespaced", []parameter{ns}}
}

func (p *groupPage) typeOperations(t *resource.Type) {
	at, gvk, model := p.placeOf(t), t.GroupVersionKind(), modelOf(t)
	name := parameter{"name", "path", "string", "name of the " + t.Kind}
	collection := append(slices.Clone(at.parameters), pretty)
	object := append(slices.Clone(collection), name)
	list := options(metav1.ListOptions{})
	what := at.scope + t.Kind
	for _, verb := range t.Verbs {
		switch verb {
		case "list":
			text := "list or watch objects of kind " + t.Kind
			if !t.Allows("watch") {
				text = "list objects of kind " + t.Kind
			}
			o := operation{method: "get", id: "list" + p.title + what, text: text, action: "list", kind: &gvk,
				parameters: append(slices.Clone(collection), list...), produces: streamTypes, responses: []response{{"200", "OK", listModelOf(t)}}}
			p.add(at.collection, o)
			if t.Namespaced {
				o.id, o.parameters = "list"+p.title+t.Kind+"ForAllNamespaces", append([]parameter{pretty}, list...)
				p.add(p.root+"/"+t.Resource, o)
			}
		case "create":
			p.add(at.collection, write("post", "create"+p.title+what, article("create", t.Kind), model, &gvk, append(slices.Clone(collection), options(metav1.CreateOptions{})...)))
		case "deletecollection":
			o := remove(p.title, "Collection"+what, "delete collection of "+t.Kind, "deletecollection", metaPrefix+"Status", &gvk, collection)
			o.parameters = append(o.parameters, options(metav1.ListOptions{}, "watch", "allowWatchBookmarks")...)
			o.responses = o.responses[:1]
			p.add(at.collection, o)
		case "get":
			p.add(at.collection+"/{name}", operation{method: "get", id: "read" + p.title + what, text: "read the specified " + t.Kind, action: "get", kind: &gvk,
				parameters: object, produces: objectTypes, responses: []response{{"200", "OK", model}}})
		case "update":
			p.add(at.collection+"/{name}", write("put", "replace"+p.title+what, "replace the specified "+t.Kind, model, &gvk, append(slices.Clone(object), options(metav1.UpdateOptions{})...)))
		case "patch":
			p.add(at.collection+"/{name}", patch("patch"+p.title+what, "partially update the specified "+t.Kind, model, &gvk, object))
		case "delete":
			resp := metaPrefix + "Status"
			if t.Strategy.Deletion.ReturnsObject && t.Kind != "Namespace" {
				resp = model
			}
			p.add(at.collection+"/{name}", remove(p.title, what, article("delete", t.Kind), "delete", resp, &gvk, object))
		case "watch":
			p.watches(t, at, collection, object, list)
		}
	}
	for i := range t.Subresources {
		p.subresource(t, &t.Subresources[i], at, object)
	}
}

// watches adds the deprecated paths.
func (p *groupPage) watches(t *resource.Type, at place, collection, object, list []parameter) {
	gvk := t.GroupVersionKind()
	o := operation{method: "get", kind: &gvk, produces: streamTypes, responses: []response{{"200", "OK", metaPrefix + "WatchEvent"}}}
	o.action, o.text = "watchlist", "watch individual changes to a list of "+t.Kind+". deprecated: use the 'watch' parameter with a list operation instead."
	o.id, o.parameters = "watch"+p.title+at.scope+t.Kind+"List", append(slices.Clone(collection), list...)
	p.add(at.watch, o)
	if t.Namespaced {
		o.id, o.parameters = "watch"+p.title+t.Kind+"ListForAllNamespaces", append([]parameter{pretty}, list...)
		p.add(p.root+"/watch/"+t.Resource, o)
	}
	o.action, o.text = "watch", "watch changes to an object of kind "+t.Kind+". deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
	o.id, o.parameters = "watch"+p.title+at.scope+t.Kind, append(slices.Clone(object), list...)
	p.add(at.watch+"/{name}", o)
}

func (p *groupPage) subresource(t *resource.Type, s *resource.Subresource, at place, object []parameter) {
	path, word := at.collection+"/{name}/"+s.Name, at.scope+t.Kind+title(s.Name)
	gvk := s.Kind
	if gvk.Version == "" {
		gvk.Group, gvk.Version = t.Group, t.Version
	}
	object = slices.Clone(object)
	object[len(object)-1].text = "name of the " + gvk.Kind
	if o, ok := connectOptions[gvk.Kind]; ok {
		p.connect(path, word, s, t.Kind, gvk, options(o), object[:len(object)-2], object[len(object)-1])
		return
	}
	model := subresourceModel(t, gvk)
	for _, verb := range s.Verbs {
		switch verb {
		case "get":
			o := operation{method: "get", id: "read" + p.title + word, text: "read " + s.Name + " of the specified " + t.Kind, action: "get", kind: &gvk,
				parameters: object, produces: objectTypes, responses: []response{{"200", "OK", model}}}
			if s.Name == "log" {
				o.parameters = append(slices.Clone(object), options(corev1.PodLogOptions{})...)
				o.produces = append([]string{"text/plain"}, objectTypes...)
				o.responses[0].model = "string"
			}
			p.add(path, o)
		case "update":
			p.add(path, write("put", "replace"+p.title+word, "replace "+s.Name+" of the specified "+t.Kind, model, &gvk, append(slices.Clone(object), options(metav1.UpdateOptions{})...)))
		case "patch":
			p.add(path, patch("patch"+p.title+word, "partially update "+s.Name+" of the specified "+t.Kind, model, &gvk, object))
		case "create":
			p.add(path, write("post", "create"+p.title+word, "create "+s.Name+" of "+strings.TrimPrefix(article("", t.Kind), " "), model, &gvk, append(slices.Clone(object), options(metav1.CreateOptions{})...)))
		}
	}
}

// connect adds the operations of a subresource that leads to a node.
func (p *groupPage) connect(path, word string, s *resource.Subresource, kind string, gvk schema.GroupVersionKind, own, scope []parameter, name parameter) {
	methods := []string{"get", "post"}
	if s.Name == "proxy" {
		methods = []string{"get", "put", "post", "delete", "options", "head", "patch"}
	}
	all := append(append(slices.Clone(scope), name), own...)
	for _, m := range methods {
		o := operation{method: m, id: "connect" + p.title + title(m) + word, text: "connect " + strings.ToUpper(m) + " requests to " + s.Name + " of " + kind,
			action: "connect", kind: &gvk, parameters: all, produces: anyType, responses: []response{{"200", "OK", "string"}}}
		p.add(path, o)
		if s.Name == "proxy" {
			o.id += "WithPath"
			o.parameters = append(slices.Clone(all), parameter{"path", "path", "string", "path to the resource"})
			p.add(path+"/{path}", o)
		}
	}
}

// subresourceModel is the model that a subresource exchanges.
func subresourceModel(t *resource.Type, gvk schema.GroupVersionKind) string {
	switch gvk.Kind {
	case "Scale":
		return scaleModel
	case "Eviction":
		return evictionModel
	case "Binding":
		return "io.k8s.api.core.v1.Binding"
	case "TokenRequest":
		return tokenModel
	}
	return modelOf(t)
}

// article is a verb, and a kind with its article. Kinds that look like a plural have
// none.
func article(verb, kind string) string {
	a := " a "
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		a = " "
	case strings.ContainsRune("AEIOUaeiou", rune(kind[0])):
		a = " an "
	}
	return verb + a + kind
}

// write is a POST or a PUT.
func write(method, id, text, model string, gvk *schema.GroupVersionKind, parameters []parameter) operation {
	o := operation{method: method, id: id, text: text, action: method, kind: gvk, parameters: parameters,
		body: model, bodyRequired: true, produces: objectTypes, responses: []response{{"200", "OK", model}, {"201", "Created", model}}}
	if method == "post" {
		o.responses = append(o.responses, response{"202", "Accepted", model})
	}
	return o
}

func patch(id, text, model string, gvk *schema.GroupVersionKind, object []parameter) operation {
	return operation{method: "patch", id: id, text: text, action: "patch", kind: gvk,
		parameters: append(slices.Clone(object), options(metav1.PatchOptions{})...),
		body:       metaPrefix + "Patch", bodyRequired: true, consumes: patchTypes, produces: objectTypes,
		responses: []response{{"200", "OK", model}, {"201", "Created", model}}}
}

func remove(titled, what, text, action, resp string, gvk *schema.GroupVersionKind, parameters []parameter) operation {
	return operation{method: "delete", id: "delete" + titled + what, text: text, action: action, kind: gvk,
		parameters: append(slices.Clone(parameters), options(metav1.DeleteOptions{})...),
		body:       metaPrefix + "DeleteOptions", produces: objectTypes,
		responses: []response{{"200", "OK", resp}, {"202", "Accepted", resp}}}
}
