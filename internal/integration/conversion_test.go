package integration_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// converter is a webhook that renames spec.n in example.com/v1 to spec.count in v2.
// Break corrupts its responses.
type converter struct {
	asked atomic.Int64 // questions, and the objects in them
	many  atomic.Int64
	spoil atomic.Pointer[func(response map[string]any)]
}

func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.asked.Add(1)
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := review["request"].(map[string]any)
	var all []any
	c.many.Add(int64(len(request["objects"].([]any))))
	for _, o := range request["objects"].([]any) {
		object := o.(map[string]any)
		spec, _ := object["spec"].(map[string]any)
		from, to := "n", "count"
		if request["desiredAPIVersion"] == "example.com/v1" {
			from, to = to, from
		}
		if n, ok := spec[from]; ok {
			spec[to] = n
			delete(spec, from)
		}
		object["apiVersion"] = request["desiredAPIVersion"]
		all = append(all, object)
	}
	response := map[string]any{"apiVersion": review["apiVersion"], "kind": review["kind"], "response": map[string]any{
		"uid": request["uid"], "convertedObjects": all, "result": map[string]any{"status": "Success"},
	}}
	if spoil := c.spoil.Load(); spoil != nil {
		(*spoil)(response)
	}
	json.NewEncoder(w).Encode(response)
}

// serveHook starts a webhook and returns its server and the certificate of its
// authority.
func serveHook(t *testing.T, hook http.Handler) (webhook *httptest.Server, ca string) {
	webhook = httptest.NewTLSServer(hook)
	t.Cleanup(webhook.Close)
	return webhook, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}))
}

// twoVersions returns a definition with two versions that a webhook converts.
func twoVersions(url, ca string) string {
	version := func(name, property string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%q:{"type":"integer","minimum":1}}}}}}}`, name, storage, property)
	}
	return fmt.Sprintf(`{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
		"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}}},"versions":[%s,%s]}}`,
		url, ca, version("v1", "n", true), version("v2", "count", false))
}

func TestConversionByWebhook(t *testing.T) {
	hook := &converter{}
	webhook, ca := serveHook(t, hook)
	dir := t.TempDir()
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	c := s.RESTConfig()
	const things2 = "/apis/example.com/v2/namespaces/default/things"
	second := func(name, spec string) string { return strings.Replace(thing(name, spec), "/v1", "/v2", 1) }
	run(t, c, []step{
		{"POST " + definitions, twoVersions(webhook.URL, ca), 201, nil},
		{"POST " + things, thing("a", `{"n":1}`), 201, nil},
		{"POST " + things2, second("b", `{"count":2}`), 201, values{"spec": `{"count":2}`, "apiVersion": `"example.com/v2"`}},
		{"POST " + things2, second("c", `{"count":0}`), 422, nil},
		{"GET " + things2 + "/a", "", 200, values{"spec": `{"count":1}`, "metadata.name": `"a"`}},
		{"GET " + things + "/b", "", 200, values{"spec": `{"n":2}`}},
		{"GET " + things2, "", 200, values{"items.0.spec": `{"count":1}`, "items.1.spec": `{"count":2}`, "items.0.apiVersion": `"example.com/v2"`}},
		{"MERGE " + things2 + "/a", `{"spec":{"count":5}}`, 200, values{"spec": `{"count":5}`, "metadata.generation": "2"}},
		{"GET " + things + "/a", "", 200, values{"spec": `{"n":5}`, "metadata.generation": "2"}},
	})
	if hook.asked.Load() == 0 {
		t.Fatal("the webhook was not called")
	}
	const failed = "conversion webhook for example.com/v1, Kind=Thing "
	for _, row := range []struct {
		spoil func(response map[string]any)
		want  string
	}{
		{func(r map[string]any) { r["result"] = map[string]any{"status": "Failure", "message": "I will not"} }, failed + "failed: I will not"},
		{func(r map[string]any) { r["result"] = map[string]any{"status": "Failure"} }, failed + "failed: response.result.status was 'Failure', not 'Success'"},
		{func(r map[string]any) { r["convertedObjects"] = []any{} }, failed + "returned 0 objects, expected 1"},
		{func(r map[string]any) { r["uid"] = "" }, ""},
		{func(r map[string]any) {
			r["convertedObjects"].([]any)[0].(map[string]any)["metadata"].(map[string]any)["name"] = "z"
		}, failed + "returned invalid object: must have the same name: a != z"},
		{func(r map[string]any) {
			r["convertedObjects"].([]any)[0].(map[string]any)["apiVersion"] = "example.com/v3"
		},
			failed + "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)"},
	} {
		spoil := func(response map[string]any) { row.spoil(response["response"].(map[string]any)) }
		hook.spoil.Store(&spoil)
		// A version of the object that no client has requested.
		run(t, c, []step{{"MERGE " + things + "/a", fmt.Sprintf(`{"metadata":{"annotations":{"x":%q}}}`, row.want), 200, nil}})
		want := any(row.want)
		if row.want == "" {
			want = nil
		}
		run(t, c, []step{{"GET " + things2 + "/a", "", 500, want}})
	}
	hook.spoil.Store(nil)
	// A webhook may change only the labels and annotations of the metadata.
	more := func(response map[string]any) {
		meta := response["response"].(map[string]any)["convertedObjects"].([]any)[0].(map[string]any)["metadata"].(map[string]any)
		meta["labels"], meta["finalizers"] = map[string]any{"made": "up"}, []any{"example.com/f"}
	}
	hook.spoil.Store(&more)
	run(t, c, []step{
		{"MERGE " + things + "/a", `{"metadata":{"annotations":{"x":"more"}}}`, 200, nil},
		{"GET " + things2 + "/a", "", 200, values{"metadata.labels": `{"made":"up"}`, "metadata.finalizers": "null"}},
	})
	webhook.Close()
	run(t, c, []step{
		{"MERGE " + things + "/a", `{"metadata":{"annotations":{"x":"closed"}}}`, 200, nil},
		{"GET " + things2 + "/a", "", 500, nil},
		{"GET " + things + "/a", "", 200, nil},
		{"DELETE " + definitions + "/things.example.com", "", 200, nil},
	})
	waitGone(t, c)
}

