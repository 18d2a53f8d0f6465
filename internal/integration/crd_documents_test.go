package integration_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// document returns the body of a GET, which must succeed.
func document(t *testing.T, c *rest.Config, path string) string {
	t.Helper()
	code, text := servertest.Get(t, c, path)
	if code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, code, text)
	}
	return text
}

var references = regexp.MustCompile(`"\$ref":"#/(?:definitions|components/schemas)/([^"]*)"`)

// TestDocumentsOfDefinitions checks that the OpenAPI documents contain everything
// that they refer to, also with definitions, and that they list the selectable
// fields.
func TestDocumentsOfDefinitions(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{{"POST " + definitions, strings.Replace(definition(`"color":{"type":"string"},"inner":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"x":{"type":"string"}}}`),
		`"storage":true`, `"storage":true,"selectableFields":[{"jsonPath":".spec.color"}]`, 1), 201, nil}})
	for _, path := range []string{"/openapi/v2", "/openapi/v3/apis/example.com/v1"} {
		text := document(t, c, path)
		found := references.FindAllStringSubmatch(text, -1)
		if len(found) < 10 || !strings.Contains(text, `"com.example.v1.Thing":`) {
			t.Errorf("%s has %d references", path, len(found))
		}
		for _, ref := range found {
			if strings.HasPrefix(ref[1], "parameters/") {
				continue
			}
			if !strings.Contains(text, `"`+ref[1]+`":{`) {
				t.Fatalf("%s: %s leads nowhere", path, ref[0])
			}
		}
		if n := strings.Count(text, `"x-kubernetes-selectable-fields":[{"fieldPath":"spec.color"}]`); n != 2 {
			t.Errorf("%s names the selectable fields %d times, want twice: of objects and lists", path, n)
		}
	}
}

// TestTerminatingDefinition checks a definition whose removal waits for finalizers of
// its objects: it can be updated, its status has the reason, and discovery lists no
// verbs that create or change objects.
func TestTerminatingDefinition(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	held := strings.Replace(thing("a", `{"n":1}`), `"name"`, `"finalizers":["example.com/f"],"name"`, 1)
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, nil},
		{"MERGE " + definitions + "/things.example.com", `{"metadata":{"finalizers":["plain"]}}`, 200, nil},
		{"MERGE " + definitions + "/things.example.com", `{"metadata":{"finalizers":null}}`, 200, nil},
		{"POST " + things, held, 201, nil},
	})
	lines := watch(t, c, definitions+"?watch=true&fieldSelector=metadata.name=things.example.com")
	run(t, c, []step{{"DELETE " + definitions + "/things.example.com", "", 200, nil}})
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"InstanceDeletionInProgress"`) {
			break
		}
	}
	run(t, c, []step{
		{"MERGE " + definitions + "/things.example.com", `{"spec":{"names":{"shortNames":["th"]}}}`, 200, values{"spec.names.shortNames.0": `"th"`}},
		{"GET /apis/example.com/v1", "", 200, values{"resources.0.verbs": `["delete","deletecollection","get","list","watch"]`}},
		{"MERGE " + things + "/a", `{"metadata":{"finalizers":null}}`, 200, nil},
	})
	waitGone(t, c)
}

// TestDefinitionOutlivesObjects checks that a definition with a finalizer reports
// that its objects are gone, and that its deletion does not change its generation.
func TestDefinitionOutlivesObjects(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, nil},
		{"MERGE " + definitions + "/things.example.com", `{"metadata":{"finalizers":["example.com/f"]}}`, 200, nil},
	})
	lines := watch(t, c, definitions+"?watch=true&fieldSelector=metadata.name=things.example.com")
	run(t, c, []step{{"DELETE " + definitions + "/things.example.com", "", 200, nil}})
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"removed all instances"`) {
			break
		}
	}
	run(t, c, []step{
		{"GET " + definitions + "/things.example.com", "", 200, values{
			"metadata.generation": "1", "metadata.finalizers": `["example.com/f"]`,
			"status.conditions.2.type": `"Terminating"`, "status.conditions.2.status": `"False"`, "status.conditions.2.reason": `"InstanceDeletionCompleted"`,
		}},
		{"MERGE " + definitions + "/things.example.com", `{"metadata":{"finalizers":null}}`, 200, nil},
	})
	waitGone(t, c)
}

// TestManagersOfUnservedVersion checks that managers keep fields that they own in a
// version that is no longer served.
func TestManagersOfUnservedVersion(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const v2 = "/apis/example.com/v2/namespaces/default/things/a"
	applied := func(version, value string) string {
		return `{"apiVersion":"example.com/` + version + `","kind":"Thing","metadata":{"name":"a"},"spec":{"common":"` + value + `"}}`
	}
	run(t, c, []step{
		{"POST " + definitions, storedIn("v1", true, ""), 201, nil},
		{"APPLY " + v2 + "?fieldManager=one", applied("v2", "x"), 201, nil},
		{"MERGE " + definitions + "/things.example.com", strings.Replace(storedIn("v1", true, ""), `"name":"v2","served":true`, `"name":"v2","served":false`, 1), 200, nil},
		{"GET " + v2, "", 404, nil},
		{"APPLY " + things + "/a?fieldManager=two", applied("v1", "w"), 409, `Apply failed with 1 conflict: conflict with "one": .spec.common`},
		{"APPLY " + things + "/a?fieldManager=two&force=true", applied("v1", "w"), 200, values{"metadata.managedFields.0.manager": `"two"`}},
	})
}

// TestManagersOfRemovedVersion checks that an apply is rejected while a manager owns fields in a
// version that the definition no longer has. An update drops these entries.
func TestManagersOfRemovedVersion(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	applied := func(version, value string) string {
		return `{"apiVersion":"example.com/` + version + `","kind":"Thing","metadata":{"name":"a"},"spec":{"common":"` + value + `"}}`
	}
	both := storedIn("v1", true, "")
	first := strings.Index(both, `{"name":"v2"`)
	only := both[:first-1] + "]}}"
	const v2 = "/apis/example.com/v2/namespaces/default/things/a"
	const gone = "request to convert CR to an invalid group/version: example.com/v2"
	run(t, c, []step{
		{"POST " + definitions, both, 201, nil},
		{"APPLY " + v2 + "?fieldManager=one", applied("v2", "x"), 201, nil},
		{"APPLY " + things + "/a?fieldManager=two", applied("v1", "x"), 200, nil},
		{"APPLY " + things + "/a?fieldManager=two", applied("v1", "x"), 200, nil},
		{"MERGE " + definitions + "/things.example.com", only, 200, nil},
		{"APPLY " + things + "/a?fieldManager=two", applied("v1", "x"), 400, gone},
		{"APPLY " + things + "/a?fieldManager=one&force=true", applied("v1", "y"), 400, gone},
		{"MERGE " + things + "/a?fieldManager=three", `{"spec":{"common":"z"}}`, 200, values{"metadata.managedFields.0.manager": `"three"`, "metadata.managedFields.1": "null"}},
		{"APPLY " + things + "/a?fieldManager=one&force=true", applied("v1", "y"), 200, nil},
	})
}
