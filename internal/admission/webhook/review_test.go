package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/patch"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
)

func typeOf(t testing.TB, collection string) *resource.Type {
	t.Helper()
	for one := range builtin.Catalog().Types() {
		if one.Collection == collection && one.Conversion == nil {
			return one
		}
	}
	t.Fatalf("there are no %s", collection)
	return nil
}

// TestReview checks that a review encoded by hand equals the encoding/json form of the API type.
func TestReview(t *testing.T) {
	object, old := []byte(`{"kind":"ConfigMap","apiVersion":"v1"}`), []byte(`{"kind":"ConfigMap"}`)
	for name, a := range map[string]*registry.Attributes{
		"create":      {Target: registry.Target{Type: typeOf(t, "configmaps"), Namespace: "n", Name: "a"}, Operation: admissionv1.Connect, User: &authn.User{Name: "u", UID: "1", Groups: []string{"g", "<h>"}, Extra: map[string][]string{"k": {"v"}}}},
		"odd strings": {Target: registry.Target{Type: typeOf(t, "configmaps"), Namespace: "n", Name: "a\"<é\x01"}, Operation: admissionv1.Connect, DryRun: true},
		"subresource": {Target: registry.Target{Type: typeOf(t, "deployments.apps"), Subresource: "scale", Namespace: "n", Name: "a"}, Operation: admissionv1.Connect},
		"namespace":   {Target: registry.Target{Type: typeOf(t, "namespaces"), Name: "a"}, Operation: admissionv1.Connect},
	} {
		t.Run(name, func(t *testing.T) {
			form := a.Forms()[0]
			payload, err := encodePayload(a, form, object, old, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := append(reviewHead("v1", "uid"), payload...)
			kind, requested := metav1.GroupVersionKind(form.Kind), metav1.GroupVersionKind(a.RequestedKind())
			res, asked := metav1.GroupVersionResource(form.Resource), metav1.GroupVersionResource(a.RequestedResource())
			user := authenticationv1.UserInfo{Username: "system:apiserver", Groups: []string{"system:masters"}}
			if a.User != nil {
				user = a.User.Info()
			}
			namespace := a.Namespace
			if name == "namespace" {
				namespace = a.Name
			}
			want, err := json.Marshal(&admissionv1.AdmissionReview{
				TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"},
				Request: &admissionv1.AdmissionRequest{
					UID: "uid", Kind: kind, Resource: res, SubResource: a.Subresource, RequestKind: &requested, RequestResource: &asked,
					RequestSubResource: a.Subresource, Name: a.Name, Namespace: namespace, Operation: a.Operation, UserInfo: user,
					Object: runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old}, DryRun: &a.DryRun,
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func responseOf(body string) *remote.Response {
	return &remote.Response{Code: 200, ContentType: "application/json", Body: []byte(body)}
}

// TestResponseLimits: a response cannot need much more memory than it has bytes, nor be quoted at length.
func TestResponseLimits(t *testing.T) {
	head := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true,"warnings":[`
	for name, body := range map[string]string{
		"values":      head + strings.Repeat(`"",`, maxResponseValues+1) + `""]}}`,
		"deep":        strings.Repeat("[", maxResponseValues/2),
		"large text":  "x" + strings.Repeat(" ", maxOddBytes),
		"other kinds": `{"apiVersion":"` + strings.Repeat("v", 100_000) + `","kind":"AdmissionReview"}`,
	} {
		if _, err := readResponse(responseOf(body), "v1"); err == nil || len(err.Error()) > 2<<10 {
			t.Errorf("%s: %.100v, want a short error", name, err)
		}
	}
}

// TestQuotedText: the error of an HTTP error quotes the beginning of a text, and nothing else.
func TestQuotedText(t *testing.T) {
	for _, c := range []struct{ kind, body, want string }{
		{"text/plain; charset=utf-8", " boom\n", `an error on the server ("boom") has prevented the request from succeeding`},
		{"", "boom", `an error on the server ("boom") has prevented the request from succeeding`},
		{"application/json", "boom", `an error on the server ("unknown") has prevented the request from succeeding`},
		{"text/plain", strings.Repeat("x", 5000), strings.Repeat("x", 900)},
	} {
		_, err := readResponse(&remote.Response{Code: 500, ContentType: c.kind, Body: []byte(c.body)}, "v1")
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1200 {
			t.Errorf("%q %.20q: %v, want %.100s", c.kind, c.body, err, c.want)
		}
	}
}

// TestRefusalCode checks that invalid HTTP codes of webhooks are replaced.
func TestRefusalCode(t *testing.T) {
	for code, want := range map[int32]int32{-1: 400, 0: 400, 399: 400, 400: 400, 418: 418, 999: 999, 1000: 500, 1 << 30: 500} {
		if got := refusal("w", &metav1.Status{Code: code}).ErrStatus.Code; got != want {
			t.Errorf("%d becomes %d, want %d", code, got, want)
		}
	}
}

func FuzzResponse(f *testing.F) {
	f.Add([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":false,"status":{"code":3,"details":{"causes":[{}]}},"patch":"W10=","patchType":"JSONPatch","warnings":["w"],"auditAnnotations":{"a":"b"}}}`), true)
	f.Add([]byte(`{"response":{"allowed":true}}`), false)
	f.Add([]byte("kind: AdmissionReview\nresponse: {allowed: true}"), true)
	f.Add([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure"}`), true)
	f.Fuzz(func(t *testing.T, body []byte, mutating bool) {
		for _, version := range []string{"v1", "v1beta1"} {
			p := validating
			if mutating {
				p = admit
			}
			for _, code := range []int{200, 500} {
				r, err := readResponse(&remote.Response{Code: code, Body: body}, version)
				if err != nil {
					if len(err.Error()) > 4<<10 {
						t.Errorf("the error has %d bytes", len(err.Error()))
					}
					continue
				}
				reply, err := r.check(p, version, "u")
				if err == nil && !reply.allowed {
					if s := refusal("w", reply.result).Status(); s.Code < 400 || s.Code > 999 || s.Status == metav1.StatusSuccess {
						t.Errorf("a refusal is %+v", s)
					}
				}
			}
		}
	})
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte(`[{"op":"add","path":"/data/a","value":{"b":[1,2]}},{"op":"copy","from":"/data","path":"/data/c"},{"op":"test","path":""}]`))
	f.Add([]byte(`[{"op":"remove","path":"/metadata"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		operations, err := patch.Decode(text)
		if err != nil {
			return
		}
		next, err := operations.Apply([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"v"}}`))
		if err != nil {
			return
		}
		if patch.Size(next) > patch.MaxBytes {
			t.Errorf("the result has %d bytes", len(next))
		}
		_, _ = differs(typeOfPatched, next)
	})
}

var typeOfPatched = &metav1.PartialObjectMetadata{}

func BenchmarkReview(b *testing.B) {
	a := &registry.Attributes{Target: registry.Target{Type: typeOf(b, "pods"), Namespace: "n", Name: "a"}, Operation: admissionv1.Connect, User: &authn.User{Name: "u", Groups: []string{"g"}}}
	object := []byte(`{"kind":"Pod","apiVersion":"v1","spec":"` + strings.Repeat("x", 4000) + `"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encodePayload(a, a.Forms()[0], object, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResponse(b *testing.B) {
	body := responseOf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/a","value":"b"}]`)) + `"}}`)
	b.ReportAllocs()
	for b.Loop() {
		r, err := readResponse(body, "v1")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.check(admit, "v1", string(types.UID("u"))); err != nil {
			b.Fatal(err)
		}
	}
}

// TestBusyWebhook checks that a request for which a webhook has no room is rejected, whatever the
// failure policy. Otherwise other requests could disable the webhook.
func TestBusyWebhook(t *testing.T) {
	connections := remote.NewConnections(nil, nil)
	defer connections.Close()
	w := New(Config{Mutating: connections, Validating: connections})
	d := &dispatcher{Webhooks: w, a: &registry.Attributes{Target: registry.Target{Type: typeOf(t, "configmaps")}, Operation: admissionv1.Create}}
	for _, p := range []phase{admit, validating} {
		h := &hook{phase: p, name: "busy.example.com", version: "v1", ignore: true} // it has no time to wait
		e, err := connections.Endpoint(remote.Target{URL: "https://127.0.0.1:1"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		h.endpoint.Store(e)
		_, err = d.call(t.Context(), h, nil)
		if ignored := d.record(h, time.Now(), err); ignored || !apierrors.IsTooManyRequests(final(err)) {
			t.Errorf("%s: ignored %t: %v", p, ignored, err)
		}
	}
}
