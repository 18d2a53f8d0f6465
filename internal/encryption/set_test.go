package encryption

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// rules returns a configuration with one list of providers, each a line of YAML.
func rules(resources string, providers ...string) string {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	fmt.Fprintf(&b, "- resources: [%s]\n  providers:\n", quoted(resources))
	for _, p := range providers {
		fmt.Fprintf(&b, "  - %s\n", p)
	}
	return b.String()
}

// quoted quotes a list, since * has a meaning in YAML.
func quoted(list string) string {
	var all []string
	for name := range strings.SplitSeq(list, ",") {
		all = append(all, fmt.Sprintf("'%s'", strings.TrimSpace(name)))
	}
	return strings.Join(all, ", ")
}

func aescbcKeys(names ...string) string    { return keys("aescbc", names) }
func aesgcmKeys(names ...string) string    { return keys("aesgcm", names) }
func secretboxKeys(names ...string) string { return keys("secretbox", names) }

// keys returns a provider whose keys follow from their names.
func keys(provider string, names []string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("{name: %s, secret: %s}", name, secretOf(name)))
	}
	return fmt.Sprintf("%s: {keys: [%s]}", provider, strings.Join(all, ", "))
}

func mustSet(t testing.TB, config string) *Set {
	t.Helper()
	s, err := newSet(Config{Path: "config.yaml"}.withDefaults(), []byte(config))
	if err != nil {
		t.Fatalf("%v\n%s", err, config)
	}
	t.Cleanup(s.Close)
	return s
}

func writeConfig(t testing.TB, path, config string) string {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "config.yaml")
	}
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMethods encrypts and opens values of all sizes around the block size, and damages them.
func TestMethods(t *testing.T) {
	rng := testrand.New(t)
	for _, provider := range []string{aescbcKeys("k"), aesgcmKeys("k"), secretboxKeys("k")} {
		s := mustSet(t, rules("secrets", provider))
		r := s.rule("secrets")
		at := place{"secrets", "ns/a"}.path()
		for size := range 70 {
			value := make([]byte, size)
			for i := range value {
				value[i] = byte(rng.Uint32())
			}
			encrypted, err := r.encrypt(value, at)
			if err != nil || !isEncrypted(encrypted) {
				t.Fatalf("%s: %q, %v", provider, encrypted, err)
			}
			again, _ := r.encrypt(value, at)
			if bytes.Equal(encrypted, again) {
				t.Errorf("%s: one value has one form", provider)
			}
			got, i, err := r.open(t.Context(), encrypted, at)
			if err != nil || i != 0 || !bytes.Equal(got, value) || r.outdated(encrypted, at) {
				t.Fatalf("%s, %d bytes: got %x, %d, %v", provider, size, got, i, err)
			}
			damage(t, r, rng, encrypted, at)
		}
	}
}

// damage opens values with other bytes, and shorter ones: only CBC may succeed.
func damage(t *testing.T, r *rule, rng *rand.Rand, encrypted, at []byte) {
	t.Helper()
	bad := bytes.Clone(encrypted)
	prefix := len(r.ways[0].prefix)
	bad[prefix+rng.IntN(len(bad)-prefix)] ^= 1 << rng.IntN(8)
	_, weak := r.ways[0].method.(cbc)
	if _, _, err := r.open(t.Context(), bad, at); err == nil && !weak {
		t.Errorf("%s: a damaged value was opened", r.ways[0].prefix)
	}
	if _, _, err := r.open(t.Context(), encrypted[:prefix+rng.IntN(len(encrypted)-prefix)], at); err == nil && !weak {
		t.Errorf("%s: a short value was opened", r.ways[0].prefix)
	}
}

// TestRules checks the providers of a resource, which of them encrypts, and which values are
// outdated.
func TestRules(t *testing.T) {
	config := `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [events]
  providers: [{identity: {}}]
- resources: [secrets, pandas.awesome.example]
  providers: [{` + aescbcKeys("a", "b") + `}, {identity: {}}]
- resources: ['*.apps']
  providers: [{` + aesgcmKeys("apps") + `}]
- resources: ['*.']
  providers: [{` + secretboxKeys("core") + `}]
- resources: ['*.*']
  providers: [{` + aesgcmKeys("all") + `}]
`
	s := mustSet(t, config)
	for collection, want := range map[string]string{
		"events": "", "secrets": "k8s:enc:aescbc:v1:a:", "pandas.awesome.example": "k8s:enc:aescbc:v1:a:",
		"deployments.apps": "k8s:enc:aesgcm:v1:apps:", "configmaps": "k8s:enc:secretbox:v1:core:",
		"leases.coordination.k8s.io": "k8s:enc:aesgcm:v1:all:", "bears.awesome.example": "k8s:enc:aesgcm:v1:all:",
	} {
		if got := s.rule(collection).ways[0].prefix; got != want {
			t.Errorf("%s is written with %q, want %q", collection, got, want)
		}
	}
	if r := mustSet(t, rules("secrets", aesgcmKeys("a"))).rule("configmaps"); r != nil {
		t.Error("a resource without a rule has one")
	}
	at := place{"secrets", "ns/a"}.path()
	older := mustSet(t, rules("secrets", aescbcKeys("b"))).rule("secrets")
	r := s.rule("secrets")
	encrypted, _ := older.encrypt([]byte("{}"), at)
	for _, old := range [][]byte{encrypted, []byte("{}")} {
		if value, i, err := r.open(t.Context(), old, at); err != nil || i == 0 || string(value) != "{}" || !r.outdated(old, at) {
			t.Errorf("%q: %q, %d, %v", old, value, i, err)
		}
	}
}

