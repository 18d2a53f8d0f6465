package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/yaml"
)

// server is one that scenarios run against.
type server struct {
	url      string
	client   *http.Client // sends the credentials of a member of system:masters
	auditLog string       // its audit log; empty: audit annotations are not compared
	hooks    *hookServer
	// lags: it acts on configurations some time after their change, and steps wait for that.
	lags bool
}

const (
	stepTimeout  = 60 * time.Second
	untilTimeout = 60 * time.Second
	untilPause   = 100 * time.Millisecond
)

// run is one run of a scenario.
type run struct {
	*server
	sc      *scenario
	vars    map[string]string
	hooks   *hookRun
	norm    *normalizer
	created []string // paths of the objects to delete at the end

	unsettled bool // configurations have changed since the last wait
	marks     int
}

// execute runs a scenario, and returns the results of each step.
func (s *server) execute(ctx context.Context, sc *scenario) ([][3]string, error) {
	const letters = "bcdfghjklmnpqrstvwxz"
	id := []byte("t0000000")
	for i := 1; i < len(id); i++ {
		id[i] = letters[rand.IntN(len(letters))]
	}
	r := &run{server: s, sc: sc, hooks: s.hooks.open(string(id), sc.hooks)}
	host := strings.TrimPrefix(s.hooks.url, "https://")
	_, port, _ := strings.Cut(host, ":")
	r.vars = map[string]string{
		"id": string(id), "hook": s.hooks.url + "/" + string(id), "hookhost": host, "hookport": port,
		"server": strings.TrimPrefix(s.url, "https://"), "ca": base64.StdEncoding.EncodeToString(s.hooks.ca), "ns": "ns-" + string(id),
	}
	for i := 2; i <= sc.namespaces; i++ {
		r.vars[fmt.Sprintf("ns%d", i)] = fmt.Sprintf("ns-%s-%d", id, i)
	}
	r.norm = newNormalizer(r.vars)
	defer r.clean()
	for i := range sc.namespaces {
		if err := r.namespace(r.vars[[]string{"ns", fmt.Sprintf("ns%d", i+1)}[min(i, 1)]]); err != nil {
			return nil, err
		}
	}
	var all [][3]string
	for _, st := range sc.steps {
		got, err := r.step(ctx, st)
		if err != nil {
			return all, fmt.Errorf("step %s: %w", st.name, err)
		}
		all = append(all, got)
	}
	return all, nil
}

