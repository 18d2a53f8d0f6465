package encryption

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/encryption/kmstest"
)

// key32 and key16 are the keys of the values in written.
const (
	key32 = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	key16 = "MDEyMzQ1Njc4OWFiY2RlZg=="
)

// written are values that kube-apiserver v1.36.3 stored in etcd.
var written = []struct{ collection, key, provider, value string }{
	{"secrets", "default/marker", "aescbc: {keys: [{name: key1, secret: " + key32 + "}]}",
		"azhzOmVuYzphZXNjYmM6djE6a2V5MTqWju1c8MHoa1tUwhRCZDxIpnVuMZhE2GbYJ6XIzR7VKOGcu/is1T+mwl7kLtnApeR+DjdVvHM+yDoYxIUInnn/7i03d/fXEV0gPyfRC5v75tvgChwiX9fAMUQTAcBfJsgshVJl4MUsnAU2+Wlt7kK7GWbW25/uNqVVh14qJcVTaDzS8dmFtw5I1XegQvJpl2yb3gDm4c5JcHXT4BXCQ/5iMVWx0wEtoZNdV6/dtGuqkC8fupKhRugwlP7NMG11N5/oS3f4VTgZ7gmv1XTCPnRQgYnQt6wamSpbql95fBjRiDl0UqSdLYdtc2xw4zEFhYs="},
	{"configmaps", "default/marker", "aesgcm: {keys: [{name: key1, secret: " + key16 + "}]}",
		"azhzOmVuYzphZXNnY206djE6a2V5MTpmN/odU2e8QYnw6KP7ER7qpW8GHn/TAJKIG/9kWNg1lCH0fwD+4W0prwTTl0mR9IZMRY09xMgOeij6JBAdQyxkv/JBUN9W2ZcwobOwiGbPTcY6SaYJcY1fAMeiie23Y18/0VkTqIc/R8qT4qgfO7s/35ZfFh+iZB80hZSxTVJOiBqWPHn2gZu8inUOpvNgv6zLA9aOQK/TBKnaWyZ39/IRZhhchA+Ir7f3oTMl7+AEocd4MxkIQY3u1l9WSlPl+0FrnzA2jW/vFbKZ6m9jbXJ6F4soZSa3q3Q0d+6E3/JMn2P/zhnJDQ=="},
	{"leases.coordination.k8s.io", "default/marker", "secretbox: {keys: [{name: box, secret: " + key32 + "}]}",
		"azhzOmVuYzpzZWNyZXRib3g6djE6Ym94OohOaAO0yroM0rA8fOslqx+SxoyJOw1T0tQRQ4ElICFcFxy184XBrFN2aNNlFkhKKWq6TbnIxbiMTLtU06LAcQWjDa13HQAu+7sBqECU5HVbMew1HPsRYTsfddVkm7Nxj/eywFf0DZj8T7ClCQ10lNM4cy8R0NEK+ZAOGsLs7M2A7PZbcz8T69lZhe0s7NpQTiVf0rY28+B6rGqkK0A9SGc="},
}

// writtenKMS is a Secret that kube-apiserver v1.36.3 stored with the plugin of package kmstest, whose
// key had the ID one.
const writtenKMS = "azhzOmVuYzprbXM6djI6cDoKlwIZQcBFzAVnshRtDU1NLCazd/sGabDeMhloU9WAh0PyS103KwtLmu7Mf2z5Dzv25d+CWZq5WigPrl64LkKEpaS4B+YO0jVBcfl///QuFTu1CmNIwmos2pcUwIqrRa39lWKhTbdxooxPWLHQoltmC2mkzujmSLr2b/AjjHo/KU3PvqtAh9cixJdyE166C++3Cvz5IKxePJEWg5CuvOAGKxb9CbIyNgy/xShaca/kb1SxF835Bw4k6Q7OpCQyV9vZBamauNdt2fgazzND7zKFDFDkGQmPhNNPwBe/mf38/OsdEvQw2xW+jJmLuA6c1MJZGQ0rL2Zhuy73+XzekI6KCI2gWlk1ieU490gzPMYpTrsxvdhhPKTcR2USA29uZRo8w8qjJsky0ifUXJn8ly+5putFC+JXDLX6eeyFwpaGyeWMAyRyD/ExIxUooJpYfInVFOi+Ju0R61ITA+RWIhYKD2ttc3Rlc3QuZXhhbXBsZRIDb25lKAE="

// TestUpstreamKMS opens it.
func TestUpstreamKMS(t *testing.T) {
	s := awaitWell(t, rules("secrets", kmsProvider("p", kmstest.Start(t, "one"), "1m")))
	encrypted, err := base64.StdEncoding.DecodeString(writtenKMS)
	if err != nil {
		t.Fatal(err)
	}
	at := place{"secrets", "default/marker"}.path()
	value, err := s.open(t.Context(), "secrets", encrypted, at)
	if err != nil || !bytes.HasPrefix(value, []byte("k8s\x00")) || !bytes.Contains(value, []byte("MARKER")) || s.rule("secrets").outdated(encrypted, at) {
		t.Errorf("got %q, %v", value, err)
	}
	if again, outdated, err := s.OpenValue(t.Context(), "secrets", encrypted, at); err != nil || outdated || !bytes.Equal(again, value) {
		t.Errorf("OpenValue: got %q, outdated %t, %v", again, outdated, err)
	}
	own, err := s.EncryptValue("secrets", value, at)
	if err != nil {
		t.Fatal(err)
	}
	if again, outdated, err := s.OpenValue(t.Context(), "secrets", own, at); err != nil || outdated || !bytes.Equal(again, value) {
		t.Errorf("EncryptValue and OpenValue: got %q, outdated %t, %v", again, outdated, err)
	}
}

// TestUpstream opens values that kube-apiserver wrote.
func TestUpstream(t *testing.T) {
	for _, w := range written {
		s := mustSet(t, rules(w.collection, w.provider))
		encrypted, err := base64.StdEncoding.DecodeString(w.value)
		if err != nil {
			t.Fatal(err)
		}
		at := place{w.collection, w.key}.path()
		value, err := s.open(t.Context(), w.collection, encrypted, at)
		if err != nil || !bytes.HasPrefix(value, []byte("k8s\x00")) || !bytes.Contains(value, []byte("marker")) {
			t.Errorf("%s: got %q, %v", w.collection, value, err)
		}
		if w.collection == "configmaps" { // GCM binds the value to its place
			if _, err := s.open(t.Context(), w.collection, encrypted, place{w.collection, "default/other"}.path()); err == nil {
				t.Error("a value was opened at another place")
			}
		}
	}
}
