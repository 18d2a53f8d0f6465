package integration_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/encryption/kmstest"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// encrypted is a server with a data directory and a file of providers, that a test restarts.
type encrypted struct {
	dir, config string
	inProcess   bool
	gates       map[string]bool
	clock       *tidemark.Clock
	server      *tidemark.Server
	secrets     typedcorev1.SecretInterface
	client      *kubernetes.Clientset
}

// start starts the server with providers for Secrets. The first one encrypts.
func (e *encrypted) start(t *testing.T, reload bool, providers ...string) error {
	t.Helper()
	if e.dir == "" {
		e.dir, e.config = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "encryption.yaml")
	}
	e.server = &tidemark.Server{InProcess: e.inProcess, Storage: &datadir.Dir{Path: e.dir}, FeatureGates: e.gates, Clock: e.clock}
	if len(providers) > 0 {
		e.write(t, providers...)
		e.server.Encryption = tidemark.Encryption{ProviderConfigFile: e.config, AutomaticReload: reload}
	}
	if err := e.server.Start(t.Context()); err != nil {
		return err
	}
	t.Cleanup(func() { e.server.Close() })
	e.client = kubernetes.NewForConfigOrDie(e.server.RESTConfig())
	e.secrets = e.client.CoreV1().Secrets("default")
	return nil
}

func (e *encrypted) write(t *testing.T, providers ...string) {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n"
	for _, p := range providers {
		text += "  - " + p + "\n"
	}
	replace(t, e.config, text)
}

func (e *encrypted) mustStart(t *testing.T, reload bool, providers ...string) {
	t.Helper()
	if err := e.start(t, reload, providers...); err != nil {
		t.Fatal(err)
	}
}

// inClear reports whether a text is in a file of the data directory.
func (e *encrypted) inClear(t *testing.T, text string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(e.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		found = found || bytes.Contains(b, []byte(text))
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return found
}

func provider(kind, name string) string {
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 32)[:32]))
	return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", kind, name, key)
}

func secret(name, text string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"k": []byte(text)}}
}

