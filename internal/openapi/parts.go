package openapi

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// A page is assembled from members, each of which depends on one kind:
//
//	the models of built-in kinds     kept by the server and its forks (library)
//	the paths of built-in kinds      the same
//	models and paths of a custom kind   kept with the Type (resource.Custom.Documents)
//	the kinds of a model             computed for each page: another definition may change them
//
// So after a change of a definition, a page costs the conversion of that definition, and a copy of
// everything else.

// rendering is the version of OpenAPI, 2 or 3, and the form of a document.
type rendering struct {
	version int
	form    form
}

func (r rendering) schema(v tree) tree {
	if r.version == 2 {
		return schemaV2(v).(tree)
	}
	return schemaV3(v).(tree)
}

func (r rendering) writer() writer {
	if r.version == 2 {
		return writerV2
	}
	return writerV3
}

// library holds the parts of built-in kinds, which all documents of a server and its forks share.
// It is safe for concurrent use. Its size is bounded by the built-in kinds.
type library struct {
	// schemas are the models of the built-in kinds: their JSON, with descriptions.
	schemas func() (map[string]*member, error)
	models  sync.Map // modelKey: *member
	parts   sync.Map // partsKey: *parts
}

type modelKey struct {
	name string
	rendering
}

// partsKey identifies the parts of a kind.
type partsKey struct {
	id     uint64 // of the Type
	custom bool   // the page has custom kinds only
	cbor   bool
	rendering
}

// parts are the parts of a kind in documents.
type parts struct{ paths, models map[string]*member }

func newLibrary(catalog func() *resource.Catalog) *library {
	return &library{schemas: sync.OnceValues(func() (map[string]*member, error) {
		all, err := schemas()
		if err != nil {
			return nil, err
		}
		for name, texts := range descriptions(catalog()) {
			if all[name] != nil {
				describe(all[name], texts)
			}
		}
		packed := make(map[string]*member, len(all))
		for name, schema := range all {
			text, err := encode(schema)
			if err != nil {
				return nil, err
			}
			packed[name] = pack(text, nil, nil)
		}
		return packed, nil
	})}
}

// model returns a built-in model, nil if there is none of that name.
func (l *library) model(name string, r rendering) (*member, error) {
	key := modelKey{name, r}
	if m, ok := l.models.Load(key); ok {
		return m.(*member), nil
	}
	all, err := l.schemas()
	if err != nil || all[name] == nil {
		return nil, err
	}
	var buffer bytes.Buffer
	text, _, err := all[name].unpack(&buffer)
	if err != nil {
		return nil, err
	}
	var schema tree
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, err
	}
	m, err := r.model(schema)
	if err != nil {
		return nil, err
	}
	l.models.Store(key, m)
	return m, nil
}

// partsOf returns the parts of a kind for a page.
func (d *documents) partsOf(page subject, t *resource.Type, r rendering) (*parts, error) {
	kept, key := &d.library.parts, partsKey{t.ID, custom(page.types), d.cbor, r}
	if t.Custom != nil {
		kept = &t.Custom.Documents
	}
	if p, ok := kept.Load(key); ok {
		return p.(*parts), nil
	}
	g := newGroupPage(page.group, page.version)
	if key.custom {
		g.customType(t)
	} else {
		g.typeOperations(t)
		if d.cbor {
			g.addCBOR()
		}
	}
	p := &parts{models: map[string]*member{}}
	var err error
	if p.paths, err = r.paths(g.paths); err != nil {
		return nil, err
	}
	models := map[string]tree{}
	if err := addCustom(models, []*resource.Type{t}, r.version); err != nil {
		return nil, err
	}
	for name, schema := range models {
		if p.models[name], err = r.model(schema); err != nil {
			return nil, err
		}
	}
	if t.Custom != nil {
		for _, all := range []map[string]*member{p.paths, p.models} {
			for _, m := range all {
				d.converted += int64(m.size)
			}
		}
	}
	if t.Custom != nil || r.version == 2 { // the other pages do not change
		kept.Store(key, p)
	}
	return p, nil
}

// paths makes members of operations.
func (r rendering) paths(all map[string][]operation) (map[string]*member, error) {
	out := make(map[string]*member, len(all))
	for path, item := range r.writer().paths(all) {
		text, err := r.encodePath(item.(tree))
		if err != nil {
			return nil, err
		}
		out[path] = pack(text, nil, modelsOf(all[path]))
	}
	return out, nil
}

// modelsOf returns the models that operations exchange.
func modelsOf(operations []operation) []string {
	var all []string
	add := func(model string) {
		if model != "" && model != "string" && !slices.Contains(all, model) {
			all = append(all, model)
		}
	}
	for _, o := range operations {
		add(o.body)
		for _, r := range o.responses {
			add(r.model)
		}
	}
	return all
}

// model makes a member of a schema.
func (r rendering) model(schema tree) (*member, error) {
	before, after := tree{}, tree{}
	for key, v := range r.schema(schema) {
		switch {
		case key < kindsMember:
			before[key] = v
		case key > kindsMember:
			after[key] = v
		}
	}
	b, err := r.encodeSchema(before)
	if err != nil {
		return nil, err
	}
	a, err := r.encodeSchema(after)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	references(schema, found)
	var models []string
	for name := range found {
		models = append(models, name)
	}
	return pack(b, a, models), nil
}

// references collects the names of the models that a schema refers to.
func references(v any, found map[string]bool) {
	switch v := v.(type) {
	case tree:
		if ref, ok := v["$ref"].(string); ok {
			found[strings.TrimPrefix(ref, refV3)] = true
		}
		for key, child := range v {
			if key == "properties" { // its keys are names of fields
				for _, p := range child.(tree) {
					references(p, found)
				}
			} else if !isValue(key) {
				references(child, found)
			}
		}
	case []any:
		for _, child := range v {
			references(child, found)
		}
	}
}
