package integration_test

import (
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/encryption/kmstest"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// reloaded finds the metric of a configuration that came into effect.
var reloaded = regexp.MustCompile(`automatic_reloads_total\{[^}]*status="success"[^}]*\} [1-9]`)

// TestEncryptionUnderWrites: while clients write Secrets, KMS plugins stop, hang, change their keys
// and return ciphertexts that they cannot decrypt, and the configuration changes between them and
// local keys, also to files that are refused. Each Secret whose write was acknowledged can be read,
// before and after a restart.
func TestEncryptionUnderWrites(t *testing.T) {
	tier.Full(t)
	random := testrand.New(t)
	p, q := kmstest.Start(t, "p1"), kmstest.Start(t, "q1")
	kms := func(name string, p *kmstest.Plugin) string {
		return fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: '%s', timeout: 1s}", name, p.Endpoint())
	}
	every := []string{kms("p", p), kms("q", q), provider("aescbc", "a"), provider("secretbox", "b"), "identity: {}"}
	var e encrypted
	e.mustStart(t, true, every[0], "identity: {}")

	var mu sync.Mutex
	acknowledged := map[string]string{} // texts by name; guarded by mu
	var stop atomic.Bool
	var writers sync.WaitGroup
	secrets := e.secrets
	for i := range 6 {
		writers.Go(func() {
			for n := 0; !stop.Load(); n++ {
				s := secret(fmt.Sprintf("s%d-%d", i, n/3), fmt.Sprint("text ", n))
				write := func() (*corev1.Secret, error) { return secrets.Create(t.Context(), s, metav1.CreateOptions{}) }
				if n%3 != 0 {
					write = func() (*corev1.Secret, error) { return secrets.Update(t.Context(), s, metav1.UpdateOptions{}) }
				}
				if _, err := write(); err == nil {
					mu.Lock()
					acknowledged[s.Name] = string(s.Data["k"])
					mu.Unlock()
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	down := false
	for step := range 50 {
		switch random.IntN(10) {
		case 0:
			p.Set(fmt.Sprint("p", step), "ok")
		case 1:
			q.Set(fmt.Sprint("q", step), "ok")
		case 2:
			if down {
				p.Restart(t)
			} else {
				p.Stop()
			}
			down = !down
		case 3:
			q.Hang(random.IntN(2) == 0)
		case 4:
			p.Garble(random.IntN(2) == 0)
		case 5:
			q.Garble(random.IntN(2) == 0)
		default: // a file without a key that is in use is rejected
			random.Shuffle(len(every), func(i, j int) { every[i], every[j] = every[j], every[i] })
			e.write(t, every[:len(every)-random.IntN(3)]...)
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
	}
	stop.Store(true)
	writers.Wait()
	if down {
		p.Restart(t)
	}
	q.Hang(false)
	p.Garble(false)
	q.Garble(false)
	slices.Reverse(every)
	e.write(t, every...) // with everything well, a changed configuration comes into effect
	await.True(t, "a reload of the configuration", func() bool {
		_, metrics := servertest.Get(t, e.server.RESTConfig(), "/metrics")
		return reloaded.MatchString(metrics)
	})
	check := func(when string) {
		t.Helper()
		list, err := e.secrets.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		got := map[string]string{}
		for _, s := range list.Items {
			got[s.Name] = string(s.Data["k"])
		}
		for name, text := range acknowledged {
			if got[name] != text {
				t.Errorf("%s: %s has %q, want %q", when, name, got[name], text)
			}
		}
	}
	check("before the restart")
	e.server.Close()
	e.mustStart(t, true, every...)
	check("after a restart")
	t.Logf("%d Secrets", len(acknowledged))
}
