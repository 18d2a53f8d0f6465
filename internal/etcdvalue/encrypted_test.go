package etcdvalue_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
)

// The keys of the values that kube-apiserver wrote.
const (
	key32 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	key16 = "MDEyMzQ1Njc4OWFiY2RlZg=="
)

// byPeer are values that kube-apiserver v1.36.3 stored in etcd.
var byPeer = []struct{ collection, provider, value string }{
	{"secrets", "aescbc: {keys: [{name: key1, secret: " + key32 + "}]}",
		"azhzOmVuYzphZXNjYmM6djE6a2V5MTqWju1c8MHoa1tUwhRCZDxIpnVuMZhE2GbYJ6XIzR7VKOGcu/is1T+mwl7kLtnApeR+DjdVvHM+yDoYxIUInnn/7i03d/fXEV0gPyfRC5v75tvgChwiX9fAMUQTAcBfJsgshVJl4MUsnAU2+Wlt7kK7GWbW25/uNqVVh14qJcVTaDzS8dmFtw5I1XegQvJpl2yb3gDm4c5JcHXT4BXCQ/5iMVWx0wEtoZNdV6/dtGuqkC8fupKhRugwlP7NMG11N5/oS3f4VTgZ7gmv1XTCPnRQgYnQt6wamSpbql95fBjRiDl0UqSdLYdtc2xw4zEFhYs="},
	{"configmaps", "aesgcm: {keys: [{name: key1, secret: " + key16 + "}]}",
		"azhzOmVuYzphZXNnY206djE6a2V5MTpmN/odU2e8QYnw6KP7ER7qpW8GHn/TAJKIG/9kWNg1lCH0fwD+4W0prwTTl0mR9IZMRY09xMgOeij6JBAdQyxkv/JBUN9W2ZcwobOwiGbPTcY6SaYJcY1fAMeiie23Y18/0VkTqIc/R8qT4qgfO7s/35ZfFh+iZB80hZSxTVJOiBqWPHn2gZu8inUOpvNgv6zLA9aOQK/TBKnaWyZ39/IRZhhchA+Ir7f3oTMl7+AEocd4MxkIQY3u1l9WSlPl+0FrnzA2jW/vFbKZ6m9jbXJ6F4soZSa3q3Q0d+6E3/JMn2P/zhnJDQ=="},
	{"leases.coordination.k8s.io", "secretbox: {keys: [{name: box, secret: " + key32 + "}]}",
		"azhzOmVuYzpzZWNyZXRib3g6djE6Ym94OohOaAO0yroM0rA8fOslqx+SxoyJOw1T0tQRQ4ElICFcFxy184XBrFN2aNNlFkhKKWq6TbnIxbiMTLtU06LAcQWjDa13HQAu+7sBqECU5HVbMew1HPsRYTsfddVkm7Nxj/eywFf0DZj8T7ClCQ10lNM4cy8R0NEK+ZAOGsLs7M2A7PZbcz8T69lZhe0s7NpQTiVf0rY28+B6rGqkK0A9SGc="},
}

// use makes the codec encrypt all collections with a list of providers.
func use(t *testing.T, c *etcdvalue.Codec, providers ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: ['*.*']\n  providers: [{" + strings.Join(providers, "}, {") + "}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := encryption.Load(encryption.Config{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c.Use(encryption.NewActive(s))
}

// TestOpenPeers opens values of kube-apiserver, and encrypts them again.
func TestOpenPeers(t *testing.T) {
	for _, p := range byPeer {
		var c etcdvalue.Codec
		use(t, &c, p.provider)
		value, err := base64.StdEncoding.DecodeString(p.value)
		if err != nil {
			t.Fatal(err)
		}
		const key = "default/marker"
		d, err := c.Open(t.Context(), p.collection, key, value)
		if err != nil || d.Outdated || !bytes.Contains(d.JSON, []byte(`"name":"marker","namespace":"default"`)) {
			t.Fatalf("%s: got %s, outdated %t, %v", p.collection, d.JSON, d.Outdated, err)
		}
		encrypted, err := c.Encrypt(p.collection, key, d.JSON, d.RevisionAt)
		if err != nil || len(encrypted) != len(value) || bytes.Equal(encrypted, value) {
			t.Errorf("%s: encrypted again it has %d bytes, want %d; %v", p.collection, len(encrypted), len(value), err)
		}
		if again, err := c.Open(t.Context(), p.collection, key, encrypted); err != nil || !bytes.Equal(again.JSON, d.JSON) {
			t.Errorf("%s: encrypted and opened again: %s, %v", p.collection, again.JSON, err)
		}
		use(t, &c, "identity: {}", p.provider)
		if d, err := c.Open(t.Context(), p.collection, key, value); err != nil || !d.Outdated {
			t.Errorf("%s, if new values are plain: outdated %t, %v", p.collection, d.Outdated, err)
		}
		c.Use(nil)
		var unreadable *encryption.OpenError
		if _, err := c.Open(t.Context(), p.collection, key, value); !errors.As(err, &unreadable) || unreadable.Path != c.Keys.Of(p.collection, key) {
			t.Errorf("%s, without a configuration: %v", p.collection, err)
		}
	}
}

// TestPlaces: a value is bound to its whole key in etcd.
func TestPlaces(t *testing.T) {
	var c etcdvalue.Codec
	gcm := byPeer[1]
	use(t, &c, gcm.provider)
	value, err := base64.StdEncoding.DecodeString(gcm.value)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(t.Context(), "configmaps", "default/other", value); err == nil {
		t.Error("a value was opened at another key")
	}
	if _, err := c.Open(t.Context(), "secrets", "default/marker", value); err == nil {
		t.Error("a value was opened in another collection")
	}
	c.Keys = etcdvalue.NewKeys("/other")
	if _, err := c.Open(t.Context(), "configmaps", "default/marker", value); err == nil {
		t.Error("a value was opened below another prefix")
	}
}
