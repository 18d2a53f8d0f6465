package tidemark_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestBackup makes a backup while clients write, and restores it. The restored server has everything that was
// acknowledged before, responds with the same bytes, has the history and the kept forks, and accepts the same
// credentials.
func TestBackup(t *testing.T) {
	t.Parallel()
	const writers = 4
	dir := filepath.Join(t.TempDir(), "data")
	s := servertest.Start(t, on(dir))
	settle(t, s.Root()) // or the controllers would write while the test compares states
	must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("old", "1"))
	base := get[head](t, s.RESTConfig(), configMaps).Metadata.ResourceVersion
	must(t, s.RESTConfig(), http.StatusOK, "PATCH", configMaps+"/old", `{"data":{"value":"2"}}`)
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", `{"name":"try","keep":true}`)
	must(t, below(s, "try"), http.StatusCreated, "POST", configMaps, configMap("inside", "1"))

	var stop atomic.Bool
	var written [writers]atomic.Int64
	begun := make(chan struct{}, 2*writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			defer func() { begun <- struct{}{} }() // it failed, or was stopped
			for i := int64(1); !stop.Load(); i++ {
				if code, response := send(t, s.RESTConfig(), "POST", configMaps, configMap(fmt.Sprintf("w%d-%d", w, i), "1")); code != http.StatusCreated {
					t.Errorf("%d %s", code, response)
					return
				}
				if written[w].Store(i); i == 3 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range writers {
		<-begun
	}
	var before [writers]int64
	for w := range writers {
		before[w] = written[w].Load()
	}
	resp, err := servertest.Client(t, s.RESTConfig()).Get(s.RESTConfig().Host + "/backup")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-tar" {
		t.Fatalf("%d %v %v", resp.StatusCode, resp.Header, err)
	}
	stop.Store(true)
	wg.Wait()

	restored := &datadir.Dir{Path: filepath.Join(t.TempDir(), "restored")}
	contents, err := restored.Restore(t.Context(), bytes.NewReader(archive), datadir.RestoreOptions{KeepHistory: true})
	if err != nil {
		t.Fatal(err)
	}
	r := servertest.Start(t, on(restored.Path))
	same := r.RESTConfig()
	same.BearerToken = s.RESTConfig().BearerToken
	exact := fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", configMaps, contents.Log.ResourceVersion)
	if got, want := must(t, same, http.StatusOK, "GET", exact, ""), must(t, s.RESTConfig(), http.StatusOK, "GET", exact, ""); got != want {
		t.Errorf("the restored server has\n%s\nwant\n%s", got, want)
	}
	for w := range writers {
		must(t, same, http.StatusOK, "GET", fmt.Sprintf("%s/w%d-%d", configMaps, w, before[w]), "")
	}
	past := fmt.Sprintf("%s?resourceVersion=%s&resourceVersionMatch=Exact", configMaps, base)
	if got, want := must(t, same, http.StatusOK, "GET", past, ""), must(t, s.RESTConfig(), http.StatusOK, "GET", past, ""); got != want {
		t.Errorf("at an old resource version, the restored server has\n%s\nwant\n%s", got, want)
	}
	must(t, below(r, "try"), http.StatusOK, "GET", configMaps+"/inside", "")
	must(t, same, http.StatusNotFound, "GET", configMaps+"/inside", "")
	must(t, same, http.StatusCreated, "POST", configMaps, configMap("later", "1"))

	// Without the history, a client that has seen more lists again.
	restored = &datadir.Dir{Path: filepath.Join(t.TempDir(), "ahead")}
	if _, err := restored.Restore(t.Context(), bytes.NewReader(archive), datadir.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	r = servertest.Start(t, on(restored.Path))
	seen := fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, contents.Log.ResourceVersion+5)
	if got := openWatch(t, r.RESTConfig(), seen)(); !strings.Contains(got, `"code":410`) {
		t.Errorf("a watch from after the backup gets %s", got)
	}
	must(t, below(r, "try"), http.StatusOK, "GET", configMaps+"/inside", "")
	must(t, r.RESTConfig(), http.StatusOK, "GET", fmt.Sprintf("%s/w0-%d", configMaps, before[0]), "")
}

// TestBackupRefused: requests for a backup that the server refuses.
func TestBackupRefused(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("alice-token,alice,alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: filepath.Join(t.TempDir(), "data")}, Authentication: tidemark.Authentication{TokenFile: tokens}})
	must(t, servertest.Anonymous(s), http.StatusForbidden, "GET", "/backup", "")
	alice := servertest.WithToken(s, "alice-token")
	must(t, alice, http.StatusForbidden, "GET", "/backup", "")
	must(t, s.RESTConfig(), http.StatusMethodNotAllowed, "POST", "/backup", "")
	must(t, s.RESTConfig(), http.StatusMethodNotAllowed, "GET", "/backup/other", "")
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"backup"},"rules":[{"nonResourceURLs":["/backup"],"verbs":["get"]}]}`)
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"backup"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"backup"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]}`)
	if got := must(t, alice, http.StatusOK, "GET", "/backup", ""); !strings.HasPrefix(got, "BACKUP\x00") {
		t.Errorf("alice got %.20q", got)
	}

	m := servertest.Start(t, &tidemark.Server{})
	if got := must(t, m.RESTConfig(), http.StatusNotImplemented, "GET", "/backup", ""); !strings.Contains(got, "in memory only") {
		t.Errorf("a server in memory says %s", got)
	}
}

// TestBackupTime: a backup that takes too long ends, and leaves the way to the next one.
func TestBackupTime(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := on(dir)
	s.SetBackupTime(time.Nanosecond)
	servertest.Start(t, s)
	for range 2 {
		if got := must(t, s.RESTConfig(), http.StatusGatewayTimeout, "GET", "/backup", ""); !strings.Contains(got, "in the time") {
			t.Errorf("a backup without time: %s", got)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".backup")); !os.IsNotExist(err) {
		t.Errorf("the files of the backup are left: %v", err)
	}
}
