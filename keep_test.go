package tidemark_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// on returns a server on a data directory.
func on(dir string) *tidemark.Server { return &tidemark.Server{Storage: &datadir.Dir{Path: dir}} }

// below returns the configuration of an administrator for a fork of the server, whether it exists or not.
func below(s *tidemark.Server, name string) *rest.Config {
	c := s.RESTConfig()
	c.Host += "/fork/" + name
	return c
}

// format returns the format of a data directory.
func format(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "FORMAT"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(b)), "tidemark data directory, format ")
}

// TestKeep: a kept fork has after a restart all writes to it, with all resource versions and the
// history, and goes on. The restart is a clean one, or one from the files as they are while the
// server runs.
func TestKeep(t *testing.T) {
	t.Parallel()
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			t.Parallel()
			testKeep(t, clean)
		})
	}
}

func testKeep(t *testing.T, clean bool) {
	dir := filepath.Join(t.TempDir(), "data")
	s := servertest.Start(t, on(dir))
	settle(t, s.Root()) // or the controllers would write while the test compares states
	must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("old", "1"))
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(widgets, 10))
	if got := format(t, dir); got != "2" {
		t.Errorf("without kept forks the format is %s", got)
	}
	response := must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", `{"name":"try","keep":true}`)
	if !strings.Contains(response, `"kept":true`) {
		t.Errorf("the fork is %s", response)
	}
	if got := format(t, dir); got != "3" {
		t.Errorf("with a kept fork the format is %s", got)
	}
	f := below(s, "try")
	base := get[head](t, f, configMaps).Metadata.ResourceVersion
	must(t, f, http.StatusCreated, "POST", configMaps, configMap("new", "1"))
	must(t, f, http.StatusOK, "PATCH", configMaps+"/new", `{"data":{"value":"2"}}`)
	must(t, f, http.StatusOK, "DELETE", configMaps+"/old", "")
	must(t, f, http.StatusCreated, "POST", "/apis/example.com/v1/namespaces/default/widgets", widget("w", 5))
	if fork, err := s.Fork("try"); err != nil {
		t.Fatal(err)
	} else if _, err := fork.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	lists := []string{configMaps, "/apis/example.com/v1/namespaces/default/widgets", "/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/clusterroles"}
	var before []string
	for _, list := range lists {
		before = append(before, must(t, f, http.StatusOK, "GET", list, ""))
	}
	token := must(t, f, http.StatusCreated, "POST", "/api/v1/namespaces/default/serviceaccounts/default/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)

	if clean {
		servertest.Stop(t, s)
	} else {
		killed := filepath.Join(t.TempDir(), "killed")
		if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(killed, 0o700); err != nil {
			t.Fatal(err)
		}
		servertest.Stop(t, s)
		dir = killed
	}
	s = servertest.Start(t, on(dir))
	if got := must(t, s.RESTConfig(), http.StatusOK, "GET", "/forks", ""); !strings.Contains(got, `"name":"try"`) || strings.Contains(got, `"resourceVersion"`) {
		t.Errorf("the list opened the fork, or lacks it: %s", got)
	}
	f = below(s, "try")
	for i, list := range lists {
		if got := must(t, f, http.StatusOK, "GET", list, ""); got != before[i] {
			t.Errorf("%s after a restart:\n%s\nwant\n%s", list, got, before[i])
		}
	}
	if got := names(get[head](t, f, configMaps+"?resourceVersion="+base+"&resourceVersionMatch=Exact")); !strings.Contains(got, "old") || strings.Contains(got, "new") {
		t.Errorf("the list at the resource version of the fork has %s", got)
	}
	next := openWatch(t, f, configMaps+"?watch=1&resourceVersion="+base)
	must(t, f, http.StatusCreated, "POST", configMaps, configMap("later", "1"))
	for _, want := range []string{`"ADDED".*"new"`, `"MODIFIED".*"new"`, `"DELETED".*"old"`, `"ADDED".*"later"`} {
		event, name, _ := strings.Cut(want, ".*")
		if got := next(); !strings.Contains(got, event) || !strings.Contains(got, `"name":`+name) {
			t.Errorf("the watch got %s, want %s", got, want)
		}
	}
	_, token, _ = strings.Cut(token, `"token":"`)
	token, _, _ = strings.Cut(token, `"`)
	user := servertest.WithToken(s, token)
	must(t, user, http.StatusUnauthorized, "GET", configMaps, "")
	user.Host = f.Host
	must(t, user, http.StatusForbidden, "GET", configMaps, "")
	must(t, s.RESTConfig(), http.StatusOK, "GET", configMaps+"/old", "")
	must(t, s.RESTConfig(), http.StatusNotFound, "GET", configMaps+"/new", "")

	must(t, s.RESTConfig(), http.StatusOK, "DELETE", "/forks/try", "")
	must(t, f, http.StatusNotFound, "GET", configMaps, "")
	if _, err := os.Stat(filepath.Join(dir, "forks", "try")); !os.IsNotExist(err) {
		t.Errorf("the directory of the deleted fork: %v", err)
	}
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", `{"name":"try","keep":true}`)
	must(t, f, http.StatusOK, "GET", configMaps+"/old", "")
	servertest.Stop(t, s)
}

