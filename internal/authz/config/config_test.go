package config

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

// TestRefused compares errors with those of kube-apiserver v1.36.3 for the same files.
func TestRefused(t *testing.T) {
	b, err := os.ReadFile("testdata/refused.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct{ Text, Error string }
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := write(t, dir, "kubeconfig", "")
	real := strings.NewReplacer("{dir}", dir, "{file}", file)
	for _, row := range rows {
		if _, err := Parse([]byte(real.Replace(row.Text)), nil); err == nil || err.Error() != real.Replace(row.Error) {
			t.Errorf("%s\n%v\nwant\n%s", row.Text, err, real.Replace(row.Error))
		}
	}
	const inCluster = head + `[{type: Webhook, name: w, webhook: {timeout: 1s, subjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: InClusterConfig}}}]`
	if _, err := Parse([]byte(inCluster), nil); err == nil || !strings.Contains(err.Error(), "is not allowed for the API server itself") {
		t.Error(err)
	}
}

func TestVersions(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		c, err := Parse([]byte(strings.Replace(head, "/v1", "/"+version, 1)+`[{type: Node, name: node}, {type: RBAC, name: rbac}]`), nil)
		if err != nil || len(c.Authorizers) != 2 {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, row := range []struct {
		f    Flags
		want string
	}{
		{Flags{WebhookVersion: "v1", Modes: []string{"Node", "RBAC"}}, ""},
		{Flags{WebhookVersion: "v1"}, "at least one --authorization-mode must be passed"},
		{Flags{WebhookVersion: "v1", Modes: []string{"rBAC", "ABAC", "Webhook"}}, `[--authorization-mode=rBAC is not a valid mode: want some of AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node, --authorization-mode=ABAC needs --authorization-policy-file, --authorization-mode=Webhook needs --authorization-webhook-config-file]`},
		{Flags{WebhookVersion: "v1", Modes: []string{"RBAC"}, PolicyFile: "p", WebhookFile: "w"}, `[cannot specify --authorization-policy-file without --authorization-mode=ABAC, cannot specify --authorization-webhook-config-file without --authorization-mode=Webhook]`},
		{Flags{WebhookVersion: "v1", Modes: []string{"RBAC", "RBAC"}}, `--authorization-mode=RBAC,RBAC has a mode more than once`},
		{Flags{WebhookVersion: "v2", Modes: []string{"RBAC"}}, `unsupported webhook authorizer version "v2", supported versions are "v1", "v1beta1"`},
	} {
		if err := row.f.Check(); (err == nil) != (row.want == "") || err != nil && err.Error() != row.want {
			t.Errorf("%+v: %v, want %q", row.f, err, row.want)
		}
	}
}

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: "

func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func decide(t *testing.T, a *Authorizer, user string, groups ...string) authz.Decision {
	t.Helper()
	d, _, err := a.Authorize(t.Context(), &authz.Attributes{User: &authn.User{Name: user, Groups: groups}, Verb: "get", Path: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestReload changes a file while a server runs: a valid one counts with the first decision about
// a second later, an invalid one changes nothing.
func TestReload(t *testing.T) {
	var calls atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}`)
	}))
	defer service.Close()
	dir := t.TempDir()
	kubeconfig := write(t, dir, "kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`, service.URL))
	hook := `{type: Webhook, name: w, webhook: {timeout: 9s, subjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: KubeConfigFile, kubeConfigFile: ` + kubeconfig + `}}}`
	path := write(t, dir, "config.yaml", head+`[`+hook+`, {type: AlwaysDeny, name: alwaysdeny}]`)
	source, err := FromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64
	a, err := source.Start(Parts{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	step := func(what, config string, want authz.Decision, asked int64, reloads [2]float64) {
		t.Helper()
		if config != "" {
			write(t, dir, "config.yaml", config)
		}
		ahead.Add(int64(2 * time.Second))
		before := calls.Load()
		if got := decide(t, a, "ann"); got != want || calls.Load()-before != asked {
			t.Errorf("%s: %v after %d calls, want %v after %d", what, got, calls.Load()-before, want, asked)
		}
		m := a.metrics
		got := [2]float64{testutil.ToFloat64(m.reloads.WithLabelValues("success", m.server)), testutil.ToFloat64(m.reloads.WithLabelValues("failure", m.server))}
		if got != reloads {
			t.Errorf("%s: %v reloads, want %v", what, got, reloads)
		}
	}
	step("at the start", "", authz.Allow, 1, [2]float64{})
	step("unchanged", "", authz.Allow, 0, [2]float64{})
	step("a comment: the caches stay", "# new\n"+head+`[`+hook+`, {type: AlwaysDeny, name: alwaysdeny}]`, authz.Allow, 0, [2]float64{})
	step("invalid", head+`[{type: None}]`, authz.Allow, 0, [2]float64{0, 1})
	step("still invalid", "", authz.Allow, 0, [2]float64{0, 1})
	step("a type that the start did not have", head+`[{type: RBAC, name: rbac}, {type: AlwaysDeny, name: alwaysdeny}]`, authz.Allow, 0, [2]float64{0, 2})
	step("without a type of the start", head+`[`+hook+`]`, authz.Allow, 0, [2]float64{0, 3})
	step("without the webhook", head+`[{type: AlwaysDeny, name: alwaysdeny}]`, authz.NoOpinion, 0, [2]float64{1, 3})
	if got := decide(t, a, "root", "system:masters"); got != authz.Allow {
		t.Errorf("the superuser: %v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + `[{type: Node, name: node}]`))
	f.Add([]byte(`{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthorizationConfiguration","authorizers":[{"type":"Webhook","name":"w","webhook":{"timeout":"1s","matchConditions":[{"expression":"true"}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data, nil)
		if err == nil && len(c.Authorizers) == 0 {
			t.Error("an empty configuration is valid")
		}
	})
}

// BenchmarkChain measures the chain without its authorizers.
func BenchmarkChain(b *testing.B) {
	source, err := FromFlags(Flags{Modes: []string{"AlwaysDeny", "AlwaysAllow"}, WebhookVersion: "v1"})
	if err != nil {
		b.Fatal(err)
	}
	a, err := source.Start(Parts{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	what := &authz.Attributes{User: &authn.User{Name: "ann", Groups: []string{"a", "b", "system:authenticated"}}, Verb: "get", IsResource: true, Resource: "pods"}
	b.ReportAllocs()
	for b.Loop() {
		if d, _, _ := a.Authorize(b.Context(), what); d != authz.Allow {
			b.Fatal(d)
		}
	}
}

// undecided has no opinion, and says why.
type undecided struct{}

// Authorize implements authz.Authorizer.
func (undecided) Authorize(context.Context, *authz.Attributes) (authz.Decision, string, error) {
	return authz.NoOpinion, "because", nil
}

// TestReasons: the reasons of authorizers without an opinion begin with their names, as in kube-apiserver 1.37.
func TestReasons(t *testing.T) {
	m := newMetrics()
	u := authz.Union{m.counted(ModeNode, "node", undecided{}), m.counted(ModeRBAC, "mine", undecided{})}
	d, reason, err := u.Authorize(t.Context(), &authz.Attributes{User: &authn.User{Name: "u"}})
	if want := "node: because\nmine: because"; d != authz.NoOpinion || reason != want || err != nil {
		t.Errorf("got %v %q %v, want %q", d, reason, err, want)
	}
}
