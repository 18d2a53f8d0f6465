package encryption

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/tidemark-dev/tidemark/internal/encryption/kmstest"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// kmsProvider is a provider whose calls have a timeout.
func kmsProvider(name string, p *kmstest.Plugin, timeout string) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: '%s', timeout: %s}", name, p.Endpoint(), timeout)
}

// awaitWell returns a Set whose plugins are healthy.
func awaitWell(t testing.TB, config string) *Set {
	t.Helper()
	s := mustSet(t, config)
	s.Await(t.Context())
	if err := s.Health(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKMS writes and reads over a socket, with a restart and a new key of the plugin.
func TestKMS(t *testing.T) {
	p := kmstest.Start(t, "one")
	config := rules("secrets", kmsProvider("p", p, "1m"), "identity: {}")
	log := memlog.New()
	set := awaitWell(t, config)
	s := mustOpenStore(t, log, set)
	for i := range 100 {
		write(t, s, "secrets", fmt.Sprintf("ns/%d", i), "text")
	}
	if got := p.Calls("Encrypt"); got != 1 {
		t.Errorf("100 values were encrypted with %d calls", got)
	}
	p.Set("two", "ok")
	if err := set.kms[0].check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !s.Outdated("secrets", "ns/1") {
		t.Error("not outdated after the plugin changed its key")
	}
	write(t, s, "secrets", "ns/1", "text")
	if s.Outdated("secrets", "ns/1") {
		t.Error("outdated after a write with the new key")
	}
	storetest.Close(t, s)
	if got := p.Calls("Decrypt"); got != 2 {
		t.Errorf("two data keys that were made here were decrypted %d times, want once each", got)
	}

	s = mustOpenStore(t, log, awaitWell(t, config))
	if got := p.Calls("Decrypt"); got != 5 {
		t.Errorf("a start with two data keys made %d calls, want two, and one for a new data key", got-2)
	}
	storetest.Close(t, s)

	p.Set("three", "ok")
	p.Lose("two")
	s = mustOpenStore(t, log, awaitWell(t, config))
	if got := s.Any().Get("secrets", "ns/1").Unreadable(); !strings.Contains(got, "/registry/secrets/ns/1") || !strings.Contains(got, "failed to decrypt DEK") {
		t.Errorf("a value with a lost key: %q", got)
	}
	if o := s.Any().Get("secrets", "ns/2"); o == nil || o.Unreadable() != "" {
		t.Errorf("a value with another key: %v", o)
	}
	write(t, s, "secrets", "ns/1", "") // it can be deleted
	storetest.Close(t, s)
	s = mustOpenStore(t, log, awaitWell(t, config))
	if s.HasUnreadable() || s.Any().Get("secrets", "ns/1") != nil {
		t.Error("the value is still there after its deletion and a start")
	}
	storetest.Close(t, s)
}

// TestKMSDown: reads and other resources go on, writes fail at once when the data key has expired.
func TestKMSDown(t *testing.T) {
	p := kmstest.Start(t, "one")
	var now atomic.Int64
	c := Config{Path: "c", Now: func() time.Time { return time.Unix(0, now.Load()) }}.withDefaults()
	set, err := newSet(c, []byte(rules("secrets", kmsProvider("p", p, "1s"))))
	if err != nil {
		t.Fatal(err)
	}
	set.Await(t.Context())
	s := mustOpenStore(t, memlog.New(), set)
	o := write(t, s, "secrets", "ns/a", "text")
	p.Stop()
	write(t, s, "secrets", "ns/b", "text") // the data key is still good
	now.Add(int64(seedTTL + time.Second))
	calls := p.Calls("Encrypt")
	_, err = s.Commit(t.Context(), store.Write{Collection: "secrets", Key: "ns/c", Value: []byte("{}"), RevisionAt: 1})
	if err == nil || !strings.Contains(err.Error(), "encryptedDEKSource with keyID hash \"sha256:") || p.Calls("Encrypt") != calls {
		t.Errorf("a write with an expired data key: %v, after %d calls", err, p.Calls("Encrypt")-calls)
	}
	write(t, s, "configmaps", "ns/a", "text")
	if s.Any().Get("secrets", "ns/a") != o {
		t.Error("the object is gone")
	}
	write(t, s, "secrets", "ns/a", "") // a deletion encrypts nothing
	if err := set.kms[0].check(t.Context()); err == nil || set.Health() == nil {
		t.Error("a plugin that is down is healthy")
	}
	p.Restart(t)
	set.Await(t.Context())
	write(t, s, "secrets", "ns/c", "text")
	storetest.Close(t, s)
}

// TestKMSGarbles: a data key that the plugin cannot decrypt encrypts nothing, and the plugin is unhealthy.
func TestKMSGarbles(t *testing.T) {
	p := kmstest.Start(t, "one")
	p.Garble(true)
	set := mustSet(t, rules("secrets", kmsProvider("p", p, "1m")))
	<-set.kms[0].first
	s := mustOpenStore(t, memlog.New(), set)
	const why = "the plugin cannot decrypt the DEK that it has encrypted"
	_, err := s.Commit(t.Context(), store.Write{Collection: "secrets", Key: "ns/a", Value: []byte("{}"), RevisionAt: 1})
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("a write: %v", err)
	}
	if err := set.Health(); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("the health of a plugin that garbles: %v", err)
	}
	p.Garble(false)
	if err := set.kms[0].check(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, s, "secrets", "ns/a", "text")

	p.Set("two", "ok")
	p.Garble(true)
	if err := set.kms[0].check(t.Context()); err == nil || set.Health() == nil {
		t.Error("a plugin that garbles is healthy after it changed its key")
	}
	write(t, s, "secrets", "ns/b", "text") // with the data key before
	p.Garble(false)
	storetest.Close(t, s)
}