// TestConversionIsKept checks that converted objects are cached, and that bookmarks
// need no conversion.
func TestConversionIsKept(t *testing.T) {
	hook := &converter{}
	webhook, ca := serveHook(t, hook)
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const things2 = "/apis/example.com/v2/namespaces/default/things"
	run(t, c, []step{
		{"POST " + definitions, twoVersions(webhook.URL, ca), 201, nil},
		{"POST " + things, thing("a", `{"n":1}`), 201, nil},
		{"GET " + things2, "", 200, values{"items.0.spec": `{"count":1}`}},
	})
	asked := hook.asked.Load()
	run(t, c, []step{
		{"GET " + things2, "", 200, values{"items.0.spec": `{"count":1}`}},
		{"GET " + things2 + "/a", "", 200, values{"spec": `{"count":1}`}},
	})
	lines := watch(t, c, things2+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	for lines.Scan() && !strings.Contains(lines.Text(), "BOOKMARK") {
		if !strings.Contains(lines.Text(), `"spec":{"count":1}`) {
			t.Errorf("an event is %s", lines.Text())
		}
	}
	if !strings.Contains(lines.Text(), `"apiVersion":"example.com/v2"`) {
		t.Errorf("the bookmark is %s", lines.Text())
	}
	if now := hook.asked.Load(); now != asked {
		t.Errorf("the webhook was asked %d times more", now-asked)
	}
}

// TestConversionsOfRequest checks that a request calls the webhook once for each version
// that it needs of an object: a read to return it, and a write to read the stored object,
// to store the next one, and to return that.
func TestConversionsOfRequest(t *testing.T) {
	hook := &converter{}
	webhook, ca := serveHook(t, hook)
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	definition := twoVersions(webhook.URL, ca)
	for name, member := range map[string]string{"v1": "n", "v2": "count"} {
		scale := fmt.Sprintf(`"subresources":{"status":{},"scale":{"specReplicasPath":".spec.%s","statusReplicasPath":".status.n"}},`, member)
		definition = strings.Replace(definition, fmt.Sprintf(`{"name":%q,`, name), fmt.Sprintf(`{"name":%q,%s`, name, scale), 1)
	}
	definition = strings.ReplaceAll(definition, `"properties":{"spec":`, `"properties":{"status":{"type":"object","properties":{"n":{"type":"integer"}}},"spec":`)
	const things2 = "/apis/example.com/v2/namespaces/default/things"
	second := strings.Replace(thing("a", `{"count":2}`), "/v1", "/v2", 1)
	run(t, c, []step{
		{"POST " + definitions, definition, 201, nil},
		{"POST " + things, thing("b", `{"n":1}`), 201, nil},
	})
	_, _, made := exchange(t, c, "POST", things2, second)
	for _, row := range []struct {
		step  step
		calls int64
	}{
		{step{"POST " + things2, strings.Replace(second, `"a"`, `"c"`, 1), 201, nil}, 2},
		{step{"GET " + things2 + "/b", "", 200, values{"spec": `{"count":1}`}}, 1},
		{step{"MERGE " + things + "/b", `{"spec":{"n":2}}`, 200, nil}, 0},
		{step{"PUT " + things2 + "/a", strings.Replace(string(made), `"count":2`, `"count":3`, 1), 200, values{"spec": `{"count":3}`}}, 3},
		{step{"MERGE " + things2 + "/a", `{"spec":{"count":4}}`, 200, values{"spec": `{"count":4}`}}, 3},
		{step{"APPLY " + things2 + "/a?fieldManager=x&force=true", strings.Replace(second, "2}", "5}", 1), 200, values{"spec": `{"count":5}`}}, 3},
		{step{"MERGE " + things2 + "/a/status", `{"status":{"n":1}}`, 200, nil}, 3},
		{step{"MERGE " + things2 + "/a/scale", `{"spec":{"replicas":6}}`, 200, values{"spec": `{"replicas":6}`}}, 3},
	} {
		before := hook.asked.Load()
		run(t, c, []step{row.step})
		if calls := hook.asked.Load() - before; calls != row.calls {
			t.Errorf("%s calls the webhook %d times, want %d", row.step.request, calls, row.calls)
		}
	}
}

// TestConversionOfLists checks that the webhook gets the objects of a list in batches
// and each object only once, in every representation, as long as the cache has room.
func TestConversionOfLists(t *testing.T) {
	hook := &converter{}
	webhook, ca := serveHook(t, hook)
	const n, most = 60, 10
	large := `"annotations":{"text":"` + strings.Repeat("some text, ", 1000) + `"},"name"`
	for _, room := range []int64{0, 1} { // the default, and none
		c := servertest.Start(t, &tidemark.Server{Memory: tidemark.Memory{MaxRepresentationBytes: room}}).RESTConfig()
		steps := []step{{"POST " + definitions, twoVersions(webhook.URL, ca), 201, nil}}
		for i := range n {
			steps = append(steps, step{"POST " + things, strings.Replace(thing(fmt.Sprintf("t%04d", i), `{"n":1}`), `"name"`, large, 1), 201, nil})
		}
		run(t, c, steps)
		representations := []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
		for i, accept := range representations {
			for _, encoding := range []string{"identity", "gzip"} {
				asked, many := hook.asked.Load(), hook.many.Load()
				items := countShown(t, c, accept, encoding)
				asked, many = hook.asked.Load()-asked, hook.many.Load()-many
				if items != n || asked > most {
					t.Errorf("%s, %s: %d objects, %d calls of the webhook; want %d, and up to %d", accept, encoding, items, asked, n, most)
				}
				first := i == 0 && encoding == "identity"
				if room == 0 && (many != 0) != first || first && many != n {
					t.Errorf("%s, %s: the webhook was asked for %d objects", accept, encoding, many)
				}
			}
		}
		// Its failure is reported for the object that it fails on, also if much of the list was converted before.
		spoil := func(response map[string]any) {
			for _, o := range response["response"].(map[string]any)["convertedObjects"].([]any) {
				if m := o.(map[string]any)["metadata"].(map[string]any); m["name"] == "t0055" {
					m["name"] = "other"
				}
			}
		}
		hook.spoil.Store(&spoil)
		run(t, c, []step{{"MERGE " + things + "/t0055", `{"metadata":{"annotations":{"x":"y"}}}`, 200, nil}})
		for _, accept := range representations {
			for _, encoding := range []string{"identity", "gzip"} {
				code, text := shown(t, c, accept, encoding)
				if code != 500 || !strings.Contains(text, "conversion webhook for example.com/v1, Kind=Thing returned invalid object") || !strings.Contains(text, "t0055 != other") {
					t.Errorf("%s, %s: %d %.300s, want the error of the webhook", accept, encoding, code, text)
				}
			}
		}
		hook.spoil.Store(nil)
	}
}

// TestUnmanagedConversions checks that objects that a webhook converts are shown without managed fields, and that these are
// not missing from other responses afterwards.
func TestUnmanagedConversions(t *testing.T) {
	webhook, ca := serveHook(t, &converter{})
	gates := map[string]bool{"ManagedFieldsOptOut": true, "CBORServingAndStorage": true}
	c := servertest.Start(t, &tidemark.Server{FeatureGates: gates}).RESTConfig()
	const n = 60
	steps := []step{{"POST " + definitions, twoVersions(webhook.URL, ca), 201, nil}}
	for i := range n {
		steps = append(steps, step{"POST " + things, thing(fmt.Sprintf("t%04d", i), `{"n":1}`), 201, nil})
	}
	run(t, c, steps)
	for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/cbor"} {
		for _, encoding := range []string{"identity", "gzip"} {
			for _, row := range []struct {
				drop string
				want int
			}{{";drop=metadata.managedFields", 0}, {"", n}} {
				code, text := shown(t, c, accept+row.drop, encoding)
				if got := strings.Count(text, "managedFields"); code != http.StatusOK || got != row.want || strings.Count(text, "t0059") != strings.Count(text, "t0001") {
					t.Errorf("%s%s, %s: %d, managed fields of %d objects", accept, row.drop, encoding, code, got)
				}
			}
		}
	}
}

