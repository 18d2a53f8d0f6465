package tidemark_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// userOf returns the configuration of a user of a server, for a fork or the server itself.
func userOf(t *testing.T, s *tidemark.Server, name, prefix string) *rest.Config {
	t.Helper()
	c, err := s.Root().RESTConfigFor(name)
	if err != nil {
		t.Fatal(err)
	}
	c.Host = s.URL() + prefix
	return c
}

func bind(role, user string) string {
	return fmt.Sprintf(`{"metadata":{"name":"%s-%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%[1]q},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":%[2]q}]}`, role, user)
}

const (
	secretsPath  = "/api/v1/namespaces/default/secrets"
	bindingsPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
)

// TestForkOfThePast: a user who may make forks, and had more rights once, does not get them back in a fork of that time, nor in
// a fork of that fork, nor after a restart. No other user does.
func TestForkOfThePast(t *testing.T) {
	dir := t.TempDir()
	s := &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Controllers: []string{"-*"}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := s.RESTConfig()
	must(t, admin, http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"forks"},"rules":[{"nonResourceURLs":["/forks","/forks/*"],"verbs":["*"]}]}`)
	must(t, admin, http.StatusCreated, "POST", bindingsPath, bind("forks", "alice"))
	must(t, admin, http.StatusCreated, "POST", bindingsPath, bind("cluster-admin", "alice"))
	must(t, admin, http.StatusCreated, "POST", bindingsPath, bind("cluster-admin", "bob"))
	must(t, admin, http.StatusCreated, "POST", secretsPath, `{"metadata":{"name":"s"}}`)
	at := get[head](t, admin, bindingsPath).Metadata.ResourceVersion
	must(t, admin, http.StatusOK, "DELETE", bindingsPath+"/cluster-admin-alice", "")
	must(t, admin, http.StatusOK, "DELETE", bindingsPath+"/cluster-admin-bob", "")

	alice := userOf(t, s, "alice", "")
	must(t, alice, http.StatusCreated, "POST", "/forks", `{"name":"past","resourceVersion":"`+at+`"}`)
	must(t, alice, http.StatusCreated, "POST", "/forks", `{"name":"kept","keep":true,"resourceVersion":"`+at+`"}`)
	must(t, alice, http.StatusCreated, "POST", "/forks", `{"name":"again","from":"past"}`)
	must(t, alice, http.StatusCreated, "POST", "/forks", `{"name":"now"}`)
	refused := func(s *tidemark.Server, fork string) {
		t.Helper()
		for _, user := range []string{"alice", "bob"} {
			c := userOf(t, s, user, "/fork/"+fork)
			must(t, c, http.StatusForbidden, "GET", secretsPath, "")
			must(t, c, http.StatusForbidden, "POST", bindingsPath, bind("cluster-admin", user))
			must(t, c, http.StatusOK, "GET", "/version", "")
		}
		c := s.RESTConfig()
		c.Host += "/fork/" + fork
		must(t, c, http.StatusOK, "GET", secretsPath+"/s", "")
		must(t, c, http.StatusOK, "GET", bindingsPath+"/cluster-admin-bob", "")
	}
	for _, fork := range []string{"past", "again", "kept"} {
		refused(s, fork)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Controllers: []string{"-*"}})
	refused(s, "kept")
}

// TestForkOfAnEarlierVersion: whether a kept fork of an earlier version is one of the past is not recorded, so its requests
// need the right on the server, too.
func TestForkOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() *tidemark.Server {
		return servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Controllers: []string{"-*"}})
	}
	s := start()
	admin := s.RESTConfig()
	must(t, admin, http.StatusCreated, "POST", bindingsPath, bind("cluster-admin", "alice"))
	must(t, admin, http.StatusCreated, "POST", secretsPath, `{"metadata":{"name":"s"}}`)
	must(t, admin, http.StatusCreated, "POST", "/forks", `{"name":"f","keep":true}`)
	must(t, admin, http.StatusOK, "DELETE", bindingsPath+"/cluster-admin-alice", "")
	must(t, userOf(t, s, "alice", "/fork/f"), http.StatusOK, "GET", secretsPath+"/s", "")
	servertest.Stop(t, s)

	path := filepath.Join(dir, "forks", "f", "fork.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var facts map[string]any
	if err := json.Unmarshal(text, &facts); err != nil {
		t.Fatal(err)
	}
	delete(facts, "past")
	if text, err = json.Marshal(facts); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s = start()
	admin = s.RESTConfig()
	admin.Host += "/fork/f"
	must(t, admin, http.StatusOK, "GET", secretsPath+"/s", "")
	must(t, userOf(t, s, "alice", "/fork/f"), http.StatusForbidden, "GET", secretsPath+"/s", "")
}

// TestForkSecrets: an administrator of a fork, who has no right on the server, reads no token that opens the server.
func TestForkSecrets(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	admin := s.RESTConfig()
	const token = `{"metadata":{"name":"token","annotations":{"kubernetes.io/service-account.name":"default"}},"type":"kubernetes.io/service-account-token"}`
	await.True(t, "the account exists: a Secret of none is deleted", func() bool {
		code, _ := send(t, admin, "GET", "/api/v1/namespaces/default/serviceaccounts/default", "")
		return code == http.StatusOK
	})
	must(t, admin, http.StatusCreated, "POST", secretsPath, token)
	must(t, admin, http.StatusCreated, "POST", secretsPath, `{"metadata":{"name":"other"}}`)
	await.True(t, "the Secret has a token", func() bool {
		_, text := send(t, admin, "GET", secretsPath+"/token", "")
		return strings.Contains(text, `"token":"`)
	})
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "f"})
	must(t, f.RESTConfig(), http.StatusCreated, "POST", bindingsPath, bind("cluster-admin", "carol"))
	carol := userOf(t, s, "carol", "/fork/f")
	must(t, carol, http.StatusOK, "GET", secretsPath+"/other", "")
	for _, path := range []string{secretsPath + "/token", secretsPath, "/api/v1/secrets", secretsPath + "?watch=1&timeoutSeconds=1", secretsPath + "?fieldSelector=metadata.name%3Dtoken"} {
		must(t, carol, http.StatusForbidden, "GET", path, "")
	}
	must(t, carol, http.StatusForbidden, "DELETE", secretsPath+"/token", "")
	must(t, carol, http.StatusForbidden, "PATCH", secretsPath+"/token", `{"metadata":{"labels":{"a":"b"}}}`)
	must(t, carol, http.StatusOK, "GET", "/api/v1/namespaces/kube-system/secrets", "")
	must(t, f.RESTConfig(), http.StatusOK, "GET", secretsPath+"/token", "") // the administrator of the server

	// A token that the fork makes for a Secret opens the fork alone.
	must(t, carol, http.StatusCreated, "POST", secretsPath, strings.Replace(token, `"token"`, `"own"`, 1))
	var own struct{ Data struct{ Token []byte } }
	await.True(t, "the Secret of the fork has a token", func() bool {
		_, text := send(t, carol, "GET", secretsPath+"/own", "")
		return json.Unmarshal([]byte(text), &own) == nil && len(own.Data.Token) > 0
	})
	robot := rest.AnonymousClientConfig(admin)
	robot.BearerToken = string(own.Data.Token)
	must(t, robot, http.StatusUnauthorized, "GET", "/api", "")
	robot.Host += "/fork/f"
	must(t, robot, http.StatusOK, "GET", "/api", "")
}