// TestKeepWorld is the same through the interface in Go: Close does not delete a kept fork.
func TestKeepWorld(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, on(filepath.Join(t.TempDir(), "data")))
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "a", Keep: true})
	must(t, f.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	child := mustFork(t, f, tidemark.ForkOptions{})
	copied := mustFork(t, child, tidemark.ForkOptions{Name: "copied", Keep: true})
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	must(t, child.RESTConfig(), http.StatusOK, "GET", configMaps+"/a", "")
	must(t, copied.RESTConfig(), http.StatusOK, "GET", configMaps+"/a", "")
	again, err := s.Fork("a")
	if err != nil {
		t.Fatal(err)
	}
	must(t, again.RESTConfig(), http.StatusOK, "GET", configMaps+"/a", "")
	if err := again.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fork("a"); !errors.Is(err, tidemark.ErrNoFork) {
		t.Errorf("a deleted fork: %v", err)
	}
}

// TestKeepControllers: after a restart, the controllers of a kept fork finish the work that they
// had begun.
func TestKeepControllers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := servertest.Start(t, on(dir))
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "a", Keep: true})
	must(t, f.RESTConfig(), http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	must(t, f.RESTConfig(), http.StatusCreated, "POST", "/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"a","finalizers":["example.com/x"]}}`)
	must(t, f.RESTConfig(), http.StatusOK, "DELETE", "/api/v1/namespaces/shop", "")
	must(t, f.RESTConfig(), http.StatusOK, "PATCH", "/api/v1/namespaces/shop/configmaps/a", `{"metadata":{"finalizers":null}}`)
	servertest.Stop(t, s)
	s = servertest.Start(t, on(dir))
	f, err := s.Fork("a")
	if err != nil {
		t.Fatal(err)
	}
	if code, body := send(t, f.RESTConfig(), "GET", "/api/v1/namespaces/shop", ""); code == http.StatusOK {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(body), &o); err != nil {
			t.Fatal(err)
		}
		next := openWatch(t, f.RESTConfig(), "/api/v1/namespaces?watch=1&fieldSelector=metadata.name=shop&resourceVersion="+o.ResourceVersion)
		for !strings.Contains(next(), `"DELETED"`) {
		}
	}
}