// countShown lists all things in version 2, and returns how many of them are in that
// version.
func countShown(t *testing.T, c *rest.Config, accept, encoding string) int {
	t.Helper()
	code, text := shown(t, c, accept, encoding)
	if code != http.StatusOK {
		t.Fatal(code, text)
	}
	if old := strings.Count(text, `"n":1`); old > 0 {
		t.Errorf("%s, %s: %d objects are of the other version", accept, encoding, old)
	}
	return strings.Count(text, "name: t") + strings.Count(text, `"name":"t`)
}

// shown lists all things in version 2, and returns the code and the body of the response.
func shown(t *testing.T, c *rest.Config, accept, encoding string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+"/apis/example.com/v2/namespaces/default/things", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	if encoding != "identity" {
		r.Header.Set("Accept-Encoding", encoding)
	}
	resp, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("%s, %s: %s, %v", accept, encoding, resp.Status, err)
	}
	return resp.StatusCode, string(text)
}

// TestSlowConversion checks that a watch that waits for a webhook does not delay
// other watches of the same objects.
func TestSlowConversion(t *testing.T) {
	hook := &converter{}
	webhook, ca := serveHook(t, hook)
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const things2 = "/apis/example.com/v2/namespaces/default/things"
	run(t, c, []step{{"POST " + definitions, twoVersions(webhook.URL, ca), 201, nil}})
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	wait := func(map[string]any) { <-release }
	hook.spoil.Store(&wait)
	slow, quick := watch(t, c, things2+"?watch=true"), watch(t, c, things+"?watch=true")
	before := watch(t, c, things2+"?watch=true")
	names := []string{"a", "b", "c"}
	for _, name := range names {
		run(t, c, []step{{"POST " + things, thing(name, `{"n":1}`), 201, nil}})
		if !quick.Scan() || !strings.Contains(quick.Text(), `"name":"`+name+`"`) {
			t.Fatalf("while others wait for the webhook: %v, %s; want %s", quick.Err(), quick.Text(), name)
		}
	}
	free()
	for _, lines := range []*bufio.Scanner{slow, before} {
		for _, name := range names {
			if !lines.Scan() || !strings.Contains(lines.Text(), `"name":"`+name+`"`) || !strings.Contains(lines.Text(), `"count":1`) {
				t.Fatalf("when the webhook has responded: %v, %s; want %s", lines.Err(), lines.Text(), name)
			}
		}
	}
}