// TestKMSLosesKey: a plugin that has still the ID of its key, but no longer the key, is unhealthy, and writes end as if it were
// down: a restart could not read them.
func TestKMSLosesKey(t *testing.T) {
	p := kmstest.Start(t, "one")
	var now atomic.Int64
	c := Config{Path: "c", Now: func() time.Time { return time.Unix(0, now.Load()) }}.withDefaults()
	set, err := newSet(c, []byte(rules("secrets", kmsProvider("p", p, "1m"))))
	if err != nil {
		t.Fatal(err)
	}
	set.Await(t.Context())
	s := mustOpenStore(t, memlog.New(), set)
	write(t, s, "secrets", "ns/a", "text")
	p.Lose("one")
	now.Add(int64(pollWell))
	const why = "the plugin cannot decrypt the DEK that it has encrypted"
	if err := set.kms[0].check(t.Context()); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("the plugin after it has lost its key: %v", err)
	}
	write(t, s, "secrets", "ns/b", "text") // it may be back soon
	now.Add(int64(seedTTL))
	if _, err := s.Commit(t.Context(), store.Write{Collection: "secrets", Key: "ns/c", Value: []byte("{}"), RevisionAt: 1}); err == nil {
		t.Error("a write is acknowledged three minutes after the plugin has lost its key")
	}
	p.Set("two", "ok")
	if err := set.kms[0].check(t.Context()); err != nil {
		t.Errorf("the plugin with another key: %v", err)
	}
	write(t, s, "secrets", "ns/c", "text")
	storetest.Close(t, s)
}

// TestKMSNeverUp: a start without the plugin works if nothing has to be decrypted.
func TestKMSNeverUp(t *testing.T) {
	p := kmstest.Start(t, "one")
	p.Stop()
	os.Remove(strings.TrimPrefix(p.Endpoint(), "unix://"))
	set := mustSet(t, rules("secrets", kmsProvider("p", p, "1m")))
	s := mustOpenStore(t, memlog.New(), set)
	_, err := s.Commit(t.Context(), store.Write{Collection: "secrets", Key: "ns/c", Value: []byte("{}"), RevisionAt: 1})
	if err == nil || !strings.Contains(err.Error(), `the KMS plugin "p" has given no data key yet`) {
		t.Errorf("got %v", err)
	}
	write(t, s, "configmaps", "ns/a", "text")
	storetest.Close(t, s)
}

// client is a plugin in the process, for a bubble. The zero value does not respond to calls.
type client struct {
	mu    sync.Mutex
	state kmsapi.StatusResponse // of Status
	fail  error                 // of Status
	keyID string                // of Encrypt; empty: Decrypt does not respond
	calls int                   // of Decrypt
}

func (c *client) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *client) Status(context.Context, *kmsapi.StatusRequest, ...grpc.CallOption) (*kmsapi.StatusResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &kmsapi.StatusResponse{Version: c.state.Version, Healthz: c.state.Healthz, KeyId: c.state.KeyId}, c.fail
}

