package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const (
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	things      = "/apis/example.com/v1/namespaces/default/things"
)

// definition returns a definition of things.example.com, with the given properties in
// spec.
func definition(properties string, more ...string) string {
	return fmt.Sprintf(`{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%s}}}}}}%s]}}`,
		properties, strings.Join(more, ""))
}

func thing(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":%q},"spec":%s}`, name, spec)
}

// TestDefinitionServesAtOnce checks that an object can be created right after its
// definition, and that the status of the definition follows.
func TestDefinitionServesAtOnce(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}}).RESTConfig()
	for range 20 {
		run(t, c, []step{
			{"GET " + things, "", 404, nil},
			{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, values{"status.acceptedNames.kind": `""`}},
			{"POST " + things, thing("a", `{"n":1}`), 201, values{"spec": `{"n":1}`, "metadata.generation": "1"}},
			{"GET " + definitions + "/things.example.com", "", 200, values{"status.conditions.1.type": `"Established"`, "status.conditions.1.status": `"True"`}},
			{"GET /apis/example.com/v1", "", 200, values{"resources.0.name": `"things"`}},
			{"DELETE " + things + "/a", "", 200, nil},
			{"DELETE " + definitions + "/things.example.com", "", 200, values{"metadata.finalizers.0": `"customresourcecleanup.apiextensions.k8s.io"`}},
		})
		waitGone(t, c)
	}
}

// watch opens a watch and returns its events as lines.
func watch(t testing.TB, c *rest.Config, path string) *bufio.Scanner {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return bufio.NewScanner(response.Body)
}

// waitGone waits until the definition is gone.
func waitGone(t *testing.T, c *rest.Config) {
	t.Helper()
	lines := watch(t, c, definitions+"?watch=true&fieldSelector=metadata.name=things.example.com&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	there := false
	for lines.Scan() {
		var event struct{ Type string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		switch {
		case event.Type == "ADDED":
			there = true
		case event.Type == "DELETED", event.Type == "BOOKMARK" && !there:
			return
		}
	}
	t.Fatal("the watch ended before the definition was gone")
}

// TestDefinitionChanges checks that stored objects are read with the current schema.
func TestDefinitionChanges(t *testing.T) {
	dir := t.TempDir()
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	c := s.RESTConfig()
	beta := `,{"name":"v1beta1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"n":{"type":"integer"}}}}}}}`
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"},"old":{"type":"string"}`), 201, nil},
		{"POST " + things, thing("a", `{"n":1,"old":"x","unknown":1}`), 201, values{"spec": `{"n":1,"old":"x"}`}},
		{"MERGE " + definitions + "/things.example.com", definition(`"n":{"type":"integer"},"new":{"type":"string","default":"d"}`, beta), 200, values{"metadata.generation": "2"}},
		{"GET " + things + "/a", "", 200, values{"spec": `{"n":1,"new":"d"}`}},
		{"GET " + things, "", 200, values{"items.0.spec": `{"n":1,"new":"d"}`, "items.0.kind": `"Thing"`}},
		{"GET /apis/example.com/v1beta1/namespaces/default/things/a", "", 200, values{"spec": `{"n":1}`, "apiVersion": `"example.com/v1beta1"`}},
		{"POST " + things, thing("b", `{"n":2}`), 201, values{"spec": `{"n":2,"new":"d"}`}},
		{"MERGE " + things + "/a", `{"spec":{"n":2}}`, 200, values{"spec": `{"n":2,"new":"d"}`, "metadata.generation": "2"}},
		{"MERGE /apis/example.com/v1beta1/namespaces/default/things/a", `{"spec":{"n":3}}`, 200, values{"spec": `{"n":3}`, "apiVersion": `"example.com/v1beta1"`}},
		{"POST " + things, thing("c", `{"n":"x"}`), 422, `Thing.example.com "c" is invalid: spec.n: Invalid value: "string": spec.n in body must be of type integer: "string"`},
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c = servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}}).RESTConfig()
	run(t, c, []step{
		{"GET " + things + "/b", "", 200, values{"spec": `{"n":2,"new":"d"}`}},
		{"DELETE " + definitions + "/things.example.com", "", 200, nil},
	})
	waitGone(t, c)
	run(t, c, []step{
		{"GET " + things, "", 404, nil},
		{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, nil},
		{"GET " + things, "", 200, values{"items": "[]"}},
	})
}

