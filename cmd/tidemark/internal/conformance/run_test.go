package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestReport: each form of a report shows the failures, with requests and responses.
func TestReport(t *testing.T) { synctest.Test(t, testReport) }

func testReport(t *testing.T) {
	config := behind(serve(t), version(on("get"), "77"))
	var told bytes.Buffer
	report, err := Run(t.Context(), config, Options{Areas: []string{"versions", "restart"}, Seed: 7}, progress.Progress{W: &told})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Bad()) == 0 || report.Seed != 7 || report.Interrupted {
		t.Fatalf("%+v", report)
	}
	var table, text, junit bytes.Buffer
	for _, err := range []error{report.WriteTable(&table), report.WriteJSON(&text), report.WriteJUnit(&junit)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"FAIL", "versions.unchanged", "$ curl -k -X GET", `"Authorization: Bearer $TOKEN"`, "200 OK", "restart.watch skipped", "seed 7"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not show %q:\n%s", want, &table)
		}
	}
	if token := config.BearerToken; token != "" && strings.Contains(table.String()+text.String()+junit.String()+told.String(), token) {
		t.Error("the token is shown")
	}
	var again Report
	if err := json.Unmarshal(text.Bytes(), &again); err != nil || again.Format != Format || len(again.Results) != len(report.Results) {
		t.Errorf("%v: %+v", err, again)
	}
	var suites junitSuites
	if err := xml.Unmarshal(junit.Bytes(), &suites); err != nil || len(suites.Suites) != 2 {
		t.Fatalf("%v: %+v", err, suites)
	}
	if suites.Suites[0].Failures != len(report.Bad()) || suites.Suites[1].Skipped != len(restartChecks) {
		t.Errorf("%d failures and %d skipped, want %d and %d", suites.Suites[0].Failures, suites.Suites[1].Skipped, len(report.Bad()), len(restartChecks))
	}
	if !strings.Contains(told.String(), "versions.unchanged fail: ") {
		t.Errorf("what failed was not told:\n%s", &told)
	}
}

// TestLeavesNothing checks that the objects of a run are removed, also when it is interrupted.
func TestLeavesNothing(t *testing.T) {
	for name, interrupt := range map[string]int64{"whole": 0, "interrupted": 60} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := serve(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				enough := from(interrupt, always)
				watched := behind(config, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					if interrupt > 0 && enough(req) {
						cancel()
					}
					return next.RoundTrip(req)
				})
				report, err := Run(ctx, watched, Options{Areas: []string{"list", "chunking", "consistency"}}, progress.Progress{})
				if err != nil {
					t.Fatal(err)
				}
				if report.Interrupted != (interrupt > 0) {
					t.Errorf("interrupted: %v", report.Interrupted)
				}
				if left := leftIn(t, config); left > 0 {
					t.Errorf("%d objects are left behind", left)
				}
			})
		})
	}
}

