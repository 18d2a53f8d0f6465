package conformance

import (
	"net/http"
)

var verbChecks = []Check{
	{ID: "verbs.single", Level: Must, Source: concepts + ", Resource URIs",
		About: "An object is served at its namespace, collection and name, with its kind and version.", run: verbsSingle},
	{ID: "verbs.collections", Level: Must, Source: concepts + ", Resource URIs",
		About: "The object is in the collection of its namespace and in the collection of all namespaces.", run: verbsCollections},
	{ID: "verbs.kind", Level: Must, Source: concepts + ", Collections",
		About: "A collection's kind is the kind of its objects with List appended.", run: verbsListKind},
	{ID: "verbs.unique", Level: Must, Source: concepts + ", Object names",
		About: "A name in a namespace belongs to at most one object of a kind at a time.", run: verbsUnique},
	{ID: "verbs.reuse", Level: Must, Source: concepts + ", Object names",
		About: "The name of a deleted object can be given to a new one.", run: verbsReuse},
	{ID: "verbs.generate-name", Level: Must, Source: concepts + ", Generated values",
		About: "generateName produces random, unique names.", run: verbsGenerateName},
	{ID: "verbs.update", Level: Must, Source: concepts + ", API verbs",
		About: "PUT replaces an object and keeps its uid and creation time.", run: verbsUpdate},
	{ID: "verbs.conflict", Level: Should, Source: conceptsRV + " (a client passes back what it was given)",
		About: "PUT with the version of an older state is a conflict.", run: verbsConflict},
	{ID: "verbs.merge-patch", Level: Must, Source: concepts + ", API verbs",
		About: "PATCH changes the fields that it names and keeps the others.", run: verbsMergePatch},
	{ID: "verbs.json-patch", Level: Should, Source: concepts + ", API verbs",
		About: "PATCH takes JSON patches.", run: verbsJSONPatch},
}

func verbsSingle(p *probe) {
	made := p.create("a", "1")
	o := p.read("a", "")
	switch {
	case o.name() != made.name() || o.uid() != made.uid() || o.uid() == "":
		p.failf("GET responses the object %s with uid %q, want %s with %q", o.name(), o.uid(), made.name(), made.uid())
	case o.text("metadata", "namespace") != p.bed.namespace:
		p.failf("the object's namespace is %q, want %q", o.text("metadata", "namespace"), p.bed.namespace)
	case o.text("kind") != p.resource.kind || o.text("apiVersion") != p.resource.apiVersion():
		p.failf("the object is a %s of %s, want %s of %s as discovery says", o.text("kind"), o.text("apiVersion"), p.resource.kind, p.resource.apiVersion())
	case o.mark() != "1":
		p.failf("the label has the value %q, want %q as it was sent", o.mark(), "1")
	}
	a := p.send(request{method: http.MethodGet, path: p.path(p.named("absent"))})
	p.want(a, http.StatusNotFound)
}

func verbsCollections(p *probe) {
	made := p.create("a", "1")
	p.wantState("the collection of the namespace", p.mine(p.list("")), states(made))
	a := p.send(request{method: http.MethodGet, path: p.resource.collection(""), query: "fieldSelector=metadata.name%3D" + made.name()})
	p.want(a, http.StatusOK)
	p.wantState("the collection of all namespaces", p.mine(p.listIn(a)), states(made))
}

func verbsListKind(p *probe) {
	p.create("a", "1")
	l := p.list("")
	if l.kind != p.resource.kind+"List" || l.apiVersion != p.resource.apiVersion() {
		p.failf("the collection is a %s of %s, want %sList of %s", l.kind, l.apiVersion, p.resource.kind, p.resource.apiVersion())
	}
	for _, o := range l.items {
		if kind := o.text("kind"); kind != "" && kind != p.resource.kind {
			p.failf("the item %s is a %s, want %s", o.name(), kind, p.resource.kind)
		}
	}
}