// TestDefinitionsWaitForNames checks that a definition gets its kind when another
// definition releases it.
func TestDefinitionsWaitForNames(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	other := strings.NewReplacer("things.example.com", "others.example.com", `"plural":"things"`, `"plural":"others"`).Replace(definition(`"n":{"type":"integer"}`))
	const others = "/apis/example.com/v1/namespaces/default/others"
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, nil},
		{"POST " + definitions, other, 201, nil},
		{"GET " + definitions + "/others.example.com", "", 200, values{"status.conditions.0.message": `"\"ThingList\" is already in use"`, "status.acceptedNames.kind": `""`}},
		{"GET " + others, "", 404, nil},
		{"DELETE " + definitions + "/things.example.com", "", 200, nil},
	})
	waitGone(t, c)
	lines := watch(t, c, definitions+"?watch=true&fieldSelector=metadata.name=others.example.com")
	for lines.Scan() {
		if strings.Contains(lines.Text(), "InitialNamesAccepted") {
			break
		}
	}
	run(t, c, []step{{"POST " + others, strings.Replace(thing("a", `{"n":1}`), "things", "others", 1), 201, nil}})
}

// storedIn returns a definition with two versions and no conversion, and the given
// storage version.
func storedIn(stored string, served bool, column string) string {
	version := func(name, property string) string {
		return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"additionalPrinterColumns":[{"name":%q,"type":"string","jsonPath":".spec.%s"}%s],
			"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"common":{"type":"string"},%q:{"type":"string"}}}}}}}`,
			name, served, name == stored, "C"+property, property, column, property)
	}
	return fmt.Sprintf(`{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[%s,%s]}}`,
		version("v1", "old"), version("v2", "new"))
}

// TestStorageVersionChanges checks that objects stored in another version keep their
// fields, and that tables have the columns of the requested version.
func TestStorageVersionChanges(t *testing.T) {
	dir := t.TempDir()
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	c := s.RESTConfig()
	const v2 = "/apis/example.com/v2/namespaces/default/things"
	kept := []step{
		{"GET " + things + "/a", "", 200, values{"spec": `{"common":"c","old":"o"}`, "apiVersion": `"example.com/v1"`}},
		{"GET " + v2 + "/a", "", 200, values{"spec": `{"common":"c"}`, "apiVersion": `"example.com/v2"`}},
		{"GET " + v2 + "/b", "", 200, values{"spec": `{"new":"n"}`}},
		{"GET " + things, "", 200, values{"items.0.spec": `{"common":"c","old":"o"}`, "items.1.spec": `{}`}},
		{"GET " + v2, "", 200, values{"items.0.spec": `{"common":"c"}`, "items.1.spec": `{"new":"n"}`}},
		{"TABLE " + things, "", 200, values{"rows.0.cells": `["a","o"]`, "rows.1.cells": `["b",null]`}},
		{"TABLE " + v2, "", 200, values{"rows.0.cells": `["a",null]`, "rows.1.cells": `["b","n"]`}},
	}
	run(t, c, []step{
		{"POST " + definitions, storedIn("v1", true, ""), 201, nil},
		{"POST " + things, thing("a", `{"common":"c","old":"o"}`), 201, nil},
		{"MERGE " + definitions + "/things.example.com", storedIn("v2", true, ""), 200, values{"status.storedVersions": `["v1","v2"]`}},
		{"POST " + v2, strings.Replace(thing("b", `{"new":"n"}`), "/v1", "/v2", 1), 201, nil},
	})
	run(t, c, kept)
	run(t, c, []step{ // a written object keeps the fields of the stored version only
		{"MERGE " + v2 + "/b", `{"metadata":{"labels":{"x":"y"}}}`, 200, values{"spec": `{"new":"n"}`}},
		{"MERGE " + definitions + "/things.example.com", storedIn("v1", true, ""), 200, nil},
	})
	run(t, c, kept)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}}).RESTConfig(), kept)
}

