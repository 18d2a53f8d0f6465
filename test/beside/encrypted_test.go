package beside

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// encryption is a configuration with a provider for each of several resources. The first key is the one that
// values are written with.
const encryption = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- {resources: [secrets], providers: [{aesgcm: {keys: [%[1]s]}}, {identity: {}}]}
- {resources: [configmaps], providers: [{aescbc: {keys: [%[1]s]}}, {identity: {}}]}
- {resources: [ones.beside.example.com], providers: [{secretbox: {keys: [%[1]s]}}, {identity: {}}]}
`

// TestEncrypted checks that two Tidemark servers and a kube-apiserver read the values that each of
// them encrypts. One of them writes with another key, as during a rotation. Then another one
// changes to that key, without a restart.
func TestEncrypted(t *testing.T) {
	tier.Full(t)
	c := newCluster(t)
	keys := map[string]string{}
	for _, name := range []string{"old", "new"} {
		secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 11)[:32]))
		keys[name] = fmt.Sprintf("{name: %s, secret: %s}", name, secret)
	}
	write := func(file, first, second string) {
		c.must(os.WriteFile(file+".new", fmt.Appendf(nil, encryption, keys[first]+", "+keys[second]), 0o600))
		c.must(os.Rename(file+".new", file))
	}
	flag := func(first, second string) string {
		file := filepath.Join(c.dir, first+".yaml")
		write(file, first, second)
		return "--encryption-provider-config=" + file
	}
	writes := map[*server]string{} // the key that a server writes with
	k := c.serve(kube, "192.0.2.1", flag("old", "new"))
	writes[k] = "old"
	first := c.serve(tidemark, "192.0.2.2", flag("new", "old"))
	writes[first] = "new"
	reloaded := filepath.Join(c.dir, "reloaded.yaml")
	write(reloaded, "old", "new")
	second := c.serve(tidemark, "192.0.2.3", "--encryption-provider-config="+reloaded, "--encryption-provider-config-automatic-reload")
	writes[second] = "old"
	all := []*server{k, first, second}
	k.want(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object(fmt.Sprintf(definition, "one")))
	for _, kind := range []struct{ at, key, provider, object string }{
		{"/api/v1/namespaces/default/secrets", "/registry/secrets/default/", "aesgcm", `{"metadata":{"name":%q},"stringData":{"a":"canary"}}`},
		{"/api/v1/namespaces/default/configmaps", "/registry/configmaps/default/", "aescbc", `{"metadata":{"name":%q},"data":{"a":"canary"}}`},
		{"/apis/beside.example.com/v1/namespaces/default/ones", "/registry/beside.example.com/ones/default/", "secretbox", `{"apiVersion":"beside.example.com/v1","kind":"Kindone","metadata":{"name":%q},"spec":{"text":"canary"}}`},
	} {
		prefix := func(s *server) string {
			return fmt.Sprintf("k8s:enc:%s:v1:%s:", kind.provider, writes[s])
		}
		stored := func(s *server, name string) {
			t.Helper()
			if value, _ := c.value(kind.key + name); !strings.HasPrefix(string(value), prefix(s)) || strings.Contains(string(value), "canary") {
				t.Errorf("%s by %s: etcd has %.40q, want a value that begins with %s", name, s.url, value, prefix(s))
			}
		}
		for i, a := range all {
			name := fmt.Sprint("o-", i)
			a.until("the server takes objects", func() bool {
				code, _ := a.send("POST", kind.at, object(fmt.Sprintf(kind.object, name)))
				return code == http.StatusCreated || code == http.StatusConflict
			})
			stored(a, name)
			for _, b := range all {
				same(t, a, b, kind.at+"/"+name)
			}
			for _, b := range all { // an update that changes nothing writes a value again that has another key
				b.want(http.StatusOK, "PUT", kind.at+"/"+name, b.want(http.StatusOK, "GET", kind.at+"/"+name, nil))
				stored(b, name)
				b.want(http.StatusOK, "PATCH", kind.at+"/"+name, object(`{"metadata":{"labels":{"by":"`+b.kind+`"}}}`))
				stored(b, name)
				same(t, b, a, kind.at+"/"+name)
			}
			_, list := a.send("GET", kind.at, nil)
			if n := strings.Count(string(list), `"name":"o-`); n != i+1 {
				t.Errorf("a list at %s has %d objects, want %d: %s", a.url, n, i+1, list)
			}
		}
		remove(t, k, first, kind.at+"/o-1")
		remove(t, first, k, kind.at+"/o-0")
	}
	write(reloaded, "new", "old")
	const at, key = "/api/v1/namespaces/default/secrets/o-2", "/registry/secrets/default/o-2"
	second.until("an update that changes nothing writes with the new key", func() bool {
		second.want(http.StatusOK, "PUT", at, second.want(http.StatusOK, "GET", at, nil))
		value, _ := c.value(key)
		return strings.HasPrefix(string(value), "k8s:enc:aesgcm:v1:new:")
	})
	same(t, second, k, at)
	same(t, second, first, at)
	remove(t, second, k, at)
}
