package controller_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestPerNamespace: each namespace has its ServiceAccount and its certificates,
// and they are restored when they are changed or deleted.
func TestPerNamespace(t *testing.T) {
	w := newWorld(t)
	w.settle()
	certificates := func(namespace string) *corev1.ConfigMap {
		var m corev1.ConfigMap
		if err := json.Unmarshal(w.get("configmaps", namespace+"/kube-root-ca.crt").Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return &m
	}
	for _, namespace := range []string{"default", "n"} {
		w.want("serviceaccounts", namespace+"/default", true)
		m := certificates(namespace)
		if m.Data["ca.crt"] != "the authority" || !strings.HasPrefix(m.Annotations["kubernetes.io/description"], "Contains a CA bundle") {
			t.Errorf("%s has %v %v", namespace, m.Data, m.Annotations)
		}
		if len(m.ManagedFields) > 0 && m.ManagedFields[0].Manager != "kube-controller-manager" {
			t.Errorf("it is managed by %s", m.ManagedFields[0].Manager)
		}
	}
	w.change("configmaps", "n/kube-root-ca.crt", "", func(o metav1.Object) {
		o.(*corev1.ConfigMap).Data = map[string]string{"ca.crt": "another", "more": "x"}
		o.SetLabels(map[string]string{"kept": "yes"})
	})
	w.erase("configmaps", "default/kube-root-ca.crt", "")
	w.erase("serviceaccounts", "default/default", "")
	w.settle()
	if m := certificates("n"); len(m.Data) != 1 || m.Data["ca.crt"] != "the authority" || m.Labels["kept"] != "yes" {
		t.Errorf("changed: %v %v", m.Data, m.Labels)
	}
	w.want("configmaps", "default/kube-root-ca.crt", true)
	w.want("serviceaccounts", "default/default", true)
	before := w.store.Any().Revision()
	w.restart()
	w.settle()
	if after := w.store.Any().Revision(); after != before {
		t.Errorf("a restart wrote revisions %d to %d", before+1, after)
	}
	w.config.RootCA = func() []byte { return []byte("a new authority") }
	w.restart()
	w.settle()
	if m := certificates("default"); m.Data["ca.crt"] != "a new authority" {
		t.Errorf("after a change of the authority: %v", m.Data)
	}
}

func event(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"involvedObject":{"namespace":"n"}}`, name)
}

// TestEvents checks that events are deleted an hour after their last write, also if the server was
// down meanwhile.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "event-ttl")
		after := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
			w.settle()
		}
		w.make("events", "n", event("a"))
		w.make("events", "n", event("written-again"))
		after(40 * time.Minute)
		w.change("events", "n/written-again", "", func(o metav1.Object) { o.(*corev1.Event).Count = 2 })
		w.make("events", "n", event("deleted"))
		w.erase("events", "n/deleted", "")
		after(20*time.Minute - time.Second)
		w.want("events", "n/a", true)
		after(2 * time.Second)
		w.want("events", "n/a", false)
		w.want("events", "n/written-again", true)
		after(40 * time.Minute)
		w.want("events", "n/written-again", false)

		// Events that exist at a start are judged by their own times alone.
		w.make("events", "n", event("created"))
		w.make("events", "n", fmt.Sprintf(`{"metadata":{"name":"future"},"involvedObject":{"namespace":"n"},"lastTimestamp":%q}`, time.Now().Add(9*time.Hour).UTC().Format(time.RFC3339)))
		after(30 * time.Minute)
		w.make("events", "n", fmt.Sprintf(`{"metadata":{"name":"seen"},"involvedObject":{"namespace":"n"},"lastTimestamp":%q}`, time.Now().UTC().Format(time.RFC3339)))
		w.change("events", "n/created", "", func(o metav1.Object) {
			o.(*corev1.Event).Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(time.Now())}
		})
		w.close()
		time.Sleep(20 * time.Minute)
		w.open()
		after(0)
		if got := w.keys("events", ""); !slices.Equal(got, []string{"n/created", "n/future", "n/seen"}) {
			t.Errorf("after the restart there are %q", got)
		}
		after(40*time.Minute + 2*time.Second)
		if got := w.keys("events", ""); !slices.Equal(got, []string{"n/future"}) {
			t.Errorf("an hour after their last time there are %q", got)
		}
		after(20 * time.Minute) // an hour after the start: a future time is ignored
		if got := w.keys("events", ""); len(got) > 0 {
			t.Errorf("there are %q", got)
		}
	})
}

// TestManyEvents checks that events that end at nearly the same time share timers.
func TestManyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "event-ttl")
		const events = 500
		for i := range events {
			w.make("events", "n", event(fmt.Sprintf("e%03d", i)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Hour - events*time.Millisecond/2)
		synctest.Wait()
		left := len(w.keys("events", ""))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if now := len(w.keys("events", "")); left == 0 || now != 0 {
			t.Errorf("%d events were left in the middle, %d at the end", left, now)
		}
		for _, f := range w.loops.Metrics() {
			if adds := f.Adds(); adds > events+5 {
				t.Errorf("%v looks for %d events", adds, events)
			}
		}
	})
}

// issued is a certificate that is good for a time.
func issued(t *testing.T, lasts time.Duration) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(lasts)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestRequests checks the deletion of certificate requests by their state.
func TestRequests(t *testing.T) {
	const requests = "certificatesigningrequests.certificates.k8s.io"
	for _, c := range []struct {
		name        string
		condition   certificatesv1.RequestConditionType
		certificate time.Duration
		stays       time.Duration
	}{
		{"pending", "", 0, 24 * time.Hour},
		{"approved", certificatesv1.CertificateApproved, 0, 24 * time.Hour},
		{"denied", certificatesv1.CertificateDenied, 0, time.Hour},
		{"failed", certificatesv1.CertificateFailed, 0, time.Hour},
		{"issued", certificatesv1.CertificateApproved, 9000 * time.Hour, time.Hour},
		{"expired", certificatesv1.CertificateApproved, 20 * time.Minute, 20 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "certificatesigningrequest-cleaner")
				w.make(requests, "", `{"metadata":{"name":"r"},"spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVFQXd3QmNqQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCTk5WY3RkMWczZzRBdmpvYVk3bEVnTEpUdTJyalRSK0w5dUdKZmtObHF5aUEwQ3BjTzRhREcrV0dGN1l1YVpDClRLQVpwNUhVMTFnUTRTRTJLcDhpOGkyZ0FEQUtCZ2dxaGtqT1BRUURBZ05JQURCRkFpRUFsUnJ0bFd5MVM3OUMKMUFUOTdYa2UrYUljVDFFSFY2VEJja05zR3F5a0lXUUNJRnFwY0Y3cGplV05IeUdFZkh4Q2xhQ0tJWEVyVytXWgpZaC8rVStxczRTUUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==","signerName":"a.b/c","usages":["client auth"]}}`)
				status := certificatesv1.CertificateSigningRequestStatus{}
				if c.condition != "" {
					status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: c.condition, Status: corev1.ConditionTrue, LastUpdateTime: metav1.Now()}}
				}
				if c.certificate > 0 {
					status.Certificate = issued(t, c.certificate)
				}
				w.response(requests, "r", status)
				time.Sleep(c.stays - 3*time.Second)
				w.restart()
				w.settle()
				w.want(requests, "r", true)
				time.Sleep(6 * time.Second)
				w.settle()
				w.want(requests, "r", false)
			})
		})
	}
}

// response sets the status of a request, bypassing the rules of its subresources.
func (w *world) response(collection, key string, status certificatesv1.CertificateSigningRequestStatus) {
	w.Helper()
	o := w.get(collection, key)
	text, err := json.Marshal(status)
	if err != nil {
		w.Fatal(err)
	}
	i := bytes.Index(o.Bytes(), []byte(`"status":{}`))
	if i < 0 {
		w.Fatalf("no empty status in %s", o.Bytes())
	}
	value := string(o.Bytes()[:o.RevisionAt]) + string(o.Bytes()[int(o.RevisionAt)+len(fmt.Sprint(o.Modified)):i]) + `"status":` + string(text) + "}"
	if _, err := w.store.Commit(w.Context(), store.Write{Collection: collection, Key: key, Value: []byte(value), RevisionAt: int(o.RevisionAt), If: o.Modified}); err != nil {
		w.Fatal(err)
	}
}

// TestYields checks that the loops that a kube-controller-manager has, too, pause while it holds
// its lease, and continue when it is gone.
func TestYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lead()
		own := []string{"event-ttl", "service-ip-repair"} // of kube-apiserver
		if got := w.paused(); len(got) != len(controller.Names())-len(own) || slices.ContainsFunc(own, func(n string) bool { return slices.Contains(got, n) }) {
			t.Errorf("paused are %q", got)
		}
		w.make("namespaces", "", `{"metadata":{"name":"new"}}`)
		w.owned("n", "garbage", reference("ConfigMap", "nobody", "u1"))
		w.make("events", "n", event("e"))
		for range 1800 { // the lease is renewed for an hour
			time.Sleep(2 * time.Second)
			w.change(leases, leader, "", func(o metav1.Object) {
				renewed := metav1.NewMicroTime(time.Now().Add(-time.Hour)) // a clock that goes wrong
				o.(*coordinationv1.Lease).Spec.RenewTime = &renewed
			})
		}
		synctest.Wait()
		w.settle() // paused loops do not delay it
		w.want("serviceaccounts", "new/default", false)
		w.want("configmaps", "n/garbage", true)
		w.want("events", "n/e", false)

		time.Sleep(14 * time.Second)
		synctest.Wait()
		w.want("configmaps", "n/garbage", true)
		time.Sleep(2 * time.Second) // it was not renewed
		synctest.Wait()
		w.settle()
		w.want("configmaps", "n/garbage", false)
		w.want("serviceaccounts", "new/default", true)
	})
}

const leases, leader = "leases.coordination.k8s.io", "kube-system/kube-controller-manager"

// lead makes the lease of a kube-controller-manager, which it has just renewed.
func (w *world) lead() {
	w.Helper()
	w.make("namespaces", "", `{"metadata":{"name":"kube-system"}}`)
	w.settle()
	now := time.Now().UTC().Format(metav1.RFC3339Micro)
	w.make(leases, "kube-system", fmt.Sprintf(`{"metadata":{"name":"kube-controller-manager"},"spec":{"holderIdentity":"me","leaseDurationSeconds":15,"renewTime":%q}}`, now))
	w.settle()
}

// paused are the loops that do nothing for now.
func (w *world) paused() (names []string) {
	for _, f := range w.loops.Metrics() {
		if f.Paused() == 1 {
			names = append(names, f.Name)
		}
	}
	return names
}

// TestYieldsAgain checks that the loops pause again when an expired lease is held again, and
// continue when it is released or deleted.
func TestYieldsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lead()
		time.Sleep(16 * time.Second) // it was not renewed
		synctest.Wait()
		if got := w.paused(); len(got) > 0 {
			t.Errorf("paused are %q after the lease", got)
		}
		hold := func(who string) {
			w.change(leases, leader, "", func(o metav1.Object) {
				renewed := metav1.NewMicroTime(time.Now())
				s := &o.(*coordinationv1.Lease).Spec
				s.HolderIdentity, s.RenewTime = &who, &renewed
			})
			synctest.Wait()
		}
		hold("me")
		if len(w.paused()) == 0 {
			t.Error("nothing is paused although the lease is held again")
		}
		hold("") // released
		if got := w.paused(); len(got) > 0 {
			t.Errorf("paused are %q after the release", got)
		}
		hold("me")
		w.erase(leases, leader, "")
		synctest.Wait()
		if got := w.paused(); len(got) > 0 {
			t.Errorf("paused are %q after the deletion", got)
		}
	})
}

// TestYieldsAtStart: a lease that has expired when a server starts does not pause the loops.
func TestYieldsAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lead()
		time.Sleep(10 * time.Second)
		w.restart()
		synctest.Wait()
		if len(w.paused()) == 0 {
			t.Error("nothing is paused although the lease is fresh")
		}
		time.Sleep(time.Minute)
		w.restart()
		synctest.Wait()
		if got := w.paused(); len(got) > 0 {
			t.Errorf("paused are %q for an old lease", got)
		}
	})
}

// TestLogIsPlain checks that errors about an object are logged without its contents.
func TestLogIsPlain(t *testing.T) { synctest.Test(t, testLogIsPlain) }

func testLogIsPlain(t *testing.T) {
	var lines bytes.Buffer
	w := newWorld(t)
	w.settle()
	w.loops.Stop()
	w.config.Log = slog.New(slog.NewTextHandler(&lines, nil))
	// An object that is not valid, as an older version may have stored it.
	value := `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"","creationTimestamp":"2020-01-01T00:00:00Z","labels":{"not valid":"hush hush"},` +
		`"ownerReferences":[` + reference("ConfigMap", "nobody", "u1") + `,` + reference("ConfigMap", "kube-root-ca.crt", w.uid("configmaps", "n/kube-root-ca.crt")) + `]},"type":"Opaque"}`
	at := strings.Index(value, `"resourceVersion":"`) + len(`"resourceVersion":"`)
	if _, err := w.store.Commit(t.Context(), store.Write{Collection: "secrets", Key: "n/s", Value: []byte(value), RevisionAt: at}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if err := w.loops.Settled(ctx); err == nil {
		t.Error("it settled although the secret cannot be changed")
	}
	w.loops.Stop()
	if text := lines.String(); !strings.Contains(text, "metadata.labels") || strings.Contains(text, "hush") {
		t.Errorf("the log says:\n%s", text)
	}
}

func TestEnabled(t *testing.T) {
	all := controller.Names()
	without := func(name string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == name })
	}
	for _, c := range []struct {
		words []string
		want  []string
		err   string
	}{
		{nil, all, ""},
		{[]string{"*"}, all, ""},
		{[]string{}, nil, ""},
		{[]string{"-*"}, nil, ""},
		{[]string{"*", "-garbage-collector"}, without("garbage-collector"), ""},
		{[]string{"-garbage-collector", "*"}, without("garbage-collector"), ""},
		{[]string{"*", "-garbage-collector-controller"}, without("garbage-collector"), ""},
		{[]string{"namespace-controller", "event-ttl"}, []string{"namespace", "event-ttl"}, ""},
		{[]string{"-garbage-collector"}, nil, "put a * before it"},
		{[]string{"*", "-job"}, nil, `no controller "job"`},
		{[]string{""}, nil, `no controller ""`},
	} {
		err := controller.Check(c.words)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v, want %q", c.words, err, c.err)
		}
		if err != nil {
			if _, err := controller.Start(controller.Config{Enabled: c.words, Registry: &registry.Registry{}}); err == nil {
				t.Errorf("%q: they started", c.words)
			}
			continue
		}
		w := newWorld(t)
		w.loops.Stop()
		w.config.Enabled = c.words
		w.restart()
		var got []string
		for _, f := range w.loops.Metrics() {
			got = append(got, f.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q runs %q, want %q", c.words, got, c.want)
		}
	}
}

// TestSwitchedOff checks that disabled loops do nothing, and that others continue.
func TestSwitchedOff(t *testing.T) {
	w := newWorld(t, "*", "-namespace", "-serviceaccount")
	w.make("configmaps", "n", `{"metadata":{"name":"m"}}`)
	w.erase("namespaces", "n", "")
	w.owned("default", "garbage", reference("ConfigMap", "nobody", "u1"))
	w.settle()
	w.want("namespaces", "n", true)
	w.want("configmaps", "n/m", true)
	w.want("serviceaccounts", "default/default", false)
	w.want("configmaps", "default/garbage", false)
}

// TestSettledWaits checks that Settled ends with its context, and not before a failed sync has
// succeeded.
func TestSettledWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle()
		var lines bytes.Buffer
		w.loops.Stop()
		w.config.Log = slog.New(slog.NewTextHandler(&lines, nil))
		broken := true
		w.config.RootCA = func() []byte {
			if broken {
				panic("no certificate today")
			}
			return []byte("the authority")
		}
		w.restart()
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if err := w.loops.Settled(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it settled: %v", err)
		}
		for _, f := range w.loops.Metrics() {
			if f.Name == "root-ca-certificate-publisher" && (f.Retries() < 5 || f.Depth() != 2) {
				t.Errorf("%v retries, %v to do", f.Retries(), f.Depth())
			}
		}
		broken = false
		w.settle()
		if text := lines.String(); !strings.Contains(text, "controller=root-ca-certificate-publisher") || !strings.Contains(text, "no certificate today") || strings.Count(text, "\n") > 40 {
			t.Errorf("the log says:\n%s", text)
		}
	})
}

// TestTooSlow checks that loops that fall behind the history start again, and miss nothing.
func TestTooSlow(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.loops.Stop()
	w.memory = 1
	var gate sync.RWMutex
	w.config.Catalog = func() *resource.Catalog {
		gate.RLock()
		defer gate.RUnlock()
		return builtin.Catalog()
	}
	var lines bytes.Buffer
	w.config.Log = slog.New(slog.NewTextHandler(&lines, nil))
	w.restart()
	w.settle()
	gate.Lock() // the reader stops at the next change
	owner := w.owned("n", "owner")
	w.owned("n", "dependent", reference("ConfigMap", "owner", owner))
	w.make("configmaps", "n", `{"metadata":{"name":"busy"}}`)
	for i := range 200 {
		w.change("configmaps", "n/busy", "", func(o metav1.Object) { o.SetLabels(map[string]string{"i": fmt.Sprint(i)}) })
	}
	w.erase("configmaps", "n/owner", "")
	w.erase("serviceaccounts", "n/default", "")
	gate.Unlock()
	w.settle()
	w.want("configmaps", "n/dependent", false)
	w.want("serviceaccounts", "n/default", true)
	if err := w.loops.Err(); err != nil {
		t.Error(err)
	}
	w.loops.Stop()
	if text := lines.String(); !strings.Contains(text, "begin again") {
		t.Errorf("the loops were never too slow: %s", text)
	}
}
