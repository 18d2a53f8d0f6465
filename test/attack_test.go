package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

const (
	attackAlone    = 1500 * time.Millisecond // how long each attack runs by itself
	attackTogether = 8 * time.Second         // how long all run at once
	// attackMemory is the maximum memory of the server under any attack: the budgets of
	// docs/limits.md, twice, because of garbage that is not collected yet.
	attackMemory = 1 << 30
	// attackPatience bounds the 99th percentile of a good client's requests during attacks. The
	// attacks use most of the CPU themselves. A stalled seat or connection would take 30 s.
	attackPatience = 5 * time.Second
	// attackLimit bounds an attack on a machine that is too slow for it.
	attackLimit = 2 * time.Minute
)

// TestAttacks runs hostile clients, with and without a token: one attack after the other,
// then all at once. Meanwhile a good client gets all its responses in time, and the server's
// memory stays bounded.
func TestAttacks(t *testing.T) {
	tier.Full(t)
	p := &process{t: t, dir: t.TempDir()}
	p.start()
	t.Cleanup(p.kill)
	target := newTarget(t, p)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) { target.endure(t, attackAlone, a) })
	}
	t.Run("all at once", func(t *testing.T) { target.endure(t, attackTogether, attacks...) })
	if code := p.get(t.Context(), "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz afterwards: %d", code)
	}
}

// target is a server under attack.
type target struct {
	p       *process
	address string
	tls     *tls.Config
	admin   string // an administrator's token
	token   string // of a service account without rights
	again   int    // number of requests that the good client had to repeat

	sent atomic.Int64 // bytes that the hostile clients have sent, by a count of their own
}

// attack is one way to harm a server. It sends until the context is done, and checks
// nothing: responses of any kind, and connections that are closed, are right.
type attack struct {
	name string
	run  func(ctx context.Context, t *target)
}

func newTarget(t *testing.T, p *process) *target {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", p.dir+"/admin.kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	config, err := rest.TLSConfigFor(c)
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates, config.GetClientCertificate = nil, nil
	u, err := url.Parse(c.Host)
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = u.Hostname()
	clients := kubernetes.NewForConfigOrDie(c)
	accounts := clients.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "attacker"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := accounts.CreateToken(t.Context(), "attacker", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x := &target{p: p, address: u.Host, tls: config, token: made.Status.Token, admin: c.BearerToken}
	x.stalledWebhook(t)
	for i := range 2000 {
		x.good(t, "POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"some-%d"},"data":{"k":"v"}}`, i), nil)
	}
	return x
}

// stalledWebhook makes a kind whose conversion webhook never responds.
func (x *target) stalledWebhook(t *testing.T) {
	t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(func() { hook.CloseClientConnections(); hook.Close() })
	version := func(name string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`, name, storage)
	}
	x.good(t, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"stalls.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"stalls","kind":"Stall"},
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}}},"versions":[%s,%s]}}`,
		hook.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})), version("v1", true), version("v2", false)), nil)
	x.good(t, "POST", "/apis/example.com/v1/namespaces/default/stalls", `{"apiVersion":"example.com/v1","kind":"Stall","metadata":{"name":"a"}}`, nil)
}

// good sends a request of the good client, which has to succeed, and records its time. Like
// client-go, it repeats the request after Retry-After. Some of the attacks have the same rights and
// the same name: they take the seats that it would get.
func (x *target) good(t *testing.T, method, path, body string, took *[]time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	code, response, err := x.p.do(ctx, method, path, []byte(body))
	for range 10 {
		if code != http.StatusTooManyRequests {
			break
		}
		x.again++
		time.Sleep(time.Second)
		code, response, err = x.p.do(ctx, method, path, []byte(body))
	}
	if err != nil || code >= 300 {
		t.Errorf("%s %s of the good client after %v: %d %.300s, %v", method, path, time.Since(begin), code, response, err)
	}
	if took != nil {
		*took = append(*took, time.Since(begin))
	}
}

// endure runs attacks for a while, together with a good client: until all of them have begun, and there are enough
// requests of the client to judge.
func (x *target) endure(t *testing.T, d time.Duration, all ...attack) {
	ctx, cancel := context.WithTimeout(t.Context(), attackLimit)
	defer cancel()
	begin := time.Now()
	var running sync.WaitGroup
	for _, a := range all {
		running.Go(func() { a.run(ctx, x) })
	}
	var took []time.Duration
	x.again = 0
	x.sent.Store(0)
	peak := int64(0)
	for i := 0; ctx.Err() == nil && (time.Since(begin) < d || x.sent.Load() == 0 || len(took) < 20); i++ {
		name := fmt.Sprintf("good-%d-%d", i, rand.Uint32())
		x.good(t, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"`+name+`"}}`, &took)
		x.good(t, "GET", "/api/v1/namespaces/default/configmaps/"+name, "", &took)
		x.good(t, "GET", "/api/v1/namespaces/default/configmaps?limit=10", "", &took)
		x.good(t, "DELETE", "/api/v1/namespaces/default/configmaps/"+name, "", &took)
		if i%10 == 0 { // a new client
			x.p.client.CloseIdleConnections()
		}
		peak = max(peak, x.p.memory(t))
	}
	cancel()
	running.Wait()
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("%d requests of the good client: median %v, p99 %v, worst %v; asked to come again %d times; the server's memory %d MiB at most",
		len(took), took[len(took)/2], p99, took[len(took)-1], x.again, peak>>20)
	if x.sent.Load() == 0 {
		t.Error("the attack sent nothing")
	}
	if x.again > len(took)/10 {
		t.Errorf("the good client was asked to come again %d times", x.again)
	}
	if p99 > attackPatience {
		t.Errorf("p99 is %v, want %v at most", p99, attackPatience)
	}
	if peak > attackMemory {
		t.Errorf("the server takes %d MiB, want %d at most", peak>>20, attackMemory>>20)
	}
}

// memory is the process's resident memory in bytes; zero where it cannot be read.
func (p *process) memory(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if rest, ok := strings.CutPrefix(string(line), "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	return 0
}
