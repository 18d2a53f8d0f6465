package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const changesPath = "/apis/tidemark.dev/v1/changes"

// commitSecret stores a version of a Secret in the collection.
func commitSecret(t *testing.T, s *store.Store, collection, text string, before store.Revision) store.Revision {
	t.Helper()
	const head = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"default","uid":"u","resourceVersion":"`
	o, err := s.Commit(t.Context(), store.Write{
		Collection: collection, Key: "default/s", RevisionAt: len(head), Value: []byte(head + `"},"data":{"k":"` + text + `"}}`), If: before,
	})
	if err != nil {
		t.Fatal(err)
	}
	return o.Modified
}

// TestAuditChanges: audit events of changes have no objects of the response, because the policy may have a lower level for the
// objects that have changed. A refused request has the decision.
func TestAuditChanges(t *testing.T) {
	const canary = "Y2FuYXJ5"
	s, events := startAudited(t, wiring{})
	commitSecret(t, s.store, "secrets", canary, 0)
	get := func(token, query, accept string) string {
		r, err := http.NewRequest("GET", s.URL+changesPath+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Accept", accept)
		resp, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var text strings.Builder
		if err := resp.Write(&text); err != nil {
			t.Fatal(err)
		}
		if token == "editor" && resp.StatusCode != http.StatusOK {
			t.Fatal(resp.StatusCode, text.String())
		}
		return text.String()
	}
	for _, query := range []string{"", "?fieldSelector=resource%3Dsecrets", "?fieldSelector=resource%3Dsecrets,name%3Ds,metadata.namespace%3Ddefault"} {
		if text := get("editor", query, "application/json"); !strings.Contains(text, canary) {
			t.Errorf("the response has no Secret: %s", text)
		}
		get("editor", query, "application/json;as=Table;g=meta.k8s.io;v=v1")
		get("editor", query, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	}
	get("bob", "", "application/json")
	refused := 0
	for _, all := range events() {
		for id, of := range all {
			for _, e := range of {
				if text, _ := json.Marshal(e); strings.Contains(string(text), canary) || strings.Contains(string(text), "data.k") || e.ObjectRef.Resource == "" {
					t.Errorf("the event %s of %s is %s", id, e.RequestURI, text)
				}
				if e.User.Username == "bob" && e.Annotations["authorization.k8s.io/decision"] == "forbid" {
					refused++
				}
			}
		}
	}
	if refused == 0 {
		t.Error("no event has the decision of the refused request")
	}
}

// TestChangesOfGoneDefinition: a page of changes reads a definition that is gone once for each of its versions, not once for
// each change.
func TestChangesOfGoneDefinition(t *testing.T) {
	const collection, versions, each = "gones.example.com", 3, 40
	st := newStore(t)
	c := newConfig(st)
	var made []store.Revision // of the versions of the definition
	reads := 0
	c.PastType = func(_ context.Context, definition string, r store.Revision, _ func(store.Revision) *resource.Type) (*resource.Type, store.Revision, error) {
		if definition != collection {
			t.Errorf("the definition %s is read", definition)
		}
		reads++
		for i := len(made) - 1; i >= 0; i-- {
			if made[i] <= r {
				return builtin.Catalog().Lookup("", "v1", "secrets"), made[i], nil
			}
		}
		return nil, 0, nil
	}
	at, last := store.Revision(0), store.Revision(0)
	for i := range versions {
		last = commitSecret(t, st, "customresourcedefinitions.apiextensions.k8s.io", fmt.Sprint(i), last)
		made = append(made, last)
		for i := range each {
			at = commitSecret(t, st, collection, fmt.Sprint(i), at)
		}
	}
	h := httpapi.New(c)
	r := httptest.NewRequest("GET", changesPath+"?limit=1000&fieldSelector=resource%3D"+collection, nil)
	r.Header.Set("Authorization", "Bearer admin")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var l changes.ChangeList
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != http.StatusOK || len(l.Items) != versions*each {
		t.Fatalf("%d, %v: %d changes", w.Code, err, len(l.Items))
	}
	if reads > versions {
		t.Errorf("the definition is read %d times for %d changes", reads, len(l.Items))
	}
}

// TestWatchesOfChangesWait: between two changes a watch sleeps, with and without bookmarks. One that does not sleep never
// lets the time of the bubble go on.
func TestWatchesOfChangesWait(t *testing.T) {
	for query, bookmarks := range map[string]int{
		"": 0, "&allowWatchBookmarks=true": 3, // after 60 and 120 s, and 2 s before the end
	} {
		t.Run(query, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := filled(t, 1, 10)
				began := time.Now()
				r := serve(h, "GET", changesPath+"?watch=true&timeoutSeconds=150"+query, "")
				if got := time.Since(began); r.Code != 200 || got != 150*time.Second {
					t.Errorf("%d after %v", r.Code, got)
				}
				if n := strings.Count(r.Body.String(), `"type":"BOOKMARK"`); n != bookmarks {
					t.Errorf("%d bookmarks, want %d: %s", n, bookmarks, r.Body)
				}
			})
		})
	}
}