// TestForkSecretsOfHistory: a token that opens the server is not shown by the history of a fork either, if its Secret was
// deleted before the fork was opened.
func TestForkSecretsOfHistory(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}})
	admin := s.RESTConfig()
	const path = "/api/v1/namespaces/team/secrets"
	must(t, admin, http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"team"}}`)
	bootstrap := `{"metadata":{"name":"token"},"type":"bootstrap.kubernetes.io/token"}`
	must(t, admin, http.StatusCreated, "POST", path, bootstrap)
	must(t, admin, http.StatusCreated, "POST", "/forks", `{"name":"kept","keep":true}`)
	at := get[head](t, admin, path).Metadata.ResourceVersion
	must(t, admin, http.StatusOK, "DELETE", path+"/token", "")
	since, err := strconv.ParseUint(at, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	mustFork(t, s.Root(), tidemark.ForkOptions{Name: "since", Since: since})

	inKept := rest.CopyConfig(admin)
	inKept.Host += "/fork/kept"
	keptAt := get[head](t, inKept, path).Metadata.ResourceVersion
	must(t, inKept, http.StatusCreated, "POST", bindingsPath, bind("cluster-admin", "carol"))
	carol := userOf(t, s, "carol", "/fork/kept")
	must(t, carol, http.StatusOK, "DELETE", "/api/v1/namespaces/team", "") // which deletes the Secret, without a right to it
	await.True(t, "the namespace is gone", func() bool {
		code, _ := send(t, carol, "GET", "/api/v1/namespaces/team", "")
		return code == http.StatusNotFound
	})
	s.CloseIdle()
	for fork, version := range map[string]string{"kept": keptAt, "since": at} {
		c := rest.CopyConfig(admin)
		c.Host += "/fork/" + fork
		if fork == "since" {
			must(t, c, http.StatusCreated, "POST", bindingsPath, bind("cluster-admin", "carol"))
		}
		exact := path + "?resourceVersionMatch=Exact&resourceVersion=" + version
		if got := must(t, c, http.StatusOK, "GET", exact, ""); !strings.Contains(got, `"token"`) {
			t.Errorf("%s: the history has no token: %s", fork, got)
		}
		must(t, userOf(t, s, "carol", "/fork/"+fork), http.StatusForbidden, "GET", exact, "")
	}
}
