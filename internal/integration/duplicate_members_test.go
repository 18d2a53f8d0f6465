package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestDuplicates checks members that occur twice in a body, in each format, as
// docs/compatibility.md describes it.
func TestDuplicates(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}})
	c := s.RESTConfig()
	h := servertest.Client(t, c)
	const yaml = "application/yaml"
	twice := map[string]string{ // what follows `"metadata":{"name":"a"},`
		"a value":   `"data":{"k":"1","k":"2"}`,
		"an object": `"data":{"a":"1"},"data":{"b":"2"}`,
		"null":      `"data":{"a":"1"},"data":null`,
		"a list":    `"metadata":{"name":"a","finalizers":["a.b/c","a.b/d"],"finalizers":["a.b/e"]}`,
		"a struct":  `"metadata":{"labels":{"a":"1"}},"metadata":{"name":"a","labels":{"b":"2"}}`,
	}
	last := map[string]string{ // of two the last one counts
		"a value": `{"k":"2"}`, "an object": `{"b":"2"}`, "null": `null`, "a list": `["a.b/e"]`, "a struct": `{"b":"2"}`,
	}
	merged := map[string]string{ // JSON of objects: their members are put together
		"a value": `{"k":"2"}`, "an object": `{"a":"1","b":"2"}`, "null": `null`, "a list": `["a.b/e"]`, "a struct": `{"a":"1","b":"2"}`,
	}
	formats := []struct {
		method, media string
		want          map[string]string
	}{
		{"POST", asJSON, merged},
		{"POST", yaml, last},
		{"PUT", asJSON, merged},
		{"PUT", yaml, last},
		{"PATCH", asMerge, last},
		{"PATCH", asStrategic, last},
		{"PATCH", asApply, last},
	}
	for _, f := range formats {
		for name, members := range twice {
			for level, code := range map[string]int{"": 200, "Ignore": 200, "Strict": 400} {
				path := configMaps
				if f.method != "POST" {
					path += "/a"
					send(t, h, "POST", c.Host+configMaps, `{"metadata":{"name":"a"}}`)
				} else if code == 200 {
					code = 201
				}
				head := `{"kind":"ConfigMap","apiVersion":"v1",`
				if !strings.Contains(members, "metadata") {
					head += `"metadata":{"name":"a"},`
				}
				resp := call{f.method, c.Host + path + "?fieldManager=m&fieldValidation=" + level, f.media, head + members + "}"}.send(t, h)
				got, err := survivor(resp, name)
				what := fmt.Sprintf("%s %s, %s, %q", f.method, f.media, name, level)
				if err != nil || resp.StatusCode != code || code < 300 && got != f.want[name] {
					t.Errorf("%s: %d %s %v, want %d %s", what, resp.StatusCode, got, err, code, f.want[name])
				}
				if warned := len(resp.Header["Warning"]) > 0; warned != (level == "") {
					t.Errorf("%s: warnings %q", what, resp.Header["Warning"])
				}
				send(t, h, "DELETE", c.Host+configMaps+"/a", "")
				call{"PATCH", c.Host + configMaps + "/a", asMerge, `{"metadata":{"finalizers":null}}`}.send(t, h).Body.Close()
			}
		}
	}
}

// survivor returns the value in the response for the member that was sent twice.
func survivor(resp *http.Response, name string) (string, error) {
	defer resp.Body.Close()
	var o struct {
		Metadata struct {
			Labels     map[string]string
			Finalizers []string
		}
		Data map[string]string
	}
	if err := json.NewDecoder(resp.Body).Decode(&o); err != nil {
		return "", err
	}
	var got any = o.Data
	switch name {
	case "a list":
		got = o.Metadata.Finalizers
	case "a struct":
		got = o.Metadata.Labels
	}
	if reflect.ValueOf(got).Len() == 0 {
		return "null", nil
	}
	text, err := json.Marshal(got)
	return string(text), err
}

// TestDuplicateOperations checks that the last member of a JSON patch operation
// counts, and that warnings name duplicates in the patch and in its result.
func TestDuplicateOperations(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}})
	c := s.RESTConfig()
	h := servertest.Client(t, c)
	create[map[string]any](t, c, configMaps, `{"metadata":{"name":"a"}}`)
	resp := call{"PATCH", c.Host + configMaps + "/a", asJSONPatch, `[{"op":"add","path":"/data","value":{"k":"1"},"value":{"l":"1","l":"2"}}]`}.send(t, h)
	got, err := survivor(resp, "")
	if err != nil || got != `{"l":"2"}` {
		t.Errorf("%s, %v", got, err)
	}
	want := []string{`299 - "json patch duplicate field \"[0].value\""`, `299 - "json patch duplicate field \"[0].value.l\""`, `299 - "duplicate field \"data.l\""`}
	if !reflect.DeepEqual(resp.Header["Warning"], want) {
		t.Errorf("warnings %q, want %q", resp.Header["Warning"], want)
	}
}