// TestKeepErrors: a fork that cannot be kept is refused, and leaves no files.
func TestKeepErrors(t *testing.T) {
	t.Parallel()
	refused := func(s *tidemark.Server, code int, body, message string) {
		t.Helper()
		if got := must(t, s.RESTConfig(), code, "POST", "/forks", body); !strings.Contains(got, message) {
			t.Errorf("%s: %s, want %q", body, got, message)
		}
	}
	inMemory := servertest.Start(t, &tidemark.Server{})
	refused(inMemory, http.StatusBadRequest, `{"keep":true}`, "in memory only")

	dir := filepath.Join(t.TempDir(), "data")
	s := on(dir)
	s.Forks.MaxBytes = 1 << 20
	servertest.Start(t, s)
	for _, o := range []tidemark.ForkOptions{{Keep: true, Seed: 1}, {Keep: true, Since: 1, At: s.Root().Revision()}} {
		if _, err := s.Root().Fork(t.Context(), o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.Root().Fork(gone, tidemark.ForkOptions{Name: "gone", Keep: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("a fork for a client that is gone: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "forks")); err != nil || len(left) > 0 {
		t.Errorf("refused forks have left %v, %v", left, err)
	}
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", `{"name":"a"}`)
	refused(s, http.StatusConflict, `{"name":"a","keep":true}`, "already exists")
	if got := must(t, s.RESTConfig(), http.StatusGatewayTimeout, "POST", "/forks?timeout=1ns", `{"keep":true}`); !strings.Contains(got, `"reason":"Timeout"`) {
		t.Errorf("a copy that takes too long: %s", got)
	}
	for i := range tidemark.MaxKeptForks {
		must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", fmt.Sprintf(`{"name":"k%d","keep":true}`, i))
	}
	refused(s, http.StatusTooManyRequests, `{"keep":true}`, "16 kept forks")
	refused(s, http.StatusConflict, `{"name":"k0"}`, "already exists")
	must(t, s.RESTConfig(), http.StatusOK, "DELETE", "/forks/k0", "")
	f := below(s, "k1")
	code, response := 0, ""
	for i := 0; i < 100 && code != http.StatusInsufficientStorage; i++ {
		code, response = send(t, f, "POST", configMaps, configMap(fmt.Sprintf("c%d", i), strings.Repeat("x", 100<<10)))
	}
	if code != http.StatusInsufficientStorage || !strings.Contains(response, "--fork-max-bytes") || strings.Contains(response, "--storage-max-bytes") {
		t.Errorf("a full fork: %d %s", code, response)
	}
	used := s.Root().Revision()
	for i := range 6 {
		must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap(fmt.Sprintf("c%d", i), strings.Repeat("x", 100<<10)))
	}
	refused(s, http.StatusInsufficientStorage, `{"name":"large","keep":true}`, "objects")
	refused(s, http.StatusBadRequest, `{"name":"large","keep":true,"resourceVersion":"x"}`, "resourceVersion")
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", fmt.Sprintf(`{"name":"before","keep":true,"resourceVersion":"%d"}`, used))
	if _, err := os.Stat(filepath.Join(dir, "forks", "large")); !os.IsNotExist(err) {
		t.Errorf("the directory of the refused fork: %v", err)
	}
}

// TestKeepBytes: the objects of a kept fork count in the budget of all forks again when it is opened. A budget that
// is spent refuses that.
func TestKeepBytes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := on(dir)
	servertest.Start(t, s)
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "a", Keep: true})
	must(t, f.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("a", strings.Repeat("x", 500<<10)))
	mustFork(t, s.Root(), tidemark.ForkOptions{Name: "b", Keep: true})
	servertest.Stop(t, s)

	s = on(dir)
	s.Forks.MaxTotalBytes = 500 << 10
	servertest.Start(t, s)
	must(t, below(s, "a"), http.StatusOK, "GET", configMaps+"/a", "")
	if got := must(t, below(s, "b"), http.StatusInsufficientStorage, "GET", configMaps, ""); !strings.Contains(got, "all forks together") {
		t.Errorf("a fork without memory: %s", got)
	}
	must(t, s.RESTConfig(), http.StatusOK, "DELETE", "/forks/a", "")
	must(t, below(s, "b"), http.StatusOK, "GET", configMaps, "")
}

