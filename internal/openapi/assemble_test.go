package openapi

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// The plain way to make a page: as one tree, from the whole catalog. It is the reference for pages that are
// assembled.

// plain returns a page.
func (d *documents) plain(key pageKey) ([]byte, error) {
	content, err := d.content(key.page)
	if err != nil {
		return nil, err
	}
	text, err := encode(content)
	if err != nil || key.form == asJSON {
		return text, err
	}
	if key.page == "v2" {
		doc, err := openapi_v2.ParseDocument(text)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(doc)
	}
	doc, err := openapi_v3.ParseDocument(text)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc)
}

// content returns a page as a tree.
func (d *documents) content(page string) (tree, error) {
	all, err := schemas()
	if err != nil {
		return nil, err
	}
	for name, texts := range descriptions(d.catalog) {
		if all[name] != nil {
			describe(all[name], texts)
		}
	}
	if err := d.addAllCustom(all, page); err != nil {
		return nil, err
	}
	for name, list := range kinds(d.catalog, all, page) {
		all[name]["x-kubernetes-group-version-kind"] = list
	}
	if page == "v2" {
		return d.contentV2(all), nil
	}
	paths := writerV3.paths(d.operations(page))
	found := map[string]bool{}
	reach(paths, all, found)
	shown := tree{}
	for name := range found {
		shown[name] = schemaV3(all[name])
	}
	if custom(d.subjects[page].types) {
		return tree{"openapi": "3.0.0", "info": customInfo, "paths": paths, "components": tree{"schemas": shown}}, nil
	}
	components := tree{"securitySchemes": tree{"BearerToken": bearer}}
	if len(shown) > 0 {
		components["schemas"] = shown
	}
	return tree{"openapi": "3.0.0", "info": d.info(), "paths": paths, "components": components}, nil
}

// addAllCustom adds the models of the custom kinds of a page.
func (d *documents) addAllCustom(all map[string]tree, page string) error {
	if page != "v2" {
		return addCustom(all, d.subjects[page].types, 3)
	}
	for _, g := range d.catalog.Groups() {
		for _, v := range g.Versions {
			if err := addCustom(all, v.Types, 2); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *documents) contentV2(all map[string]tree) tree {
	operations := map[string][]operation{}
	for _, page := range d.order {
		for path, o := range d.operations(page) {
			operations[path] = o
		}
	}
	// The references of the schemas are those of version 3 here.
	found := map[string]bool{}
	reach(writerV3.paths(operations), all, found)
	definitions := tree{}
	for name := range found {
		definitions[name] = schemaV2(all[name])
	}
	return tree{"swagger": "2.0", "info": d.info(), "paths": writerV2.paths(operations), "definitions": definitions,
		"securityDefinitions": tree{"BearerToken": bearer}, "security": []any{tree{"BearerToken": []any{}}}}
}

// operations returns the operations of a page of version 3, by path.
func (d *documents) operations(page string) map[string][]operation {
	switch page {
	case "api":
		return single("/api/", "core", "getCoreAPIVersions", "get available API versions", "APIVersions")
	case "apis":
		return single("/apis/", "apis", "getAPIVersions", "get available API versions", "APIGroupList")
	case "version":
		return fixed("/version/", "version", "getCodeVersion", "get the version information for this server", "application/json", "io.k8s.apimachinery.pkg.version.Info")
	}
	at, ok := d.subjects[page]
	if !ok {
		return nil
	}
	p := newGroupPage(at.group, at.version)
	if at.version == "" {
		return single("/apis/"+at.group+"/", strings.TrimSuffix(p.tag, "_"), "get"+p.title+"APIGroup", "get information of a group", "APIGroup")
	}
	if custom(at.types) {
		for _, t := range at.types {
			p.customType(t)
		}
		return p.paths
	}
	p.resources()
	for _, t := range at.types {
		p.typeOperations(t)
	}
	if d.cbor {
		p.addCBOR()
	}
	return p.paths
}

// reach collects the names of the models that a value refers to, directly or not.
func reach(v any, all map[string]tree, found map[string]bool) {
	switch v := v.(type) {
	case tree:
		if ref, ok := v["$ref"].(string); ok { // a field of that name holds a schema
			name := strings.TrimPrefix(ref, refV3)
			if !found[name] && all[name] != nil {
				found[name] = true
				reach(all[name], all, found)
			}
		}
		for _, child := range v {
			reach(child, all, found)
		}
	case []any:
		for _, child := range v {
			reach(child, all, found)
		}
	}
}

// definition is a custom kind whose conversions are counted.
type definition struct {
	group, version, kind string
	revision             int

	converted map[int]int // by version of OpenAPI
}

// schema returns the schema of the revision, with members of all sorts.
func (d *definition) schema(version int) (*spec.Schema, error) {
	d.converted[version]++
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Description: fmt.Sprintf("%s <%d> & %q", d.kind, d.revision, "text")}}
	s.SetProperty("metadata", *spec.RefSchema(refV3 + metaPrefix + "ObjectMeta").WithDescription("metadata"))
	s.SetProperty("spec", spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Required: []string{"size"}, Properties: map[string]spec.Schema{
		"size":       *spec.Int64Property().WithDefault(d.revision),
		"default":    *spec.StringProperty().WithEnum("a", "yes", "1e3"),
		"properties": *spec.ArrayProperty(spec.StringProperty()),
		"$ref":       *spec.MapProperty(spec.BooleanProperty()),
	}}})
	s.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	if d.revision%2 == 1 {
		s.AddExtension(selectableFields, []any{map[string]any{"fieldPath": "spec.size"}})
	}
	return s, nil
}

