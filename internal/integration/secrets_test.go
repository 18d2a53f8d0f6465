package integration_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// canary is the secret that must not appear.
const canary = "c4n4ry"

// TestNothingSecretIsLogged sends secrets in valid and invalid requests of every
// kind. None may appear in the log, at any level, or in the metrics.
func TestNothingSecretIsLogged(t *testing.T) {
	var logged servertest.Buffer
	s := servertest.Start(t, &tidemark.Server{Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug - 100}))})
	c := s.RESTConfig()
	h := servertest.Client(t, c)
	const secrets = "/api/v1/namespaces/default/secrets"
	const value = `{"stringData":{"k":"` + canary + `"}}`
	named := strings.Replace(value, "{", `{"metadata":{"name":"a"},`, 1)
	requests := []call{
		{"POST", secrets, asJSON, named},
		{"POST", secrets, asJSON, named},
		{"POST", secrets, asJSON, canary},
		{"POST", secrets + "?fieldValidation=Strict", asJSON, strings.Replace(named, "stringData", canary, 1)},
		{"POST", secrets, "application/yaml", "stringData: [" + canary + "]"},
		{"POST", secrets, "application/vnd.kubernetes.protobuf", "k8s\x00" + canary},
		{"POST", "/api/v1/namespaces/gone/secrets", asJSON, named},
		{"PUT", secrets + "/a", asJSON, named},
		{"PATCH", secrets + "/a", asMerge, value},
		{"PATCH", secrets + "/a", asStrategic, value},
		{"PATCH", secrets + "/a", asMerge, `{"data":{"k":["` + canary + `"]}}`},
		{"PATCH", secrets + "/a?fieldValidation=Strict", asMerge, `{"` + canary + `":1}`},
		{"PATCH", secrets + "/a", asJSONPatch, `[{"op":"test","path":"/data/k","value":"` + canary + `"}]`},
		{"PATCH", secrets + "/a?fieldManager=m&force=true", asApply, `{"kind":"Secret","apiVersion":"v1",` + named[1:]},
		{"PATCH", secrets + "/a?fieldManager=n", asApply, `{"kind":"Secret","apiVersion":"v1",` + named[1:]},
		{"PATCH", secrets + "/a?fieldManager=n", asApply, canary},
		{"DELETE", secrets + "/a", asJSON, `{"kind":"` + canary + `"}`},
		{"DELETE", secrets, asJSON, ""},
		{"POST", tokenReviews, asJSON, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"` + canary + `"}}`},
		{canary, "/" + canary, asJSON, ""},
	}
	for _, r := range requests {
		r.url = c.Host + r.url
		r.send(t, h).Body.Close()
	}
	wrong := rest.CopyConfig(servertest.WithToken(s, canary))
	servertest.WantCode(t, wrong, secrets, http.StatusUnauthorized, "Unauthorized")
	if _, metrics := servertest.Get(t, c, "/metrics"); strings.Contains(metrics, canary) {
		t.Error("a metric has what a client sent")
	}
	if logged.String() == "" {
		t.Error("nothing was logged at all")
	}
	for line := range strings.Lines(logged.String()) {
		if strings.Contains(line, canary) {
			t.Errorf("logged: %s", line)
		}
	}
}

// TestNeighbours checks that changes of a namespace or an object do not affect others
// whose names have the same prefix, or look like a path below it.
func TestNeighbours(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	c := s.RESTConfig()
	h := servertest.Client(t, c)
	for _, ns := range []string{"team", "team-a", "tea"} {
		for _, path := range []string{"", "/team", "/a.b"} {
			body, at := `{"metadata":{"name":"`+ns+`"}}`, "/api/v1/namespaces"
			if path != "" {
				body, at = `{"metadata":{"name":"`+path[1:]+`","finalizers":["example.com/x"]}}`, at+"/"+ns+"/secrets"
			}
			if code, text := send(t, h, "POST", c.Host+at, body); code != http.StatusCreated {
				t.Fatalf("%d %s", code, text)
			}
		}
	}
	for _, path := range []string{"/api/v1/namespaces/team%2fsecrets/secrets", "/api/v1/namespaces/team/secrets/..", "/api/v1/namespaces/team/secrets/%2e%2e", "/api/v1/namespaces/team%00/secrets/team",
		"/api/v1/namespaces/../secrets/team", "/api/v1/namespaces/TEAM/secrets/team"} {
		if code, text := send(t, h, "DELETE", c.Host+path, ""); code < 400 || code >= 500 {
			t.Errorf("DELETE %s: %d %s", path, code, text)
		}
	}
	if code, text := send(t, h, "DELETE", c.Host+"/api/v1/namespaces/team/secrets", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	for ns, deleted := range map[string]bool{"team": true, "team-a": false, "tea": false} {
		for _, name := range []string{"team", "a.b"} {
			if _, text := servertest.Get(t, c, "/api/v1/namespaces/"+ns+"/secrets/"+name); strings.Contains(text, "deletionTimestamp") != deleted {
				t.Errorf("%s/%s is deleted: %v", ns, name, !deleted)
			}
		}
	}
}