func verbsUnique(p *probe) {
	first := p.create("a", "1")
	p.want(p.send(p.posting(p.fresh("a", "2"), "")), http.StatusConflict)
	if o := p.read("a", ""); o.uid() != first.uid() || o.mark() != "1" {
		p.failf("the object is another one after a second create of its name")
	}
}

func verbsReuse(p *probe) {
	first := p.create("a", "1")
	p.remove("a")
	second := p.create("a", "2")
	if second.uid() == first.uid() {
		p.failf("the new object has the uid %s of the old one", first.uid())
	}
	if o := p.read("a", ""); o.uid() != second.uid() || o.mark() != "2" {
		p.failf("GET responses uid %s with the mark %q, want the new object", o.uid(), o.mark())
	}
}

func verbsGenerateName(p *probe) {
	seen := map[string]bool{}
	for range 5 {
		o := p.fresh("", "1")
		delete(o.metadata(), "name")
		o.metadata()["generateName"] = p.prefix
		made := p.post(o, "")
		p.remember(p.resource, made.name())
		if name := made.name(); len(name) <= len(p.prefix) || name[:len(p.prefix)] != p.prefix || seen[name] {
			p.failf("generateName %q made the name %q, want one of its own behind the prefix", p.prefix, name)
		}
		seen[made.name()] = true
	}
}

func verbsUpdate(p *probe) {
	made := p.create("a", "1")
	changed := p.update(made, "2")
	o := p.read("a", "")
	if changed.mark() != "2" || o.mark() != "2" {
		p.failf("the label has the value %q in the response and %q afterwards, want %q", changed.mark(), o.mark(), "2")
	}
	if created := o.text("metadata", "creationTimestamp"); o.uid() != made.uid() || created != made.text("metadata", "creationTimestamp") || created == "" {
		p.failf("uid %s and creation at %s became %s and %s", made.uid(), made.text("metadata", "creationTimestamp"), o.uid(), created)
	}
}

func verbsConflict(p *probe) {
	old := p.create("a", "1")
	p.update(old, "2")
	old.label(markLabel, "3")
	p.want(p.send(request{method: http.MethodPut, path: p.path(old.name()), body: old.encode()}), http.StatusConflict)
	if o := p.read("a", ""); o.mark() != "2" {
		p.failf("the refused update was made: the label has the value %q", o.mark())
	}
}

// Media types of patches.
const (
	mergePatch = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

// patch sends a patch of an object by its short name.
func (p *probe) patch(name, kind, query, body string) *response {
	return p.send(request{method: http.MethodPatch, path: p.path(p.named(name)), query: query, contentType: kind, body: []byte(body)})
}

// wantPatched holds the response to a patch to be a success, or the kind of patch to
// be absent.
func (p *probe) wantPatched(a *response) object {
	if a.code == http.StatusUnsupportedMediaType {
		p.absentf("%s", a.describe())
	}
	p.want(a, http.StatusOK)
	return p.object(a)
}

func verbsMergePatch(p *probe) {
	o := p.fresh("a", "1")
	o.label("keep", "this")
	o = p.post(o, "")
	p.wantPatched(p.patch("a", mergePatch, "", `{"metadata":{"labels":{"`+markLabel+`":"2"}}}`))
	p.wantMarks(p.read("a", ""), o)
}

func verbsJSONPatch(p *probe) {
	o := p.fresh("a", "1")
	o.label("keep", "this")
	o = p.post(o, "")
	p.wantPatched(p.patch("a", jsonPatch, "", `[{"op":"replace","path":"/metadata/labels/conformance.tidemark.dev~1mark","value":"2"}]`))
	p.wantMarks(p.read("a", ""), o)
}

// wantMarks compares an object with the expected result of a patch.
func (p *probe) wantMarks(o, before object) {
	switch {
	case o.mark() != "2":
		p.failf("the patched label has the value %q, want %q", o.mark(), "2")
	case o.text("metadata", "labels", "keep") != "this":
		p.failf("a label that the patch does not name has the value %q, want %q", o.text("metadata", "labels", "keep"), "this")
	case o.version() == before.version():
		p.failf("the version is still %s after a patch that changes the object", o.version())
	}
}
