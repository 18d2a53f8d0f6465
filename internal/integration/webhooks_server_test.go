package integration_test

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

const (
	mutatingPath   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	validatingPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	configMapRules = `"rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}],` +
		`"sideEffects":"None","admissionReviewVersions":["v1"]`
)

// configuration returns a configuration with one webhook.
func configuration(name, members, client string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[{"name":"%s.example.com",%s%s,"clientConfig":%s}]}`, name, name, configMapRules, members, client)
}

// TestWebhookCredentials: the kubeconfig of a WebhookAdmissionConfiguration has a client certificate
// for validating webhooks, and a token for mutating ones.
func TestWebhookCredentials(t *testing.T) {
	hook := webhooktest.StartWith(t, &tls.Config{ClientAuth: tls.RequestClientCert})
	host := hook.Listener.Addr().String()
	authority := newSigner(t)
	made := authority.client(t, servertest.Start(t, &tidemark.Server{}), pkix.Name{CommonName: "the-server"}, nil)
	kubeconfig := func(user string) string {
		return file(t, "kubeconfig", fmt.Sprintf("apiVersion: v1\nkind: Config\nusers: [{name: %q, user: %s}]\n", host, user))
	}
	plugin := func(name, user string) string {
		return fmt.Sprintf("- name: %s\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}\n", name, kubeconfig(user))
	}
	certificate := fmt.Sprintf("{client-certificate: %q, client-key: %q}", file(t, "cert.pem", string(made.CertData)), file(t, "key.pem", string(made.KeyData)))
	c := configured(t, &tidemark.Server{Controllers: []string{"-*"}}, plugin("MutatingAdmissionWebhook", "{token: a-token}")+plugin("ValidatingAdmissionWebhook", certificate))
	create[admissionregistrationv1.MutatingWebhookConfiguration](t, c, mutatingPath, configuration("m", "", hook.Config("/mutate")))
	create[admissionregistrationv1.ValidatingWebhookConfiguration](t, c, validatingPath, configuration("v", "", hook.Config("/validate")))
	create[corev1.ConfigMap](t, c, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	var got []string
	for _, r := range hook.Take() {
		one := r.HTTP.URL.Path + " " + r.HTTP.Header.Get("Authorization")
		for _, c := range r.HTTP.TLS.PeerCertificates {
			one += c.Subject.CommonName
		}
		got = append(got, one)
	}
	if want := []string{"/mutate Bearer a-token", "/validate the-server"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestWebhookMetrics checks the values of metrics after some requests, and that an audit event without
// the objects of the request has no patch.
func TestWebhookMetrics(t *testing.T) {
	hook := webhooktest.Start(t)
	hook.On("/m", webhooktest.Patch(`[{"op":"add","path":"/data","value":{"k":"v"}}]`))
	hook.On("/deny", webhooktest.Deny("no"))
	log := filepath.Join(t.TempDir(), "audit.log")
	c := servertest.Start(t, &tidemark.Server{
		Controllers: []string{"-*"}, Audit: tidemark.Audit{PolicyFile: file(t, "policy.yaml", auditWrites), Log: tidemark.AuditLog{Path: log}},
	}).RESTConfig()
	create[admissionregistrationv1.MutatingWebhookConfiguration](t, c, mutatingPath, configuration("m", "", hook.Config("/m")))
	create[admissionregistrationv1.ValidatingWebhookConfiguration](t, c, validatingPath, configuration("deny", `,"objectSelector":{"matchLabels":{"a":"deny"}}`, hook.Config("/deny")))
	create[admissionregistrationv1.ValidatingWebhookConfiguration](t, c, validatingPath, configuration("open", `,"failurePolicy":"Ignore"`, `{"url":"https://127.0.0.1:1/x"}`))
	create[admissionregistrationv1.ValidatingWebhookConfiguration](t, c, validatingPath, configuration("fail", `,"objectSelector":{"matchLabels":{"a":"fail"}}`, `{"url":"https://127.0.0.1:1/x"}`))
	const path = "/api/v1/namespaces/default/configmaps"
	create[corev1.ConfigMap](t, c, path, `{"metadata":{"name":"a"}}`)
	wantRefused(t, c, path, `{"metadata":{"name":"b","labels":{"a":"deny"}}}`, 400, `admission webhook "deny.example.com" denied the request: no`)
	if code, _, _ := exchange(t, c, "POST", path, `{"metadata":{"name":"c","labels":{"a":"fail"}}}`); code != 500 {
		t.Errorf("a webhook that fails: %d", code)
	}
	_, metrics := servertest.Get(t, c, "/metrics")
	for _, want := range []string{
		`apiserver_admission_webhook_request_total{code="200",name="m.example.com",operation="CREATE",rejected="false",type="admit"} 3`,
		`apiserver_admission_webhook_request_total{code="400",name="deny.example.com",operation="CREATE",rejected="true",type="validating"} 1`,
		`apiserver_admission_webhook_request_total{code="503",name="fail.example.com",operation="CREATE",rejected="true",type="validating"} 1`,
		`apiserver_admission_webhook_rejection_count{error_type="no_error",name="deny.example.com",operation="CREATE",rejection_code="400",type="validating"} 1`,
		`apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="fail.example.com",operation="CREATE",rejection_code="503",type="validating"} 1`,
		`apiserver_admission_webhook_fail_open_count{name="open.example.com",type="validating"} 3`,
		`apiserver_admission_webhook_admission_duration_seconds_count{name="m.example.com",operation="CREATE",rejected="false",type="admit"} 3`,
	} {
		if !strings.Contains(string(metrics), want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	if got := noted(t, log, path, "mutation.webhook.admission.k8s.io/"); got["round_0_index_0"] != `{"configuration":"m","webhook":"m.example.com","mutated":true}` {
		t.Errorf("mutations: %q", got)
	}
	if got := noted(t, log, path, "patch.webhook.admission.k8s.io/"); len(got) > 0 {
		t.Errorf("an event of level Metadata has %q", got)
	}
}

// TestSickWebhook: a webhook that sends much and then hangs does not keep the webhook of another namespace from denying,
// although the failures of that one are ignored.
func TestSickWebhook(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	sick, well := webhooktest.Start(t), webhooktest.Start(t)
	begun := make(chan struct{}, 8)
	sick.On("/", func(w http.ResponseWriter, r *webhooktest.Review) {
		_, _ = w.Write(make([]byte, 70<<10))
		w.(http.Flusher).Flush()
		begun <- struct{}{}
		<-r.HTTP.Context().Done()
	})
	well.On("/", func(w http.ResponseWriter, r *webhooktest.Review) {
		webhooktest.Deny("no")(w, r)
		_, _ = io.WriteString(w, strings.Repeat(" ", 70<<10))
	})
	for name, hook := range map[string]*webhooktest.Server{"a": sick, "b": well} {
		create[corev1.Namespace](t, c, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		create[admissionregistrationv1.ValidatingWebhookConfiguration](t, c, validatingPath, configuration(name,
			fmt.Sprintf(`,"failurePolicy":"Ignore","timeoutSeconds":30,"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}`, name), hook.Config("/")))
	}
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer leave()
	for i := range cap(begun) {
		callers.Go(func() {
			body := strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i))
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Host+"/api/v1/namespaces/a/configmaps", body)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			if resp, err := client.Do(r); err == nil {
				resp.Body.Close()
			}
		})
	}
	for range cap(begun) {
		await.Value(t, "a call of the webhook", begun)
	}
	wantRefused(t, c, "/api/v1/namespaces/b/configmaps", `{"metadata":{"name":"c"}}`, 400, `admission webhook "b.example.com" denied the request: no`)
}
