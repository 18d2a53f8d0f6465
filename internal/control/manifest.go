package control

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// manifest is a file with objects, YAML documents or JSON.
type manifest struct {
	// Name appears in errors, such as the path of the file.
	Name    string `json:"name"`
	Content string `json:"content"`
	// WebhooksOnly skips all documents but webhook configurations, as in the directory of a kustomization.
	WebhooksOnly bool `json:"webhooksOnly"`
}

// object is an object of a manifest.
type object struct {
	from   string // the manifest, and the number of the document if there are several
	fields map[string]any
}

func (o *object) text(path ...string) string {
	at := o.fields
	for _, name := range path[:len(path)-1] {
		at, _ = at[name].(map[string]any)
	}
	s, _ := at[path[len(path)-1]].(string)
	return s
}

func (o *object) metadata() map[string]any {
	m, _ := o.fields["metadata"].(map[string]any)
	return m
}

// String names the object for errors: "config/crd/a.yaml: CustomResourceDefinition a.example.com".
func (o *object) String() string {
	name := cmp.Or(o.text("metadata", "name"), o.text("metadata", "generateName"))
	if ns := o.text("metadata", "namespace"); ns != "" {
		name = ns + "/" + name
	}
	return fmt.Sprintf("%s: %s %s", o.from, o.text("kind"), name)
}

func (o *object) isDefinition() bool {
	return o.text("kind") == "CustomResourceDefinition" && strings.HasPrefix(o.text("apiVersion"), "apiextensions.k8s.io/")
}

func (o *object) isWebhook() bool {
	kind := o.text("kind")
	return (kind == "MutatingWebhookConfiguration" || kind == "ValidatingWebhookConfiguration") &&
		strings.HasPrefix(o.text("apiVersion"), "admissionregistration.k8s.io/")
}

// encodeSecret moves the stringData of a Secret to its data. stringData is never stored, so a
// manager's ownership of it would stay when the manifest no longer has it.
func (o *object) encodeSecret() {
	text, ok := o.fields["stringData"].(map[string]any)
	if !ok || o.text("kind") != "Secret" || o.text("apiVersion") != "v1" {
		return
	}
	data, _ := o.fields["data"].(map[string]any)
	if data == nil {
		data = map[string]any{}
	}
	for key, value := range text {
		s, ok := value.(string)
		if !ok {
			return // the server reports the error
		}
		data[key] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	o.fields["data"] = data
	delete(o.fields, "stringData")
}

// step is the position of the object in the order of apply: an object follows those that it needs,
// and webhooks are last, so that they do not apply to the objects before them.
func (o *object) step() int {
	switch {
	case o.isDefinition():
		return 0
	case o.text("kind") == "Namespace" && o.text("apiVersion") == "v1":
		return 1
	case o.isWebhook():
		return 3
	}
	return 2
}

// parse returns the objects of manifests in the order in which to apply them.
func parse(manifests []manifest) ([]*object, error) {
	var all []*object
	for i, m := range manifests {
		name := cmp.Or(m.Name, fmt.Sprintf("manifest %d", i+1))
		documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(m.Content)))
		for n := 1; ; n++ {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			from := name
			if n > 1 {
				from = fmt.Sprintf("%s (document %d)", name, n)
			}
			if err != nil {
				return nil, badRequest("%s: %v", from, err)
			}
			texts, err := jsonValues(document)
			if err != nil {
				return nil, badRequest("%s: %v", from, err)
			}
			for _, text := range texts {
				objects, err := documentObjects(from, text)
				if err != nil {
					return nil, err
				}
				if m.WebhooksOnly {
					objects = slices.DeleteFunc(objects, func(o *object) bool { return !o.isWebhook() })
				}
				for _, o := range objects {
					if err := o.check(); err != nil {
						return nil, err
					}
				}
				all = append(all, objects...)
				if len(all) > maxManifests {
					return nil, badRequest("the manifests have more than %d objects", maxManifests)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *object) int { return cmp.Compare(a.step(), b.step()) })
	return all, nil
}

// jsonValues returns the values of a document that has several in JSON, one behind the other, as kubectl prints them with
// a template; otherwise the document.
func jsonValues(document []byte) (all [][]byte, err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(document), []byte("{")) {
		return [][]byte{document}, nil
	}
	for values := json.NewDecoder(bytes.NewReader(document)); ; {
		var value json.RawMessage
		switch err := values.Decode(&value); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil && all == nil: // YAML
			return [][]byte{document}, nil
		case err != nil:
			return nil, fmt.Errorf("what follows object %d is no JSON: %w", len(all), err)
		}
		all = append(all, value)
	}
}

