package openapi

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

//go:embed schemas.json.gz
var embedded []byte

// ownSchemas are those of the kinds that other API servers do not have.
//
//go:embed own.json
var ownSchemas []byte

// tree is a JSON object of a document.
type tree = map[string]any

const (
	refV3 = "#/components/schemas/"
	refV2 = "#/definitions/"
	// alternative marks how version 2 shows a type that version 3 shows as oneOf.
	alternative = "x-kubernetes-v2-schema"
)

// modelNamer and documented are methods of the published types.
type modelNamer interface{ OpenAPIModelName() string }
type documented interface{ SwaggerDoc() map[string]string }

// schemas returns a new copy of the embedded schemas of all types.
func schemas() (map[string]tree, error) {
	r, err := gzip.NewReader(bytes.NewReader(embedded))
	if err != nil {
		return nil, fmt.Errorf("the embedded schemas: %w", err)
	}
	var all map[string]tree
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		return nil, fmt.Errorf("the embedded schemas: %w", err)
	}
	var own map[string]tree
	if err := json.Unmarshal(ownSchemas, &own); err != nil {
		return nil, fmt.Errorf("the embedded schemas: %w", err)
	}
	maps.Copy(all, own)
	return all, nil
}

// Documented returns the names of the types of the catalog that have descriptions of their
// own. The embedded schemas omit those descriptions.
func Documented(c *resource.Catalog) map[string]bool {
	names := map[string]bool{}
	for name := range descriptions(c) {
		names[name] = true
	}
	return names
}

// descriptions returns the descriptions of all types that the kinds of the catalog contain.
func descriptions(c *resource.Catalog) map[string]map[string]string {
	w := walker{seen: map[reflect.Type]bool{}, texts: map[string]map[string]string{}}
	for t := range c.Types() {
		if t.Custom != nil {
			continue
		}
		w.walk(reflect.TypeOf(t.New()))
	}
	for _, o := range []any{metav1.Status{}, metav1.DeleteOptions{}, metav1.APIResourceList{}, metav1.APIGroupList{}, metav1.APIVersions{}, metav1.WatchEvent{}} {
		w.walk(reflect.TypeOf(o))
	}
	return w.texts
}

type walker struct {
	seen  map[reflect.Type]bool
	texts map[string]map[string]string
}

func (w *walker) walk(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		w.walk(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	zero := reflect.Zero(t).Interface()
	if n, ok := zero.(modelNamer); ok {
		if d, ok := zero.(documented); ok {
			w.texts[n.OpenAPIModelName()] = withInline(t, maps.Clone(d.SwaggerDoc())) // the map is the type's own
		}
	}
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			w.walk(t.Field(i).Type)
		}
	}
}

// withInline adds the texts of the fields that come from embedded structs.
func withInline(t reflect.Type, texts map[string]string) map[string]string {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.Anonymous || f.Type.Kind() != reflect.Struct {
			continue
		}
		if d, ok := reflect.Zero(f.Type).Interface().(documented); ok {
			for name, text := range d.SwaggerDoc() {
				if name != "" && texts[name] == "" {
					texts[name] = text
				}
			}
		}
	}
	return texts
}

// describe puts the texts of a type into its schema.
func describe(schema tree, texts map[string]string) {
	if text := texts[""]; text != "" {
		schema["description"] = text
	}
	properties, _ := schema["properties"].(tree)
	for name, p := range properties {
		if text := texts[name]; text != "" {
			p.(tree)["description"] = text
		}
	}
}

// kinds returns the group-version-kinds of each model: of what the catalog
// serves, and of the options and responses that every group has. Those of options
// are of the core group and of the page's own, or of all where the page is "v2".
func kinds[M any](c *resource.Catalog, all map[string]M, page string) map[string][]any {
	out := map[string][]any{}
	add := func(name, group, version, kind string) {
		if _, ok := all[name]; ok {
			out[name] = append(out[name], tree{"group": group, "version": version, "kind": kind})
		}
	}
	for _, g := range c.Groups() {
		for _, v := range g.Versions {
			for _, t := range v.Types {
				name := modelOf(t)
				if len(out[name]) > 0 {
					continue
				}
				add(name, t.Group, t.Version, t.Kind)
				if t.Allows("list") {
					add(listModelOf(t), t.Group, t.Version, t.List())
				}
			}
			if page == "v2" || g.Name == "" || page == pageOf(g.Name, v.Name) {
				add(metaPrefix+"DeleteOptions", g.Name, v.Name, "DeleteOptions")
				add(metaPrefix+"WatchEvent", g.Name, v.Name, "WatchEvent")
			}
		}
	}
	add(metaPrefix+"Status", "", "v1", "Status")
	add(metaPrefix+"APIGroup", "", "v1", "APIGroup")
	add(metaPrefix+"APIGroupList", "", "v1", "APIGroupList")
	add(metaPrefix+"APIResourceList", "", "v1", "APIResourceList")
	add(metaPrefix+"APIVersions", "", "v1", "APIVersions")
	add(scaleModel, "autoscaling", "v1", "Scale")
	add(evictionModel, "policy", "v1", "Eviction")
	add(tokenModel, "authentication.k8s.io", "v1", "TokenRequest")
	return out
}

