package crds

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

const cornerGroup = "corners.tidemark.example.net"

// corner is a definition of a kind of its own in the cluster.
type corner struct {
	sender
	t              *testing.T
	at, things     string
	kind, resource string
}

// parsed is JSON as it is written in a test.
func parsed(t testing.TB, text string) (o tree) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

func (c *corner) body(schema string, status bool) tree {
	version := tree{"name": "v1", "served": true, "storage": true, "schema": tree{"openAPIV3Schema": parsed(c.t, schema)}}
	if status {
		version["subresources"] = tree{"status": tree{}}
	}
	return tree{"metadata": tree{"name": c.resource + "." + cornerGroup}, "spec": tree{
		"group": cornerGroup, "scope": "Cluster", "names": tree{"plural": c.resource, "kind": c.kind}, "versions": []any{version},
	}}
}

// define makes the definition, and waits until a server that takes its time serves it.
func (c *corner) define(schema string, status bool) {
	c.t.Helper()
	got := c.send(c.t, request{"POST", definitions, "", c.body(schema, status)})
	if got.code != http.StatusCreated {
		c.t.Fatalf("the definition: %d %v", got.code, got.body["message"])
	}
	c.t.Cleanup(func() { c.send(c.t, request{"DELETE", c.at, "", nil}) })
	c.until(func() bool { return c.send(c.t, request{"GET", c.things, "", nil}).code == http.StatusOK })
}

func (c *corner) until(done func() bool) {
	c.t.Helper()
	err := wait.PollUntilContextTimeout(c.t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		c.t.Fatal(err)
	}
}

// object returns an object of the corner's kind with the members of rest.
func (c *corner) object(name, rest string) tree {
	o := parsed(c.t, rest)
	o["apiVersion"], o["kind"] = cornerGroup+"/v1", c.kind
	metadata, ok := o["metadata"].(tree)
	if !ok {
		metadata = tree{}
		o["metadata"] = metadata
	}
	metadata["name"] = name
	return o
}

// must sends a request, and ends the test if the response has another code.
func (c *corner) must(code int, r request) response {
	c.t.Helper()
	got := c.send(c.t, r)
	if got.code != code {
		c.t.Fatalf("%s %s: %d %v, want %d", r.method, r.path, got.code, got.body["message"], code)
	}
	return got
}

// corners runs a test on each server, with a kind of its own.
func corners(t *testing.T, test func(c *corner)) {
	servers.Each(t, func(t *testing.T, s servers.Server) {
		n := time.Now().UnixNano()
		c := &corner{sender: newSender(t, s.Config), t: t, kind: fmt.Sprintf("Corner%d", n), resource: fmt.Sprintf("corner%ds", n)}
		c.at, c.things = definitions+"/"+c.resource+"."+cornerGroup, "/apis/"+cornerGroup+"/v1/"+c.resource
		test(c)
	})
}

const merged = "application/merge-patch+json"

// TestStatusDefaultIsNotChecked: the status that a schema has for new objects is theirs
// from the first read on, but rules at creation do not see it, nor do limits.
func TestStatusDefaultIsNotChecked(t *testing.T) {
	tier.Full(t)
	corners(t, func(c *corner) {
		c.define(`{"type":"object","x-kubernetes-validations":[{"rule":"!has(self.status)"}],"properties":{
			"spec":{"type":"object"},"status":{"type":"object","default":{},"maxProperties":0,"properties":{"p":{"type":"string","default":"x"}}}}}`, true)
		got := c.must(http.StatusCreated, request{"POST", c.things, "", c.object("a", `{}`)})
		if status, ok := got.body["status"].(tree); !ok || status["p"] != "x" {
			t.Errorf("the status is %v", got.body["status"])
		}
		got = c.must(http.StatusUnprocessableEntity, request{"PATCH", c.things + "/a", merged, tree{"metadata": tree{"labels": tree{"a": "b"}}, "spec": tree{}}})
	})
}

// TestRulesCompareMetadata: a rule that compares an object as a whole sees all of its
// metadata.
func TestRulesCompareMetadata(t *testing.T) {
	tier.Full(t)
	for _, rule := range []string{"self == oldSelf", "self.metadata == oldSelf.metadata"} {
		corners(t, func(c *corner) {
			c.define(fmt.Sprintf(`{"type":"object","x-kubernetes-validations":[{"rule":%q,"message":"changed"}],"properties":{"spec":{"type":"object","properties":{"n":{"type":"integer"}}}}}`, rule), false)
			c.must(http.StatusCreated, request{"POST", c.things, "", c.object("a", `{"metadata":{"labels":{"x":"y"}},"spec":{"n":1}}`)})
			for _, change := range []string{`{"metadata":{"labels":{"x":"z"}}}`, `{"metadata":{"annotations":{"x":"z"}}}`, `{"metadata":{"finalizers":["a.example/b"]}}`} {
				got := c.must(http.StatusUnprocessableEntity, request{"PATCH", c.things + "/a", merged, parsed(t, change)})
				if v := got.verdict().text(); v != `invalid: ["FieldValueInvalid","Invalid value: changed","\u003cnil\u003e"]` {
					t.Errorf("%s: %s", change, v)
				}
			}
			c.must(http.StatusOK, request{"PATCH", c.things + "/a", merged, tree{"spec": tree{"n": 1}}})
		})
	}
}

