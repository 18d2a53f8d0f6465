package webhook_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/webhook"
	"github.com/tidemark-dev/tidemark/internal/await"
)

// service is a service that reviews tokens.
type service struct {
	*httptest.Server
	asked atomic.Int64
	file  string // the kubeconfig

	mu   sync.Mutex
	last authenticationv1.TokenReview // guarded by mu
	auth string                       // of the last request; guarded by mu
}

// serve starts a service. response gets the number of the request, from one, and returns a status code and
// a body.
func serve(t *testing.T, response func(n int64, token string) (int, string)) *service {
	t.Helper()
	s := new(service)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.Method != "POST" || r.URL.Path != "/review" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		s.mu.Lock()
		s.last, s.auth = review, r.Header.Get("Authorization")
		s.mu.Unlock()
		code, body := response(s.asked.Add(1), review.Spec.Token)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	s.file = filepath.Join(t.TempDir(), "webhook.kubeconfig")
	s.write(t, "first")
	return s
}

// write writes the kubeconfig, with a token.
func (s *service) write(t *testing.T, token string) {
	t.Helper()
	dir := filepath.Dir(s.file)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"s","user":"u"}}],
		"clusters":[{"name":"s","cluster":{"server":%q,"certificate-authority":"ca.crt"}}],"users":[{"name":"u","user":{"token":%q}}]}`, s.URL+"/review", token)
	for name, content := range map[string]string{"ca.crt": string(ca), filepath.Base(s.file): text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *service) open(t *testing.T, change func(*webhook.Config)) *webhook.Tokens {
	t.Helper()
	c := webhook.Config{File: s.file, Version: "v1", CacheTTL: time.Minute, Audiences: []string{"api"}, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	w, err := webhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// ask returns the outcome for a token: its user, with audiences, or an error.
func ask(w *webhook.Tokens, token string, audiences ...string) string {
	u, good, err := w.AuthenticateToken(context.Background(), authn.NewToken(token), audiences)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case u == nil:
		return "none"
	}
	return fmt.Sprint(*u, good)
}

const ann = `{"authenticated":true,"user":{"username":"ann","uid":"7","groups":["dev"],"extra":{"k":["v"]}}`

// TestResponses checks the meaning of the responses of the service.
func TestResponses(t *testing.T) {
	const user = "{ann 7 [dev system:authenticated] map[k:[v]]}"
	for _, row := range []struct {
		version, response string
		code              int
		want              string
		calls             int64 // for two requests
	}{
		{"v1", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":` + ann + `}}`, 200, user + " [api]", 1},
		{"v1", `{"status":` + ann + `,"audiences":["other","api"]}}`, 200, user + " [api]", 1},
		{"v1beta1", `{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","status":` + ann + `}}`, 201, user + " [api]", 1},
		{"v1", `{"status":` + ann + `,"audiences":["other"]}}`, 200, "none", 1},
		{"v1", `{"status":{"authenticated":false,"user":{"username":"ann"}}}`, 200, "none", 1},
		{"v1", `{}`, 200, "none", 1},
		{"v1", `{"status":{"error":"no such token"}}`, 200, "error: no such token", 2},
		{"v1", `{"status":{"authenticated":true}}`, 200, "error: the token webhook names no user", 2},
		{"v1", `{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","status":` + ann + `}}`, 200, "error: the response of the token webhook is", 2},
		{"v1", `{"kind":"Pod"}`, 200, "error: the response of the token webhook is", 2},
		{"v1", `rubbish`, 200, "error: the response of the token webhook is no TokenReview", 2},
		{"v1", `{"status":` + ann + `},"x":"` + strings.Repeat("x", 1<<20) + `"}`, 200, "error: ", 2},
		{"v1", `rubbish`, 403, "error: ", 2},
		{"v1", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"wait","reason":"InternalError","code":500}`, 500, "error: wait", 10},
	} {
		s := serve(t, func(int64, string) (int, string) { return row.code, row.response })
		w := s.open(t, func(c *webhook.Config) { c.Version = row.version })
		for range 2 {
			if got := ask(w, "hush", "api"); got != row.want && (!strings.HasPrefix(row.want, "error: ") || !strings.HasPrefix(got, row.want)) || strings.Contains(got, "hush") {
				t.Errorf("%d %.100s: %s, want %s", row.code, row.response, got, row.want)
			}
		}
		if n := s.asked.Load(); n != row.calls {
			t.Errorf("%d %.100s: %d calls, want %d", row.code, row.response, n, row.calls)
		}
		if got := s.last; got.Spec.Token != "hush" || !slices.Equal(got.Spec.Audiences, []string{"api"}) || got.APIVersion != "authentication.k8s.io/"+row.version || got.Kind != "TokenReview" {
			t.Errorf("the service got %+v", got)
		}
	}
}

// TestRetry checks that a call that succeeds after failures succeeds.
func TestRetry(t *testing.T) {
	s := serve(t, func(n int64, _ string) (int, string) {
		if n < 5 {
			return 500, ""
		}
		return 200, `{"status":` + ann + `}}`
	})
	if got := ask(s.open(t, nil), "x", "api"); !strings.HasPrefix(got, "{ann ") || s.asked.Load() != 5 {
		t.Errorf("%s after %d calls", got, s.asked.Load())
	}
}

// TestCache checks that a response is cached for one token and its audiences, and for a limited
// time.
func TestCache(t *testing.T) {
	s := serve(t, func(_ int64, token string) (int, string) {
		if token == "wrong" {
			return 200, `{}`
		}
		return 200, `{"status":{"authenticated":true,"user":{"username":"` + token + `"}}}`
	})
	now := time.Now()
	w := s.open(t, func(c *webhook.Config) { c.Now = func() time.Time { return now } })
	for i, row := range []struct {
		token     string
		audiences []string
		calls     int64
	}{
		{"a", []string{"api"}, 1}, {"a", []string{"api"}, 1}, {"b", []string{"api"}, 2}, {"a", []string{"api", "x"}, 3}, {"a", []string{"ap", "ix"}, 4},
		{"wrong", []string{"api"}, 5}, {"wrong", []string{"api"}, 5},
	} {
		if ask(w, row.token, row.audiences...); s.asked.Load() != row.calls {
			t.Errorf("%d: %d calls, want %d", i, s.asked.Load(), row.calls)
		}
	}
	now = now.Add(61 * time.Second)
	if ask(w, "a", "api"); s.asked.Load() != 6 {
		t.Errorf("a minute later: %d calls", s.asked.Load())
	}
	w = s.open(t, func(c *webhook.Config) { c.CacheTTL = 0 })
	ask(w, "a", "api")
	if ask(w, "a", "api"); s.asked.Load() != 8 {
		t.Errorf("without a cache: %d calls", s.asked.Load())
	}
}

// TestReload checks that the kubeconfig is read again when it changes, and that an invalid one is
// ignored.
func TestReload(t *testing.T) {
	s := serve(t, func(int64, string) (int, string) { return 200, `{"status":` + ann + `}}` })
	now := time.Now()
	w := s.open(t, func(c *webhook.Config) { c.CacheTTL, c.Now = 0, func() time.Time { return now } })
	for _, row := range []struct{ token, want string }{{"first", "first"}, {"second", "second"}, {"", "second"}} {
		if row.token == "" {
			if err := os.WriteFile(s.file, []byte("rubbish"), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			s.write(t, row.token)
		}
		now = now.Add(2 * time.Second)
		if got := ask(w, "x", "api"); !strings.HasPrefix(got, "{ann ") || s.auth != "Bearer "+row.want {
			t.Errorf("%s, with %q, want %q", got, s.auth, row.want)
		}
	}
}

// TestShared: requests with one token share a call, which ends when the last of them leaves. Other tokens do not wait.
func TestShared(t *testing.T) {
	begun, release := make(chan struct{}, 10), make(chan struct{})
	s := serve(t, func(_ int64, token string) (int, string) {
		if token == "slow" {
			begun <- struct{}{}
			<-release
		}
		return 200, `{"status":` + ann + `}}`
	})
	w := s.open(t, nil)
	w.SetFresh(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	left := make(chan struct{})
	wg.Go(func() {
		defer close(left)
		if _, _, err := w.AuthenticateToken(ctx, authn.NewToken("slow"), []string{"api"}); err != context.Canceled {
			t.Errorf("the request that ended: %v", err)
		}
	})
	<-begun
	for range 5 {
		wg.Go(func() {
			if got := ask(w, "slow", "api"); !strings.HasPrefix(got, "{ann ") {
				t.Error(got)
			}
		})
	}
	await.True(t, "the calls under way", func() bool { return w.Waiting() == 6 })
	cancel()
	<-left
	if got := ask(w, "fast", "api"); !strings.HasPrefix(got, "{ann ") {
		t.Error(got)
	}
	close(release)
	wg.Wait()
	if n := s.asked.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// TestLaterCall checks that the result of the later of two calls wins, even if the earlier one
// returns after it and if the later one is not cached.
func TestLaterCall(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	s := serve(t, func(n int64, _ string) (int, string) {
		if n > 1 {
			return 200, `{"status":{"error":"taken back"}}`
		}
		close(begun)
		<-release
		return 200, `{"status":` + ann + `}}`
	})
	w := s.open(t, nil)
	w.SetFresh(1) // each request makes its own call
	var early sync.WaitGroup
	early.Go(func() {
		if got := ask(w, "x", "api"); !strings.HasPrefix(got, "{ann ") {
			t.Errorf("the earlier call: %s", got)
		}
	})
	<-begun
	const refused = "error: taken back"
	if got := ask(w, "x", "api"); got != refused {
		t.Errorf("the later call: %s", got)
	}
	close(release)
	early.Wait()
	if got := ask(w, "x", "api"); got != refused || s.asked.Load() != 3 {
		t.Errorf("then: %s, after %d calls", got, s.asked.Load())
	}
}

// TestHangingService: unknown tokens of one client address leave room for tokens of others, and their calls end with
// their clients.
func TestHangingService(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(_ int64, token string) (int, string) {
		if token != "ann" {
			<-release
		}
		return 200, `{"status":` + ann + `}}`
	})
	defer close(release)
	w := s.open(t, nil)
	w.SetMost(5)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	from := func(token, address string) error {
		sent := authn.NewToken(token)
		sent.From = address
		_, _, err := w.AuthenticateToken(ctx, sent, []string{"api"})
		return err
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if err := from(fmt.Sprint("junk", i), fmt.Sprintf("[2001:db8::%d]:1", i)); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	await.True(t, "the calls under way", func() bool { return w.Waiting() == 3 })
	if err := from("more", "[2001:db8::1:2]:3"); !errors.Is(err, authn.ErrBusy) {
		t.Errorf("a fourth token of the network: %v", err)
	}
	if err := from("ann", "192.0.2.1:4"); err != nil {
		t.Errorf("another client: %v", err)
	}
	leave()
	wg.Wait()
	await.True(t, "the calls under way", func() bool { return w.Waiting() == 0 }) // the calls end, although the service hangs

	w.SetMost(40)
	ctx, leave = context.WithCancel(t.Context())
	defer leave()
	wg.Go(func() { _ = from(strings.Repeat("<", 200<<10), "192.0.2.1:5") }) // 1,200 KiB of JSON
	await.True(t, "the calls under way", func() bool { return w.Waiting() != 0 })
	if err := from(strings.Repeat(">", 200<<10), "192.0.2.1:5"); !errors.Is(err, authn.ErrBusy) {
		t.Errorf("a second token of 200 KiB: %v", err)
	}
	leave()
	wg.Wait()
}

func TestBadConfig(t *testing.T) {
	s := serve(t, nil)
	for what, c := range map[string]webhook.Config{
		"absent": {File: s.file + "x"}, "another version": {File: s.file, Version: "v2"}, "no kubeconfig": {File: filepath.Join(filepath.Dir(s.file), "ca.crt")},
	} {
		c.Log = slog.New(slog.DiscardHandler)
		if _, err := webhook.New(c); err == nil {
			t.Errorf("%s is no error", what)
		}
	}
}
