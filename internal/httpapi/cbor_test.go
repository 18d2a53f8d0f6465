package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

const (
	asCBOR  = "Accept: application/cbor"
	isCBOR  = "Content-Type: application/cbor"
	applied = "Content-Type: application/apply-patch+cbor"
)

func withCBOR(c *httpapi.Config) { c.Media = wire.Served{CBOR: true} }

// unpack reads a response in CBOR.
func unpack(t testing.TB, body string, into any) {
	t.Helper()
	if !strings.HasPrefix(body, "\xd9\xd9\xf7") {
		t.Errorf("it does not describe itself: %q", body)
	}
	if err := direct.Unmarshal([]byte(body), into); err != nil {
		t.Fatalf("%v: %q", err, body)
	}
}

func pack(t testing.TB, v any) string {
	t.Helper()
	b, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestCBOR: objects go in and out, are listed, applied, deleted; errors and documents.
func TestCBOR(t *testing.T) {
	s := start(t, wiring{config: withCBOR})
	body := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"k": {0xff, 0}}}
	var made, got corev1.Secret
	a := s.do(t, "POST", secrets, pack(t, body), asCBOR, isCBOR)
	if unpack(t, a.body, &made); a.code != 201 || a.header.Get("Content-Type") != "application/cbor" || made.Kind != "Secret" || made.APIVersion != "v1" || string(made.Data["k"]) != "\xff\x00" {
		t.Errorf("%d %s %+v", a.code, a.header, made)
	}
	made.StringData = map[string]string{"j": "x"}
	unpack(t, s.do(t, "PUT", secrets+"/a", pack(t, made), asCBOR, isCBOR).body, &got)
	if string(got.Data["j"]) != "x" || got.ResourceVersion == made.ResourceVersion {
		t.Errorf("%+v", got)
	}
	if plain := parse[corev1.Secret](t, s.do(t, "GET", secrets+"/a", "").body); string(plain.Data["k"]) != "\xff\x00" || string(plain.Data["j"]) != "x" {
		t.Errorf("as JSON: %+v", plain)
	}
	config := map[string]any{"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"name": "b"}, "data": map[string]any{"k": []byte("v")}}
	a = s.do(t, "PATCH", secrets+"/b?fieldManager=m", pack(t, config), asCBOR, applied)
	if unpack(t, a.body, &got); a.code != 201 || got.ManagedFields[0].Operation != "Apply" || string(got.Data["k"]) != "v" {
		t.Errorf("applied: %d %+v", a.code, got)
	}
	var list corev1.SecretList
	unpack(t, s.do(t, "GET", secrets, "", asCBOR).body, &list)
	if len(list.Items) != 2 || list.Kind != "SecretList" || list.Items[0].Kind != "" {
		t.Errorf("%+v", list)
	}
	var resources metav1.APIResourceList
	if unpack(t, s.do(t, "GET", "/apis/apps/v1", "", asCBOR).body, &resources); resources.GroupVersion != "apps/v1" || len(resources.APIResources) < 5 {
		t.Errorf("%+v", resources)
	}
	var status metav1.Status
	a = s.do(t, "DELETE", secrets+"/b", pack(t, map[string]any{"preconditions": map[string]any{"uid": "x"}}), asCBOR, isCBOR)
	if unpack(t, a.body, &status); a.code != 409 || status.Reason != metav1.StatusReasonConflict || status.Kind != "Status" {
		t.Errorf("%d %+v", a.code, status)
	}
	a = s.do(t, "DELETE", secrets+"/b", pack(t, map[string]any{"dryRun": []string{"All"}}), asCBOR, isCBOR)
	if unpack(t, a.body, &status); a.code != 200 || status.Details.Name != "b" {
		t.Errorf("%d %+v", a.code, status)
	}
	if a := s.do(t, "GET", secrets+"/b", "", asCBOR); a.code != 200 {
		t.Errorf("a dry-run deleted it: %d", a.code)
	}
}

