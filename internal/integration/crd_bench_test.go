package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// largeDefinition returns a definition with n properties (strings, numbers and lists)
// and a rule, like those generated from cloud APIs.
func largeDefinition(i, n int) string {
	const text = "What the provider makes of this field, which values it takes, its default, and what happens to what is there already."
	var properties strings.Builder
	for p := range n {
		of := []string{`"type":"string"`, `"type":"number"`, `"type":"boolean"`, `"type":"array","items":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}}`}[p%4]
		fmt.Fprintf(&properties, `"field%d":{"description":%q,%s},`, p, text, of)
	}
	return fmt.Sprintf(`{"metadata":{"name":"bigs%d.group%d.example.com"},"spec":{"group":"group%[2]d.example.com","scope":"Cluster","names":{"plural":"bigs%[1]d","kind":"Big%[1]d"},
		"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","required":["field0"],"x-kubernetes-validations":[{"rule":"self.field0 != 'no' || has(self.field2)"}],"properties":{%[3]s"policy":{"type":"string","default":"Delete","enum":["Delete","Orphan"]}}},
		"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`, i, i%20, properties.String())
}

func largeObject(definition int, name string) string {
	return fmt.Sprintf(`{"apiVersion":"group%d.example.com/v1","kind":"Big%d","metadata":{"name":%q},"spec":{"field0":"a","field1":1.5,"field2":true,"field3":[{"a":"x","b":1},{"a":"y"}],"field4":"b"}}`,
		definition%20, definition, name)
}

// posting returns a function that creates objects.
func posting(b *testing.B, c *rest.Config) func(path, body string) {
	b.Helper()
	client := servertest.Client(b, c)
	return func(path, body string) {
		if code, text := send(b, client, http.MethodPost, c.Host+path, body); code != http.StatusCreated {
			b.Fatalf("%d %s", code, text)
		}
	}
}

// BenchmarkDefinition stores definitions with 200 properties, and the first object of
// each.
func BenchmarkDefinition(b *testing.B) {
	s := &tidemark.Server{Storage: &datadir.Dir{Path: b.TempDir()}}
	if err := s.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	post := posting(b, s.RESTConfig())
	i := 0
	for b.Loop() {
		post(definitions, largeDefinition(i, 200))
		post(fmt.Sprintf("/apis/group%d.example.com/v1/bigs%d", i%20, i), largeObject(i, "a"))
		i++
	}
}

// BenchmarkCustomCreate stores objects of a definition with 200 properties.
func BenchmarkCustomCreate(b *testing.B) {
	s := &tidemark.Server{Storage: &datadir.Dir{Path: b.TempDir()}}
	if err := s.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	post := posting(b, s.RESTConfig())
	post(definitions, largeDefinition(0, 200))
	i := 0
	for b.Loop() {
		post("/apis/group0.example.com/v1/bigs0", largeObject(0, fmt.Sprint("a", i)))
		i++
	}
}