// TestKeepDamage: copies that were not finished are removed. A fork whose log or description is damaged ends alone,
// and can be deleted.
func TestKeepDamage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := servertest.Start(t, on(dir))
	for _, name := range []string{"good", "log", "lost", "facts", "partial", "identity", "unfinished"} {
		mustFork(t, s.Root(), tidemark.ForkOptions{Name: name, Keep: true})
	}
	servertest.Stop(t, s)
	forks := filepath.Join(dir, "forks")
	for _, err := range []error{
		os.WriteFile(filepath.Join(forks, "log", "log", "HEAD"), []byte("x"), 0o600),
		os.RemoveAll(filepath.Join(forks, "lost", "log")),
		os.WriteFile(filepath.Join(forks, "facts", "fork.json"), []byte("x"), 0o600),
		os.WriteFile(filepath.Join(forks, "partial", "fork.json"), []byte(`{"base":5,"tokens":["x"],"created":"yesterday"}`), 0o600),
		// It would issue the tokens of the server.
		os.WriteFile(filepath.Join(forks, "identity", "fork.json"), []byte(`{"base":5,"tokens":[]}`), 0o600),
		os.Remove(filepath.Join(forks, "unfinished", "fork.json")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s = servertest.Start(t, on(dir))
	if _, err := os.Stat(filepath.Join(forks, "unfinished")); !os.IsNotExist(err) {
		t.Errorf("the unfinished copy: %v", err)
	}
	must(t, below(s, "unfinished"), http.StatusNotFound, "GET", configMaps, "")
	must(t, below(s, "good"), http.StatusOK, "GET", configMaps, "")
	for _, name := range []string{"log", "lost", "facts", "partial", "identity"} {
		for range 2 {
			// The client may have no rights in the server, so it gets no file names.
			if got := must(t, below(s, name), http.StatusInternalServerError, "GET", configMaps, ""); !strings.Contains(got, `"Status"`) || !strings.Contains(got, "GET /forks/"+name) || strings.Contains(got, dir) {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := must(t, s.RESTConfig(), http.StatusOK, "GET", "/forks/"+name, ""); !strings.Contains(got, `"error":`) {
			t.Errorf("%s: %s", name, got)
		}
		must(t, s.RESTConfig(), http.StatusOK, "DELETE", "/forks/"+name, "")
		must(t, s.RESTConfig(), http.StatusNotFound, "GET", "/forks/"+name, "")
	}
	must(t, s.RESTConfig(), http.StatusOK, "GET", configMaps, "")
}

// TestKeepEncrypted: the log of a kept fork is encrypted as that of the server. Without the key the fork is not
// readable, and the server is not affected.
func TestKeepEncrypted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	start := func(key byte) *tidemark.Server {
		text := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aescbc: {keys: [{name: key%c, secret: %s=}]}\n  - identity: {}\n", key, strings.Repeat(string(key), 43))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := on(dir)
		s.Encryption.ProviderConfigFile = file
		return servertest.Start(t, s)
	}
	const secrets = "/api/v1/namespaces/default/secrets"
	secret := func(name, value string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"stringData":{"value":%q}}`, name, value)
	}
	s := start('A')
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "a", Keep: true})
	must(t, s.RESTConfig(), http.StatusCreated, "POST", secrets, secret("a", "copied-secret"))
	copied := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "b", Keep: true})
	must(t, f.RESTConfig(), http.StatusCreated, "POST", secrets, secret("b", "written-secret"))
	must(t, s.RESTConfig(), http.StatusOK, "DELETE", secrets+"/a", "")
	must(t, copied.RESTConfig(), http.StatusOK, "GET", secrets+"/a", "")
	servertest.Stop(t, s)
	found := 0
	err := filepath.Walk(filepath.Join(dir, "forks"), func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, encoded("copied-secret")) || bytes.Contains(b, encoded("written-secret")) {
			t.Errorf("%s has the secret", path)
		}
		if strings.Contains(string(b), "k8s:enc:aescbc") {
			found++
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d files with encrypted values, %v", found, err)
	}
	s = start('A')
	if got := must(t, below(s, "b"), http.StatusOK, "GET", secrets+"/a", ""); !strings.Contains(got, string(encoded("copied-secret"))) {
		t.Errorf("the object is %s", got)
	}
	if got := must(t, below(s, "a"), http.StatusOK, "GET", secrets+"/b", ""); !strings.Contains(got, string(encoded("written-secret"))) {
		t.Errorf("the object is %s", got)
	}
	servertest.Stop(t, s)
	s = start('B')
	must(t, s.RESTConfig(), http.StatusOK, "GET", secrets, "")
	must(t, below(s, "a"), http.StatusInternalServerError, "GET", configMaps, "")
	if got := must(t, s.RESTConfig(), http.StatusOK, "GET", "/forks/a", ""); !strings.Contains(got, "the kept fork a cannot be opened") {
		t.Errorf("without the key: %s", got)
	}
}

// BenchmarkKeep makes and deletes kept forks of a world with 10,000 objects of about 1.4 KiB.
func BenchmarkKeep(b *testing.B) {
	s := on(filepath.Join(b.TempDir(), "data"))
	servertest.Start(b, s)
	var wg sync.WaitGroup
	for worker := range 50 {
		wg.Go(func() {
			for i := range 200 {
				direct(b, s.Root(), "POST", configMaps, configMap(fmt.Sprintf("c%d-%d", worker, i), strings.Repeat("x", 1<<10)))
			}
		})
	}
	wg.Wait()
	for b.Loop() {
		f := mustFork(b, s.Root(), tidemark.ForkOptions{Name: "a", Keep: true})
		b.StopTimer()
		if err := f.Delete(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// encoded is a value as a Secret has it.
func encoded(value string) []byte { return []byte(base64.StdEncoding.EncodeToString([]byte(value))) }

// failingForks is a storage whose fork logs fail on demand.
type failingForks struct {
	tidemark.Storage
	fail chan error // a value fails the next append to a fork
}

func (f *failingForks) Open(ctx context.Context, with storage.Options) (*storage.Opened, error) {
	o, err := f.Storage.Open(ctx, with)
	if err == nil {
		o.Forks = &failingLogs{o.Forks, f.fail}
	}
	return o, err
}

type failingLogs struct {
	store.ForkLogs
	fail chan error
}

func (f *failingLogs) Open(ctx context.Context, name string) (store.Log, error) {
	log, err := f.ForkLogs.Open(ctx, name)
	return &failing{Log: log, fail: f.fail}, err
}

// TestKeepLogFails: a log that fails while it is written to ends its fork alone, until a later request opens it
// again. A full disk does not end it.
func TestKeepLogFails(t *testing.T) {
	t.Parallel()
	storage := &failingForks{&datadir.Dir{Path: filepath.Join(t.TempDir(), "data")}, make(chan error, 1)}
	now := time.Now()
	var mu sync.Mutex
	s := &tidemark.Server{Storage: storage}
	s.SetClock(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	})
	servertest.Start(t, s)
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "a", Keep: true, Controllers: []string{"-*"}}).RESTConfig()
	must(t, f, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	storage.fail <- store.ErrNoSpace
	must(t, f, http.StatusInsufficientStorage, "POST", configMaps, configMap("b", "1"))
	must(t, f, http.StatusCreated, "POST", configMaps, configMap("c", "1"))
	storage.fail <- errors.New("the disk is on fire")
	if code, response := send(t, f, "POST", configMaps, configMap("d", "1")); code < 500 {
		t.Errorf("a failed write: %d %s", code, response)
	}
	response := ""
	await.True(t, "the end of the fork", func() bool {
		_, response = send(t, s.RESTConfig(), "GET", "/forks/a", "")
		return strings.Contains(response, "on fire")
	})
	if code, _ := send(t, f, "GET", configMaps, ""); code != http.StatusInternalServerError || !strings.Contains(response, "the log of the kept fork a failed") {
		t.Errorf("after the failure: %d %s", code, response)
	}
	must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("d", "1"))
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	must(t, f, http.StatusOK, "GET", configMaps+"/c", "")
	must(t, f, http.StatusNotFound, "GET", configMaps+"/d", "")
}

// TestKeepCredentials: a kept fork is opened by tokens of its service accounts, which are in the fork alone, and by users
// who may POST its path below /forks on the server. Requests without credentials, and with those of other users, open it not.
func TestKeepCredentials(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("alice-token,alice,alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *tidemark.Server {
		s := on(dir)
		s.Authentication.TokenFile = tokens
		return servertest.Start(t, s)
	}
	s := start()
	issued := map[string]string{}
	for _, name := range []string{"a", "b"} {
		f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: name, Keep: true}).RESTConfig()
		must(t, f, http.StatusCreated, "POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`)
		var review struct{ Status struct{ Token string } }
		if err := json.Unmarshal([]byte(must(t, f, http.StatusCreated, "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{}}`)), &review); err != nil {
			t.Fatal(err)
		}
		issued[name] = review.Status.Token
	}
	wantOpen := func(want bool) {
		t.Helper()
		if got := must(t, s.RESTConfig(), http.StatusOK, "GET", "/forks/a", ""); strings.Contains(got, `"resourceVersion"`) != want {
			t.Errorf("open=%v, want %v: %s", !want, want, got)
		}
	}
	as := func(c *rest.Config) *rest.Config {
		c.Host = below(s, "a").Host
		return c
	}
	alice, err := s.RESTConfigFor("alice")
	if err != nil {
		t.Fatal(err)
	}
	servertest.Stop(t, s)
	s = start()
	for _, path := range []string{configMaps, "/readyz", "/version", "/", ""} {
		must(t, as(servertest.Anonymous(s)), http.StatusForbidden, "GET", path, "")
		must(t, as(servertest.WithToken(s, "wrong")), http.StatusUnauthorized, "GET", path, "")
		must(t, as(servertest.WithToken(s, issued["b"])), http.StatusUnauthorized, "GET", path, "")
		wantOpen(false)
	}
	fromCert := func() *rest.Config {
		c := rest.CopyConfig(alice)
		c.CAData, c.ServerName = s.RESTConfig().CAData, s.RESTConfig().ServerName
		return as(c)
	}
	robot, err := s.RESTConfigFor("system:serviceaccount:default:robot")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{configMaps, "/readyz", "/version"} {
		must(t, as(servertest.WithToken(s, "alice-token")), http.StatusForbidden, "GET", path, "")
		must(t, fromCert(), http.StatusForbidden, "GET", path, "")
		must(t, as(rest.CopyConfig(robot)), http.StatusForbidden, "GET", path, "")
		wantOpen(false)
	}
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"use-a"},"rules":[{"nonResourceURLs":["/forks/a"],"verbs":["post"]}]}`)
	must(t, s.RESTConfig(), http.StatusCreated, "POST", bindingsPath, bind("use-a", "alice"))
	for _, token := range []string{"alice-token", issued["a"]} {
		must(t, as(servertest.WithToken(s, token)), http.StatusForbidden, "GET", configMaps, "")
		wantOpen(true)
		must(t, as(servertest.Anonymous(s)), http.StatusForbidden, "GET", configMaps, "")
		must(t, as(servertest.Anonymous(s)), http.StatusOK, "GET", "/readyz", "")
		servertest.Stop(t, s)
		s = start()
		wantOpen(false)
	}
	must(t, fromCert(), http.StatusForbidden, "GET", configMaps, "")
	wantOpen(true)
}

// TestKeepUndecided: where the authorizer cannot decide whether a user may open a kept fork, the response is an error of the
// server, and not a refusal. The request opens nothing.
func TestKeepUndecided(t *testing.T) {
	t.Parallel()
	undecided := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := `{"allowed":false}`
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"/forks/a"`) {
			status = `{"allowed":true,"denied":true}` // an error: a review must not have both
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, status)
	}))
	defer undecided.Close()
	at := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(at, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	start := func() *tidemark.Server {
		s := on(filepath.Join(at, "data"))
		s.Authentication.TokenFile = file("tokens.csv", "alice-token,alice,alice\n")
		s.Authorization.Modes, s.Authorization.WebhookVersion = []string{"RBAC", "Webhook"}, "v1"
		s.Authorization.WebhookConfigFile = file("kubeconfig", `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"`+undecided.URL+`"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`)
		return servertest.Start(t, s)
	}
	s := start()
	mustFork(t, s.Root(), tidemark.ForkOptions{Name: "a", Keep: true})
	servertest.Stop(t, s)
	s = start()
	alice := servertest.WithToken(s, "alice-token")
	alice.Host = below(s, "a").Host
	if got := must(t, alice, http.StatusInternalServerError, "GET", configMaps, ""); !strings.Contains(got, "the authorizer could not decide") {
		t.Errorf("got %s", got)
	}
	if got := must(t, s.RESTConfig(), http.StatusOK, "GET", "/forks/a", ""); strings.Contains(got, `"resourceVersion"`) {
		t.Errorf("the fork is open: %s", got)
	}
}