// TestCBORFieldValidation: one complaint, as a warning or an error.
func TestCBORFieldValidation(t *testing.T) {
	s := start(t, wiring{config: withCBOR})
	body := pack(t, map[string]any{"metadata": map[string]any{"name": "a"}, "bogus": 1})
	a := s.do(t, "POST", secrets+"?fieldValidation=Strict", body, isCBOR)
	if code, _, text := a.status(t); code != 400 || text != `Secret in version "v1" cannot be handled as a Secret: strict decoding error: cbor: found unknown field at map element index 0` {
		t.Errorf("%d %s", code, text)
	}
	a = s.do(t, "POST", secrets, body, isCBOR)
	if got := a.header.Get("Warning"); a.code != 201 || got != `299 - "cbor: found unknown field at map element index 0"` {
		t.Errorf("%d %s", a.code, got)
	}
	if a := s.do(t, "POST", secrets+"?fieldValidation=Ignore&dryRun=All", strings.Replace(body, "Aa", "Ab", 1), isCBOR); a.code != 201 || a.header.Get("Warning") != "" {
		t.Errorf("%d %s", a.code, a.header)
	}
	twice := "\xa2\x64data\xa0\x64data\xa0"
	if code, _, text := s.do(t, "POST", secrets+"?fieldValidation=Ignore", twice, isCBOR).status(t); code != 400 || !strings.Contains(text, `cbor: found duplicate map key "data" at map element index 1`) {
		t.Errorf("%d %s", code, text)
	}
}