const (
	metaPrefix    = "io.k8s.apimachinery.pkg.apis.meta.v1."
	scaleModel    = "io.k8s.api.autoscaling.v1.Scale"
	evictionModel = "io.k8s.api.policy.v1.Eviction"
	tokenModel    = "io.k8s.api.authentication.v1.TokenRequest"
)

// modelOf is the name of a type's model.
func modelOf(t *resource.Type) string {
	if t.Custom != nil {
		parts := strings.Split(t.Group, ".")
		slices.Reverse(parts)
		return strings.Join(append(parts, t.Version, t.Kind), ".")
	}
	if n, ok := reflect.Zero(reflect.TypeOf(t.New()).Elem()).Interface().(modelNamer); ok {
		return n.OpenAPIModelName()
	}
	return ""
}

// listModelOf is the name of the model of a type's lists.
func listModelOf(t *resource.Type) string { return strings.TrimSuffix(modelOf(t), t.Kind) + t.List() }

// addCustom adds the models of custom kinds.
func addCustom(all map[string]tree, types []*resource.Type, number int) error {
	for _, t := range types {
		if t.Custom == nil {
			continue
		}
		shown, err := t.Custom.OpenAPI(number)
		if err != nil {
			return err
		}
		text, err := shown.MarshalJSON()
		if err != nil {
			return err
		}
		var model tree
		if err := json.Unmarshal(text, &model); err != nil {
			return err
		}
		all[modelOf(t)] = model
		list := customList(t)
		if fields, ok := model[selectableFields]; ok {
			list[selectableFields] = fields
		}
		all[listModelOf(t)] = list
	}
	return nil
}

// selectableFields are those that objects can be selected by.
const selectableFields = "x-kubernetes-selectable-fields"

// customList is the model of a type's lists.
func customList(t *resource.Type) tree {
	texts, names := metav1.PartialObjectMetadataList{}.SwaggerDoc(), metav1.TypeMeta{}.SwaggerDoc()
	text := "List of " + t.Resource + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
	return tree{
		"description": t.List() + " is a list of " + t.Kind, "type": "object", "required": []any{"items"},
		"properties": tree{
			"apiVersion": tree{"description": names["apiVersion"], "type": "string"},
			"kind":       tree{"description": names["kind"], "type": "string"},
			"metadata":   tree{"description": texts["metadata"], "$ref": refV3 + metaPrefix + "ListMeta"},
			"items":      tree{"description": text, "type": "array", "items": tree{"$ref": refV3 + modelOf(t)}},
		},
	}
}

// isValue reports whether a member of a schema is a value, not a schema.
func isValue(member string) bool {
	switch member {
	case "default", "enum", "example":
		return true
	}
	return strings.HasPrefix(member, "x-") && member != alternative
}

// schemaV3 returns a schema as version 3 shows it. A reference has no sibling members there;
// it is wrapped instead.
func schemaV3(v any) any {
	switch v := v.(type) {
	case tree:
		out := make(tree, len(v))
		for key, child := range v {
			switch {
			case key == alternative:
			case isValue(key):
				out[key] = child
			case key == "properties": // its keys are names of fields
				properties := tree{}
				for name, p := range child.(tree) {
					properties[name] = schemaV3(p)
				}
				out[key] = properties
			default:
				out[key] = schemaV3(child)
			}
		}
		if ref, ok := out["$ref"]; ok && len(out) > 1 {
			delete(out, "$ref")
			out["allOf"] = []any{tree{"$ref": ref}}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, child := range v {
			out[i] = schemaV3(child)
		}
		return out
	}
	return v
}

// schemaV2 returns a schema as version 2 shows it: without defaults and oneOf, with
// references to definitions.
func schemaV2(v any) any {
	switch v := v.(type) {
	case tree:
		if other, ok := v[alternative].(tree); ok {
			other = maps.Clone(other)
			if text, ok := v["description"]; ok {
				other["description"] = text
			}
			return schemaV2(other)
		}
		out := make(tree, len(v))
		for key, child := range v {
			switch {
			case key == "default", key == "oneOf", key == "anyOf", key == "allOf":
			case isValue(key):
				out[key] = child
			case key == "properties": // its keys are names of fields
				properties := tree{}
				for name, p := range child.(tree) {
					properties[name] = schemaV2(p)
				}
				out[key] = properties
			case key == "$ref":
				out[key] = refV2 + strings.TrimPrefix(child.(string), refV3)
			default:
				out[key] = schemaV2(child)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, child := range v {
			out[i] = schemaV2(child)
		}
		return out
	}
	return v
}