// countedForks is a storage whose fork logs are opened when the test lets them.
type countedForks struct {
	tidemark.Storage
	open  atomic.Int64  // at the same time
	began chan struct{} // a value for each
	goOn  chan struct{}
	most  atomic.Int64
}

func (c *countedForks) Open(ctx context.Context, with storage.Options) (*storage.Opened, error) {
	o, err := c.Storage.Open(ctx, with)
	if err == nil {
		o.Forks = &countedLogs{o.Forks, c}
	}
	return o, err
}

type countedLogs struct {
	store.ForkLogs
	c *countedForks
}

func (l *countedLogs) Open(ctx context.Context, name string) (store.Log, error) {
	n := l.c.open.Add(1)
	defer l.c.open.Add(-1)
	for most := l.c.most.Load(); n > most && !l.c.most.CompareAndSwap(most, n); most = l.c.most.Load() {
	}
	l.c.began <- struct{}{}
	<-l.c.goOn
	return l.ForkLogs.Open(ctx, name)
}

// TestKeepOpenings: a server opens two kept forks at a time.
func TestKeepOpenings(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := servertest.Start(t, on(dir))
	const forks = 5
	for i := range forks {
		mustFork(t, s.Root(), tidemark.ForkOptions{Name: fmt.Sprintf("f%d", i), Keep: true})
	}
	servertest.Stop(t, s)
	storage := &countedForks{Storage: &datadir.Dir{Path: dir}, began: make(chan struct{}, forks), goOn: make(chan struct{})}
	s = servertest.Start(t, &tidemark.Server{Storage: storage})
	var wg sync.WaitGroup
	for i := range forks {
		wg.Go(func() {
			if code, response := send(t, below(s, fmt.Sprintf("f%d", i)), "GET", configMaps, ""); code != http.StatusOK {
				t.Errorf("f%d: %d %s", i, code, response)
			}
		})
	}
	for range 2 {
		<-storage.began
	}
	close(storage.goOn)
	wg.Wait()
	if most := storage.most.Load(); most != 2 {
		t.Errorf("%d logs were opened at a time, want 2", most)
	}
}

