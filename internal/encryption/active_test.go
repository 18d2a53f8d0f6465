package encryption

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/encryption/kmstest"
)

// TestFollowShared checks that a changed file takes effect if it can read the values that several
// servers write and have stored.
func TestFollowShared(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		path := dir + "/config.yaml"
		config := rules("secrets", aescbcKeys("a"))
		writeConfig(t, path, config)
		c := Config{Path: path, Log: slog.New(slog.NewTextHandler(&logged, nil))}
		set, err := Load(c)
		if err != nil {
			t.Fatal(err)
		}
		a := NewActive(set)
		defer a.Close()
		values := map[string][]byte{"/registry/secrets/ns/damaged": []byte("k8s:enc:aescbc:v1:a:damaged")}
		put := func(at string) {
			t.Helper()
			collection, _, _ := strings.Cut(strings.TrimPrefix(at, "/registry/"), "/")
			if values[at], err = a.EncryptValue(collection, []byte("text"), []byte(at)); err != nil {
				t.Fatal(err)
			}
		}
		var asked []string
		var broken error
		a.ReadFrom(func(_ context.Context, collections []string) iter.Seq2[Value, error] {
			asked = collections
			return func(yield func(Value, error) bool) {
				for at, value := range values {
					collection, _, _ := strings.Cut(strings.TrimPrefix(at, "/registry/"), "/")
					if !yield(Value{collection, []byte(at), value}, nil) {
						return
					}
				}
				if broken != nil {
					yield(Value{}, broken)
				}
			}
		})
		a.Follow(c)
		change := func(config string) Reloads {
			t.Helper()
			logged.Reset()
			writeConfig(t, path, config)
			time.Sleep(retryFile + pollFile)
			synctest.Wait()
			return a.Reloads()
		}
		refused := func(config, why string) {
			t.Helper()
			before, hash := a.Reloads(), a.ConfigHash()
			if r := change(config); r.Failed == before.Failed || r.Succeeded != before.Succeeded || a.ConfigHash() != hash || !strings.Contains(logged.String(), why) {
				t.Errorf("%+v, want it refused because %s; the log has %s", r, why, logged.String())
			}
		}
		accepted := func(config string, collections ...string) {
			t.Helper()
			before := a.Reloads()
			if r := change(config); r.Succeeded != before.Succeeded+1 || a.ConfigHash() != hashOf([]byte(config)) {
				t.Errorf("%+v, want it accepted; the log has %s", r, logged.String())
			}
			if !slices.Equal(asked, collections) {
				t.Errorf("the values of %q were read, want those of %q", asked, collections)
			}
		}
		put("/registry/secrets/ns/a")
		put("/registry/configmaps/ns/a")

		refused(rules("secrets", aescbcKeys("b"), "identity: {}"), `cannot read secrets as they are written now, with aescbc, key \"a\"`)
		rotated := func(collection string) bool { return a.Generation(collection) != 0 }
		if rotated("secrets") {
			t.Error("a refused file rotates")
		}
		broken = errors.New("etcd is away")
		refused(rules("secrets", aescbcKeys("a", "b")), "reading what is stored: etcd is away")
		broken = nil
		accepted(rules("secrets", aescbcKeys("a", "b"))+"# changed", "secrets")
		if !rotated("secrets") || rotated("configmaps") {
			t.Errorf("rotated: secrets %t, configmaps %t; want true, false", rotated("secrets"), rotated("configmaps"))
		}
		accepted(rules("secrets", aescbcKeys("b", "a")), "secrets")
		refused(rules("secrets", aescbcKeys("b")), "1 stored objects cannot be read")
		if _, outdated, err := a.OpenValue(t.Context(), "secrets", values["/registry/secrets/ns/a"], []byte("/registry/secrets/ns/a")); err != nil || !outdated {
			t.Errorf("a value with the former key: outdated %t, %v", outdated, err)
		}
		put("/registry/secrets/ns/a")
		accepted(rules("secrets", aescbcKeys("b")), "secrets")

		configMaps := rules("secrets", aescbcKeys("b")) + "- resources: [configmaps]\n  providers: [{" + aescbcKeys("b") + "}"
		refused(configMaps+"]\n", "cannot read configmaps as they are written now, with identity")
		accepted(configMaps+", {identity: {}}]\n", "configmaps", "secrets")
		if !rotated("configmaps") || rotated("pods") {
			t.Errorf("rotated: configmaps %t, pods %t; want true, false", rotated("configmaps"), rotated("pods"))
		}
		accepted(rules("*.*", "identity: {}", aescbcKeys("b")))
		for _, collection := range []string{"secrets", "pods", "pandas.example.com"} {
			if !rotated(collection) {
				t.Errorf("%s is not rotated by a rule for everything", collection)
			}
		}
		accepted(rules("pods", "identity: {}", aescbcKeys("b")) + "- resources: [secrets, configmaps]\n  providers: [{identity: {}}, {" + aescbcKeys("b") + "}]\n")
		if !rotated("pandas.example.com") {
			t.Error("a collection without a rule is not rotated, though it had one")
		}
		if encrypted, opened, failed := a.Counts(); encrypted != 2 || opened != 1 || failed != 0 {
			t.Errorf("%d values encrypted, %d decrypted, %d failed; want 2, 1, 0", encrypted, opened, failed)
		}
	})
}