// documentObjects returns the object of a document, or the items of a List. An item of a list of one kind need not name it.
func documentObjects(from string, document []byte) (all []*object, err error) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, badRequest("%s: %v", from, err)
	}
	if bytes.Equal(text, []byte("null")) {
		return nil, nil // only comments
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // keeps integers beyond 2^53 exact
	o := &object{from: from}
	if err := decoder.Decode(&o.fields); err != nil {
		return nil, badRequest("%s: the document is no object", from)
	}
	if items, ok := o.fields["items"].([]any); ok && strings.HasSuffix(o.text("kind"), "List") {
		kind := strings.TrimSuffix(o.text("kind"), "List")
		for i, item := range items {
			fields, ok := item.(map[string]any)
			if !ok {
				return nil, badRequest("%s: item %d of the list is no object", from, i+1)
			}
			if kind != "" && fields["kind"] == nil && fields["apiVersion"] == nil {
				fields["kind"], fields["apiVersion"] = kind, o.fields["apiVersion"]
			}
			all = append(all, &object{fmt.Sprintf("%s (item %d)", from, i+1), fields})
		}
		return all, nil
	}
	return []*object{o}, nil
}

// check returns an error if the object cannot be one.
func (o *object) check() error {
	switch {
	case o.text("apiVersion") == "" || o.text("kind") == "":
		return badRequest("%s: the document has no apiVersion or no kind", o.from)
	case o.text("metadata", "name") == "" && o.text("metadata", "generateName") == "":
		return badRequest("%s: the %s has no metadata.name and no metadata.generateName", o.from, o.text("kind"))
	}
	return nil
}

// webhookTarget is the local server of webhooks.
type webhookTarget struct {
	// URL is the base of the address: "https://127.0.0.1:9443".
	URL string `json:"url"`
	// CABundle is the certificate to trust, as PEM.
	CABundle string `json:"caBundle"`
}

// check returns an error if the target is set and cannot be called.
func (t *webhookTarget) check() error {
	if t.URL == "" {
		return nil
	}
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return badRequest("webhooks.url=%q: want https://HOST:PORT", t.URL)
	}
	return nil
}

// redirect makes webhooks that are reached by a Service call the target instead: those of
// configurations, and the conversion of definitions. Webhooks with a URL stay as they are.
func (t *webhookTarget) redirect(o *object) {
	if t.URL == "" {
		return
	}
	if o.isWebhook() {
		hooks, _ := o.fields["webhooks"].([]any)
		for _, hook := range hooks {
			if hook, ok := hook.(map[string]any); ok {
				t.redirectClient(hook)
			}
		}
		return
	}
	if !o.isDefinition() {
		return
	}
	at := o.fields
	for _, name := range []string{"spec", "conversion", "webhook"} {
		at, _ = at[name].(map[string]any)
	}
	t.redirectClient(at)
}

// redirectClient changes the client configuration of a webhook; the map may be nil.
func (t *webhookTarget) redirectClient(hook map[string]any) {
	client, _ := hook["clientConfig"].(map[string]any)
	service, ok := client["service"].(map[string]any)
	if !ok {
		return
	}
	path, _ := service["path"].(string)
	hook["clientConfig"] = map[string]any{
		"url":      strings.TrimSuffix(t.URL, "/") + "/" + strings.TrimPrefix(path, "/"),
		"caBundle": base64.StdEncoding.EncodeToString([]byte(t.CABundle)),
	}
}