func (d *definition) typ() *resource.Type {
	plural := strings.ToLower(d.kind) + "s"
	t := &resource.Type{
		Names:      resource.Names{Group: d.group, Version: d.version, Kind: d.kind, ListKind: d.kind + "List", Resource: plural, Singular: strings.ToLower(d.kind)},
		Namespaced: len(d.kind)%2 == 0,
		Verbs:      []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
		Custom:     &resource.Custom{OpenAPI: d.schema, Stamp: fmt.Sprint(d.revision)},
	}
	if d.revision%3 == 1 {
		t.Subresources = []resource.Subresource{{Name: "status", Kind: t.GroupVersionKind(), Verbs: []string{"get", "patch", "update"}}}
	}
	return t
}

// catalogs makes catalogs of definitions.
type catalogs struct {
	base        *resource.Catalog
	definitions []*definition
	types       map[*definition]*resource.Type
	now         *resource.Catalog
}

// small is a catalog of few built-in kinds.
var small = resource.NewCatalog([]resource.Group{*builtin.Catalog().Group("coordination.k8s.io"), *builtin.Catalog().Group("scheduling.k8s.io")})

func newCatalogs(base *resource.Catalog, definitions ...*definition) *catalogs {
	c := &catalogs{base: base, now: base, types: map[*definition]*resource.Type{}}
	for _, d := range definitions {
		c.set(d)
	}
	return c
}

// set adds a definition, or its next revision.
func (c *catalogs) set(d *definition) {
	if d.converted == nil {
		d.converted = map[int]int{}
		c.definitions = append(c.definitions, d)
	}
	d.revision++
	c.types[d] = d.typ()
	c.refresh(d.group)
}

func (c *catalogs) remove(d *definition) {
	c.definitions = slices.DeleteFunc(c.definitions, func(o *definition) bool { return o == d })
	d.converted = nil
	delete(c.types, d)
	c.refresh(d.group)
}

// refresh makes a group anew, as package crd does.
func (c *catalogs) refresh(group string) {
	versions := map[string][]*resource.Type{}
	if g := c.base.Group(group); g != nil {
		for _, v := range g.Versions {
			versions[v.Name] = slices.Clone(v.Types)
		}
	}
	for _, d := range c.definitions {
		if d.group == group {
			versions[d.version] = append(versions[d.version], c.types[d])
		}
	}
	g := resource.Group{Name: group}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		slices.SortStableFunc(versions[name], func(a, b *resource.Type) int { return strings.Compare(a.Resource, b.Resource) })
		g.Versions = append(g.Versions, resource.Version{Name: name, Types: versions[name]})
	}
	c.now = c.now.With([]resource.Group{g})
}

func (c *catalogs) source() *Source {
	return New(func() *resource.Catalog { return c.now }, version, false)
}

// conversions returns how often the definitions were converted since the last call.
func (c *catalogs) conversions() (n int) {
	for _, d := range c.definitions {
		for _, times := range d.converted {
			n += times
		}
		clear(d.converted)
	}
	return n
}

// TestConvertedOnce checks that after a change of one definition, a document costs the conversion
// of that definition alone, in any representation, also in a fork.
func TestConvertedOnce(t *testing.T) {
	const group = "example.com"
	var all []*definition
	for i := range 20 {
		all = append(all, &definition{group: group, version: "v1", kind: fmt.Sprintf("Kind%c", 'A'+i)})
	}
	c := newCatalogs(small, all...)
	s := c.source()
	fork := s.Fork(func() *resource.Catalog { return c.now })
	pages := [][]string{{"/openapi/v2"}, {"/openapi/v3/apis/" + group + "/v1"}}
	for _, page := range pages {
		get(t, s, page[0])
		if got := c.conversions(); got != len(all) {
			t.Fatalf("%s: %d conversions at first, want %d", page, got, len(all))
		}
		for range 3 {
			before := get(t, s, page[0]).Header.Get("Etag")
			c.set(all[7])
			for _, h := range []*Source{s, fork, s} {
				if after := get(t, h, page[0]).Header.Get("Etag"); after == before {
					t.Errorf("%s: the ETag did not change", page)
				}
			}
			if got := c.conversions(); got != 1 {
				t.Errorf("%s: %d conversions after a change of one definition, want 1", page, got)
			}
		}
	}
	for range 2 {
		get(t, s, "/openapi/v2", "Accept", protobufV2)
	}
	if got := c.conversions(); got != len(all) {
		t.Errorf("protobuf: %d conversions at first, want %d", got, len(all))
	}
	c.set(all[3])
	get(t, s, "/openapi/v2", "Accept", protobufV2)
	if got := c.conversions(); got != 1 {
		t.Errorf("protobuf: %d conversions after a change of one definition, want 1", got)
	}
}