// stored yields one value.
func stored(v Value) func(context.Context, []string) iter.Seq2[Value, error] {
	return func(context.Context, []string) iter.Seq2[Value, error] {
		return func(yield func(Value, error) bool) { yield(v, nil) }
	}
}

// TestReloadWithoutPlugin checks that a KMS plugin that is down cannot be removed by a reload,
// because other servers may use it, and the values that it has encrypted may be read later.
func TestReloadWithoutPlugin(t *testing.T) {
	p := kmstest.Start(t, "one")
	provider := kmsProvider("p", p, "1s") // calls wait for it while the plugin is down
	withKMS := rules("secrets", provider)
	other, at := awaitWell(t, withKMS), []byte("/registry/secrets/ns/a")
	value, err := other.EncryptValue("secrets", []byte("{}"), at)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(context.Context, []string) iter.Seq2[Value, error] {
		return func(func(Value, error) bool) {}
	}

	var now atomic.Int64
	expired, err := newSet(Config{Path: "c", Now: func() time.Time { return time.Unix(0, now.Load()) }}.withDefaults(), []byte(withKMS))
	if err != nil {
		t.Fatal(err)
	}
	expired.Await(t.Context())
	writing := NewActive(expired)
	defer writing.Close()
	writing.ReadFrom(nothing)
	now.Add(int64(seedTTL + time.Second))
	reading := NewActive(awaitWell(t, rules("secrets", aescbcKeys("b"), provider)))
	reading.ReadFrom(stored(Value{"secrets", at, value}))
	p.Stop()
	never := NewActive(mustSet(t, withKMS))
	never.ReadFrom(nothing)

	plain := rules("secrets", aescbcKeys("b"), "identity: {}")
	for name, a := range map[string]*Active{"whose data key has expired": writing, "that was never well": never, "of a stored value": reading} {
		if err := a.exchange(t.Context(), mustSet(t, plain)); err == nil {
			t.Errorf("a plugin %s was removed", name)
		}
	}
	if err := never.exchange(t.Context(), mustSet(t, rules("secrets", aescbcKeys("b"), provider))); err != nil {
		t.Errorf("a plugin that was never well, behind a key: %v", err)
	}
}

// TestReloadWithOtherSecret: aescbc accepts some values with a wrong key. A configuration with another secret under the
// name of the key is refused nevertheless.
func TestReloadWithOtherSecret(t *testing.T) {
	old, at := mustSet(t, rules("secrets", aescbcKeys("a"))), []byte("/registry/secrets/ns/a")
	value, err := old.EncryptValue("secrets", []byte(`{"kind":"Secret"}`), at)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 { // about ten of them accept the probe
		secret := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%032d", i))
		next := mustSet(t, rules("secrets", fmt.Sprintf("aescbc: {keys: [{name: a, secret: %s}]}", secret)))
		if old.checkWritten(t.Context(), next) == nil {
			t.Errorf("the secret %d reads what is written", i)
		}
		if old.checkStored(t.Context(), next, stored(Value{"secrets", at, value})(t.Context(), nil)) == nil {
			t.Errorf("the secret %d reads what is stored", i)
		}
	}
}