// TestStalledConversion checks that requests to a webhook that does not respond do
// not block other requests, and end when their clients leave.
func TestStalledConversion(t *testing.T) {
	hook := &converter{}
	gone := make(chan struct{}, 1000)
	webhook, ca := serveHook(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hook.spoil.Load() == nil {
			hook.ServeHTTP(w, r)
			return
		}
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const things2 = "/apis/example.com/v2/namespaces/default/things"
	run(t, c, []step{
		{"POST " + definitions, twoVersions(webhook.URL, ca), 201, nil},
		{"POST " + things, thing("a", `{"n":1}`), 201, nil},
		{"POST " + things, thing("b", `{"n":1}`), 201, nil},
	})
	stalls := func(map[string]any) {}
	hook.spoil.Store(&stalls)
	clients := connected(t, c, 5) // 135 requests each: a connection with more would not take them
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var waiting, sent sync.WaitGroup
	next := 0
	send := func(method, path, body string) {
		client := clients[next%len(clients)]
		next++
		sent.Add(1)
		done := sync.OnceFunc(sent.Done)
		waiting.Go(func() {
			defer done()
			ctx := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { done() }})
			r, _ := http.NewRequestWithContext(ctx, method, c.Host+path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(r)
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode < http.StatusInternalServerError { // as after the time of a call of the webhook
					t.Errorf("%s %s: %s", method, path, resp.Status)
				}
			} else if ctx.Err() == nil {
				t.Errorf("%s %s: %v", method, path, err)
			}
		})
	}
	second := strings.Replace(thing("x", `{"count":1}`), "/v1", "/v2", 1)
	for i := range 450 { // more than there are seats
		send("GET", things2+"/"+[]string{"a", "b"}[i%2], "")
		if i%2 == 0 {
			send("POST", things2, second)
		}
	}
	sent.Wait()
	for i := range 20 {
		if code, body := servertest.Get(t, c, "/api/v1/namespaces/default"); code != 200 {
			t.Fatalf("a read beside them: %d %s", code, body)
		}
		run(t, c, []step{{"POST /api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"m-%d"}}`, i), 201, nil}})
	}
	leave()
	waiting.Wait()
	<-gone // of a call under way
	hook.spoil.Store(nil)
	run(t, c, []step{{"GET " + things2 + "/a", "", 200, nil}})
}

// connected returns clients that each have one open connection with HTTP/2.
func connected(t *testing.T, c *rest.Config, n int) []*http.Client {
	t.Helper()
	clients := make([]*http.Client, n)
	for i := range clients {
		own := rest.CopyConfig(c)
		own.Dial = (&net.Dialer{}).DialContext // configurations with the same one would share the connection
		client, err := rest.HTTPClientFor(own)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.CloseIdleConnections)
		resp, err := client.Get(c.Host + "/version")
		if err != nil || resp.ProtoMajor != 2 {
			t.Fatalf("%v, %v", resp, err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		clients[i] = client
	}
	return clients
}

// TestConversionFails checks that a conversion webhook that cannot be called fails each verb with
// 500: the client has made no mistake, and may try again.
func TestConversionFails(t *testing.T) {
	hook := &converter{}
	webhook, ca := serveHook(t, hook)
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const things2 = "/apis/example.com/v2/namespaces/default/things"
	second := func(name string) string { return strings.Replace(thing(name, `{"count":2}`), "/v1", "/v2", 1) }
	run(t, c, []step{
		{"POST " + definitions, twoVersions(webhook.URL, ca), 201, nil},
		{"POST " + things, thing("a", `{"n":1}`), 201, nil},
	})
	webhook.Close()
	for _, s := range []step{
		{"POST " + things2, second("b"), 500, nil},
		{"POST " + things2 + "?dryRun=All", second("b"), 500, nil},
		{"APPLY " + things2 + "/b?fieldManager=m", second("b"), 500, nil},
		{"APPLY " + things2 + "/a?fieldManager=m", second("a"), 500, nil},
		{"PUT " + things2 + "/a", second("a"), 500, nil},
		{"MERGE " + things2 + "/a", `{"spec":{"count":3}}`, 500, nil},
		{"MERGE " + things2 + "/a/status", `{"status":{}}`, 404, nil},
		{"GET " + things2 + "/a", "", 500, nil},
		{"GET " + things2, "", 500, nil},
		{"TABLE " + things2, "", 500, nil},
		{"POST " + things, thing("b", `{"n":1}`), 201, nil},
		{"MERGE " + things + "/a", `{"spec":{"n":3}}`, 200, nil},
		{"DELETE " + things2 + "/b", "", 200, nil},
	} {
		method, path, _ := strings.Cut(s.request, " ")
		code, _, b := exchange(t, c, method, path, s.body)
		if code != s.code || code == 500 && !strings.Contains(string(b), "onversion webhook for example.com/v") {
			t.Errorf("%s: %d %s, want %d", s.request, code, b, s.code)
		}
	}
}
