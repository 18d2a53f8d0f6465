package integration_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// waitingBody is a body that calls begun when the server asks for it.
type waitingBody struct {
	begun func()
	io.Reader
}

// Read implements io.Reader.
func (b *waitingBody) Read(p []byte) (int, error) {
	if b.begun != nil {
		b.begun()
		b.begun = nil
	}
	return b.Reader.Read(p)
}

// late sends a request whose body arrives after meanwhile was called, and returns the code of the response. The server
// has looked up the kind before.
func late(t *testing.T, c *rest.Config, method, path, body string, meanwhile func()) int {
	t.Helper()
	tls, err := rest.TLSConfigFor(c)
	if err != nil {
		t.Fatal(err)
	}
	// The client sends the body when the server asks for it.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ExpectContinueTimeout: time.Minute}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, &waitingBody{meanwhile, strings.NewReader(body)})
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	r.Header.Set("Authorization", "Bearer "+c.BearerToken)
	r.Header.Set("Expect", "100-continue")
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// TestObjectAfterItsDefinition checks that an object whose body arrives after its definition
// was deleted is not stored.
func TestObjectAfterItsDefinition(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{{"POST " + definitions, definition(`"n":{"type":"integer"}`, ""), 201, nil}})
	code := late(t, c, http.MethodPost, things, thing("late", `{"n":1}`), func() {
		run(t, c, []step{{"DELETE " + definitions + "/things.example.com", "", 200, nil}})
		waitGone(t, c)
	})
	if code != http.StatusNotFound {
		t.Errorf("an object without a definition: %d, want 404", code)
	}
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`, ""), 201, nil},
		{"GET " + things + "/late", "", 404, nil},
	})
}

// TestObjectOfTheFormerDefinition sends bodies that arrive after the definition was deleted and made again with
// another schema. An object that was read by the former schema is not stored among those of the new one.
func TestObjectOfTheFormerDefinition(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, nil}})
	for _, request := range []struct{ method, path, body string }{
		{http.MethodPost, things, thing("late", `{"n":1}`)},
		{http.MethodPatch, things + "/a", `{"spec":{"n":1}}`},
	} {
		run(t, c, []step{{"POST " + things, thing("a", `{"n":0}`), 201, nil}})
		code := late(t, c, request.method, request.path, request.body, func() {
			run(t, c, []step{{"DELETE " + definitions + "/things.example.com", "", 200, nil}})
			waitGone(t, c)
			run(t, c, []step{
				{"POST " + definitions, definition(`"text":{"type":"string"}`), 201, nil},
				{"POST " + things, thing("a", `{"text":"new"}`), 201, nil},
			})
		})
		if code != http.StatusNotFound {
			t.Errorf("%s of the former kind: %d, want 404", request.method, code)
		}
		run(t, c, []step{
			{"GET " + things + "/late", "", 404, nil},
			{"GET " + things + "/a", "", 200, values{"spec": `{"text":"new"}`}},
			{"DELETE " + definitions + "/things.example.com", "", 200, nil},
		})
		waitGone(t, c)
		run(t, c, []step{{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, nil}})
	}
}
