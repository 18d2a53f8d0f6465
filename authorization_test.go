package tidemark_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestAuthorizationConfigReload changes the file while the server runs.
func TestAuthorizationConfigReload(t *testing.T) {
	const (
		head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
		rbac = "- {type: RBAC, name: rbac}\n"
		all  = "- {type: AlwaysAllow, name: alwaysallow}\n"
	)
	dir := t.TempDir()
	path := write(t, dir, "config.yaml", head+rbac)
	var c clock
	s := &tidemark.Server{Authorization: tidemark.Authorization{ConfigFile: path}}
	s.SetClock(c.now)
	servertest.Start(t, s)
	ann := s.RESTConfig()
	ann.Impersonate = rest.ImpersonationConfig{UserName: "ann"}
	for _, step := range []struct {
		config string
		code   int
	}{
		{head + rbac, http.StatusForbidden},
		{head + all + rbac, http.StatusOK},
		{head + all, http.StatusOK}, // RBAC cannot go
		{"broken", http.StatusOK},
		{head + rbac, http.StatusForbidden},
	} {
		write(t, dir, "config.yaml", step.config)
		c.turn(2 * time.Second)
		code, body := servertest.Get(t, ann, defaultNamespace)
		if code != step.code {
			t.Errorf("%s: %d %s, want %d", step.config, code, body, step.code)
		}
		if code, body := servertest.Get(t, rest.AnonymousClientConfig(ann), defaultNamespace); code != http.StatusForbidden {
			t.Errorf("%s: an anonymous request: %d %s, want 403", step.config, code, body)
		}
	}
	_, metrics := servertest.Get(t, s.RESTConfig(), "/metrics")
	for _, part := range []string{`status="success"} 2`, `status="failure"} 2`, "apiserver_authorization_config_controller_last_config_info{", `apiserver_authorization_decisions_total{decision="allowed",name="rbac",type="RBAC"}`} {
		if !strings.Contains(metrics, part) {
			t.Errorf("/metrics has no %s", part)
		}
	}
}
