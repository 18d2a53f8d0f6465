package tidemark_test

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"weak"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestForkOutlivesParent: the end of a fork ends no watch of its own forks, and they serve further ones.
func TestForkOutlivesParent(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	parent := mustFork(t, s.Root(), tidemark.ForkOptions{Controllers: []string{"-*"}})
	child := mustFork(t, parent, tidemark.ForkOptions{Controllers: []string{"-*"}})
	watch := fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, child.Revision())
	begun := openWatch(t, child.RESTConfig(), watch)
	if err := parent.Close(); err != nil {
		t.Fatal(err)
	}
	later := openWatch(t, child.RESTConfig(), watch)
	must(t, child.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	for _, next := range []func() string{begun, later} {
		if got := next(); !strings.Contains(got, `"name":"a"`) {
			t.Errorf("the watch got %q", got)
		}
	}
}

// TestForkFreesParent: a fork holds no memory of a parent that was closed but the objects that they
// share. Otherwise a line of forks would hold the histories of all of its ancestors.
func TestForkFreesParent(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	child, parent, world := orphan(t, s)
	// Goroutines that served the last requests may still end.
	await.Nil(t, "the memory of the parent to become free", func() error {
		runtime.GC()
		switch {
		case parent.Value() != nil:
			return errors.New("its store is in memory")
		case world.Value() != nil:
			return errors.New("it is in memory")
		}
		return nil
	})
	must(t, child.RESTConfig(), http.StatusOK, "GET", configMaps+"/a", "")
	must(t, child.RESTConfig(), http.StatusOK, "GET", "/apis/example.com/v1/namespaces/default/widgets", "")
	runtime.KeepAlive(child)
}

// orphan returns a fork whose parent was closed, and pointers to the parent and its store.
func orphan(t *testing.T, s *tidemark.Server) (*tidemark.World, weak.Pointer[store.Store], weak.Pointer[tidemark.World]) {
	parent := mustFork(t, s.Root(), tidemark.ForkOptions{Controllers: []string{"-*"}})
	must(t, parent.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	must(t, parent.RESTConfig(), http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(widgets, 10))
	child := mustFork(t, parent, tidemark.ForkOptions{Controllers: []string{"-*"}})
	must(t, child.RESTConfig(), http.StatusOK, "GET", configMaps+"/a", "")
	must(t, child.RESTConfig(), http.StatusOK, "GET", "/openapi/v3", "")
	if err := parent.Close(); err != nil {
		t.Fatal(err)
	}
	return child, weak.Make(tidemark.StoreOf(parent)), weak.Make(parent)
}

// TestForkPrivileges: an administrator of a fork who is no administrator of the server does not get
// privileges in the resources that all worlds share: seats and memory.
func TestForkPrivileges(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	f := mustFork(t, s.Root(), tidemark.ForkOptions{})
	must(t, f.RESTConfig(), http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"alice"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]}`)
	alice, err := s.RESTConfigFor("alice")
	if err != nil {
		t.Fatal(err)
	}
	own := levelOf(t, alice, f.URL())
	alice.Impersonate = rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}
	if got := levelOf(t, alice, f.URL()); got != own {
		t.Errorf("as a member of system:masters, the request is at the level %s instead of %s", got, own)
	}
}

// levelOf returns the uid of the priority level of a request.
func levelOf(t *testing.T, c *rest.Config, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url+"/api/v1/namespaces", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the response is %s", resp.Status)
	}
	return resp.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid")
}