// TestKeepIdle: a kept fork that no request uses is closed, unless a Go program has it. The next request opens it again.
func TestKeepIdle(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := servertest.Start(t, on(dir))
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", `{"name":"a","keep":true}`)
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", `{"name":"b","keep":true}`)
	if _, err := s.Fork("b"); err != nil {
		t.Fatal(err)
	}
	open := func(name string) bool {
		return get[struct{ ResourceVersion string }](t, s.RESTConfig(), "/forks/"+name).ResourceVersion != ""
	}
	must(t, below(s, "a"), http.StatusCreated, "POST", configMaps, configMap("x", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", below(s, "a").Host+configMaps+"?watch=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := servertest.Client(t, below(s, "a")).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if s.CloseIdle(); !open("a") || !open("b") {
		t.Error("a fork in use was closed")
	}
	cancel()
	watch.Body.Close()
	await.True(t, "the fork to be closed", func() bool {
		s.CloseIdle()
		return !open("a")
	})
	if !open("b") {
		t.Error("a fork that a program has was closed")
	}
	must(t, below(s, "a"), http.StatusOK, "GET", configMaps+"/x", "")
}

// TestKeepHistory: the kept forks of a server share the disk space of its history.
func TestKeepHistory(t *testing.T) {
	t.Parallel()
	s := on(filepath.Join(t.TempDir(), "data"))
	s.History.MaxDiskBytes = tidemark.MaxKeptForks << 20
	servertest.Start(t, s)
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "a", Keep: true}).RESTConfig()
	for _, world := range []*rest.Config{f, s.RESTConfig()} {
		must(t, world, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	}
	first := configMaps + "?resourceVersionMatch=Exact&resourceVersion="
	ofFork, ofServer := first+get[head](t, f, configMaps).Metadata.ResourceVersion, first+get[head](t, s.RESTConfig(), configMaps).Metadata.ResourceVersion
	for i := range 10 {
		for _, world := range []*rest.Config{f, s.RESTConfig()} {
			must(t, world, http.StatusOK, "PATCH", configMaps+"/a", fmt.Sprintf(`{"data":{"v":%q}}`, strings.Repeat(strconv.Itoa(i), 400<<10)))
		}
	}
	await.True(t, "the fork to drop history: it has 4 MiB, and may have 1 MiB", func() bool {
		code, _ := send(t, f, "GET", ofFork, "")
		return code == http.StatusGone
	})
	must(t, s.RESTConfig(), http.StatusOK, "GET", ofServer, "")
}

// TestKeepPast: a kept fork of the past has the time of the state that it begins with, also after a restart.
func TestKeepPast(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := on(dir)
	var later atomic.Int64
	began := time.Now().UTC().Truncate(time.Second)
	s.SetClock(func() time.Time { return began.Add(time.Duration(later.Load())) })
	servertest.Start(t, s)
	settle(t, s.Root())
	later.Store(int64(time.Minute))
	must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	then := s.Root().Revision()
	later.Store(int64(2 * time.Minute))
	must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("b", "1"))
	later.Store(int64(3 * time.Minute))
	check := func(path string, minutes time.Duration) {
		t.Helper()
		if got := get[struct{ BaseTime time.Time }](t, s.RESTConfig(), path).BaseTime; !got.Equal(began.Add(minutes * time.Minute)) {
			t.Errorf("%s begins with a state of %v, want %v", path, got, began.Add(minutes*time.Minute))
		}
	}
	for name, body := range map[string]string{"past": `"name":"past","keep":true`, "passing": `"name":"passing"`} {
		must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", fmt.Sprintf(`{%s,"resourceVersion":"%d"}`, body, then))
		check("/forks/"+name, 1)
	}
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", `{"name":"now","keep":true}`)
	check("/forks/now", 2)
	fork, err := s.Fork("past")
	if err != nil {
		t.Fatal(err)
	}
	if got := tidemark.StoreOf(fork).Any().Time(); !got.Equal(began.Add(time.Minute)) {
		t.Errorf("the newest change of the fork is of %v", got)
	}
	servertest.Stop(t, s)
	s = servertest.Start(t, on(dir))
	check("/forks/past", 1)
	must(t, below(s, "past"), http.StatusOK, "GET", configMaps+"/a", "")
	check("/forks/past", 1)
}
