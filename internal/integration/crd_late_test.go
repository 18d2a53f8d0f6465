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

// TestObjectAfterItsDefinition checks that an object whose body arrives after its definition
// was deleted is not stored.
func TestObjectAfterItsDefinition(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{{"POST " + definitions, definition(`"n":{"type":"integer"}`, ""), 201, nil}})
	tls, err := rest.TLSConfigFor(c)
	if err != nil {
		t.Fatal(err)
	}
	// The client sends the body when the server asks for it, which has looked up the kind then.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ExpectContinueTimeout: time.Minute}}
	defer client.CloseIdleConnections()
	gone := func() {
		run(t, c, []step{{"DELETE " + definitions + "/things.example.com", "", 200, nil}})
		waitGone(t, c)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Host+things, &waitingBody{gone, strings.NewReader(thing("late", `{"n":1}`))})
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+c.BearerToken)
	r.Header.Set("Expect", "100-continue")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("an object without a definition: %s, want 404", answer.Status)
	}
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`, ""), 201, nil},
		{"GET " + things + "/late", "", 404, nil},
	})
}
