package integration_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestReplacedKind checks that the history of a definition that was replaced by one
// with another kind and version is well-formed in every representation.
func TestReplacedKind(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`, ""), 201, nil},
		{"POST " + things, thing("a", `{"n":1}`), 201, nil},
		{"POST " + things, thing("b", `{"n":1}`), 201, nil},
	})
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	const partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	_, body := servertest.GetAs(t, c, things, partial)
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	run(t, c, []step{{"DELETE " + definitions + "/things.example.com", "", 200, nil}})
	waitGone(t, c)
	longer := strings.NewReplacer(`"kind":"Thing"`, `"kind":"Thingamajig"`, `"name":"v1"`, `"name":"v1beta1"`).Replace(definition(`"n":{"type":"integer"}`, ""))
	run(t, c, []step{{"POST " + definitions, longer, 201, nil}})
	path := strings.Replace(things, "/v1/", "/v1beta1/", 1) + "?resourceVersionMatch=Exact&resourceVersion=" + list.Metadata.ResourceVersion
	for _, accept := range []string{partial, "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json"} {
		if _, body := servertest.GetAs(t, c, path, accept); !json.Valid([]byte(body)) {
			t.Errorf("%s: %s", accept, body)
		}
	}
}

// TestShownFields checks that field selectors of a custom resource see defaults that
// were added later, in lists and in deletecollection.
func TestShownFields(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	later := strings.Replace(definition(`"n":{"type":"integer"},"d":{"type":"string","default":"keep"}`, ""), `"storage":true,`, `"storage":true,"selectableFields":[{"jsonPath":".spec.d"}],`, 1)
	if !strings.Contains(later, "selectableFields") {
		t.Fatal(later)
	}
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`, ""), 201, nil},
		{"POST " + things, thing("old", `{"n":1}`), 201, nil},
		{"MERGE " + definitions + "/things.example.com", later, 200, nil},
		{"POST " + things, thing("new", `{"n":1,"d":"other"}`), 201, nil},
		{"GET " + things + "/old", "", 200, values{"spec": `{"d":"keep","n":1}`}},
	})
	names := func(selector string) (found []string) {
		t.Helper()
		var list struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		_, body := servertest.GetAs(t, c, things+"?fieldSelector="+url.QueryEscape(selector), "application/json")
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err, body)
		}
		for _, i := range list.Items {
			found = append(found, i.Metadata.Name)
		}
		return found
	}
	for selector, want := range map[string]string{
		"spec.d=keep": "[old]", "spec.d!=keep": "[new]", "spec.d=": "[]", "spec.d=other": "[new]", "spec.d!=": "[new old]", "metadata.name=old,spec.d=keep": "[old]",
	} {
		for range 2 {
			if got := fmt.Sprint(names(selector)); got != want {
				t.Errorf("%s selects %s, want %s", selector, got, want)
			}
		}
	}
	lines := watch(t, c, things+"?watch=true&fieldSelector=spec.d%3Dkeep")
	if !lines.Scan() || !strings.Contains(lines.Text(), `"name":"old"`) || !strings.Contains(lines.Text(), `"d":"keep"`) {
		t.Errorf("a watch: %v %s", lines.Err(), lines.Text())
	}
	run(t, c, []step{
		{"MERGE " + things + "/old", `{"spec":{"d":"gone"}}`, 200, nil},
		{"MERGE " + things + "/old", `{"spec":{"d":null}}`, 200, values{"spec": `{"d":"keep","n":1}`}},
	})
	for _, want := range []string{`{"type":"DELETED"`, `{"type":"ADDED"`} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Errorf("a watch: %v %s, want %s", lines.Err(), lines.Text(), want)
		}
	}
	run(t, c, []step{{"DELETE " + things + "?fieldSelector=spec.d!%3Dkeep", "", 200, nil}})
	if got := fmt.Sprint(names("metadata.namespace=default")); got != "[old]" {
		t.Errorf("a deletion of what is not keep left %s", got)
	}
}

// TestListKindThatWaited checks that the OpenAPI document follows a list kind that
// becomes available when another definition is removed.
func TestListKindThatWaited(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	other := strings.NewReplacer("things", "others", `"kind":"Thing"`, `"kind":"Other","listKind":"Shared"`, `"name":"v1"`, `"name":"v9"`).Replace(definition(`"n":{"type":"integer"}`))
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, nil},
		{"POST " + definitions, other, 201, nil},
		{"MERGE " + definitions + "/things.example.com", `{"spec":{"names":{"listKind":"Shared"}}}`, 200, values{"status.acceptedNames.listKind": `"ThingList"`}},
	})
	document := func(want, not string) {
		t.Helper()
		if _, body := servertest.GetAs(t, c, "/openapi/v3/apis/example.com/v1", "application/json"); !strings.Contains(body, `"com.example.v1.`+want+`"`) || strings.Contains(body, `"com.example.v1.`+not+`"`) {
			t.Errorf("the document does not have %s, or has %s", want, not)
		}
	}
	document("ThingList", "Shared")
	lines := watch(t, c, definitions+"?watch=true&fieldSelector=metadata.name%3Dthings.example.com")
	run(t, c, []step{{"DELETE " + definitions + "/others.example.com", "", 200, nil}})
	for lines.Scan() && !strings.Contains(lines.Text(), `"acceptedNames":{"plural":"things","singular":"thing","kind":"Thing","listKind":"Shared"}`) {
	}
	document("Shared", "ThingList")
}