func (c *client) Encrypt(_ context.Context, r *kmsapi.EncryptRequest, _ ...grpc.CallOption) (*kmsapi.EncryptResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &kmsapi.EncryptResponse{Ciphertext: r.Plaintext, KeyId: c.keyID}, nil
}

func (c *client) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest, _ ...grpc.CallOption) (*kmsapi.DecryptResponse, error) {
	hangs := false
	c.set(func() {
		c.calls++
		hangs = c.keyID == ""
	})
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &kmsapi.DecryptResponse{Plaintext: r.Ciphertext}, nil
}

// follow begins to follow a plugin in the process.
func (c *client) follow(t *testing.T) *kms {
	k := followKMS(Config{}.withDefaults(), &apiserver.KMSConfiguration{Name: "p", Timeout: &metav1.Duration{Duration: 3 * time.Second}}, c, func() error { return nil })
	t.Cleanup(k.close)
	return k
}

// TestFollowKMS checks the effects of the status over an hour.
func TestFollowKMS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{keyID: "one"}
		status := func(version, healthz, keyID string) {
			c.set(func() { c.state.Version, c.state.Healthz, c.state.KeyId = version, healthz, keyID })
		}
		status("v2", "ok", "one")
		k := c.follow(t)
		check := func(d time.Duration, ready, err string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			for _, c := range []struct {
				got  error
				want string
			}{{k.ready(), ready}, {k.err(), err}} {
				if (c.got == nil) != (c.want == "") || c.got != nil && !strings.Contains(c.got.Error(), c.want) {
					t.Errorf("got %v, want %q", c.got, c.want)
				}
			}
		}
		check(0, "", "")
		first := k.state.Load()
		check(time.Hour, "", "")
		if k.state.Load() != first {
			t.Error("a new data key without a new key of the plugin")
		}
		c.set(func() { c.fail = errors.New("down") })
		check(time.Minute, "", "failed to perform status section of the healthz check for KMS Provider p, error: down")
		check(3*time.Minute, "expired at", "down")
		c.set(func() { c.fail = nil })
		check(pollIll, "", "")
		for _, s := range []struct{ version, healthz, keyID, want string }{
			{"v2", "sick", "one", "got unexpected healthz status: sick"},
			{"v2beta1", "ok", "one", "should not change after the initial status response version v2, got v2beta1"},
			{"v1", "ok", "one", "expected KMSv2 API version v2, got v1"},
			{"v2", "ok", "", "keyID is empty"},
			{"v2", "ok", "two", "failed to rotate DEK"},
		} {
			status(s.version, s.healthz, s.keyID)
			check(time.Minute, "", s.want)
			status("v2", "ok", "one")
			check(time.Minute, "", "")
		}
		status("v2", "ok", "two")
		c.set(func() { c.keyID = "two" })
		check(time.Minute, "", "")
		if k.state.Load().keyID != "two" {
			t.Error("the new key is not in use")
		}
	})
}

// TestKMSDoesNotRespond: a read of many objects does not wait for each of them.
func TestKMSDoesNotRespond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{fail: errors.New("down")}
		k := c.follow(t)
		begin := time.Now()
		for i := range 1000 {
			e := envelope{keyID: "id", source: fmt.Append(nil, i), kind: gcmSeed}
			if _, err := k.open(t.Context(), append([]byte("\x0a\x01x"), e.tail()...), nil); err == nil {
				t.Fatal("opened")
			}
		}
		if d := time.Since(begin); d > 3*time.Second || c.calls != 1 {
			t.Errorf("%v, %d calls", d, c.calls)
		}
	})
}

// TestDataKeys: the cache is bounded.
func TestDataKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{keyID: "one", fail: errors.New("down")}
		k := c.follow(t)
		for i := range 2 * maxDataKeys {
			e := envelope{keyID: "id", source: fmt.Appendf(nil, "%032d", i), kind: gcmSeed}
			for range 2 {
				if _, err := k.dataKey(t.Context(), &e); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(k.keys) != maxDataKeys || c.calls != 2*maxDataKeys {
			t.Errorf("%d keys, %d calls", len(k.keys), c.calls)
		}
	})
}

