package policies_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const admission = "/apis/admissionregistration.k8s.io/v1/"

// The stored objects of each kind: the first three have labels of policies, and are deleted by
// dry-runs; the others are patched.
var storedLabels = []string{"s0", "s1", "s2"}

func storedName(i int) string { return fmt.Sprint("stored-", i) }

// target is a server that decides.
type target struct {
	name   string
	url    string
	client *http.Client
	lags   bool // it acts on policies some time after their change
}

func newTarget(t *testing.T, name string, c *rest.Config, lags bool) *target {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return &target{name, c.Host, client, lags}
}

// response is a response without the parts that differ between servers.
type response struct {
	Status   int      `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
	Body     any      `json:"body,omitempty"`
}

func (a response) String() string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(a); err != nil {
		return err.Error()
	}
	return strings.TrimRight(b.String(), "\n")
}

func (s *target) send(ctx context.Context, q request) (response, error) {
	var body io.Reader
	if q.body != nil {
		data, err := json.Marshal(q.body)
		if err != nil {
			return response{}, err
		}
		body = bytes.NewReader(data)
	}
	ctx, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	r, err := http.NewRequestWithContext(ctx, q.method, strings.TrimSuffix(s.url, "/")+q.path, body)
	if err != nil {
		return response{}, err
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", q.contentType)
	}
	r.Header.Set("Impersonate-User", "alice")
	if q.user != "" {
		r.Header.Set("Impersonate-User", q.user)
	} else {
		r.Header.Set("Impersonate-Group", "system:masters")
	}
	got, err := s.client.Do(r)
	if err != nil {
		return response{}, fmt.Errorf("%s does not respond; if its process has ended, its log says why: %w", s.name, err)
	}
	defer got.Body.Close()
	a := response{Status: got.StatusCode, Warnings: got.Header.Values("Warning")}
	slices.Sort(a.Warnings) // of policies, they have no order
	data, err := io.ReadAll(got.Body)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a.Body); err != nil {
		a.Body = string(data)
	}
	plain(a.Body)
	return a, nil
}

// plain removes the parts that differ between servers.
func plain(v any) {
	switch node := v.(type) {
	case []any:
		for _, child := range node {
			plain(child)
		}
	case map[string]any:
		if meta, ok := node["metadata"].(map[string]any); ok {
			for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields"} {
				delete(meta, key)
			}
		}
		sortCauses(node)
		if kind, _ := node["kind"].(string); strings.HasSuffix(kind, "AdmissionPolicy") {
			delete(node, "status") // kube-controller-manager writes it
		}
		if details, ok := node["details"].(map[string]any); ok {
			delete(details, "uid")
		}
		for _, child := range node {
			plain(child)
		}
	}
}

// sortCauses sorts the errors of an invalid custom resource or ConfigMap in a Status, and in
// its message: kube-apiserver finds them in the random order of a map.
func sortCauses(status map[string]any) {
	details, _ := status["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	message, _ := status["message"].(string)
	if details["group"] != things.group && details["kind"] != "ConfigMap" || len(causes) < 2 || !strings.Contains(message, "is invalid: [") {
		return
	}
	texts := make([]string, len(causes))
	for i := range causes {
		cause, _ := causes[i].(map[string]any)
		texts[i] = fmt.Sprintf("%v: %v", cause["field"], cause["message"])
		message = strings.Replace(message, texts[i], "", 1)
	}
	slices.Sort(texts)
	status["message"] = message + strings.Join(texts, ", ")
	slices.SortFunc(causes, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// must sends a request that has to succeed.
func (s *target) must(t *testing.T, ctx context.Context, method, path string, body object) {
	t.Helper()
	a, err := s.send(ctx, request{method: method, path: path, contentType: "application/json", body: body})
	if err != nil || a.Status >= 300 && a.Status != http.StatusConflict && method != "DELETE" {
		t.Fatalf("%s: %s %s: %v %v", s.name, method, path, a, err)
	}
}

// setUp creates the objects that policies and requests refer to.
func (s *target) setUp(t *testing.T, namespace string, stored func(k *kind, i int) object) {
	ctx := t.Context()
	s.must(t, ctx, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", decoded(thingsDefinition))
	for _, ns := range []string{namespace, "mark-" + namespace} {
		s.must(t, ctx, "POST", "/api/v1/namespaces", object{"metadata": object{"name": ns}})
		t.Cleanup(func() {
			s.must(t, context.Background(), "DELETE", "/api/v1/namespaces/"+ns, nil)
			s.must(t, context.Background(), "PUT", "/api/v1/namespaces/"+ns+"/finalize", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": ns}, "spec": object{"finalizers": []any{}}})
		})
	}
	roles := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/"
	s.must(t, ctx, "POST", roles+"roles", object{"metadata": object{"name": "writer"}, "rules": []any{
		object{"apiGroups": []any{"", things.group}, "resources": []any{"configmaps", "pods", "things"}, "verbs": []any{"*"}}}})
	s.must(t, ctx, "POST", roles+"rolebindings", object{"metadata": object{"name": "writer"}, "roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
		"subjects": []any{object{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": namespace + "-user"}}})
	for i := range 2 {
		s.must(t, ctx, "POST", configMaps.path(namespace, ""), object{"metadata": object{"name": fmt.Sprint("param-", i), "labels": object{"set": []string{"one", "other"}[i]}}, "data": object{"k1": fmt.Sprint("a", i), "k2": "2"}})
	}
	s.awaitThings(t, namespace)
	for _, k := range kinds {
		for i := range 6 {
			s.must(t, ctx, "POST", k.path(namespace, ""), stored(k, i))
		}
	}
	if s.lags {
		// Kube-apiserver stops following a built-in kind of parameters with the last policy of the first sort that used
		// it, and policies find none from then on. So one of each sort stays.
		spec := func(more object) object {
			more["paramKind"] = object{"apiVersion": "v1", "kind": "ConfigMap"}
			more["matchConstraints"] = object{"resourceRules": []any{object{"apiGroups": []any{"keep.example.com"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"nothings"}}}}
			return object{"metadata": object{"name": "policies-keep"}, "spec": more}
		}
		binding := func(more object) object {
			more["policyName"] = "policies-keep"
			more["paramRef"] = object{"name": "none", "namespace": "default", "parameterNotFoundAction": "Allow"}
			return object{"metadata": object{"name": "policies-keep"}, "spec": more}
		}
		s.must(t, ctx, "POST", admission+"validatingadmissionpolicies", spec(object{"validations": []any{object{"expression": "true"}}}))
		s.must(t, ctx, "POST", admission+"validatingadmissionpolicybindings", binding(object{"validationActions": []any{"Deny"}}))
		s.must(t, ctx, "POST", admission+"mutatingadmissionpolicies", spec(object{"reinvocationPolicy": "Never", "mutations": []any{
			object{"patchType": "JSONPatch", "jsonPatch": object{"expression": "[JSONPatch{op: 'remove', path: '/data'}]"}}}}))
		s.must(t, ctx, "POST", admission+"mutatingadmissionpolicybindings", binding(object{}))
	}
}

// awaitThings waits until the custom resources are served.
func (s *target) awaitThings(t *testing.T, namespace string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		a, err := s.send(t.Context(), request{method: "GET", path: things.path(namespace, "")})
		if err == nil && a.Status == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not serve custom resources: %v %v", s.name, a, err)
		}
	}
}

func decoded(text string) (o object) {
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	return o
}

// install stores policies, and returns the responses. Those that are stored are in effect.
func (s *target) install(t *testing.T, namespace string, all []*policy) (responses []response) {
	for _, p := range all {
		of := "validatingadmissionpolic"
		if p.mutating {
			of = "mutatingadmissionpolic"
		}
		got, err := s.send(t.Context(), request{method: "POST", path: admission + of + "ies", contentType: "application/json", body: p.document})
		if err != nil {
			t.Fatal(err)
		}
		responses = append(responses, got)
		if got.Status != http.StatusCreated {
			continue
		}
		for _, b := range p.bindings {
			got, err := s.send(t.Context(), request{method: "POST", path: admission + of + "ybindings", contentType: "application/json", body: b})
			if err != nil {
				t.Fatal(err)
			}
			responses = append(responses, got)
		}
	}
	if s.lags {
		s.settle(t, namespace, all[0].name)
	}
	return responses
}

func (s *target) remove(t *testing.T, all []*policy) {
	for _, p := range all {
		of := "validatingadmissionpolic"
		if p.mutating {
			of = "mutatingadmissionpolic"
		}
		for _, b := range p.bindings {
			s.must(t, context.Background(), "DELETE", admission+of+"ybindings/"+b["metadata"].(object)["name"].(string), nil)
		}
		s.must(t, context.Background(), "DELETE", admission+of+"ies/"+p.name, nil)
	}
}

// settle waits until the server acts on all policies: a mark of each kind, stored last, takes
// effect last.
func (s *target) settle(t *testing.T, namespace, name string) {
	t.Helper()
	name += "-mark"
	match := object{"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": "mark-" + namespace}}, "resourceRules": []any{
		object{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"}}}}
	condition := []any{object{"name": "mark", "expression": "object.metadata.name == '" + name + "'"}}
	meta := object{"name": name}
	for _, one := range []struct {
		of   string
		spec object
	}{
		{"validatingadmissionpolicies", object{"matchConstraints": match, "matchConditions": condition, "validations": []any{object{"expression": "false", "message": name}}}},
		{"validatingadmissionpolicybindings", object{"policyName": name, "validationActions": []any{"Warn"}}},
		{"mutatingadmissionpolicies", object{"matchConstraints": match, "matchConditions": condition, "reinvocationPolicy": "Never", "mutations": []any{
			object{"patchType": "ApplyConfiguration", "applyConfiguration": object{"expression": "Object{data: {'mark': 'x'}}"}}}}},
		{"mutatingadmissionpolicybindings", object{"policyName": name}},
	} {
		s.must(t, t.Context(), "POST", admission+one.of, object{"metadata": meta, "spec": one.spec})
		defer s.must(t, context.Background(), "DELETE", admission+one.of+"/"+name, nil)
	}
	probe := request{method: "POST", path: configMaps.path("mark-"+namespace, "") + "?dryRun=All", contentType: "application/json", body: object{"metadata": meta}}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got, err := s.send(t.Context(), probe)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := got.Body.(map[string]any)
		if len(got.Warnings) > 0 && body["data"] != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not act on policies: %v", s.name, got)
		}
	}
}

// decide sends requests, several at a time, and returns the responses.
func (s *target) decide(t *testing.T, all []request) []response {
	responses := make([]response, len(all))
	const workers = 8
	var wg sync.WaitGroup
	var failed atomic.Bool
	for part := range workers {
		wg.Go(func() {
			for i := part; i < len(all) && t.Context().Err() == nil; i += workers {
				var err error
				if responses[i], err = s.send(t.Context(), all[i]); err != nil {
					t.Error(err)
					failed.Store(true)
					return
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() {
		t.FailNow()
	}
	return responses
}