// TestAssembledLikePlain: pages that are assembled are byte for byte those that are made from the whole
// catalog, through a history of definitions.
func TestAssembledLikePlain(t *testing.T) {
	compareHistory(t, small, 3)
}

// TestAllAssembledLikePlain is the same with all built-in kinds.
func TestAllAssembledLikePlain(t *testing.T) {
	tier.Full(t)
	compareHistory(t, builtin.Catalog(), 3)
}

func compareHistory(t *testing.T, base *resource.Catalog, steps int) {
	random := rand.New(rand.NewPCG(1, 2))
	c := newCatalogs(base, &definition{group: "example.com", version: "v1", kind: "Foo"}, &definition{group: "scheduling.k8s.io", version: "v1", kind: "Widget"})
	spare := []*definition{
		{group: "coordination.api.k8s.io", version: "v1", kind: "Lease"}, // its model has the name of the built-in one
		{group: "example.com", version: "v1", kind: "FooBar"},
		{group: "example.com", version: "v2", kind: "Foo"},
		{group: "z.k8s.io", version: "v1", kind: "Last"},
	}
	s := c.source()
	compare := func(key pageKey) {
		t.Helper()
		d := s.documents()
		if _, err := d.make(t.Context(), key); err != nil {
			t.Fatalf("%v: %v", key, err)
		}
		var got bytes.Buffer
		if err := unpack(&got, d.kept(key).packed); err != nil {
			t.Fatal(err)
		}
		if size := d.kept(key).size; size != int64(got.Len()) {
			t.Errorf("%v: the size is %d, want %d", key, size, got.Len())
		}
		want, err := d.plain(key)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			i := 0
			for i < min(got.Len(), len(want)) && got.Bytes()[i] == want[i] {
				i++
			}
			t.Fatalf("%v: %d bytes, want %d; they differ at %d: %q, want %q", key, got.Len(), len(want), i, excerpt(got.Bytes(), i), excerpt(want, i))
		}
	}
	for step := range steps {
		for _, page := range append([]string{"v2"}, s.documents().order...) {
			compare(pageKey{page, asJSON})
			if step != 1 {
				compare(pageKey{page, asProtobuf})
			}
		}
		for i := random.IntN(len(spare)); ; i = random.IntN(len(spare)) {
			if d := spare[i]; d.converted == nil || random.IntN(2) == 0 {
				c.set(d)
				break
			} else if len(c.definitions) > 2 {
				c.remove(d)
				break
			}
		}
	}
}

func excerpt(b []byte, at int) []byte { return b[max(0, at-60):min(len(b), at+60)] }

// TestValuesAreNotSchemas: defaults and values of enumerations are shown as they are, whatever the names of
// their members are.
func TestValuesAreNotSchemas(t *testing.T) {
	value := map[string]any{"properties": "a", "$ref": refV3 + metaPrefix + "Status", "default": map[string]any{"$ref": 5.0}, "items": []any{map[string]any{"properties": 1.0}}}
	typ := (&definition{group: "example.com", version: "v1", kind: "Foo", converted: map[int]int{}}).typ()
	typ.Custom.OpenAPI = func(int) (*spec.Schema, error) {
		s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
		s.SetProperty("spec", *new(spec.Schema).Typed("object", "").WithEnum(value).WithDefault(value))
		return s, nil
	}
	c := resource.NewCatalog([]resource.Group{{Name: "example.com", Versions: []resource.Version{{Name: "v1", Types: []*resource.Type{typ}}}}})
	s := New(func() *resource.Catalog { return c }, version, false)
	want := text(value)
	shown := at(document(t, s, "/openapi/v3/apis/example.com/v1"), "components", "schemas", "com.example.v1.Foo", "properties", "spec")
	if got := text(at(shown, "default")); got != want {
		t.Errorf("the default is %s, want %s", got, want)
	}
	if got := text(at(shown, "enum")); got != "["+want+"]" {
		t.Errorf("the enumeration is %s, want [%s]", got, want)
	}
	shown = at(document(t, s, "/openapi/v2"), "definitions", "com.example.v1.Foo", "properties", "spec")
	if got := text(at(shown, "enum")); got != "["+want+"]" {
		t.Errorf("version 2: the enumeration is %s, want [%s]", got, want)
	}
}
