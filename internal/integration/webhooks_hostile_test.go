package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

// TestHostileWebhooks: two mutating webhooks that want to be called again are called twice at most,
// whatever they change. Their responses cannot give an object another identity, nor make it larger
// than objects may be.
func TestHostileWebhooks(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	hook := webhooktest.Start(t)
	for _, name := range []string{"a", "b"} {
		create[admissionregistrationv1.MutatingWebhookConfiguration](t, c, mutatingPath, configuration(name, `,"reinvocationPolicy":"IfNeeded"`, hook.Config("/"+name)))
	}
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps("default")
	set := func(a, b webhooktest.Response) {
		hook.On("/a", a)
		hook.On("/b", b)
		hook.Take()
	}
	var n atomic.Int64
	changes := func(w http.ResponseWriter, r *webhooktest.Review) {
		webhooktest.Patch(fmt.Sprintf(`[{"op":"add","path":"/data","value":{"n":"%d"}}]`, n.Add(1)))(w, r)
	}
	grows := func(w http.ResponseWriter, r *webhooktest.Review) {
		webhooktest.Patch(fmt.Sprintf(`[{"op":"add","path":"/data/n%d","value":%q}]`, n.Add(1), strings.Repeat("x", 300_000)))(w, r)
	}
	doubles := `{"op":"add","path":"/data","value":{"k":"` + strings.Repeat("x", 1000) + `"}}`
	for i := range 30 {
		doubles += fmt.Sprintf(`,{"op":"copy","from":"/data","path":"/metadata/x%d"},{"op":"copy","from":"/metadata","path":"/data/y%d"}`, i, i)
	}
	patch := webhooktest.Patch
	many, _ := json.Marshal(strings.Split(strings.Repeat("warning ", 50_000), " "))
	odd := `"allowed":true,"warnings":["a\r\nSet-Cookie: x"],"auditAnnotations":{"k":"` + strings.Repeat("x", 100_000) + `"}`
	for _, row := range []struct {
		name  string
		a, b  webhooktest.Response
		code  int32
		calls int
	}{
		{"one always changes", changes, webhooktest.Allow, 201, 2},
		{"two fight", patch(`[{"op":"add","path":"/data","value":{"k":"a"}}]`), patch(`[{"op":"add","path":"/data","value":{"k":"b"}}]`), 201, 4},
		{"both always change", changes, changes, 201, 4},
		{"both grow", grows, grows, 422, 4},
		{"doubling", patch("[" + doubles + "]"), webhooktest.Allow, 500, 1},
		{"namespace", patch(`[{"op":"replace","path":"/metadata/namespace","value":"kube-system"}]`), webhooktest.Allow, 400, 2},
		{"resourceVersion", patch(`[{"op":"add","path":"/metadata/resourceVersion","value":"12"}]`), webhooktest.Allow, 400, 2},
		{"apiVersion", patch(`[{"op":"replace","path":"/apiVersion","value":"v9"}]`), webhooktest.Allow, 500, 1},
		{"kind", patch(`[{"op":"replace","path":"/kind","value":"Secret"}]`), webhooktest.Allow, 500, 1},
		{"no object", patch(`[{"op":"replace","path":"","value":null}]`), webhooktest.Allow, 500, 1},
		{"deep", patch(`[{"op":"add","path":"/data","value":` + strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000) + `}]`), webhooktest.Allow, 500, 1},
		{"no uid", func(w http.ResponseWriter, _ *webhooktest.Review) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"allowed":true}}`)
		}, webhooktest.Allow, 500, 1},
		{"warnings", webhooktest.JSON(`"allowed":true,"warnings":` + string(many)), webhooktest.JSON(odd), 201, 2},
		{"code 99999", webhooktest.JSON(`"allowed":false,"status":{"code":99999}`), webhooktest.Allow, 500, 1},
		{"code 200", webhooktest.JSON(`"allowed":false,"status":{"code":200}`), webhooktest.Allow, 400, 1},
		{"code -1", webhooktest.JSON(`"allowed":false,"status":{"code":-1}`), webhooktest.Allow, 400, 1},
	} {
		set(row.a, row.b)
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
		if got, calls := codeOf(err, 201), len(hook.Take()); got != row.code || calls != row.calls {
			t.Errorf("%s: %d after %d calls, want %d after %d: %.200v", row.name, got, calls, row.code, row.calls, err)
		}
	}
	set(webhooktest.Allow, webhooktest.Allow)
	was, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "u"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for operation, code := range map[string]int32{
		`{"op":"replace","path":"/metadata/name","value":"other"}`:                               422,
		`{"op":"replace","path":"/metadata/namespace","value":"kube-system"}`:                    400,
		`{"op":"replace","path":"/metadata/uid","value":"other"}`:                                422,
		`{"op":"replace","path":"/metadata/resourceVersion","value":"1"}`:                        409,
		`{"op":"add","path":"/metadata/deletionTimestamp","value":"2000-01-01T00:00:00Z"}`:       422,
		`{"op":"replace","path":"/metadata/creationTimestamp","value":"2000-01-01T00:00:00Z"}`:   200,
		`{"op":"replace","path":"/kind","value":"Secret"}`:                                       500,
		`{"op":"replace","path":"","value":{"apiVersion":"v1","kind":"Secret","metadata":null}}`: 500,
	} {
		set(patch("["+operation+"]"), webhooktest.Allow)
		next := was.DeepCopy()
		next.Data = map[string]string{"n": fmt.Sprint(n.Add(1))}
		if now, err := maps.Update(t.Context(), next, metav1.UpdateOptions{}); codeOf(err, 200) != code {
			t.Errorf("an update with %s: %v, want %d", operation, err, code)
		} else if err == nil {
			was.ResourceVersion = now.ResourceVersion
		}
	}
	now, err := maps.Get(t.Context(), "u", metav1.GetOptions{})
	if err != nil || now.UID != was.UID || !now.CreationTimestamp.Equal(&was.CreationTimestamp) || now.DeletionTimestamp != nil {
		t.Errorf("the object is %+v, %v; it was %+v", now, err, was)
	}
}

// codeOf returns the HTTP code of an error of client-go; success, if there is none.
func codeOf(err error, success int32) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return success
}
