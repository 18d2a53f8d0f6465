package timeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/changes"
)

// Object is an object as a tree; numbers keep their text.
type Object struct {
	raw  []byte
	tree map[string]any
}

func parseObject(text []byte) (*Object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	o := &Object{raw: text}
	if err := d.Decode(&o.tree); err != nil {
		return nil, fmt.Errorf("the response is no object: %w", err)
	}
	return o, nil
}

// at returns the value at a path of members; nil if there is none.
func (o *Object) at(path ...string) any {
	var v any = o.tree
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

func (o *Object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

// metadata returns the metadata, which every object has.
func (o *Object) metadata() map[string]any {
	m, ok := o.tree["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
		o.tree["metadata"] = m
	}
	return m
}

// gvk returns the kind of the object.
func (o *Object) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.text("apiVersion"), o.text("kind"))
}

// get reads an object of an instant. It returns nil if there is none.
func (e *Env) get(ctx context.Context, i changes.Instant, r *Resource, namespace, name string) (*Object, error) {
	text, _, err := e.fetch(ctx, below(i)+r.path(namespace, name), "")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseObject(text)
}

// jsonOf returns the text of an object; nil for none.
func jsonOf(o *Object) []byte {
	if o == nil {
		return nil
	}
	return o.raw
}

// versions are members of the metadata that change with each write.
var versions = []string{"managedFields", "resourceVersion", "generation"}

// yamlOf returns an object as YAML, without what changes with each write unless it is asked for.
func yamlOf(o *Object, all bool) (string, error) {
	if o == nil {
		return "", nil
	}
	tree := o.tree
	if !all {
		copied, err := parseObject(o.raw)
		if err != nil {
			return "", err
		}
		tree = copied.tree
		for _, name := range versions {
			delete(copied.metadata(), name)
		}
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return "", err
	}
	out, err := yaml.JSONToYAML(text)
	return string(out), err
}

// schemas finds the schemas of kinds.
type schemas struct {
	env   *Env
	found map[schema.GroupVersionKind]*apply.Schema
}

// of returns the schema of an object's kind: the program's own, or that of the server. A kind without one has a
// schema in which every list is one field.
func (s *schemas) of(ctx context.Context, o *Object, below ...string) *apply.Schema {
	kind := o.gvk()
	if found, ok := s.found[kind]; ok {
		return found
	}
	found := apply.Embedded(kind)
	for _, path := range below {
		if found == nil {
			found = s.env.openAPI(ctx, path, kind)
		}
	}
	if found == nil {
		var err error
		if found, err = apply.FromOpenAPI(kind, &spec.Schema{}, false); err != nil {
			return nil
		}
	}
	if s.found == nil {
		s.found = map[schema.GroupVersionKind]*apply.Schema{}
	}
	s.found[kind] = found
	return found
}

// openAPI reads a schema from the server's documents; nil if there is none that can be used.
func (e *Env) openAPI(ctx context.Context, below string, kind schema.GroupVersionKind) *apply.Schema {
	text, _, err := e.fetch(ctx, below+"/openapi/v3/apis/"+kind.Group+"/"+kind.Version, "")
	if err != nil {
		return nil
	}
	var document struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if json.Unmarshal(text, &document) != nil {
		return nil
	}
	for _, raw := range document.Components.Schemas {
		var kinds struct {
			Of []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
		}
		if json.Unmarshal(raw, &kinds) != nil || len(kinds.Of) != 1 || !strings.EqualFold(kinds.Of[0].Kind, kind.Kind) || kinds.Of[0].Group != kind.Group || kinds.Of[0].Version != kind.Version {
			continue
		}
		shown := new(spec.Schema)
		if json.Unmarshal(raw, shown) != nil {
			return nil
		}
		if s, err := apply.FromOpenAPI(kind, shown, false); err == nil {
			return s
		}
	}
	return nil
}

// fields returns the fields that differ between two versions of an object.
func (s *schemas) fields(ctx context.Context, before, after *Object, all bool, below ...string) []changes.Field {
	of := after
	if of == nil {
		of = before
	}
	if of == nil {
		return nil
	}
	known := s.of(ctx, of, below...)
	if known == nil {
		return []changes.Field{{From: jsonOf(before), To: jsonOf(after)}}
	}
	return known.Diff(jsonOf(before), jsonOf(after), apply.DiffOptions{All: all})
}