// leftIn counts the config maps of a server.
func leftIn(t *testing.T, config *rest.Config) int {
	t.Helper()
	e, err := newEndpoint(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	a, err := e.send(t.Context(), c, request{method: http.MethodGet, path: "/api/v1/configmaps?fieldSelector=metadata.namespace!=kube-system"}, &journal{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := parseList(a.body)
	if err != nil {
		t.Fatal(err)
	}
	return len(l.items)
}

// ofAnyType are areas with checks of any type.
func ofAnyType(t *testing.T) []string {
	all := []string{"versions", "get", "list", "watch"}
	if tier.IsFull(t) {
		all = append(all, "consistency")
	}
	return all
}

// TestResource: the checks can be made with another type.
func TestResource(t *testing.T) { synctest.Test(t, testResource) }

func testResource(t *testing.T) {
	config := serve(t)
	for _, resource := range []string{"leases.coordination.k8s.io/v1", "deployments.apps"} {
		report, err := Run(t.Context(), config, Options{Areas: ofAnyType(t), Resource: resource, Seed: testrand.New(t).Uint64()}, progress.Progress{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			if r.Outcome != Passed {
				t.Errorf("%s with %s: %s %s", r.ID, resource, r.Outcome, r.Message)
			}
		}
	}
}

// TestCannotRun checks that a run that cannot begin returns an error with the reason.
func TestCannotRun(t *testing.T) {
	config := serve(t)
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.Transport = config.Transport
	for want, run := range map[string]struct {
		config  *rest.Config
		options Options
	}{
		`unknown area "fly"`:     {config, Options{Areas: []string{"fly"}}},
		`unknown check "fly"`:    {config, Options{Checks: []string{"fly"}}},
		"no check is both":       {config, Options{Areas: []string{"get"}, Checks: []string{"watch.events"}}},
		"timeout is 1ns":         {config, Options{Timeout: 1}},
		"parallel is 65":         {config, Options{Parallel: 65}},
		`the resource is "/v1"`:  {config, Options{Resource: "/v1"}},
		`no resource "flies"`:    {config, Options{Resource: "flies"}},
		"is deployments.apps/v1": {config, Options{Resource: "Deployment"}},
		"is pods/v1":             {config, Options{Resource: "pods/v2"}},
		"are not namespaced":     {config, Options{Resource: "nodes"}},
		"403":                    {anonymous, Options{}},
		"connection refused":     {&rest.Config{Host: "https://127.0.0.1:1"}, Options{}},
	} {
		if report, err := Run(t.Context(), run.config, run.options, progress.Progress{}); err == nil || !strings.Contains(err.Error(), want) || report != nil {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestHostile: a server that sends too much, nonsense or nothing ends in results.
func TestHostile(t *testing.T) {
	endless := func(piece string) step {
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if v := verbOf(req); v != "list" && v != "watch" {
				return next.RoundTrip(req)
			}
			resp, err := says(always, 200, "")(req, next)
			resp.Body = &repeating{text: strings.Repeat(piece, 1000), ctx: req.Context()}
			resp.ContentLength = -1
			return resp, err
		}
	}
	for name, s := range map[string]step{
		"endless responses": endless(`{"kind":"ConfigMapList","items":[{}],`),
		"endless arrays":    endless(`[`),
		"endless text":      endless(`x`),
		"endless bookmark":  endless(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}` + "\n"),
		"null":              says(on("list watch get"), 200, `null`),
		"no JSON":           says(on("list watch get"), 200, `<html>`),
		"items of no kind":  says(on("list watch get"), 200, `{"metadata":{"resourceVersion":"5"},"items":[null,{"metadata":7},{"metadata":{"labels":[]}}]}`),
		"the same page":     says(on("list"), 200, `{"metadata":{"resourceVersion":"5","continue":"x"},"items":[]}`),
		"events of no kind": says(on("watch"), 200, `{"type":"ADDED"}{"type":"MODIFIED","object":null}{"type":7}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				config := behind(serve(t), func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
					resp, err := next.RoundTrip(req)
					if endless, ok := resp.Body.(*repeating); ok {
						endless.before = func() { time.Sleep(time.Millisecond) } // for the time of the bubble to pass
					}
					return resp, err
				}, s)
				for _, id := range []string{"list.unset.limit.unset", "watch.unset", "streaming.state", "consistency.lists", "chunking.complete", "get.any"} {
					if _, err := Run(t.Context(), config, Options{Checks: []string{id}, Timeout: time.Second}, progress.Progress{}); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// repeating is a body without an end, until its request has one.
type repeating struct {
	text   string
	ctx    context.Context
	at     int
	before func() // is called at each read
}

func (r *repeating) Read(b []byte) (int, error) {
	r.before()
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n := 0
	for n < len(b) {
		k := copy(b[n:], r.text[r.at:])
		n, r.at = n+k, (r.at+k)%len(r.text)
	}
	return n, nil
}

func (r *repeating) Close() error { return nil }

// TestEcho: a server that repeats the token does not get it into a report.
func TestEcho(t *testing.T) {
	const token = "sesame-1234567890"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Warning", req.Header.Get("Authorization"))
		w.Header().Set("Content-Type", asJSON)
		switch {
		case req.URL.Path == "/api":
			w.Write([]byte(`{"versions":["v1"]}`))
		case req.URL.Path == "/api/v1":
			w.Write([]byte(`{"groupVersion":"v1","resources":[{"name":"../\u001b[2J","kind":"Evil","verbs":["create","update","delete"]},{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["list"]}]}`))
		case req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/namespaces"):
			w.WriteHeader(http.StatusCreated)
			w.Write([]byte(`{}`))
		default:
			w.WriteHeader(http.StatusTeapot)
			json.NewEncoder(w).Encode(map[string]string{"message": "you said " + req.Header.Get("Authorization") + "\x1b[2J"})
		}
	}))
	defer s.Close()
	report, err := Run(t.Context(), &rest.Config{Host: s.URL, BearerToken: token}, Options{Areas: []string{"get"}}, progress.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, err := range []error{report.WriteTable(&all), report.WriteJSON(&all), report.WriteJUnit(&all)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if text := all.String(); strings.Contains(text, token) || !strings.Contains(text, "(hidden)") || strings.Contains(text, "\x1b") {
		t.Errorf("the token, or a control character, is shown:\n%s", text)
	}
	if len(report.Left) == 0 {
		t.Error("nothing is said of the namespace that was not deleted")
	}
}

// TestCurl: a request reads as one command, whatever its body is.
func TestCurl(t *testing.T) {
	for want, r := range map[string]request{
		`curl -k -X GET -H "Authorization: Bearer $TOKEN" -H 'Accept: application/json' 'https://h/p?a=b'`:                                                              {method: "GET"},
		`-X POST -H "Authorization: Bearer $TOKEN" -H 'Accept: application/json' -H 'Content-Type: application/json' --data-binary '{"a":"it'\''s"}' 'https://h/p?a=b'`: {method: "POST", body: []byte(`{"a":"it's"}`)},
		"base64 -d <<<azhzAAE= | curl -k -X POST": {method: "POST", body: []byte("k8s\x00\x01")},
	} {
		x := &exchange{request: r, url: "https://h/p?a=b"}
		if got := x.curl(); !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

func TestFollowing(t *testing.T) {
	for version, want := range map[string]string{"1": "2", "9": "10", "199": "200", "18446744073709551615": "18446744073709551616"} {
		if got := following(version); got != want {
			t.Errorf("following(%s) = %s, want %s", version, got, want)
		}
	}
}