// TestCBORNegotiation: responses are JSON if CBOR is off or not accepted. Errors list CBOR
// among the supported media types only if it is on.
func TestCBORNegotiation(t *testing.T) {
	const (
		json       = "application/json"
		three      = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
		accepted   = "the body of the request was in an unknown format - accepted media types include: "
		unknown    = "406: Not Acceptable\n\nAvailable representations: "
		patchTypes = "415: Unsupported Media Type"
	)
	on, off := start(t, wiring{config: withCBOR}), start(t, wiring{})
	on.secret(t, "a", 1)
	off.secret(t, "a", 1)
	for _, tt := range []struct {
		s                          *server
		method, path, accept, sent string
		code                       int
		want, contentType          string
	}{
		{off, "GET", secrets + "/a", asCBOR, "", 406, unknown + three, json},
		{off, "GET", secrets, asCBOR + "-seq", "", 406, unknown + three + ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch", json},
		{off, "POST", secrets, "", isCBOR, 415, accepted + three, json},
		{off, "PATCH", secrets + "/a", "", applied, 415, patchTypes, json},
		{off, "GET", secrets + "/none", asCBOR + ",application/json", "", 404, `secrets "none" not found`, json},
		{on, "GET", secrets + "/none", asCBOR + ",application/json", "", 404, `secrets "none" not found`, "application/cbor"},
		{on, "POST", secrets, asCBOR, isCBOR + "-seq", 415, accepted + three + ", application/cbor", "application/cbor"},
		{on, "PATCH", secrets + "/a", asCBOR, isCBOR, 415, patchTypes, json},
		{on, "GET", "/api/v1/nopes", asCBOR, "", 404, "the server could not find the requested resource", json},
		{on, "PUT", secrets, asCBOR, "", 405, "the server does not allow this method on the requested resource", json},
		{on, "GET", "/apis", asCBOR, "", 406, "only the following media types are accepted: " + three, json},
		{on, "GET", "/api", asCBOR, "", 406, unknown + three, json},
		{on, "GET", secrets, asCBOR + ";as=Table;g=meta.k8s.io;v=v1", "", 406, "only the following media types are accepted: " + three + ", application/cbor", json},
		{on, "GET", secrets + "?watch=1", asCBOR + "-seq", "", 406, "only the following media types are accepted: " + three + ", application/cbor", json},
	} {
		var headers []string
		for _, h := range []string{tt.accept, tt.sent} {
			if h != "" {
				headers = append(headers, h)
			}
		}
		a := tt.s.do(t, tt.method, tt.path, "\xa0", headers...)
		var status metav1.Status
		if a.header.Get("Content-Type") == "application/cbor" {
			unpack(t, a.body, &status)
		} else {
			status = parse[metav1.Status](t, a.body)
		}
		if a.code != tt.code || status.Message != tt.want || a.header.Get("Content-Type") != tt.contentType {
			t.Errorf("%s %s %q: %d %s %q, want %d %s %q", tt.method, tt.path, headers, a.code, a.header.Get("Content-Type"), status.Message, tt.code, tt.contentType, tt.want)
		}
	}
}

// sequence reads data items one after the other, as clients do.
type sequence struct {
	frames io.Reader
	room   []byte
}

func newSequence(r io.Reader) *sequence {
	return &sequence{cbor.NewFramer().NewFrameReader(io.NopCloser(r)), make([]byte, 1<<16)}
}

func (s *sequence) next(t testing.TB) (kind string, object string) {
	t.Helper()
	n, err := s.frames.Read(s.room)
	if err != nil {
		t.Fatal(err)
	}
	return itemOf(t, s.room[:n])
}

func itemOf(t testing.TB, b []byte) (kind string, object string) {
	t.Helper()
	var e metav1.WatchEvent // a reader of frames has taken the tag
	if err := direct.Unmarshal(bytes.Clone(b), &e); err != nil {
		t.Fatalf("%v: %q", err, b)
	}
	return e.Type, string(e.Object.Raw)
}

// TestWatchCBOR: events are data items one after the other, or messages.
func TestWatchCBOR(t *testing.T) {
	t.Parallel() // waits for a revision that does not come
	s := start(t, wiring{config: withCBOR})
	s.secret(t, "a", 1)
	w := s.watch(t, secrets+"?watch=1&allowWatchBookmarks=1", asCBOR)
	if got := w.resp.Header.Get("Content-Type"); got != "application/cbor-seq" {
		t.Errorf("Content-Type: %s", got)
	}
	events := newSequence(w.lines)
	var o corev1.Secret
	kind, raw := events.next(t)
	if unpack(t, raw, &o); kind != "ADDED" || o.Kind != "Secret" || o.Name != "a" || string(o.Data["k"]) != "x" {
		t.Errorf("%s %+v", kind, o)
	}
	var mark corev1.Secret
	kind, raw = events.next(t)
	if unpack(t, raw, &mark); kind != "BOOKMARK" || mark.Kind != "Secret" || mark.ResourceVersion == "" || mark.Annotations["k8s.io/initial-events-end"] != "true" {
		t.Errorf("%s %+v", kind, mark)
	}
	s.secret(t, "b", 1)
	kind, raw = events.next(t)
	if unpack(t, raw, &o); kind != "ADDED" || o.Name != "b" {
		t.Errorf("%s %+v", kind, o)
	}
	p := newSequence(s.watch(t, secrets+"?watch=1", asCBOR+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1").lines)
	var partial metav1.PartialObjectMetadata
	kind, raw = p.next(t)
	if unpack(t, raw, &partial); kind != "ADDED" || partial.Kind != "PartialObjectMetadata" || partial.APIVersion != "meta.k8s.io/v1" || partial.Name != "a" {
		t.Errorf("%s %+v", kind, partial)
	}
	a := s.do(t, "GET", secrets+"?watch=1&resourceVersion=99999999999999999&resourceVersionMatch=NotOlderThan&sendInitialEvents=true", "", asCBOR)
	var status metav1.Status
	kind, raw = itemOf(t, []byte(a.body))
	if unpack(t, raw, &status); kind != "ERROR" || status.Kind != "Status" || status.Code != 504 {
		t.Errorf("%s %+v", kind, status)
	}
}

// TestWatchCBOROverWebSocket: one event is one binary message.
func TestWatchCBOROverWebSocket(t *testing.T) {
	s := start(t, wiring{http1: true, config: withCBOR})
	s.secret(t, "a", 1)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Scheme = "wss"
	conn, _, err := websocket.Dial(t.Context(), u.String()+secrets+"?watch=1", &websocket.DialOptions{HTTPClient: s.client, HTTPHeader: http.Header{
		"Authorization": {"Bearer admin"}, "Accept": {"application/cbor"}, "User-Agent": {"test"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	form, b, err := conn.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var o corev1.Secret
	kind, raw := itemOf(t, b)
	if unpack(t, raw, &o); kind != "ADDED" || form != websocket.MessageBinary || !bytes.HasPrefix(b, []byte("\xd9\xd9\xf7")) || o.Name != "a" {
		t.Errorf("%v %s %+v", form, kind, o)
	}
}
