package integration_test

import (
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// twoServed returns two versions of a definition. The second is served or not.
func twoServed(second string) string {
	return `{"name":"v2","served":` + second + `,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`
}

// TestWatchEnds checks that an idle watch ends when its definition changes or is
// deleted, after the events of the deletion.
func TestWatchEnds(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const things2 = "/apis/example.com/v2/namespaces/default/things"
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`, ","+twoServed("true")), 201, nil},
		{"POST " + things, thing("a", `{"n":1}`), 201, nil},
	})
	first, second := watch(t, c, things+"?watch=true"), watch(t, c, things2+"?watch=true")
	// An unrelated change does not end them.
	run(t, c, []step{
		{"MERGE " + definitions + "/things.example.com", `{"metadata":{"annotations":{"a":"b"}}}`, 200, nil},
		{"POST " + things, thing("b", `{"n":2}`), 201, nil},
	})
	for _, lines := range []interface {
		Scan() bool
		Text() string
	}{first, second} {
		for _, name := range []string{"a", "b"} {
			if !lines.Scan() || !strings.Contains(lines.Text(), `"name":"`+name+`"`) {
				t.Fatalf("an event is %s, want one of %s", lines.Text(), name)
			}
		}
	}
	run(t, c, []step{{"MERGE " + definitions + "/things.example.com", `{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"n":{"type":"integer"}}}}}}},` + twoServed("false") + `]}}`, 200, nil}})
	if first.Scan() || second.Scan() || first.Err() != nil || second.Err() != nil {
		t.Errorf("events of a definition that is another: %s %v, %s %v; want a clean end", first.Text(), first.Err(), second.Text(), second.Err())
	}
	watchDeletion(t, c)
}

// watchDeletion deletes a definition with two objects.
func watchDeletion(t *testing.T, c *rest.Config) {
	t.Helper()
	all, none := watch(t, c, things+"?watch=true&resourceVersion="), watch(t, c, things+"?watch=true&fieldSelector=metadata.name%3Dnone")
	for range 2 {
		if !all.Scan() || !strings.Contains(all.Text(), `"ADDED"`) {
			t.Fatal(all.Text())
		}
	}
	run(t, c, []step{{"DELETE " + definitions + "/things.example.com", "", 200, nil}})
	var deleted int
	for all.Scan() {
		if !strings.HasPrefix(all.Text(), `{"type":"DELETED"`) {
			t.Errorf("an event is %s", all.Text())
		}
		deleted++
	}
	if deleted != 2 || all.Err() != nil {
		t.Errorf("%d objects were deleted with their definition, %v; want 2 and a clean end", deleted, all.Err())
	}
	if none.Scan() || none.Err() != nil {
		t.Errorf("an event of nothing: %s %v", none.Text(), none.Err())
	}
}

// TestLeftSelectionOfAVersion checks the DELETED event of a custom resource that no
// longer matches a selector: it has the last matching state, in the requested
// version.
func TestLeftSelectionOfAVersion(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const things2 = "/apis/example.com/v2/namespaces/default/things"
	labelled := strings.Replace(thing("a", `{"n":1}`), `"name":"a"`, `"name":"a","labels":{"l":"on"}`, 1)
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`, ","+twoServed("true")), 201, nil},
		{"POST " + things, labelled, 201, nil},
	})
	leaves, all := watch(t, c, things2+"?watch=true&labelSelector=l%3Don"), watch(t, c, things2+"?watch=true")
	if !leaves.Scan() || !all.Scan() {
		t.Fatal(leaves.Err(), all.Err())
	}
	run(t, c, []step{{"MERGE " + things + "/a", `{"metadata":{"labels":{"l":"off"}},"spec":{"n":2}}`, 200, nil}})
	if !leaves.Scan() || !strings.Contains(leaves.Text(), `"DELETED"`) || !strings.Contains(leaves.Text(), `"n":1`) {
		t.Errorf("the object that left: %s", leaves.Text())
	}
	if !all.Scan() || !strings.Contains(all.Text(), `"MODIFIED"`) || !strings.Contains(all.Text(), `"n":2`) {
		t.Errorf("a watch of all: %s", all.Text())
	}
	run(t, c, []step{{"GET " + things2 + "/a", "", 200, values{"spec": `{"n":2}`, "metadata.labels.l": `"off"`}}})
}
