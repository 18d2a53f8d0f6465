package webhook

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// service is a webhook of the test. Its response is the status of a review.
type service struct {
	*httptest.Server
	calls    atomic.Int64
	response atomic.Pointer[func(w http.ResponseWriter, r *http.Request)]
	body     atomic.Pointer[string] // the last one
}

func newService(t *testing.T, response func(w http.ResponseWriter, r *http.Request)) *service {
	s := &service{}
	s.response.Store(&response)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		b, _ := io.ReadAll(r.Body)
		text := string(b)
		s.body.Store(&text)
		(*s.response.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// says responds with a status.
func says(status string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, status)
	}
}

// fails responds with an HTTP error.
func fails(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", code) }
}

// webhook returns an authorizer that asks the service.
func (s *service) webhook(t *testing.T, c Config) *Webhook {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	c.KubeconfigFile = filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":"ca.crt"}}],`+
		`"users":[{"name":"u"}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`, s.URL+"/decide")
	if err := os.WriteFile(c.KubeconfigFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.Version == "" {
		c.Version = "v1"
	}
	c.Name, c.Backoff = "test", 1
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func pods(user string) *authz.Attributes {
	return &authz.Attributes{User: &authn.User{Name: user, Groups: []string{"g"}}, Verb: "list", IsResource: true, Version: "v1", Resource: "pods", Namespace: "shop", Path: "/ignored"}
}

// decision is the result of Authorize.
type decision struct {
	d      authz.Decision
	reason string
	err    string
}

func ask(ctx context.Context, w *Webhook, a *authz.Attributes) decision {
	d, reason, err := w.Authorize(ctx, a)
	if err != nil {
		return decision{d, reason, err.Error()}
	}
	return decision{d, reason, ""}
}

func TestResponses(t *testing.T) {
	for _, row := range []struct {
		response func(http.ResponseWriter, *http.Request)
		onError  authz.Decision
		want     decision
	}{
		{says(`{"allowed":true,"reason":"fine"}`), authz.Deny, decision{authz.Allow, "fine", ""}},
		{says(`{"allowed":false,"denied":true,"reason":"bad"}`), authz.NoOpinion, decision{authz.Deny, "bad", ""}},
		{says(`{"allowed":false,"reason":"unsure"}`), authz.Deny, decision{authz.NoOpinion, "unsure", ""}},
		{says(`{"allowed":true,"denied":true,"reason":"odd"}`), authz.NoOpinion, decision{authz.Deny, "odd", "webhook subject access review returned both allow and deny response"}},
		{fails(400), authz.NoOpinion, decision{authz.NoOpinion, "", "the server rejected our request for an unknown reason"}},
		{fails(500), authz.Deny, decision{authz.Deny, "", `an error on the server ("no") has prevented the request from succeeding`}},
		{says(`{"allowed":true,"reason":"` + strings.Repeat("x", 2<<20) + `"}`), authz.Deny, decision{authz.Deny, "", "the response of the webhook has more than 1 MiB"}},
	} {
		w := newService(t, row.response).webhook(t, Config{OnError: row.onError, AuthorizedTTL: time.Minute})
		got := ask(t.Context(), w, pods("ann"))
		if !strings.Contains(got.err, row.want.err) || (got.err == "") != (row.want.err == "") {
			t.Errorf("error %q, want %q", got.err, row.want.err)
		}
		got.err, row.want.err = "", ""
		if got != row.want {
			t.Errorf("%+v, want %+v", got, row.want)
		}
	}
}

// TestSent compares the requests to the service with those of kube-apiserver v1.36.
func TestSent(t *testing.T) {
	user := &authn.User{Name: "ann", UID: "7", Groups: []string{"dev"}, Extra: map[string][]string{"k": {"v"}}}
	list := &authz.Attributes{
		User: user, Verb: "list", IsResource: true, Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: "x", Path: "/p",
		FieldSelector: "metadata.name=x,a!=b", LabelSelector: "a=b,c notin (d,e),f,!g",
	}
	const resource = `"resourceAttributes":{"namespace":"shop","verb":"list","group":"apps","version":"v1","resource":"deployments","name":"x",` +
		`"fieldSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b"]},{"key":"metadata.name","operator":"In","values":["x"]}]},` +
		`"labelSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]},{"key":"c","operator":"NotIn","values":["d","e"]},{"key":"f","operator":"Exists"},{"key":"g","operator":"DoesNotExist"}]}}`
	for _, row := range []struct {
		version string
		a       *authz.Attributes
		want    string
	}{
		{"v1", list, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{` + resource + `,"user":"ann","groups":["dev"],"extra":{"k":["v"]},"uid":"7"},"status":{"allowed":false}}`},
		{"v1beta1", list, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","metadata":{},"spec":{` + resource + `,"user":"ann","group":["dev"],"extra":{"k":["v"]},"uid":"7"},"status":{"allowed":false}}`},
		{"v1", &authz.Attributes{User: authn.Anonymous, Verb: "get", Path: "/healthz"}, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"nonResourceAttributes":{"path":"/healthz","verb":"get"},"user":"system:anonymous","groups":["system:unauthenticated"]},"status":{"allowed":false}}`},
	} {
		s := newService(t, says(`{"allowed":false}`))
		ask(t.Context(), s.webhook(t, Config{Version: row.version}), row.a)
		var got, want any
		if err := errors.Join(json.Unmarshal([]byte(*s.body.Load()), &got), json.Unmarshal([]byte(row.want), &want)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("sent\n%s, want\n%s", *s.body.Load(), row.want)
		}
	}
	if _, err := newRemote("x", "v2", 0); err == nil || err.Error() != `unsupported webhook authorizer version "v2", supported versions are "v1", "v1beta1"` {
		t.Error(err)
	}
}

func TestCache(t *testing.T) {
	var now atomic.Int64
	s := newService(t, says(`{"allowed":true,"evaluationError":"long"}`))
	w := s.webhook(t, Config{AuthorizedTTL: time.Minute, UnauthorizedTTL: time.Second, Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	step := func(what string, a *authz.Attributes, calls int64) {
		t.Helper()
		before := s.calls.Load()
		ask(t.Context(), w, a)
		if got := s.calls.Load() - before; got != calls {
			t.Errorf("%s: %d calls, want %d", what, got, calls)
		}
	}
	step("the first", pods("ann"), 1)
	for _, k := range w.allowed.entries.Keys() {
		if kept, _ := w.allowed.get(k.(webhook.Key)); !kept.Allowed || kept.EvaluationError != "" {
			t.Errorf("the cache has %+v", kept)
		}
	}
	step("the same", pods("ann"), 0)
	step("another user", pods("bob"), 1)
	selected := pods("ann")
	selected.LabelSelector = "a=b"
	step("another selector", selected, 1)
	now.Add(61)
	step("later", pods("ann"), 1)
	refuse := says(`{"allowed":false,"denied":true}`)
	s.response.Store(&refuse)
	step("still allowed", pods("ann"), 0)
	step("denied", pods("eve"), 1)
	step("denied again", pods("eve"), 0)
	now.Add(2)
	step("denied later", pods("eve"), 1)
	long := pods("ann")
	long.Name = strings.Repeat("x", cachedAttributeBytes)
	step("a long name", long, 1)
	step("a long name again", long, 1)
	wrong := fails(403)
	s.response.Store(&wrong)
	step("an error", pods("carol"), 1)
	step("an error again", pods("carol"), 1)
}

// TestRetries checks that only failures that may pass are repeated, five times at most.
func TestRetries(t *testing.T) {
	for _, row := range []struct {
		code     int
		failures int64
		calls    int64
		want     authz.Decision
	}{
		{500, 2, 3, authz.Allow},
		{429, 4, 5, authz.Allow},
		{504, 9, 5, authz.Deny},
		{404, 1, 1, authz.Deny},
	} {
		s := newService(t, nil)
		response := func(w http.ResponseWriter, r *http.Request) {
			if s.calls.Load() <= row.failures {
				fails(row.code)(w, r)
				return
			}
			says(`{"allowed":true}`)(w, r)
		}
		s.response.Store(&response)
		got := ask(t.Context(), s.webhook(t, Config{OnError: authz.Deny}), pods("ann"))
		if got.d != row.want || s.calls.Load() != row.calls {
			t.Errorf("%d: %+v after %d calls, want %v after %d", row.code, got, s.calls.Load(), row.want, row.calls)
		}
	}
}

// TestShared checks that equal requests share one call, that a slow call delays no other request,
// and that a call is given up when no request waits for it.
func TestShared(t *testing.T) {
	release, given := make(chan struct{}), make(chan struct{})
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		says(`{"allowed":true}`)(w, r)
	})
	w := s.webhook(t, Config{AuthorizedTTL: time.Minute})
	w.flights.Fresh = time.Hour
	slow := func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(*s.body.Load(), "slow"):
			<-release
		case strings.Contains(*s.body.Load(), "gone"):
			<-r.Context().Done()
			close(given)
			return
		}
		says(`{"allowed":true}`)(rw, r)
	}
	s.response.Store(&slow)
	waiting := func(n int) {
		await.True(t, "the calls under way", func() bool { return w.flights.Waiting() == n })
	}
	const clients = 20
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if got := ask(t.Context(), w, pods("slow")); got.d != authz.Allow {
				t.Errorf("%+v", got)
			}
		})
	}
	waiting(clients)
	ctx, leave := context.WithCancel(t.Context())
	all.Go(func() {
		if d, _, err := w.Authorize(ctx, pods("slow")); d != authz.Deny || !errors.Is(err, context.Canceled) {
			t.Errorf("%v %v", d, err)
		}
	})
	waiting(clients + 1)
	leave()
	waiting(clients)
	if got := ask(t.Context(), w, pods("quick")); got.d != authz.Allow {
		t.Errorf("while another call is slow: %+v", got)
	}
	ctx, leave = context.WithCancel(t.Context())
	all.Go(func() { ask(ctx, w, pods("gone")) })
	await.True(t, "the calls under way", func() bool { return s.calls.Load() >= 3 })
	leave()
	<-given
	close(release)
	all.Wait()
	if got := s.calls.Load(); got != 3 {
		t.Errorf("%d calls, want 3", got)
	}
}

// TestLaterCall checks that the decision of the later of two calls wins, even if the earlier one
// returns after it and if the later one is not cached.
func TestLaterCall(t *testing.T) {
	for name, row := range map[string]struct {
		later string
		keep  time.Duration // for decisions that deny
		calls int64         // for three requests
	}{
		"cached":             {`{"denied":true}`, time.Hour, 2},
		"without a cache":    {`{"denied":true}`, 0, 3},
		"with a long reason": {`{"denied":true,"reason":"` + strings.Repeat("x", 2*cachedReasonBytes) + `"}`, time.Hour, 3},
	} {
		t.Run(name, func(t *testing.T) {
			begun, release := make(chan struct{}), make(chan struct{})
			s := newService(t, says(row.later))
			slow := func(rw http.ResponseWriter, r *http.Request) {
				close(begun)
				<-release
				says(`{"allowed":true}`)(rw, r)
			}
			quick := *s.response.Swap(&slow)
			w := s.webhook(t, Config{AuthorizedTTL: time.Hour, UnauthorizedTTL: row.keep})
			w.flights.Fresh = 1 // each request has a call of its own
			var early sync.WaitGroup
			early.Go(func() {
				if got := ask(t.Context(), w, pods("ann")); got.d != authz.Allow {
					t.Errorf("the earlier call: %+v", got)
				}
			})
			<-begun
			s.response.Store(&quick)
			if got := ask(t.Context(), w, pods("ann")); got.d != authz.Deny {
				t.Errorf("the later call: %+v", got)
			}
			close(release)
			early.Wait()
			if got := ask(t.Context(), w, pods("ann")); got.d != authz.Deny || s.calls.Load() != row.calls {
				t.Errorf("then: %+v, after %d calls, want %d", got, s.calls.Load(), row.calls)
			}
		})
	}
}

// TestSharedAfterLeave: a request that has left may be reused while its call goes on for another one. A decision about a
// long path is not cached then either.
func TestSharedAfterLeave(t *testing.T) {
	release := make(chan struct{})
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		says(`{"allowed":true}`)(w, r)
	})
	w := s.webhook(t, Config{AuthorizedTTL: time.Minute})
	w.flights.Fresh = time.Hour
	long := func() *authz.Attributes {
		return &authz.Attributes{User: &authn.User{Name: "ann"}, Verb: "get", Path: "/" + strings.Repeat("x", 2*cachedAttributeBytes)}
	}
	ctx, leave := context.WithCancel(t.Context())
	first := long()
	var left, other sync.WaitGroup
	left.Go(func() { ask(ctx, w, first) })
	await.True(t, "the call", func() bool { return w.flights.Waiting() == 1 })
	other.Go(func() { ask(t.Context(), w, long()) })
	await.True(t, "the other request", func() bool { return w.flights.Waiting() == 2 })
	leave()
	left.Wait()
	*first = authz.Attributes{}
	close(release)
	other.Wait()
	ask(t.Context(), w, long())
	if n := s.calls.Load(); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

func TestConditions(t *testing.T) {
	s := newService(t, says(`{"allowed":true}`))
	for _, row := range []struct {
		conditions []string
		want       decision
	}{
		{[]string{"request.user == 'ann'", "has(request.resourceAttributes)"}, decision{authz.Allow, "", ""}},
		{[]string{"request.resourceAttributes.namespace == 'kube-system'"}, decision{authz.NoOpinion, "", ""}},
		{[]string{"request.extra['no'][0] == 'x'", "request.user == 'bob'"}, decision{authz.NoOpinion, "", ""}},
		{[]string{"request.extra['no'][0] == 'x'"}, decision{authz.Deny, "", "cel evaluation error: expression 'request.extra['no'][0] == 'x'' resulted in error: no such key: no"}},
		{[]string{"request.nonResourceAttributes.path == '/x'"}, decision{authz.Deny, "", "cel evaluation error: expression 'request.nonResourceAttributes.path == '/x'' resulted in error: no such key: nonResourceAttributes"}},
		{[]string{"request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'a' && r.operator == 'In' && 'b' in r.values)"}, decision{authz.Allow, "", ""}},
		{[]string{"has(request.resourceAttributes.fieldSelector)"}, decision{authz.NoOpinion, "", ""}},
		{[]string{"'g' in request.groups && request.uid == '' && request.resourceAttributes.name == ''"}, decision{authz.Allow, "", ""}},
	} {
		c, errs := Compile(nil, row.conditions)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		a := pods("ann")
		a.LabelSelector = "a in (b,c)"
		m := NewMetrics()
		before := s.calls.Load()
		if got := ask(t.Context(), s.webhook(t, Config{Conditions: c, OnError: authz.Deny, Metrics: m}), a); got != row.want {
			t.Errorf("%q: %+v, want %+v", row.conditions, got, row.want)
		}
		if asked := s.calls.Load() > before; asked != (row.want.d == authz.Allow) {
			t.Errorf("%q: asked %t", row.conditions, asked)
		}
		if n := testutil.ToFloat64(m.conditionErrors.WithLabelValues("Webhook", "test")); (n == 1) != (row.want.err != "") {
			t.Errorf("%q: %v errors are counted", row.conditions, n)
		}
	}
}

// TestEndedConditions: conditions of a request that has ended end, and have not failed: the failure policy does not apply.
func TestEndedConditions(t *testing.T) {
	s := newService(t, says(`{"allowed":true}`))
	c, errs := Compile(nil, []string{"request.groups.exists(g, g == 'blocked')"})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	a := pods("ann")
	a.User.Groups = make([]string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := s.webhook(t, Config{Conditions: c, OnError: authz.NoOpinion})
	if d, _, err := w.Authorize(ctx, a); d != authz.Deny || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", d, err)
	}
	if n := s.calls.Load(); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// TestConditionCosts: the time of a condition grows with the iterations, not with their square.
func TestConditionCosts(t *testing.T) {
	tier.Full(t)
	s := newService(t, says(`{}`))
	c, errs := Compile(nil, []string{"request.nonResourceAttributes.path.split('/').exists(s, s == 'secret')"})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	w := s.webhook(t, Config{Conditions: c})
	took := func(segments int) time.Duration {
		a := pods("ann")
		a.IsResource, a.Path = false, strings.Repeat("/segment", segments)
		began := testkinds.CPUTime()
		if got := ask(t.Context(), w, a); got != (decision{authz.NoOpinion, "", ""}) {
			t.Fatalf("%+v", got)
		}
		return testkinds.CPUTime() - began
	}
	const attempts = 5
	for n := range attempts {
		short, long := took(4_000), took(64_000)
		if long < 64*short { // 16 times as many
			return
		}
		if n == attempts-1 {
			t.Errorf("4,000 iterations took %v, 64,000 took %v", short, long)
		}
	}
}

func TestMetrics(t *testing.T) {
	m := NewMetrics()
	w := newService(t, fails(400)).webhook(t, Config{Metrics: m})
	ask(t.Context(), w, pods("ann"))
	if n := testutil.ToFloat64(m.failOpen.WithLabelValues("test", "error")); n != 1 {
		t.Errorf("%v decisions were left to others", n)
	}
	if n := testutil.ToFloat64(m.calls.WithLabelValues("test", "error")); n != 1 {
		t.Errorf("%v calls", n)
	}
	if r := w.Rules(t.Context(), authn.Anonymous, "x"); !r.Incomplete || r.Err.Error() != "webhook authorizer does not support user rule resolution" {
		t.Errorf("%+v", r)
	}
}

func FuzzCompile(f *testing.F) {
	for _, text := range []string{"request.user == 'x'", "true", "request.groups.all(g, g.startsWith('a'))", "size(request.extra)", "(", "request.resourceAttributes.?labelSelector.hasValue()"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, errs := Compile(nil, []string{text})
		if len(errs) > 0 {
			return
		}
		spec := specOf(pods("ann"))
		_, _ = c.match(t.Context(), &spec, "x", NewMetrics())
	})
}

// TestBusy: while the service hangs, requests of one user leave room for others, those beyond the bound are denied
// whatever the failure policy, and a call ends with its client. Health checks do not need that room.
func TestBusy(t *testing.T) {
	s, hung := newService(t, nil), make(chan struct{})
	hang := func(rw http.ResponseWriter, r *http.Request) {
		if !strings.Contains(*s.body.Load(), "ann") {
			hung <- struct{}{}
			<-r.Context().Done()
			return
		}
		says(`{"allowed":true}`)(rw, r)
	}
	s.response.Store(&hang)
	for _, ttl := range []time.Duration{0, time.Minute} {
		w := s.webhook(t, Config{OnError: authz.NoOpinion, AuthorizedTTL: ttl})
		w.flights.Most = 4
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { ask(ctx, w, pods("mallory")) })
		}
		await.True(t, "the calls under way", func() bool { return w.flights.Waiting() == 2 })
		<-hung
		if ttl == 0 { // the requests share no call
			<-hung
		}
		if d, _, err := w.Authorize(ctx, pods("mallory")); d != authz.Deny || !errors.Is(err, authz.ErrBusy) {
			t.Errorf("TTL %v: a third request of the user: %v, %v", ttl, d, err)
		}
		if got := ask(t.Context(), w, pods("ann")); got.d != authz.Allow {
			t.Errorf("TTL %v: another user: %+v", ttl, got)
		}
		leave()
		all.Wait()
		await.True(t, "the calls under way", func() bool { return w.flights.Waiting() == 0 }) // the calls end
	}
	long := func(c string) *authz.Attributes {
		return &authz.Attributes{User: &authn.User{Name: "mallory"}, Verb: "get", Path: "/" + strings.Repeat(c, 100<<10)}
	}
	for _, ttl := range []time.Duration{0, time.Minute} {
		w := s.webhook(t, Config{OnError: authz.NoOpinion, AuthorizedTTL: ttl})
		w.flights.Most = 20
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { ask(ctx, w, long("<")) }) // 600 KiB of JSON
		<-hung
		if d, _, err := w.Authorize(ctx, long(">")); d != authz.Deny || !errors.Is(err, authz.ErrBusy) {
			t.Errorf("TTL %v: a second request with a long path: %v, %v", ttl, d, err)
		}
		if got := ask(t.Context(), w, pods("ann")); got.d != authz.Allow {
			t.Errorf("TTL %v: another user: %+v", ttl, got)
		}
		leave()
		all.Wait()
		await.True(t, "the calls under way", func() bool { return w.flights.Waiting() == 0 }) // the call ends
	}
	for _, ttl := range []time.Duration{0, time.Minute} {
		w := s.webhook(t, Config{OnError: authz.NoOpinion, AuthorizedTTL: ttl})
		w.flights.Most = 1
		ctx, leave := context.WithCancel(t.Context())
		at := func(path string) *authz.Attributes {
			return &authz.Attributes{User: authn.Anonymous, Verb: "get", Path: path}
		}
		var all sync.WaitGroup
		all.Go(func() { ask(ctx, w, at("/x")) })
		<-hung
		if d, _, err := w.Authorize(ctx, at("/livez/x")); d != authz.Deny || !errors.Is(err, authz.ErrBusy) {
			t.Errorf("TTL %v: a second request without credentials: %v, %v", ttl, d, err)
		}
		ended := make(chan error, 4)
		for _, path := range []string{"/readyz", "/readyz", "/livez", "/healthz"} {
			all.Go(func() {
				_, _, err := w.Authorize(ctx, at(path))
				ended <- err
			})
		}
		calls := 4
		if ttl > 0 {
			calls = 3 // two of them share one
		}
		for range calls {
			select {
			case <-hung:
			case err := <-ended:
				t.Fatalf("TTL %v: a health check: %v", ttl, err)
			}
		}
		leave()
		all.Wait()
	}
	w := s.webhook(t, Config{OnError: authz.NoOpinion})
	w.health = 0
	a := &authz.Attributes{User: &authn.User{Name: "ann"}, Verb: "get", Path: "/readyz"}
	if d, _, err := w.Authorize(t.Context(), a); d != authz.NoOpinion || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a health check: %v, %v", d, err)
	}
}