// TestOpenErrors has kube-apiserver's words.
func TestOpenErrors(t *testing.T) {
	at := place{"secrets", "ns/a"}.path()
	encrypt := func(provider string) []byte {
		encrypted, err := mustSet(t, rules("secrets", provider)).rule("secrets").encrypt([]byte(`{"a":"b"}`), at)
		if err != nil {
			t.Fatal(err)
		}
		return encrypted
	}
	other := func(provider string) string { return strings.ReplaceAll(provider, secretOf("k"), secretOf("z")) }
	for _, c := range []struct {
		with   string
		stored []byte
		want   string
	}{
		{aesgcmKeys("k"), []byte("{}"), "no matching prefix found"},
		{aesgcmKeys("k"), encrypt(secretboxKeys("k")), "no matching prefix found"},
		{aesgcmKeys("k"), encrypt(aesgcmKeys("x")), "no matching key was found for the provided AES transformer"},
		{secretboxKeys("k", "l"), encrypt(secretboxKeys("x")), "no matching key was found for the provided Secretbox transformer"},
		{other(aesgcmKeys("k")), encrypt(aesgcmKeys("k")), "cipher: message authentication failed"},
		{other(secretboxKeys("k")), encrypt(secretboxKeys("k")), "output array was not large enough for encryption"},
		{aescbcKeys("k"), []byte("k8s:enc:aescbc:v1:k:"), "the stored data was shorter than the required size"},
		{aescbcKeys("k"), []byte("k8s:enc:aescbc:v1:k:0123456789abcdef"), "invalid PKCS7 data (empty or not padded)"},
		{aescbcKeys("k"), []byte("k8s:enc:aescbc:v1:k:0123456789abcdef0"), "the stored data is not a multiple of the block size"},
		{"identity: {}", []byte("k8s:enc:x"), "no matching prefix found"},
	} {
		_, err := mustSet(t, rules("secrets", c.with)).open(t.Context(), "secrets", c.stored, at)
		if err == nil || err.Error() != c.want {
			t.Errorf("%q with %s: got %v, want %s", c.stored, c.with, err, c.want)
		}
	}
	if _, err := new(Set).open(t.Context(), "secrets", encrypt(aesgcmKeys("k")), at); err != errEncrypted {
		t.Errorf("without a configuration: %v", err)
	}
	// Two providers may have a key of one name: both are tried.
	r := mustSet(t, rules("secrets", other(aesgcmKeys("k")), aesgcmKeys("k"))).rule("secrets")
	if _, i, err := r.open(t.Context(), encrypt(aesgcmKeys("k")), at); err != nil || i != 1 || !r.outdated(encrypt(aesgcmKeys("k")), at) {
		t.Errorf("the second key of one name: %d, %v", i, err)
	}
}

func TestPaths(t *testing.T) {
	for collection, want := range map[string]string{
		"secrets": "/registry/secrets/", "services": "/registry/services/specs/", "endpoints": "/registry/services/endpoints/",
		"nodes": "/registry/minions/", "ingresses.networking.k8s.io": "/registry/ingress/", "deployments.apps": "/registry/deployments/",
		"ingressclasses.networking.k8s.io": "/registry/ingressclasses/", "pandas.awesome.example": "/registry/awesome.example/pandas/",
		"customresourcedefinitions.apiextensions.k8s.io": "/registry/apiextensions.k8s.io/customresourcedefinitions/",
		"gateways.gateway.networking.k8s.io":             "/registry/gateway.networking.k8s.io/gateways/",
	} {
		if got := prefixOf(collection); got != want {
			t.Errorf("%s: got %s, want %s", collection, got, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	for value, want := range map[string]string{
		"k8s:enc:aescbc:v1:key1:xyz": `aescbc, key "key1"`, "k8s:enc:kms:v2:p:xyz": `the KMS plugin "p" (v2)`,
		"{}": "identity", "k8s:enc:": "an unknown provider", "k8s:enc:aesgcm:v1:" + strings.Repeat("x", 500): "an unknown provider",
	} {
		if got := describe([]byte(value)); got != want {
			t.Errorf("%s: got %s, want %s", value, got, want)
		}
	}
}
