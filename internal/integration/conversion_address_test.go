package integration_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// askV2 stores an object, reads it in a version that needs the webhook, and returns
// the error message.
func askV2(t *testing.T, definition string) string {
	t.Helper()
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{
		{"POST /api/v1/namespaces/default/services", `{"metadata":{"name":"far"},"spec":{"type":"ExternalName","externalName":"169.254.169.254"}}`, 201, nil},
		{"POST " + definitions, definition, 201, nil},
		{"POST " + things, thing("a", `{"n":1}`), 201, nil},
	})
	code, _, b := exchange(t, c, "GET", strings.Replace(things, "/v1/", "/v2/", 1)+"/a", "")
	if code != http.StatusInternalServerError {
		t.Fatalf("%d, want 500: %s", code, b)
	}
	return pick(t, b, "message")
}

// TestWebhookAddress checks that a definition cannot name a webhook address that only
// the server can reach.
func TestWebhookAddress(t *testing.T) {
	var asked atomic.Int64
	webhook, ca := serveHook(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	_, port, err := net.SplitHostPort(webhook.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"https://169.254.169.254/latest/meta-data": "link-local",
		"https://[::ffff:169.254.169.254]/":        "link-local",
		"https://[fe80::1]/":                       "link-local",
		"https://0.0.0.0:" + port + "/":            "unspecified",
		"https://[::]:" + port + "/":               "unspecified",
		"https://224.0.0.1/":                       "multicast",
	} {
		if message := askV2(t, twoVersions(url, ca)); !strings.Contains(message, want) {
			t.Errorf("%s: %s", url, message)
		}
	}
	byService := strings.Replace(twoVersions("https://x.example.com", ca), `"url":"https://x.example.com"`, `"service":{"namespace":"default","name":"far"}`, 1)
	if message := askV2(t, byService); !strings.Contains(message, "link-local") {
		t.Errorf("a Service with an external name: %s", message)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the webhook was asked %d times", n)
	}
}

// TestWebhookResponseIsNotShown checks that an error does not quote the response of an
// address that may not be a webhook.
func TestWebhookResponseIsNotShown(t *testing.T) {
	const secret = "hush-hush"
	var reached atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reached.Store(true) }))
	defer target.Close()
	for name, row := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"an error": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, http.StatusTeapot) }, "status code 418"},
		"a redirection": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target.URL+"/"+secret, http.StatusTemporaryRedirect)
		}, "status code 307"},
		"something else": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, secret) }, "not a ConversionReview"},
		"other JSON":     {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"response":"`+secret+`"}`) }, "not a ConversionReview"},
		"no HTTP": {func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // or the client may fail while it sends the body
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.WriteString(c, secret+"\r\n\r\n")
				c.Close()
			}
		}, "not HTTP"},
		"half a response": {func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"+secret)
				c.Close()
			}
		}, "ended early"},
	} {
		webhook, ca := serveHook(t, row.serve)
		message := askV2(t, twoVersions(webhook.URL, ca))
		if strings.Contains(message, secret) || !strings.Contains(message, row.want) {
			t.Errorf("%s: %s, want %s", name, message, row.want)
		}
	}
	if reached.Load() {
		t.Error("a redirection was followed")
	}
}

// TestLongWebhookResponses checks that an error quotes only the beginning of a
// webhook's response.
func TestLongWebhookResponses(t *testing.T) {
	long := strings.Repeat("é", 1<<17)
	object := func(response map[string]any) map[string]any {
		return response["response"].(map[string]any)["convertedObjects"].([]any)[0].(map[string]any)
	}
	for name, row := range map[string]struct {
		spoil func(response map[string]any)
		want  string
	}{
		"message": {func(a map[string]any) {
			a["response"].(map[string]any)["result"] = map[string]any{"status": "Failure", "message": "I will not: " + long}
		}, "failed: I will not: ééé"},
		"status": {func(a map[string]any) {
			a["response"].(map[string]any)["result"] = map[string]any{"status": long}
		}, "response.result.status was 'ééé"},
		"uid":         {func(a map[string]any) { a["response"].(map[string]any)["uid"] = long }, `got \"ééé`},
		"kind":        {func(a map[string]any) { a["kind"] = long }, "Kind=ééé"},
		"apiVersion":  {func(a map[string]any) { a["apiVersion"] = long }, "got /ééé"},
		"an object's": {func(a map[string]any) { object(a)["apiVersion"] = long }, "received ééé"},
		"name": {func(a map[string]any) {
			object(a)["metadata"].(map[string]any)["name"] = long
		}, "must have the same name: a != ééé"},
		"labels": {func(a map[string]any) {
			object(a)["metadata"].(map[string]any)["labels"] = map[string]any{long: long}
		}, "invalid metadata: "},
		"values":  {func(a map[string]any) { object(a)["spec"] = map[string]any{"x": make([][0]int, 300_000)} }, "the body has more than 262144 values"},
		"objects": {func(a map[string]any) { object(a)["spec"] = map[string]any{"x": make([]struct{}, 110_000)} }, "objects"},
		"no object": {func(a map[string]any) {
			a["response"].(map[string]any)["convertedObjects"].([]any)[0] = map[string]any{"metadata": map[string]any{"name": []any{long}}}
		}, "invalid converted object at index 0"},
	} {
		t.Run(name, func(t *testing.T) {
			hook := &converter{}
			hook.spoil.Store(&row.spoil)
			webhook, ca := serveHook(t, hook)
			message := askV2(t, twoVersions(webhook.URL, ca))
			if len(message) > 2<<10 || !strings.Contains(message, row.want) || !utf8.ValidString(message) {
				t.Errorf("%d bytes: %.300q, want %s", len(message), message, row.want)
			}
		})
	}
}

// TestManyConvertedValues converts a list whose objects have too many values together. They are converted one by one.
func TestManyConvertedValues(t *testing.T) {
	for n, want := range map[int]int64{1: 1, 200_000: 4} {
		hook := &converter{}
		webhook, ca := serveHook(t, hook)
		c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
		run(t, c, []step{
			{"POST " + definitions, twoVersions(webhook.URL, ca), 201, nil},
			{"POST " + things, thing("a", `{"n":1}`), 201, nil},
			{"POST " + things, thing("b", `{"n":2}`), 201, nil},
			{"POST " + things, thing("c", `{"n":3}`), 201, nil},
		})
		spoil := func(response map[string]any) {
			for _, o := range response["response"].(map[string]any)["convertedObjects"].([]any) {
				o.(map[string]any)["other"] = make([][0]int, n)
			}
		}
		hook.spoil.Store(&spoil)
		before := hook.asked.Load()
		run(t, c, []step{{"GET " + strings.Replace(things, "/v1/", "/v2/", 1), "", 200, values{"items.2.spec.count": "3"}}})
		if calls := hook.asked.Load() - before; calls != want {
			t.Errorf("%d values: the webhook was called %d times, want %d", n, calls, want)
		}
	}
}
