package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// maxTemplateBytes is the most that a server takes as one object, or less.
const maxTemplateBytes = 1 << 20

// parseTemplate reads the one object of a template, in JSON or YAML.
func parseTemplate(text []byte) (object, error) {
	if len(text) > maxTemplateBytes {
		return nil, fmt.Errorf("the template has %d bytes: want at most %d", len(text), maxTemplateBytes)
	}
	var found object
	for documents := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF) && found == nil:
			return nil, errors.New("the template is empty: want an object in JSON or YAML")
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("the template cannot be read: %w", err)
		}
		asJSON, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, fmt.Errorf("the template is no YAML: %w", err)
		}
		if string(asJSON) == "null" {
			continue // nothing but comments
		}
		var o object
		if err := json.Unmarshal(asJSON, &o); err != nil {
			return nil, errors.New("the template is not an object: want apiVersion, kind, and all required fields but the name")
		}
		if found != nil {
			return nil, errors.New("the template holds several objects: want one")
		}
		found = o
	}
}

// giveTemplate uses the template of the options for the objects of the resource. It drops
// names and the fields that a server sets.
func (b *bed) giveTemplate() error {
	if len(b.options.Template) == 0 {
		return nil
	}
	o, err := parseTemplate(b.options.Template)
	if err != nil {
		return err
	}
	kind, apiVersion := o.text("kind"), o.text("apiVersion")
	if kind != "" && kind != b.resource.kind || apiVersion != "" && apiVersion != b.resource.apiVersion() {
		return fmt.Errorf("the template has kind %q and apiVersion %q, and the checks are made with %s (kind %s, apiVersion %s): --resource names another type",
			kind, apiVersion, b.resource, b.resource.kind, b.resource.apiVersion())
	}
	metadata := map[string]any{}
	for _, key := range []string{"labels", "annotations"} {
		if m, ok := o.at("metadata", key).(map[string]any); ok {
			metadata[key] = m
		}
	}
	o["kind"], o["apiVersion"], o["metadata"] = b.resource.kind, b.resource.apiVersion(), metadata
	delete(o, "status")
	b.given = o
	return nil
}

// tryTemplate creates one object of the resource and deletes it. An invalid template or a
// missing permission would otherwise fail every check.
func (b *bed) tryTemplate(ctx context.Context) error {
	o := b.template(b.resource)
	o.metadata()["name"] = "conformance-" + b.suffix
	o.label(markLabel, "1")
	c := created{b.resource, o.name()}
	a, err := b.plain(ctx, request{method: http.MethodPost, path: b.resource.collection(b.namespace), body: o.encode()})
	switch {
	case err != nil: // it may be there all the same
	case a.code == http.StatusBadRequest, a.code == http.StatusUnprocessableEntity:
		return fmt.Errorf("the server does not take the object that the checks would be made with; --template gives another: %s", a.describe())
	case a.code == http.StatusNotFound:
		return fmt.Errorf("making one of %s: %s; a namespace that is there can be named with --namespace", b.resource, a.describe())
	case noRight(a.code):
		return fmt.Errorf("making one of %s: %s; the right to edit in the namespace is needed", b.resource, a.describe())
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if gone := b.erase(late, c); gone != nil && err == nil {
		b.leave(fmt.Sprintf("%s %s (%v)", c.resource, c.name, gone))
	}
	return err
}