// TestCachedDataKey: a call for one data key holds up no value whose data key is cached.
func TestCachedDataKey(t *testing.T) {
	c := &client{keyID: "one", fail: errors.New("down")}
	k := c.follow(t)
	cached := envelope{keyID: "id", source: fmt.Appendf(nil, "%032d", 1), kind: gcmSeed}
	if _, err := k.dataKey(t.Context(), &cached); err != nil {
		t.Fatal(err)
	}
	c.set(func() { c.keyID = "" })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		other := envelope{keyID: "id", source: fmt.Appendf(nil, "%032d", 2), kind: gcmSeed}
		_, err := k.dataKey(ctx, &other)
		done <- err
	}()
	for called := false; !called; {
		c.set(func() { called = c.calls == 2 })
	}
	if _, err := k.dataKey(t.Context(), &cached); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		t.Errorf("the value waited for the call: %v", err)
	default:
	}
	cancel()
	<-done
}

// TestKMSPatience: values share the time in which they are tried again, and have it anew when the plugin is back.
func TestKMSPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{fail: errors.New("down")}
		c.state.Version, c.state.Healthz, c.state.KeyId = "v2", "ok", "one"
		k := c.follow(t)
		s := &Set{rules: map[schema.GroupResource]*rule{{Resource: "secrets"}: {ways: []way{{prefix: "k8s:enc:kms:v2:p:", method: k}}}}}
		values := 0
		tries := func(most time.Duration) (again bool) {
			t.Helper()
			values++
			e := envelope{keyID: "one", source: fmt.Appendf(nil, "%032d", values), kind: gcmSeed}
			value := append([]byte("k8s:enc:kms:v2:p:\x0a\x01x"), e.tail()...)
			began := time.Now()
			_, _, err := s.OpenValue(t.Context(), "secrets", value, nil)
			var failed *OpenError
			if d := time.Since(began); !errors.As(err, &failed) || d > most {
				t.Errorf("value %d: %v after %v, want an error within %v", values, err, d, most)
				return false
			}
			return failed.Again
		}
		down := func() {
			t.Helper()
			began := time.Now()
			for tries(3 * time.Second) {
				time.Sleep(time.Second)
			}
			if d := time.Since(began); d < patience || d > patience+4*time.Second {
				t.Errorf("values were tried again for %v", d)
			}
			calls := c.calls
			for range 1000 {
				if tries(0) {
					t.Error("a value is to be tried again")
				}
				time.Sleep(time.Second)
			}
			if c.calls != calls {
				t.Errorf("%d calls of a plugin that is down", c.calls-calls)
			}
		}
		down()
		c.set(func() { c.fail, c.keyID = nil, "one" })
		time.Sleep(pollWell)
		synctest.Wait()
		if calls := c.calls; tries(0) || c.calls == calls { // the value is damaged, not its data key
			t.Error("a data key is not asked for, or is to be tried again, after the plugin is back")
		}
		c.set(func() { c.fail, c.keyID = errors.New("down"), "" })
		down()
	})
}

// TestKMSPatienceOfOutage: an outage has its own ten seconds, although one value could not be decrypted hours before.
func TestKMSPatienceOfOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{keyID: "one"}
		c.state.Version, c.state.Healthz, c.state.KeyId = "v2", "ok", "one"
		k := c.follow(t)
		s := &Set{rules: map[schema.GroupResource]*rule{{Resource: "secrets"}: {ways: []way{{prefix: "k8s:enc:kms:v2:p:", method: k}}}}}
		read := func(source string) (again bool) {
			t.Helper()
			e := envelope{keyID: "one", source: fmt.Appendf(nil, "%032s", source), kind: gcmSeed}
			value := append([]byte("k8s:enc:kms:v2:p:\x0a\x01x"), e.tail()...)
			_, _, err := s.OpenValue(t.Context(), "secrets", value, nil)
			var failed *OpenError
			if !errors.As(err, &failed) {
				t.Fatalf("%s: %v, want an *OpenError", source, err)
			}
			return failed.Again
		}
		synctest.Wait()
		c.set(func() { c.keyID = "" }) // no response to this value
		if !read("destroyed") {
			t.Error("the first failure is final")
		}
		c.set(func() { c.keyID = "one" })
		time.Sleep(time.Hour) // the plugin is healthy, and all other data keys are cached
		synctest.Wait()
		if err := k.err(); err != nil {
			t.Fatal(err)
		}
		c.set(func() { c.fail, c.keyID = errors.New("restarting"), "" })
		time.Sleep(pollWell) // the status finds it before a value does
		synctest.Wait()
		if !read("new") {
			t.Error("a value is given up at once, a moment after the plugin went down")
		}
	})
}
