package integration_test

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// manyVersions returns a definition of many versions.
func manyVersions(i, n int) string {
	var versions []string
	for v := range n {
		versions = append(versions, fmt.Sprintf(`{"name":"v%d","served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object"}}}`, v+1, v == 0))
	}
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"as.g%[1]d.example.com"},"spec":{"group":"g%[1]d.example.com",`+
		`"scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[%[2]s]}}`, i, strings.Join(versions, ","))
}

// TestRoomForDefinitions creates definitions until they reach the limit for all definitions together. Then a definition can
// be changed, and lose versions, but not get more. Several clients do not get more than one does.
func TestRoomForDefinitions(t *testing.T) {
	before := debug.SetMemoryLimit(1 << 30) // an eighth of it is the limit
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	debug.SetMemoryLimit(before)
	const most = 50
	var created [most]bool
	var refusals [4]string
	var clients sync.WaitGroup
	for k := range refusals {
		clients.Go(func() {
			for i := k; i < most && refusals[k] == ""; i += len(refusals) {
				code, _, body := exchange(t, c, http.MethodPost, definitions, manyVersions(i, 100))
				if created[i] = code == http.StatusCreated; !created[i] {
					refusals[k] = fmt.Sprint(code, " ", string(body))
				}
			}
		})
	}
	clients.Wait()
	var all []int
	for i := range created {
		if created[i] {
			all = append(all, i)
		}
	}
	if len(all) != 27 { // in 128 MiB, with 100 times 48 KiB
		t.Fatalf("%d definitions of 100 versions were created", len(all))
	}
	for _, refusal := range refusals {
		if !strings.HasPrefix(refusal, "403 ") || !strings.Contains(refusal, `"reason":"Forbidden"`) || !strings.Contains(refusal, "all definitions together would have") {
			t.Errorf("the definition beyond the limit: %s", refusal)
		}
	}
	last := all[26]
	one, other := fmt.Sprintf("%s/as.g%d.example.com", definitions, last), fmt.Sprintf("%s/as.g%d.example.com", definitions, all[0])
	run(t, c, []step{
		{"MERGE " + one, `{"metadata":{"labels":{"a":"b"}}}`, 200, nil},
		{"MERGE " + one, `{"spec":` + versionsSpec(manyVersions(last, 50)) + `}`, 200, nil},
		{"MERGE " + one, `{"spec":` + versionsSpec(manyVersions(last, 100)) + `}`, 200, nil}, // back to the previous versions
		{"DELETE " + other, "", 200, nil},
	})
	await.True(t, "the removal of the definition", func() bool {
		code, _, _ := exchange(t, c, http.MethodGet, other, "")
		return code == http.StatusNotFound
	})
	run(t, c, []step{
		{"POST " + definitions, manyVersions(most, 100), 201, nil},
		{"POST " + definitions, manyVersions(most+1, 20), 201, nil}, // the rest
	})
	grown := strings.Replace(manyVersions(last, 100), `{"type":"object"}`, `{"type":"object","description":"`+strings.Repeat("x", 1<<20)+`"}`, 1)
	if code, _, _ := exchange(t, c, "MERGE", one, `{"spec":`+versionsSpec(grown)+`}`); code != http.StatusForbidden {
		t.Errorf("a schema that exceeds the limit: %d, want 403", code)
	}
}

// versionsSpec returns the spec of a definition of manyVersions.
func versionsSpec(definition string) string {
	_, spec, _ := strings.Cut(definition, `"spec":`)
	return strings.TrimSuffix(spec, "}")
}