// TestEncryptedOnDisk: neither the text nor its base64 is in a file of the data directory, with every
// provider, while the server runs and afterwards.
func TestEncryptedOnDisk(t *testing.T) {
	p := kmstest.Start(t, "one")
	for name, first := range map[string]string{
		"aescbc": provider("aescbc", "a"), "aesgcm": provider("aesgcm", "a"), "secretbox": provider("secretbox", "a"),
		"kms": fmt.Sprintf("kms: {apiVersion: v2, name: p, endpoint: '%s'}", p.Endpoint()),
	} {
		t.Run(name, func(t *testing.T) {
			var e encrypted
			const text = "the-marker-of-a-secret"
			coded := base64.StdEncoding.EncodeToString([]byte(text))
			check := func() {
				t.Helper()
				if e.inClear(t, text) || e.inClear(t, coded[:20]) {
					t.Error("a secret is on the disk in clear")
				}
			}
			e.mustStart(t, false, first)
			for i := range 3 {
				o, err := e.secrets.Create(t.Context(), secret(fmt.Sprintf("s%d", i), text), metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				o.Labels = map[string]string{"a": text}
				if _, err := e.secrets.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.secrets.Delete(t.Context(), "s0", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			plain := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"k": "a-text-in-clear"}}
			if _, err := e.client.CoreV1().ConfigMaps("default").Create(t.Context(), plain, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			check()
			e.server.Close()
			check()
			e.mustStart(t, false, first)
			check()
			if o, err := e.secrets.Get(t.Context(), "s1", metav1.GetOptions{}); err != nil || string(o.Data["k"]) != text || o.Labels["a"] != text {
				t.Errorf("after a restart: %v, %v", o, err)
			}
			if !e.inClear(t, "a-text-in-clear") {
				t.Error("the search does not find what is in clear")
			}
		})
	}
}

// TestEncryptionRotation: a write that changes nothing stores an object anew if it is not stored with
// the first key, and the next one does not.
func TestEncryptionRotation(t *testing.T) {
	var e encrypted
	e.mustStart(t, false)
	for _, name := range []string{"put", "apply"} {
		apply := corev1apply.Secret(name, "default").WithStringData(map[string]string{"k": name})
		if _, err := e.secrets.Apply(t.Context(), apply, metav1.ApplyOptions{FieldManager: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	e.server.Close()
	for _, providers := range [][]string{
		{provider("aescbc", "a"), "identity: {}"}, {provider("aesgcm", "b"), provider("aescbc", "a")}, {"identity: {}", provider("aesgcm", "b")},
	} {
		e.mustStart(t, false, providers...)
		put := func(dry bool) string {
			o, err := e.secrets.Get(t.Context(), "put", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			options := metav1.UpdateOptions{}
			if dry {
				options.DryRun = []string{metav1.DryRunAll}
			}
			if o, err = e.secrets.Update(t.Context(), o, options); err != nil {
				t.Fatal(err)
			}
			return o.ResourceVersion
		}
		apply := func() string {
			o, err := e.secrets.Apply(t.Context(), corev1apply.Secret("apply", "default").WithStringData(map[string]string{"k": "apply"}), metav1.ApplyOptions{FieldManager: "m"})
			if err != nil {
				t.Fatal(err)
			}
			return o.ResourceVersion
		}
		before, err := e.secrets.Get(t.Context(), "put", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if v := put(true); v != before.ResourceVersion {
			t.Error("a dry-run stored the object anew")
		}
		first := put(false)
		if first == before.ResourceVersion {
			t.Errorf("%s: the object was not stored anew", providers)
		}
		if second := put(false); second != first {
			t.Errorf("%s: the object was stored anew twice", providers)
		}
		applied, _ := e.secrets.Get(t.Context(), "apply", metav1.GetOptions{})
		if first = apply(); first == applied.ResourceVersion {
			t.Errorf("%s: an apply did not store the object anew", providers)
		}
		if second := apply(); second != first {
			t.Errorf("%s: an apply stored the object anew twice", providers)
		}
		e.server.Close()
	}
	e.mustStart(t, false) // all are plain again
}

// TestEncryptionWrongKey: a start that cannot read an object is refused with its name.
func TestEncryptionWrongKey(t *testing.T) {
	var e encrypted
	e.mustStart(t, false, provider("aescbc", "a"))
	if _, err := e.secrets.Create(t.Context(), secret("s", "x"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.server.Close()
	for _, providers := range [][]string{nil, {provider("aescbc", "b")}, {"identity: {}"}} {
		err := e.start(t, false, providers...)
		if err == nil || !strings.Contains(err.Error(), "/registry/secrets/default/s") || !strings.Contains(err.Error(), `aescbc, key "a" (1)`) {
			t.Errorf("%s: %v", providers, err)
		}
	}
	if err := e.start(t, false, "aescbc: {keys: [{name: key1, secret: MTIzNDU=}]}"); err == nil ||
		!strings.Contains(err.Error(), `resources[0].providers[0].aescbc.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 5, expected one of [16 24 32]`) {
		t.Errorf("an invalid configuration: %v", err)
	}
	e.mustStart(t, false, provider("aescbc", "a"))
}

// TestEncryptedHistory: history whose key was removed is no obstacle for reads of other objects, whose errors do not name it.
// The changes themselves are shown without fields.
func TestEncryptedHistory(t *testing.T) {
	var e encrypted
	e.mustStart(t, false, provider("aescbc", "a"))
	made, err := e.secrets.Create(t.Context(), secret("old", "x"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := strconv.ParseUint(made.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	e.server.Close()
	e.mustStart(t, false, provider("aescbc", "b"), provider("aescbc", "a"))
	if err := e.secrets.Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.server.Close()
	e.mustStart(t, false, provider("aescbc", "b"))
	c := e.server.RESTConfig()
	for path, want := range map[string]int{
		"/version": http.StatusOK, "/api/v1/namespaces/default": http.StatusOK, "/api/v1/namespaces/default/secrets/other": http.StatusNotFound,
		"/api/v1/namespaces/default/secrets/old": http.StatusInternalServerError, "/api/v1/namespaces/default/secrets": http.StatusInternalServerError,
	} {
		if code, _, b := exchange(t, c, http.MethodGet, fmt.Sprintf("/at/%d%s", at, path), ""); code != want {
			t.Errorf("%s: %d %s", path, code, b)
		}
	}
	for _, path := range []string{changesPath, changesIn("default")} {
		lost := 0
		for _, x := range listChanges(t, c, path, 3, nil) {
			if x.Resource == "secrets" && x.Name == "old" && len(x.Fields) == 0 && x.Verb != "" {
				lost++
			}
		}
		if lost != 2 {
			t.Errorf("%s: %d changes of the Secret without fields", path, lost)
		}
	}
	code, _, b := exchange(t, c, http.MethodGet, fmt.Sprintf("%s?watch=1&timeoutSeconds=1&resourceVersion=%d", changesPath, at-1), "")
	if code != http.StatusOK || strings.Contains(string(b), "ERROR") || strings.Count(string(b), `"name":"old"`) != 2 {
		t.Errorf("the watch: %d %s", code, b)
	}
}

// TestEncryptionReload changes the file while the server runs. History that a dropped key encrypted
// fails by name, and nothing else does.
func TestEncryptionReload(t *testing.T) { synctest.Test(t, testEncryptionReload) }

func testEncryptionReload(t *testing.T) {
	e := encrypted{inProcess: true}
	e.mustStart(t, true, provider("aescbc", "a"))
	old, err := e.secrets.Create(t.Context(), secret("s", "x"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	metric := func(text string) {
		t.Helper()
		await.True(t, text, func() bool {
			_, body := servertest.Get(t, e.server.RESTConfig(), "/metrics")
			return strings.Contains(body, text)
		})
	}
	e.write(t, provider("aescbc", "b")) // the object would be lost
	metric(`apiserver_encryption_config_controller_automatic_reloads_total{status="failure"} 1`)
	e.write(t, provider("aescbc", "b"), provider("aescbc", "a"))
	metric(`apiserver_encryption_config_controller_automatic_reloads_total{status="success"} 1`)
	next, err := e.secrets.Update(t.Context(), old, metav1.UpdateOptions{})
	if err != nil || next.ResourceVersion == old.ResourceVersion {
		t.Fatalf("not stored anew after a reload: %v", err)
	}
	e.write(t, provider("aescbc", "b"))
	metric(`apiserver_encryption_config_controller_automatic_reloads_total{status="success"} 2`)
	e.server.Close()

	e.mustStart(t, true, provider("aescbc", "b")) // history is not in memory
	if _, err := e.secrets.Get(t.Context(), "s", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	exact := metav1.ListOptions{ResourceVersion: old.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	_, err = e.secrets.List(t.Context(), exact)
	const want = `Internal error occurred: unable to transform key "/registry/secrets/default/s": no matching key was found for the provided AES transformer`
	if !apierrors.IsInternalError(err) || err.Error() != want {
		t.Errorf("history with a dropped key: %v", err)
	}
	if _, err := e.client.CoreV1().ConfigMaps("").List(t.Context(), exact); err != nil {
		t.Errorf("history of another resource: %v", err)
	}
	exact.ResourceVersion = next.ResourceVersion
	if all, err := e.secrets.List(t.Context(), exact); err != nil || len(all.Items) != 1 {
		t.Errorf("history with the key: %v", err)
	}
}

// TestKMSPlugin: its health is a check, and without it reads and other resources go on.
func TestKMSPlugin(t *testing.T) {
	p := kmstest.Start(t, "one")
	var e encrypted
	e.mustStart(t, false, fmt.Sprintf("kms: {apiVersion: v2, name: p, endpoint: '%s', timeout: 1m}", p.Endpoint()), "identity: {}")
	if code, body := servertest.Get(t, e.server.RESTConfig(), "/readyz/kms-providers"); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	if code, body := servertest.Get(t, e.server.RESTConfig(), "/livez/kms-providers"); code != http.StatusNotFound {
		t.Errorf("a restart does not help against a plugin that is down: %d %s", code, body)
	}
	if _, err := e.secrets.Create(t.Context(), secret("s", "x"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Hang(true)
	for i := range 20 { // the data key is in memory
		if _, err := e.secrets.Create(t.Context(), secret(fmt.Sprintf("t%d", i), "x"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p.Stop()
	if _, err := e.secrets.Get(t.Context(), "s", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := e.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// TestKMSClock: a clock that jumps ahead does not end the time for which a data key encrypts without the plugin.
func TestKMSClock(t *testing.T) {
	p := kmstest.Start(t, "one")
	e := encrypted{inProcess: true, clock: new(tidemark.Clock)}
	e.mustStart(t, false, fmt.Sprintf("kms: {apiVersion: v2, name: p, endpoint: '%s', timeout: 1m}", p.Endpoint()))
	p.Hang(true)
	for i := range 3 {
		if _, err := e.secrets.Create(t.Context(), secret(fmt.Sprint("s", i), "x"), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		e.clock.Advance(time.Hour)
	}
}

// TestUnreadableSecret: a server starts with a Secret that cannot be decrypted, serves the others, and lets clients delete
// it if the feature is enabled.
func TestUnreadableSecret(t *testing.T) {
	unsafe := map[string]bool{"AllowUnsafeMalformedObjectDeletion": true}
	for name, row := range map[string]struct {
		before, after string
		gates         map[string]bool // of the first start that cannot read it
	}{
		"a lost key of a KMS plugin":   {"", "", nil},
		"a key that is not configured": {provider("aescbc", "a"), provider("aescbc", "b"), unsafe},
	} {
		t.Run(name, func(t *testing.T) {
			p := kmstest.Start(t, "one")
			if row.before == "" {
				row.before = fmt.Sprintf("kms: {apiVersion: v2, name: p, endpoint: '%s', timeout: 1m}", p.Endpoint())
				row.after = row.before
			}
			e := encrypted{inProcess: true}
			make := func(name string) {
				t.Helper()
				if _, err := e.secrets.Create(t.Context(), secret(name, "x"), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			again := func(gates map[string]bool, provider string) {
				t.Helper()
				e.server.Close()
				e.gates = gates
				e.mustStart(t, false, provider)
			}
			e.mustStart(t, false, row.before)
			make("lost")
			p.Set("two", "ok")
			p.Lose("one")
			again(row.gates, row.after)
			make("good")
			_, err := e.secrets.Get(t.Context(), "lost", metav1.GetOptions{})
			if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `unable to transform key "/registry/secrets/default/lost"`) {
				t.Errorf("GET of the Secret: %v", err)
			}
			if _, err := e.secrets.Get(t.Context(), "good", metav1.GetOptions{}); err != nil {
				t.Errorf("GET of another one: %v", err)
			}
			if _, err := e.secrets.List(t.Context(), metav1.ListOptions{}); !apierrors.IsInternalError(err) {
				t.Errorf("LIST: %v", err)
			}
			if err := e.secrets.Delete(t.Context(), "lost", metav1.DeleteOptions{}); !apierrors.IsInternalError(err) {
				t.Errorf("DELETE without the option: %v", err)
			}
			again(unsafe, row.after)
			yes := true
			if err := e.secrets.Delete(t.Context(), "lost", metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &yes}); err != nil {
				t.Errorf("DELETE with the option: %v", err)
			}
			for range 2 {
				if all, err := e.secrets.List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) != 1 || all.Items[0].Name != "good" {
					t.Errorf("LIST after the deletion: %v, %v", all, err)
				}
				again(nil, row.after)
			}
		})
	}
}