// TestOldEmbeddedMetadata: objects that were stored before one of their members became an
// embedded resource can be read. Invalid metadata in that member is dropped.
func TestOldEmbeddedMetadata(t *testing.T) {
	tier.Full(t)
	corners(t, func(c *corner) {
		c.define(`{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`, false)
		c.must(http.StatusCreated, request{"POST", c.things, "", c.object("a", `{"spec":{"inner":{"apiVersion":1,"kind":{"x":1},"metadata":{"name":5,"labels":{"a":1,"b":"c"},"annotations":[],"what":1},"x":1}}}`)})
		next := c.body(`{"type":"object","properties":{"spec":{"type":"object","properties":{"inner":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}}`, false)
		c.must(http.StatusOK, request{"PATCH", c.at, merged, tree{"spec": tree{"versions": next["spec"].(tree)["versions"]}}})
		want := `{"inner":{"metadata":{},"x":1}}`
		var got response
		c.until(func() bool {
			got = c.send(c.t, request{"GET", c.things + "/a", "", nil})
			return marshal(got.body["spec"]) == want || got.code != http.StatusOK
		})
		if got.code != http.StatusOK {
			t.Errorf("GET: %d %v", got.code, got.body["message"])
		}
		list := c.must(http.StatusOK, request{"GET", c.things, "", nil})
		if items := list.body["items"].([]any); marshal(items[0].(tree)["spec"]) != want {
			t.Errorf("the list has %s, want %s", marshal(items[0]), want)
		}
		got = c.must(http.StatusUnprocessableEntity, request{"PATCH", c.things + "/a", merged, tree{"metadata": tree{"labels": tree{"a": "b"}}}})
		if v := got.verdict().text(); v != `invalid: ["FieldValueRequired","Required value","spec.inner.apiVersion"] ["FieldValueRequired","Required value","spec.inner.kind"]` {
			t.Error(v)
		}
	})
}

