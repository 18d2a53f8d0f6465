package tidemark_test

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

// TestClock moves the clock of a server: Events expire, tokens and certificates become invalid.
func TestClock(t *testing.T) {
	start := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	for name, c := range map[string]*tidemark.Clock{"runs": {}, "stands": {Start: start}} {
		t.Run(name, func(t *testing.T) {
			s := servertest.Start(t, &tidemark.Server{InProcess: true, Clock: c})
			admin := s.RESTConfig()
			post(t, admin, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
			if _, body := servertest.Get(t, admin, "/api/v1/namespaces/default/configmaps/a"); name == "stands" && !strings.Contains(body, `"creationTimestamp":"2031-02-03T04:05:06Z"`) {
				t.Errorf("the timestamp is not that of the clock: %s", body)
			}
			post(t, admin, "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`)
			bearer := rest.CopyConfig(admin)
			bearer.BearerToken = hourToken(t, admin, "/api/v1/namespaces/default/serviceaccounts/robot/token")
			servertest.WantCode(t, bearer, "/apis", http.StatusOK, "")
			alice, err := s.RESTConfigFor("alice")
			if err != nil {
				t.Fatal(err)
			}
			events := follow(t, admin, "/api/v1/namespaces/default/events?watch=1")
			post(t, admin, "/api/v1/namespaces/default/events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`)
			if e := <-events; e != "ADDED" {
				t.Fatal(e)
			}
			c.Advance(59 * time.Minute)
			servertest.WantCode(t, admin, "/api/v1/namespaces/default/events/e", http.StatusOK, "")
			servertest.WantCode(t, bearer, "/apis", http.StatusOK, "")
			c.Advance(5 * time.Minute) // tokens have a leeway of a minute
			if e := <-events; e != "DELETED" {
				t.Error(e)
			}
			servertest.WantCode(t, bearer, "/apis", http.StatusUnauthorized, "")
			servertest.WantCode(t, alice, "/apis", http.StatusOK, "")
			c.Advance(2 * 365 * 24 * time.Hour)
			servertest.WantCode(t, alice, "/apis", http.StatusUnauthorized, "")
			servertest.WantCode(t, admin, "/apis", http.StatusOK, "")
		})
	}
}

// hourToken requests a token that is valid for an hour.
func hourToken(t *testing.T, c *rest.Config, path string) string {
	t.Helper()
	resp, err := servertest.Client(t, c).Post(c.Host+path, "application/json", strings.NewReader(`{"spec":{"expirationSeconds":3600}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	_, rest, _ := strings.Cut(string(body), `"token":"`)
	token, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("%s %s", resp.Status, body)
	}
	return token
}