func (r *run) namespace(name string) error {
	status, _, body, err := r.send(context.Background(), request{method: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"` + name + `"}}`}, "")
	if err != nil || status != http.StatusCreated {
		return fmt.Errorf("creating namespace %s: %d %s %v", name, status, body, err)
	}
	return nil
}

// step sends the request of a step.
func (r *run) step(ctx context.Context, st *step) (got [3]string, err error) {
	if r.lags {
		time.Sleep(st.sleep)
	}
	req := r.expand(st.request)
	configures := strings.HasPrefix(req.path, "/apis/admissionregistration.k8s.io/") && req.method != "GET"
	if r.lags && r.unsettled && !configures {
		if err := r.settle(ctx); err != nil {
			return got, err
		}
		r.unsettled = false
	}
	var status int
	var header http.Header
	var body []byte
	var calls []call
	auditID := ""
	for end := time.Now().Add(untilTimeout); ; time.Sleep(untilPause) {
		auditID = string(uuid.NewUUID())
		if status, header, body, err = r.send(ctx, req, auditID); err != nil {
			return got, err
		}
		calls = r.server.hooks.take(r.hooks)
		if r.holds(st, status, body, len(calls)) {
			break
		}
		if time.Now().After(end) {
			return got, fmt.Errorf("its conditions do not hold: %d %s", status, body)
		}
	}
	r.unsettled = r.unsettled || configures && status < 300
	r.remember(req, status, body)
	if err := r.capture(st, body); err != nil {
		return got, err
	}
	got[0] = r.norm.hookResponse(st, status, header, body)
	got[1] = r.norm.received(st, calls)
	if st.audit && r.auditLog != "" {
		event, err := r.event(auditID)
		if err != nil {
			return got, err
		}
		got[2] = r.norm.annotations(event)
	}
	return got, nil
}

// expand puts variables into a request.
func (r *run) expand(req request) request {
	put := func(s string) string {
		for _, let := range slices.Backward(r.sc.lets) {
			s = strings.ReplaceAll(s, "{"+let[0]+"}", let[1])
		}
		for name, value := range r.vars {
			s = strings.ReplaceAll(s, "{"+name+"}", value)
		}
		for { // {x*300}: 300 times x
			start, end := strings.Index(s, "{x*"), 0
			if start >= 0 {
				end = start + strings.Index(s[start:], "}")
			}
			n := 0
			if end > 0 {
				n, _ = strconv.Atoi(s[start+3 : end])
			}
			if n == 0 {
				return s
			}
			s = s[:start] + strings.Repeat("x", n) + s[end+1:]
		}
	}
	out := request{method: req.method, path: put(req.path), body: put(req.body)}
	for _, h := range req.header {
		out.header = append(out.header, [2]string{h[0], put(h[1])})
	}
	return out
}

// send sends a request as a member of system:masters with the name alice, unless its headers
// name another user.
func (r *run) send(ctx context.Context, q request, auditID string) (int, http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	contentType := "application/json"
	user := ""
	for _, h := range q.header {
		if strings.EqualFold(h[0], "Content-Type") {
			contentType = h[1]
		}
		if strings.EqualFold(h[0], "Impersonate-User") {
			user = h[1]
		}
	}
	body := []byte(q.body)
	if len(body) > 0 {
		var err error
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return 0, nil, nil, fmt.Errorf("%w in %s", err, q.body)
		}
	}
	req, err := http.NewRequestWithContext(ctx, q.method, r.url+q.path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = http.Header{"Accept": {"application/json"}, "Content-Type": {contentType}, "User-Agent": {"scenario/1.0"}}
	if len(body) == 0 {
		req.Header.Del("Content-Type")
	}
	if auditID != "" {
		req.Header.Set("Audit-Id", auditID)
	}
	if user == "" {
		req.Header.Set("Impersonate-User", "alice")
		req.Header.Set("Impersonate-Group", "system:masters")
	}
	for _, h := range q.header {
		req.Header.Set(h[0], h[1])
	}
	hookResponse, err := r.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer hookResponse.Body.Close()
	data, err := io.ReadAll(hookResponse.Body)
	return hookResponse.StatusCode, hookResponse.Header, data, err
}

// holds reports whether the conditions of a step hold. A server that does not lag has to meet them at once,
// but for a status, which a controller writes.
func (r *run) holds(st *step, status int, body []byte, calls int) bool {
	doc := decode(body)
	for _, c := range st.until {
		if !r.lags && !strings.HasPrefix(c.path, ".status.") {
			continue
		}
		var got []any
		switch c.path {
		case "status":
			got = []any{json.Number(strconv.Itoa(status))}
		case "calls":
			got = []any{json.Number(strconv.Itoa(calls))}
		default:
			got, _ = find(doc, c.path)
		}
		if len(got) == 0 || c.value != "" && text(got[0]) != c.value && !(c.part && strings.Contains(text(got[0]), c.value)) {
			return false
		}
	}
	return true
}

// remember keeps the path of a new object.
func (r *run) remember(q request, status int, body []byte) {
	path, query, _ := strings.Cut(q.path, "?")
	if status != http.StatusCreated || strings.Contains(query, "dryRun") {
		return
	}
	switch q.method {
	case "POST":
		name, err := find(decode(body), ".metadata.name")
		if err != nil || len(name) != 1 {
			return
		}
		path += "/" + text(name[0])
	case "PATCH", "PUT":
	default:
		return
	}
	r.created = append(r.created, path)
}

func (r *run) capture(st *step, body []byte) error {
	for _, c := range st.captures {
		values, err := find(decode(body), c[1])
		if err != nil || len(values) != 1 {
			return fmt.Errorf("nothing to capture at %s: %w %s", c[1], err, body)
		}
		r.vars[c[0]] = text(values[0])
	}
	return nil
}

// clean deletes the objects of the scenario, configurations first: they could intercept the rest.
func (r *run) clean() {
	ctx := context.Background()
	rank := func(path string) int {
		if strings.HasPrefix(path, "/apis/admissionregistration.k8s.io/") {
			return 0
		}
		return 1
	}
	slices.Reverse(r.created)
	slices.SortStableFunc(r.created, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	settled := !r.lags
	for _, path := range r.created {
		if !settled && rank(path) == 1 {
			r.settle(ctx) // only costs time if it fails
			settled = true
		}
		r.send(ctx, request{method: "DELETE", path: path + "?gracePeriodSeconds=0&propagationPolicy=Background"}, "")
	}
	for name, ns := range r.vars {
		if !strings.HasPrefix(name, "ns") {
			continue
		}
		r.send(ctx, request{method: "DELETE", path: "/api/v1/namespaces/" + ns}, "")
		r.send(ctx, request{method: "PUT", path: "/api/v1/namespaces/" + ns + "/finalize", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + ns + `"},"spec":{"finalizers":[]}}`}, "")
	}
}

// event returns the last event of a request from the audit log.
func (s *server) event(id string) (map[string]any, error) {
	for end := time.Now().Add(untilTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		file, err := os.Open(s.auditLog)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewReader(file)
		for err == nil {
			var line []byte
			if line, err = lines.ReadBytes('\n'); err != nil || !bytes.Contains(line, []byte(id)) {
				continue
			}
			event, ok := decode(line).(map[string]any)
			if ok && event["auditID"] == id && event["stage"] == "ResponseComplete" {
				return event, file.Close()
			}
		}
		file.Close()
	}
	return nil, fmt.Errorf("the audit log has no event of %s", id)
}
