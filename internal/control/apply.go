package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// applyRequest is the body of apply.
type applyRequest struct {
	Manifests []manifest    `json:"manifests"`
	Webhooks  webhookTarget `json:"webhooks"`
	// Token is the bearer token of the user who writes; empty: the administrator does.
	Token string `json:"token"`
}

// applied is an object that was written.
type applied struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	// Result is "created" or "updated".
	Result string `json:"result"`
}

// apply creates or updates the objects of manifests: first definitions, and after they are
// established the objects that use them. It stops at the first error and keeps the objects written
// so far.
func (h *handler) apply(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	body, err := readManifests(w, r)
	if err != nil {
		return err
	}
	if err := body.Webhooks.check(); err != nil {
		return err
	}
	objects, err := parse(body.Manifests)
	if err != nil {
		return err
	}
	if len(objects) == 0 && slices.ContainsFunc(body.Manifests, func(m manifest) bool { return !m.WebhooksOnly }) {
		return badRequest("the manifests have no objects")
	}
	d, err := world.Describe()
	if err != nil {
		return err
	}
	admin := &client{api: world.Handler(), token: d.Token}
	c := &client{api: admin.api, token: cmp.Or(body.Token, d.Token), kinds: map[string]*metav1.APIResourceList{}}
	results := make([]applied, 0, len(objects))
	for i, o := range objects {
		body.Webhooks.redirect(o)
		result, err := c.apply(r.Context(), o)
		if err != nil {
			return withObject(o, err)
		}
		results = append(results, result)
		if d.Seed != 0 { // the controllers react to each object in its turn
			if _, err := world.SettleFor(r.Context(), 0); err != nil {
				return withObject(o, err)
			}
		}
		if o.isDefinition() && (i+1 == len(objects) || !objects[i+1].isDefinition()) {
			for _, definition := range objects[:i+1] {
				if err := admin.established(r.Context(), definition); err != nil {
					return withObject(definition, err)
				}
			}
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"applied": results})
	return nil
}

// readManifests reads the body: the JSON of applyRequest, or one manifest of YAML.
func readManifests(w http.ResponseWriter, r *http.Request) (body applyRequest, err error) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch media {
	case "application/json", "":
		err = readJSON(w, r, maxManifestBytes, &body)
		return body, err
	case "application/yaml", "text/yaml", "application/x-yaml":
		text, err := readBody(w, r, maxManifestBytes)
		body.Manifests = []manifest{{Name: "the body", Content: string(text)}}
		return body, err
	}
	return body, &apiError{http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, fmt.Sprintf("Content-Type %s: want application/json or application/yaml", media)}
}

// withObject adds to an error which object it is about.
func withObject(o *object, err error) error {
	a := *responseOf(err)
	a.message = o.String() + ": " + a.message
	return &a
}

// client calls the API of a world.
type client struct {
	api   http.Handler
	token string
	kinds map[string]*metav1.APIResourceList // by group and version
}

// manager is the field manager of the objects.
const manager = "tidemark-control"

// call sends a request and decodes the response into out, which may be nil.
func (c *client) call(ctx context.Context, method, path string, body any, out any) error {
	_, err := c.send(ctx, method, path, "application/json", body, out)
	return err
}

// get reads the response with a media type into out.
func (c *client) get(ctx context.Context, path, accept string, out any) error {
	_, err := c.send(ctx, http.MethodGet, path, accept, nil, out)
	return err
}

// send sends a request. A PATCH is sent as server-side apply.
func (c *client) send(ctx context.Context, method, path, accept string, body any, out any) (code int, err error) {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "https://control"+path, content)
	if err != nil {
		return 0, err
	}
	r.RequestURI = r.URL.RequestURI() // as servers see it
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", accept)
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	r.Header.Set("User-Agent", manager)
	response := &buffer{header: http.Header{}}
	c.api.ServeHTTP(response, r)
	if response.code/100 == 2 {
		if out == nil {
			return response.code, nil
		}
		return response.code, json.Unmarshal(response.body, out)
	}
	var status metav1.Status
	if json.Unmarshal(response.body, &status) != nil || status.Message == "" {
		status.Message = fmt.Sprintf("%s %s gets a response %d: %s", method, path, response.code, bytes.TrimSpace(response.body))
	}
	return response.code, &apiError{response.code, status.Reason, status.Message}
}

// maxTries limits how often an update is repeated because another writer was faster.
const maxTries = 10

