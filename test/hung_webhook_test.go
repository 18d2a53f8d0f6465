package test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

const (
	hungWrites = 10_000
	hungUsers  = 10
	// hungPace is the pause between the writes of a user. All are sent before the first one ends.
	hungPace = 10 * time.Millisecond
	// hungMemory and hungGoroutines are the limits of the server while the writes wait: those that
	// find room among waiting requests hold 32 KiB and their body each, the others are rejected,
	// and a webhook has 512 calls at most.
	hungMemory     = 512 << 20
	hungGoroutines = 12_000
	// hungOthers is the least number of other writes until the last one that waits gets a response. If they
	// waited for the webhook, there would be one in each of its timeouts.
	hungOthers = 20
)

// TestHungWebhook sends 10,000 writes at once to a webhook that never responds. The server's memory
// stays bounded, other writes continue, and no goroutine remains after the timeout of the webhook.
func TestHungWebhook(t *testing.T) {
	tier.Full(t)
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	hook.EnableHTTP2 = true
	hook.StartTLS()
	t.Cleanup(func() { hook.CloseClientConnections() })
	p := &process{t: t, dir: t.TempDir()}
	p.start()
	t.Cleanup(p.kill)
	p.must("POST", "/api/v1/namespaces", `{"metadata":{"name":"hung"}}`)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	p.must("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"hung"},"webhooks":[{
		"name":"hung.example.com","clientConfig":{"url":%q,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":20,
		"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"hung"}},
		"rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`, hook.URL, ca))
	p.must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"writer"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["create"]}]}`)
	p.must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"writer"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"writer"},"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"writers"}]}`)
	before := p.goroutines(t)

	codes, end := p.flood(t)
	var slowest time.Duration
	peakMemory, peakGoroutines, others := int64(0), 0, 0
	for ; ; others++ {
		select {
		case <-end:
		case <-time.After(20 * time.Millisecond):
			began := time.Now()
			p.must("POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"other-%d"}}`, others))
			slowest = max(slowest, time.Since(began))
			if others%10 == 0 {
				peakMemory, peakGoroutines = max(peakMemory, p.memory(t)), max(peakGoroutines, p.goroutines(t))
			}
			continue
		}
		t.Logf("responds: %v; the slowest of %d other writes took %v; %d MiB and %d goroutines at most, %d before", codes, others, slowest, peakMemory>>20, peakGoroutines, before)
		break
	}
	// Where the machine is slow, some have waited for the time-out of their request.
	if n := codes[http.StatusInternalServerError] + codes[http.StatusGatewayTimeout]; n < 1000 || n+codes[http.StatusTooManyRequests] != hungWrites {
		t.Errorf("responses by code: %v, want 500 or 504 for those that waited, at least 1000, and 429 for the others", codes)
	}
	if peakMemory > hungMemory || peakGoroutines > hungGoroutines {
		t.Errorf("%d MiB and %d goroutines are too many", peakMemory>>20, peakGoroutines)
	}
	if others < hungOthers {
		t.Errorf("%d other writes, want %d at least", others, hungOthers)
	}
	for range 1200 { // the connections of the writers stay open until the test ends
		if p.goroutines(t) < before+300 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%d goroutines are left of %d before", p.goroutines(t), before)
}

// flood sends the writes, by several users. It returns the responses by code, which may be read when end
// is closed.
func (p *process) flood(t *testing.T) (codes map[int]int, end chan struct{}) {
	codes, end = map[int]int{}, make(chan struct{})
	c, err := clientcmd.BuildConfigFromFlags("", p.dir+"/admin.kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for user := range hungUsers {
		as := rest.CopyConfig(c)
		as.Impersonate = rest.ImpersonationConfig{UserName: fmt.Sprintf("user-%d", user), Groups: []string{"writers"}}
		client, err := rest.HTTPClientFor(as)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.CloseIdleConnections)
		for i := range hungWrites / hungUsers {
			all.Go(func() {
				time.Sleep(time.Duration(i) * hungPace)
				body := fmt.Sprintf(`{"metadata":{"name":"w-%d-%d"},"data":{"k":%q}}`, user, i, strings.Repeat("x", 1000))
				code := 0
				r, err := http.NewRequestWithContext(context.Background(), "POST", p.base+"/api/v1/namespaces/hung/configmaps", strings.NewReader(body))
				if err == nil {
					r.Header.Set("Content-Type", "application/json")
					var response *http.Response
					if response, err = client.Do(r); err == nil {
						code = response.StatusCode
						_, _ = io.Copy(io.Discard, response.Body)
						response.Body.Close()
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if codes[code]++; err != nil && codes[code] < 3 {
					t.Logf("a write: %v", err)
				}
			})
		}
	}
	go func() { all.Wait(); close(end) }()
	return codes, end
}

// goroutines is how many goroutines the server has.
func (p *process) goroutines(t *testing.T) int {
	t.Helper()
	_, text, err := p.do(t.Context(), "GET", "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("there is no go_goroutines")
	return 0
}
