package encryption

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// TestFollow checks that a changed file takes effect, and that one that cannot read the stored
// values does not.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		path := dir + "/config.yaml"
		writeConfig(t, path, rules("secrets", aescbcKeys("a")))
		c := Config{Path: path, Log: slog.New(slog.NewTextHandler(&logged, nil))}
		set, err := Load(c)
		if err != nil {
			t.Fatal(err)
		}
		l := Wrap(memlog.New(), NewActive(set))
		s, err := stores.Open(t.Context(), store.Options{Log: l, Encryption: l})
		if err != nil {
			t.Fatal(err)
		}
		l.Follow(c)
		write(t, s, "secrets", "ns/a", "text")
		write(t, s, "configmaps", "ns/a", "text")
		hash := l.ConfigHash()
		change := func(config string) {
			t.Helper()
			if config == "" {
				os.Remove(path)
			} else {
				writeConfig(t, path, config)
			}
			time.Sleep(retryFile + pollFile)
			synctest.Wait()
		}
		refused := func(config, why string) {
			t.Helper()
			logged.Reset()
			before := l.Reloads()
			change(config)
			if r := l.Reloads(); l.ConfigHash() != hash || r.Failed == before.Failed || r.Succeeded != before.Succeeded || !strings.Contains(logged.String(), why) {
				t.Errorf("%+v, %s", r, logged.String())
			}
			if n := strings.Count(logged.String(), "was refused"); n != 1 {
				t.Errorf("%d lines for one refused file", n)
			}
			write(t, s, "secrets", "ns/b", "text")
		}
		refused("nonsense", "couldn't get version/kind")
		refused(rules("secrets", aescbcKeys("b")), "2 stored objects cannot be read")
		refused(rules("secrets", aescbcKeys("a"))+"- resources: [configmaps]\n  providers: [{"+aescbcKeys("b")+"}]\n", "/registry/configmaps/ns/a: no matching prefix found")
		refused(rules("configmaps", "identity: {}"), "identity transformer tried to read encrypted data")

		next := rules("secrets", aescbcKeys("b"), aescbcKeys("a"), "identity: {}")
		change(next)
		if r := l.Reloads(); r.Succeeded != 1 || r.LastSuccess.IsZero() || l.ConfigHash() != hashOf([]byte(next)) {
			t.Errorf("%+v", r)
		}
		if !s.Outdated("secrets", "ns/a") {
			t.Error("not outdated after the change")
		}
		hash = l.ConfigHash()
		refused(rules("secrets", aescbcKeys("b")), "2 stored objects cannot be read")
		for _, key := range []string{"ns/a", "ns/b"} {
			write(t, s, "secrets", key, "text")
		}
		writeConfig(t, path, "nonsense")
		time.Sleep(2 * pollFile)
		writeConfig(t, path, rules("secrets", aescbcKeys("b")))
		time.Sleep(2 * pollFile) // a refused file does not hold up the next one
		synctest.Wait()
		if l.Reloads().Succeeded != 2 {
			t.Errorf("all have the new key: %s", logged.String())
		}
		for _, secret := range []string{secretOf("a"), secretOf("b")} {
			if strings.Contains(logged.String(), secret) {
				t.Error("the log has a key")
			}
		}
		storetest.Close(t, s)
	})
}

// TestExchange: writes go on while another Set takes over, and none is lost.
func TestExchange(t *testing.T) {
	log := memlog.New()
	sets := []*Set{mustSet(t, rules("secrets", aescbcKeys("a"), aesgcmKeys("b"))), mustSet(t, rules("secrets", aesgcmKeys("b"), aescbcKeys("a")))}
	l := Wrap(log, NewActive(sets[0]))
	s, err := stores.Open(t.Context(), store.Options{Log: l, Encryption: l})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var all error
		for i := range 50 {
			err := l.exchange(t.Context(), sets[(i+1)%2])
			all = errors.Join(all, err)
		}
		done <- all
	}()
	for i := range 500 {
		write(t, s, "secrets", "ns/"+string(rune('a'+i%20)), "text")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	storetest.Close(t, s)
	storetest.Close(t, mustOpenStore(t, log, sets[0]))
}