// apply creates the object, or changes the existing one by server-side apply, so that fields of
// other managers stay. Definitions and webhook configurations are replaced; an object without a
// name, or whose kind does not support apply, is created.
func (c *client) apply(ctx context.Context, o *object) (applied, error) {
	at, err := c.endpoint(ctx, o)
	if err != nil {
		return applied{}, err
	}
	result := applied{
		APIVersion: o.text("apiVersion"), Kind: o.text("kind"), Namespace: o.text("metadata", "namespace"),
		Name: o.text("metadata", "name"), Result: "created",
	}
	for _, name := range ofServer {
		delete(o.metadata(), name)
	}
	var status any
	if at.status && !o.isDefinition() {
		status = o.fields["status"]
		delete(o.fields, "status")
	}
	var written map[string]any
	var updated bool
	if result.Name == "" || !at.patchable || o.isDefinition() || o.isWebhook() {
		written, updated, err = c.replace(ctx, at, o)
	} else {
		o.encodeSecret()
		written, updated, err = c.patch(ctx, at.object(result.Name), o.fields)
	}
	if err != nil {
		return applied{}, err
	}
	if updated {
		result.Result = "updated"
	}
	result.Name = (&object{fields: written}).text("metadata", "name")
	if fields, ok := status.(map[string]any); status != nil && (!ok || len(fields) > 0) {
		metadata := map[string]any{"name": result.Name, "namespace": result.Namespace}
		of := map[string]any{"apiVersion": o.fields["apiVersion"], "kind": o.fields["kind"], "metadata": metadata, "status": status}
		_, _, err = c.patch(ctx, at.object(result.Name)+"/status", of)
	}
	return result, err
}

// ofServer is metadata that the server sets. An object that was read from a server has it.
var ofServer = []string{"managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}

// patch sends an object for server-side apply.
func (c *client) patch(ctx context.Context, path string, fields map[string]any) (written map[string]any, updated bool, err error) {
	code, err := c.send(ctx, http.MethodPatch, path+"?force=true&fieldValidation=Strict&fieldManager="+manager, "application/json", fields, &written)
	return written, code == http.StatusOK, err
}

// replace creates the object, or replaces the one that is there.
func (c *client) replace(ctx context.Context, at endpoint, o *object) (written map[string]any, updated bool, err error) {
	query := "?fieldManager=" + manager
	if !o.isDefinition() { // as kubectl does; generated definitions may have fields of newer servers
		query += "&fieldValidation=Strict"
	}
	err = c.call(ctx, http.MethodPost, at.collection+query, o.fields, &written)
	name := o.text("metadata", "name")
	for try := 1; isReason(err, metav1.StatusReasonAlreadyExists) || isReason(err, metav1.StatusReasonConflict); try++ {
		if try > maxTries || name == "" {
			return nil, false, err
		}
		updated, written = true, nil
		var current object
		if err = c.call(ctx, http.MethodGet, at.object(name), nil, &current.fields); err != nil {
			continue
		}
		o.metadata()["resourceVersion"] = current.text("metadata", "resourceVersion")
		err = c.call(ctx, http.MethodPut, at.object(name)+query, o.fields, &written)
	}
	return written, updated, err
}

func isReason(err error, reason metav1.StatusReason) bool {
	return err != nil && responseOf(err).reason == reason
}

// endpoint is where objects of a kind are written.
type endpoint struct {
	collection string // the path
	status     bool   // there is a status subresource
	patchable  bool   // objects can be patched
}

// object returns the path of an object.
func (at *endpoint) object(name string) string { return at.collection + "/" + url.PathEscape(name) }

// endpoint returns that of an object. It sets the namespace of an object that has none to "default".
func (c *client) endpoint(ctx context.Context, o *object) (at endpoint, err error) {
	version := o.text("apiVersion")
	base := "/apis/" + version
	if !strings.Contains(version, "/") {
		base = "/api/" + version
	}
	kinds := c.kinds[version]
	if kinds == nil {
		kinds = new(metav1.APIResourceList)
		err := c.call(ctx, http.MethodGet, base, nil, kinds)
		if err != nil && responseOf(err).code != http.StatusNotFound {
			return at, err
		}
		c.kinds[version] = kinds
	}
	var found *metav1.APIResource
	for i, k := range kinds.APIResources {
		if k.Kind == o.text("kind") && !strings.Contains(k.Name, "/") {
			found = &kinds.APIResources[i]
		}
	}
	if found == nil {
		return at, badRequest("the server has no kind %s in %s: is its definition among the manifests?", o.text("kind"), version)
	}
	at.patchable = slices.Contains(found.Verbs, "patch")
	for _, other := range kinds.APIResources {
		at.status = at.status || other.Name == found.Name+"/status"
	}
	if at.collection = base + "/" + found.Name; !found.Namespaced {
		return at, nil
	}
	namespace := o.text("metadata", "namespace")
	if namespace == "" {
		namespace = metav1.NamespaceDefault
		o.metadata()["namespace"] = namespace
	}
	at.collection = base + "/namespaces/" + url.PathEscape(namespace) + "/" + found.Name
	return at, nil
}

const (
	establishTimeout = 10 * time.Second
	establishPause   = 2 * time.Millisecond
)

// established waits until a definition is established. It returns an error if its names conflict
// with those of another definition.
func (c *client) established(ctx context.Context, o *object) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + url.PathEscape(o.text("metadata", "name"))
	for {
		var d struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}
		if err := c.call(ctx, http.MethodGet, path, nil, &d); err != nil {
			return err
		}
		for _, condition := range d.Status.Conditions {
			switch {
			case condition.Type == "Established" && condition.Status == metav1.ConditionTrue:
				return nil
			case condition.Type == "NamesAccepted" && condition.Status == metav1.ConditionFalse:
				return badRequest("its names are not accepted: %s", condition.Message)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not established: %w", ctx.Err())
		case <-time.After(establishPause):
		}
	}
}