// TestDefaultsOfOtherVersion: a read in a version other than the stored one applies the
// defaults of the stored version only. A write in that version applies its own defaults too,
// even an empty patch.
func TestDefaultsOfOtherVersion(t *testing.T) {
	tier.Full(t)
	corners(t, func(c *corner) {
		body := c.body(`{"type":"object","properties":{"spec":{"type":"object","properties":{"m":{"type":"integer","default":3},"n":{"type":"integer"}}}}}`, false)
		second := clone(body["spec"].(tree)["versions"].([]any)[0].(tree))
		second["name"], second["storage"] = "v2", false
		second["schema"] = parsed(t, `{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","default":{},"properties":{"m":{"type":"integer"},"n":{"type":"integer","default":7}}}}}}`)
		body["spec"].(tree)["versions"] = append(body["spec"].(tree)["versions"].([]any), second)
		c.must(http.StatusCreated, request{"POST", definitions, "", body})
		c.t.Cleanup(func() { c.send(c.t, request{"DELETE", c.at, "", nil}) })
		second2 := strings.Replace(c.things, "/v1/", "/v2/", 1)
		for _, path := range []string{c.things, second2} {
			c.until(func() bool { return c.send(c.t, request{"GET", path, "", nil}).code == http.StatusOK })
		}
		is := func(what string, got response, want string) {
			c.t.Helper()
			if text := marshal(got.body["spec"]); text != want {
				c.t.Errorf("%s: %s, want %s", what, text, want)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			is("POST", c.must(http.StatusCreated, request{"POST", c.things, "", c.object(name, `{}`)}), "null")
			is("GET", c.must(http.StatusOK, request{"GET", second2 + "/" + name, "", nil}), "null")
		}
		is("merge", c.must(http.StatusOK, request{"PATCH", second2 + "/a", merged, tree{}}), `{"m":3,"n":7}`)
		is("JSON patch", c.must(http.StatusOK, request{"PATCH", second2 + "/b", "application/json-patch+json", []any{}}), `{"m":3,"n":7}`)
		o := c.object("c", `{}`)
		o["apiVersion"] = cornerGroup + "/v2"
		is("apply", c.must(http.StatusOK, request{"PATCH", second2 + "/c?fieldManager=x", applied, o}), "null")
		o["metadata"].(tree)["name"] = "d"
		is("POST", c.must(http.StatusCreated, request{"POST", second2, "", o}), `{"m":3,"n":7}`)
		for _, name := range []string{"a", "b", "d"} {
			is("GET "+name, c.must(http.StatusOK, request{"GET", c.things + "/" + name, "", nil}), `{"m":3,"n":7}`)
		}
		is("GET c", c.must(http.StatusOK, request{"GET", c.things + "/c", "", nil}), "null")
	})
}

// TestToleratedIsTold: responses mention tolerated old errors of an object: on updates of the
// object, on updates of its status, and on requests that are refused for another reason.
func TestToleratedIsTold(t *testing.T) {
	tier.Full(t)
	corners(t, func(c *corner) {
		schema := func(rule string) string {
			return fmt.Sprintf(`{"type":"object","properties":{"spec":{"type":"object","properties":{"n":{"type":"integer"%s},"m":{"type":"integer","maximum":5}}},"status":{"type":"object","properties":{"x":{"type":"integer","maximum":5}}}}}`, rule)
		}
		c.define(schema(""), true)
		c.must(http.StatusCreated, request{"POST", c.things, "", c.object("a", `{"spec":{"n":9}}`)})
		next := c.body(schema(`,"x-kubernetes-validations":[{"rule":"self < 5"}]`), true)
		c.must(http.StatusOK, request{"PATCH", c.at, merged, tree{"spec": tree{"versions": next["spec"].(tree)["versions"]}}})
		c.until(func() bool {
			return c.send(c.t, request{"POST", c.things + "?dryRun=All", "", c.object("b", `{"spec":{"n":9}}`)}).code == http.StatusUnprocessableEntity
		})
		for _, row := range []struct {
			path, change string
			code         int
		}{
			{"/a", `{"spec":{"m":1}}`, http.StatusOK}, {"/a", `{"spec":{"m":7}}`, http.StatusUnprocessableEntity},
			{"/a/status", `{"status":{"x":1}}`, http.StatusOK}, {"/a/status", `{"status":{"x":7}}`, http.StatusUnprocessableEntity},
		} {
			got := c.must(row.code, request{"PATCH", c.things + row.path, merged, parsed(t, row.change)})
			if len(got.warnings) != 1 || !strings.Contains(got.warnings[0], "spec.n: Invalid value: 9: failed rule: self < 5") {
				c.t.Errorf("%s of %s warns of %q", row.change, row.path, got.warnings)
			}
		}
	})
}

// TestListSaysContinue: a list of custom resources says that it does not go on, which
// others leave out.
func TestListSaysContinue(t *testing.T) {
	tier.Full(t)
	corners(t, func(c *corner) {
		c.define(`{"type":"object"}`, false)
		for n := range 3 {
			for _, query := range []string{"", "?limit=1"} {
				metadata := c.must(http.StatusOK, request{"GET", c.things + query, "", nil}).body["metadata"].(tree)
				text, ok := metadata["continue"].(string)
				if !ok || (text != "") != (query != "" && n > 1) {
					c.t.Errorf("the metadata of a list of %d with %q is %v", n, query, metadata)
				}
			}
			c.must(http.StatusCreated, request{"POST", c.things, "", c.object(fmt.Sprint("o", n), `{}`)})
		}
	})
}

// TestWholeIsNotTolerated checks that an object that violates a rule of the whole object is
// rejected with the next write, even a no-op: each write changes its metadata.
func TestWholeIsNotTolerated(t *testing.T) {
	tier.Full(t)
	corners(t, func(c *corner) {
		c.define(`{"type":"object","properties":{"spec":{"type":"object"}}}`, false)
		c.must(http.StatusCreated, request{"POST", c.things, "", c.object("a", `{}`)})
		next := c.body(`{"type":"object","x-kubernetes-validations":[{"rule":"has(self.spec)"}],"properties":{"spec":{"type":"object"}}}`, false)
		c.must(http.StatusOK, request{"PATCH", c.at, merged, tree{"spec": tree{"versions": next["spec"].(tree)["versions"]}}})
		c.until(func() bool {
			return c.send(c.t, request{"POST", c.things + "?dryRun=All", "", c.object("b", `{}`)}).code == http.StatusUnprocessableEntity
		})
		for _, r := range []request{
			{"PATCH", c.things + "/a", merged, tree{}},
			{"PATCH", c.things + "/a", merged, parsed(t, `{"metadata":{"labels":{"a":"b"}}}`)},
			{"PUT", c.things + "/a", "", c.send(t, request{"GET", c.things + "/a", "", nil}).body},
		} {
			c.must(http.StatusUnprocessableEntity, r)
		}
	})
}