// TestWatchOfChangedDefinition checks that a watch ends if a change of the definition
// changes its objects, and continues otherwise.
func TestWatchOfChangedDefinition(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{{"POST " + definitions, storedIn("v1", true, ""), 201, nil}})
	lines := watch(t, c, things+"?watch=true")
	run(t, c, []step{
		{"MERGE " + definitions + "/things.example.com", `{"metadata":{"annotations":{"a":"b"}}}`, 200, nil},
		{"POST " + things, thing("a", `{"old":"o"}`), 201, nil},
	})
	if !lines.Scan() || !strings.Contains(lines.Text(), `"old":"o"`) {
		t.Fatalf("the watch told %q, %v", lines.Text(), lines.Err())
	}
	run(t, c, []step{
		{"MERGE " + definitions + "/things.example.com", storedIn("v2", true, ""), 200, nil},
		{"POST " + things, thing("b", `{"old":"o"}`), 201, nil},
	})
	if lines.Scan() {
		t.Errorf("the watch told %q", lines.Text())
	}
}

// TestUnservedDefinitionGoes checks that the objects of a definition without served
// versions are removed with it.
func TestUnservedDefinitionGoes(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{
		{"POST " + definitions, storedIn("v1", true, ""), 201, nil},
		{"POST " + things, thing("a", `{"old":"o"}`), 201, nil},
		{"MERGE " + definitions + "/things.example.com", storedIn("v1", false, ""), 200, nil},
		{"GET " + things, "", 404, nil},
		{"DELETE " + definitions + "/things.example.com", "", 200, nil},
	})
	waitGone(t, c)
	run(t, c, []step{
		{"POST " + definitions, storedIn("v1", true, ""), 201, nil},
		{"GET " + things, "", 200, values{"items": "[]"}},
	})
}

// TestDefinitionStatus checks that new objects get the default status of the schema,
// which has no manager.
func TestDefinitionStatus(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	withStatus := strings.Replace(definition(`"n":{"type":"integer"}`), `"schema":{"openAPIV3Schema":{"type":"object","properties":{`,
		`"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"status":{"type":"object","default":{"phase":"New"},"properties":{"phase":{"type":"string"},"n":{"type":"integer","default":7}}},`, 1)
	run(t, c, []step{
		{"POST " + definitions, withStatus, 201, nil},
		{"POST " + things, strings.Replace(thing("a", `{"n":1}`), `"spec"`, `"status":{"phase":"Old"},"spec"`, 1), 201, values{"status": `{"n":7,"phase":"New"}`, "metadata.managedFields.0.fieldsV1": `{"f:spec":{".":{},"f:n":{}}}`}},
		{"MERGE " + things + "/a", `{"spec":{"n":2}}`, 200, values{"status": `{"n":7,"phase":"New"}`}},
		{"MERGE " + things + "/a/status", `{"status":{"phase":"Old"}}`, 200, values{"status": `{"n":7,"phase":"Old"}`}},
		{"MERGE " + things + "/a/status", `{"status":null}`, 200, values{"status": `{"n":7,"phase":"New"}`}},
	})
}

// TestDefinitionsAtOnce checks that of several definitions with the same kind one
// gets it, and the next one when that is removed.
func TestDefinitionsAtOnce(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	lines := watch(t, c, definitions+"?watch=true")
	const n = 6
	var posts sync.WaitGroup
	for i := range n {
		plural := fmt.Sprint("others", i)
		posts.Go(func() {
			body := strings.NewReplacer("things.example.com", plural+".example.com", `"plural":"things"`, fmt.Sprintf(`"plural":%q`, plural)).Replace(definition(`"n":{"type":"integer"}`))
			run(t, c, []step{{"POST " + definitions, body, 201, nil}})
		})
	}
	defer posts.Wait()
	served, gone := "", 0
	for gone < n && lines.Scan() {
		var event struct {
			Type   string
			Object apiextensionsv1.CustomResourceDefinition
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		d := &event.Object
		switch {
		case event.Type == "DELETED":
			gone++
			served = ""
		case d.Name == served || !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established):
		case served != "":
			t.Fatalf("%s has the kind while %s has it", d.Name, served)
		default:
			served = d.Name
			run(t, c, []step{{"DELETE " + definitions + "/" + served, "", 200, nil}})
		}
	}
	if gone != n {
		t.Errorf("%d were served, want %d", gone, n)
	}
}
