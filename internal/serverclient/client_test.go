package serverclient_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/serverclient"
)

// TestDo sends requests to a server that responds as Tidemark does, and as other servers do.
func TestDo(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the fork is in use","reason":"Conflict"}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/base/ok":
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, strings.Join([]string{r.Method, r.URL.RawQuery, r.Header.Get("Content-Type"), r.Header.Get("Authorization"), string(body)}, " "))
		case "/base/conflict":
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, status)
		case "/base/proxy":
			w.WriteHeader(http.StatusBadGateway)
			io.WriteString(w, "<html>")
		case "/base/long":
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"message":"`+strings.Repeat("x", 2<<20)+`"}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	c, err := serverclient.New(&rest.Config{Host: s.URL + "/base/", BearerToken: "token", Timeout: 1})
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(t.Context(), http.MethodPost, "/ok?a=b", "application/json", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "POST a=b application/json Bearer token {}" {
		t.Errorf("the request was %q, %v", body, err)
	}
	for path, want := range map[string]struct {
		code    int32
		message string
	}{
		"/conflict":         {http.StatusConflict, "the fork is in use"},
		"/proxy?key=hidden": {http.StatusBadGateway, c.URL + " responds to GET /proxy with 502 Bad Gateway"},
		"/other?key=hidden": {http.StatusNotFound, c.URL + " responds to GET /other with 404 Not Found: it does not have this path, or is no tidemark"},
		"/long":             {http.StatusConflict, c.URL + " responds to GET /long with 409 Conflict"},
	} {
		_, err := c.Do(t.Context(), http.MethodGet, path, "", nil)
		if wrong, ok := err.(*apierrors.StatusError); !ok || wrong.ErrStatus.Code != want.code || wrong.ErrStatus.Message != want.message {
			t.Errorf("%s: %v, want %d %s", path, err, want.code, want.message)
		}
	}
	s.Close()
	if _, err := c.Do(t.Context(), http.MethodGet, "/ok", "", nil); err == nil || apierrors.ReasonForError(err) != "" {
		t.Errorf("a server that is down: %v, want an error that is no Status", err)
	}
}
