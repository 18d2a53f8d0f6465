package integration_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// The words in this file are those of kube-apiserver v1.36.3, compared with it at the same
// configurations.

// configured starts a server with an admission configuration. The lines below plugins are given.
func configured(t *testing.T, s *tidemark.Server, plugins string) *rest.Config {
	t.Helper()
	s.Admission.ConfigFile = file(t, "admission.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+plugins)
	return servertest.Start(t, s).RESTConfig()
}

// noted returns the audit annotations with a prefix of the last event of a path.
func noted(t *testing.T, log, path, prefix string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			RequestURI  string
			Annotations map[string]string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.RequestURI != path {
			continue
		}
		clear(all)
		for key, value := range e.Annotations {
			if rest, ok := strings.CutPrefix(key, prefix); ok {
				all[rest] = value
			}
		}
	}
	return all
}

const auditWrites = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, verbs: [create, update, patch]}]"

const securityConfiguration = `- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: v1.30, audit: restricted, warn: restricted, warn-version: v1.25}
    exemptions: {usernames: [exempt-user], namespaces: [exempt], runtimeClasses: [kata]}
`

// TestPodSecurityConfiguration: defaults and exemptions, with warnings, audit annotations and metrics.
func TestPodSecurityConfiguration(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	c := configured(t, &tidemark.Server{Audit: tidemark.Audit{PolicyFile: file(t, "policy.yaml", auditWrites), Log: tidemark.AuditLog{Path: log}}}, securityConfiguration)
	user := rest.CopyConfig(c)
	user.Impersonate = rest.ImpersonationConfig{UserName: "exempt-user", Groups: []string{"system:masters"}}
	const label = "pod-security.kubernetes.io/"
	for name, labels := range map[string]string{"plain": "", "free": `"` + label + `enforce":"privileged","` + label + `audit":"privileged","` + label + `warn":"privileged"`} {
		create[corev1.Namespace](t, c, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q,"labels":{%s}}}`, name, labels))
	}
	_, header, _ := exchange(t, c, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"exempt","labels":{"`+label+`enforce":"restricted","`+label+`warn":"baseline"}}}`)
	if want := `299 - "namespace \"exempt\" is exempt from Pod Security, and the policy (enforce=restricted:v1.30, warn=baseline:v1.25) will be ignored"`; !slices.Equal(header.Values("Warning"), []string{want}) {
		t.Errorf("labels of an exempt namespace: %q", header.Values("Warning"))
	}
	const host, violation = `{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}`, `host namespaces (hostNetwork=true)`
	for _, row := range []struct {
		by              *rest.Config
		namespace, spec string
		code            int
		warns           bool
		want            map[string]string
	}{
		{c, "plain", host, 403, false, map[string]string{"enforce-policy": "baseline:v1.30", "audit-violations": `would violate PodSecurity "restricted:latest": ` + violation}},
		{c, "plain", `{"containers":[{"name":"c","image":"i"}]}`, 201, true, map[string]string{"enforce-policy": "baseline:v1.30", "audit-violations": `would violate PodSecurity "restricted:latest": allowPrivilegeEscalation`}},
		{user, "plain", host, 201, false, map[string]string{"exempt": "user"}},
		{c, "exempt", host, 201, false, map[string]string{"exempt": "namespace"}},
		{c, "plain", `{"runtimeClassName":"kata",` + host[1:], 403, false, nil}, // there is no such class
		{c, "free", host, 201, false, map[string]string{"enforce-policy": "privileged:latest"}},
	} {
		path := "/api/v1/namespaces/" + row.namespace + "/pods"
		code, header, b := exchange(t, row.by, http.MethodPost, path, `{"metadata":{"generateName":"p-"},"spec":`+row.spec+`}`)
		if code != row.code || (len(header.Values("Warning")) > 0) != row.warns {
			t.Errorf("%s in %s: %d, %q, want %d\n%s", row.spec, row.namespace, code, header.Values("Warning"), row.code, b)
		}
		got := noted(t, log, path, label)
		if len(got) != len(row.want) {
			t.Errorf("%s in %s: annotations %q, want %q", row.spec, row.namespace, got, row.want)
		}
		for key, want := range row.want {
			if !strings.HasPrefix(got[key], want) {
				t.Errorf("%s in %s: %s is %q, want %q", row.spec, row.namespace, key, got[key], want)
			}
		}
	}
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	all := metrics(t, h, c.Host)
	for name, want := range map[string]float64{
		`pod_security_evaluations_total{decision="deny",mode="enforce",policy_level="baseline",policy_version="v1.30",request_operation="create",resource="pod",subresource=""}`:     1,
		`pod_security_evaluations_total{decision="allow",mode="enforce",policy_level="privileged",policy_version="latest",request_operation="create",resource="pod",subresource=""}`: 1,
		`pod_security_evaluations_total{decision="deny",mode="warn",policy_level="restricted",policy_version="v1.25",request_operation="create",resource="pod",subresource=""}`:      1,
		`pod_security_exemptions_total{request_operation="create",resource="pod",subresource=""}`:                                                                                    2,
	} {
		if all[name] != want {
			t.Errorf("%s is %v, want %v", name, all[name], want)
		}
	}
}

// TestLimitedResources checks that a resource that is limited by default needs a quota.
func TestLimitedResources(t *testing.T) {
	c := configured(t, &tidemark.Server{}, `- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - {resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]}
    - {resource: persistentvolumeclaims, matchContains: [.storageclass.storage.k8s.io/]}
    - {resource: services, matchContains: [loadbalancers]}
`)
	create[corev1.Namespace](t, c, "/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
	const in = "/api/v1/namespaces/n/"
	claim := func(class string) string {
		return `{"metadata":{"generateName":"c-"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"` + class + `","resources":{"requests":{"storage":"1Gi"}}}}`
	}
	const service, high = `{"metadata":{"name":%q},"spec":{"type":%q,"ports":[{"port":80}]}}`, `{"metadata":{"name":"p"},"spec":{"priorityClassName":"high","containers":[{"name":"c","image":"i"}]}}`
	const balancers = `services "s" is forbidden: insufficient quota to consume: services.loadbalancers`
	run(t, c, []step{
		{"POST /apis/scheduling.k8s.io/v1/priorityclasses", `{"metadata":{"name":"high"},"value":5}`, 201, nil},
		{"POST " + in + "pods", high, 403, `pods "p" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [high]}]`},
		{"POST " + in + "pods", somePod, 201, nil},
		{"POST " + in + "persistentvolumeclaims", claim(""), 201, nil},
		{"POST " + in + "services", fmt.Sprintf(service, "s", "LoadBalancer"), 403, balancers},
		{"POST " + in + "services?dryRun=All", fmt.Sprintf(service, "s", "LoadBalancer"), 403, balancers},
		{"POST " + in + "services", fmt.Sprintf(service, "s", "ClusterIP"), 201, nil},
		{"MERGE " + in + "services/s", `{"spec":{"type":"LoadBalancer"}}`, 403, balancers},
		{"MERGE " + in + "services/s", `{"metadata":{"labels":{"a":"b"}}}`, 200, nil},
		{"POST " + in + "resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"services.loadbalancers":"1"}}}`, 201, nil},
	})
	wantRefused(t, c, in+"persistentvolumeclaims", `{"metadata":{"name":"c"},`+claim("gold")[strings.Index(claim("gold"), `"spec"`):], 403,
		`persistentvolumeclaims "c" is forbidden: insufficient quota to consume: gold.storageclass.storage.k8s.io/persistentvolumeclaims,gold.storageclass.storage.k8s.io/requests.storage`)
	settle(t, c)
	run(t, c, []step{
		{"MERGE " + in + "services/s", `{"spec":{"type":"LoadBalancer"}}`, 200, nil},
		{"POST " + in + "services", fmt.Sprintf(service, "t", "LoadBalancer"), 403, `services "t" is forbidden: exceeded quota: q, requested: services.loadbalancers=1, used: services.loadbalancers=1, limited: services.loadbalancers=1`},
	})
}

// TestTolerationRestriction: Pods get default tolerations, and have no others than those of a list.
func TestTolerationRestriction(t *testing.T) {
	c := configured(t, &tidemark.Server{Admission: tidemark.Admission{Enable: []string{"PodTolerationRestriction"}, Disable: []string{"DefaultTolerationSeconds"}}}, `- name: PodTolerationRestriction
  configuration:
    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
    kind: Configuration
    default: [{key: pool, operator: Equal, value: shared, effect: NoSchedule}]
    whitelist: [{key: pool, operator: Exists}, {key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}]
`)
	const prefix = "scheduler.alpha.kubernetes.io/"
	for name, annotations := range map[string]string{
		"n": "{}", "own": `{"` + prefix + `defaultTolerations":"[{\"key\":\"k\",\"operator\":\"Exists\"}]","` + prefix + `tolerationsWhitelist":"[{\"key\":\"k\",\"operator\":\"Exists\"}]"}`,
		"none": `{"` + prefix + `defaultTolerations":"","` + prefix + `tolerationsWhitelist":""}`, "bad": `{"` + prefix + `defaultTolerations":"{"}`,
	} {
		create[corev1.Namespace](t, c, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q,"annotations":%s}}`, name, annotations))
	}
	const plain, z = `{"containers":[{"name":"c","image":"i"}]}`, `{"tolerations":[{"key":"z","operator":"Exists"}],"containers":[{"name":"c","image":"i"}]}`
	const conflict = `pods "p" is forbidden: pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist`
	for _, row := range []struct {
		namespace, spec, want, refused string
	}{
		{"n", plain, `[{"key":"pool","operator":"Equal","value":"shared","effect":"NoSchedule"}]`, ""},
		{"n", `{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}`,
			`[{"key":"pool","operator":"Equal","value":"shared","effect":"NoSchedule"},{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"}]`, ""},
		{"n", z, "", fmt.Sprintf(conflict, "cluster")},
		{"own", plain, `[{"key":"k","operator":"Exists"}]`, ""},
		{"own", z, "", fmt.Sprintf(conflict, "namespace")},
		{"none", z, `[{"key":"z","operator":"Exists"}]`, ""},
		{"bad", plain, "", `pods "p" is forbidden: unexpected end of JSON input`},
	} {
		path := "/api/v1/namespaces/" + row.namespace + "/pods"
		code, b := post(t, c, path, `{"metadata":{"name":"p"},"spec":`+row.spec+`}`)
		if row.refused != "" {
			if text, _ := json.Marshal(row.refused); code != 403 || !sameJSON(t, pick(t, b, "message"), string(text)) {
				t.Errorf("%s in %s: %d %s, want %s", row.spec, row.namespace, code, b, row.refused)
			}
			continue
		}
		if code != 201 || !sameJSON(t, pick(t, b, "spec.tolerations"), row.want) {
			t.Errorf("%s in %s: %d %s, want %s", row.spec, row.namespace, code, b, row.want)
		}
		remove(t, c, path+"/p?gracePeriodSeconds=0")
	}
}

// images is a service that decides on images by their names.
type images struct {
	calls atomic.Int32
	last  atomic.Pointer[string]
}

// ServeHTTP implements http.Handler.
func (s *images) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.calls.Add(1)
	b, _ := io.ReadAll(r.Body)
	text := string(b)
	s.last.Store(&text)
	status := `{"allowed":true}`
	switch {
	case strings.Contains(text, `"fail"`):
		w.WriteHeader(http.StatusInternalServerError)
		return
	case strings.Contains(text, `"bad"`):
		status = `{"allowed":false,"reason":"bad image"}`
	case strings.Contains(text, `"mute"`):
		status = `{"allowed":false}`
	case strings.Contains(text, `"note"`):
		status = `{"allowed":true,"auditAnnotations":{"audit-required":"true"}}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":%s}`, status)
}

// TestImagePolicy: a service decides on images; its responses are kept, failures are not.
func TestImagePolicy(t *testing.T) {
	for _, open := range []bool{false, true} {
		service := &images{}
		remote := httptest.NewTLSServer(service)
		t.Cleanup(remote.Close)
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: remote.Certificate().Raw})
		kubeconfig := file(t, "kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}], users: [{name: u, user: {token: t}}]}`, remote.URL+"/review", file(t, "ca.pem", string(authority))))
		log := filepath.Join(t.TempDir(), "audit.log")
		c := configured(t, &tidemark.Server{
			Admission: tidemark.Admission{Enable: []string{"ImagePolicyWebhook"}},
			Audit:     tidemark.Audit{PolicyFile: file(t, "policy.yaml", auditWrites), Log: tidemark.AuditLog{Path: log}},
		}, fmt.Sprintf("- name: ImagePolicyWebhook\n  configuration: {imagePolicy: {kubeConfigFile: %q, retryBackoff: -1, denyTTL: -1, defaultAllow: %t}}\n", kubeconfig, open))
		create[corev1.Namespace](t, c, "/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
		const path, prefix = "/api/v1/namespaces/n/pods", "imagepolicywebhook.image-policy.k8s.io/"
		for _, row := range []struct {
			image string
			code  int
			want  string // the message, or the audit annotations
			calls int32
		}{
			{"good", 201, "map[]", 1},
			{"good", 409, "", 0}, // an allowing response is kept
			{"bad", 403, `pods "bad" is forbidden: image policy webhook backend denied one or more images: bad image`, 1},
			{"bad", 403, `pods "bad" is forbidden: image policy webhook backend denied one or more images: bad image`, 1},
			{"mute", 403, `pods "mute" is forbidden: one or more images rejected by webhook backend`, 1},
			{"note", 201, "map[audit-required:true]", 1},
			{"fail", map[bool]int{false: 403, true: 201}[open], map[bool]string{true: "map[failed-open:true]"}[open], 5},
		} {
			before := service.calls.Load()
			code, b := post(t, c, path, fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{"a.image-policy.k8s.io/b":"c","x":"y"}},"spec":{"containers":[{"name":"c","image":%[1]q}]}}`, row.image))
			var response struct {
				Message  string
				Metadata struct{ Annotations map[string]string }
			}
			if err := json.Unmarshal(b, &response); err != nil {
				t.Fatal(err)
			}
			got := response.Message
			if code == 201 {
				got = fmt.Sprint(noted(t, log, path, prefix))
				if (response.Metadata.Annotations["alpha.image-policy.k8s.io/failed-open"] == "true") != (row.image == "fail") {
					t.Errorf("%s: annotations %v", row.image, response.Metadata.Annotations)
				}
			}
			if calls := service.calls.Load() - before; code != row.code || row.want != "" && got != row.want || calls != row.calls {
				t.Errorf("open %t, %s: %d %q with %d calls, want %d %q with %d", open, row.image, code, got, calls, row.code, row.want, row.calls)
			}
		}
		if sent := *service.last.Load(); !strings.Contains(sent, `"annotations":{"a.image-policy.k8s.io/b":"c"},"namespace":"n"`) {
			t.Errorf("the service got %s", sent)
		}
	}
}

// TestNamespacePlugins: which namespaces a create needs depends on three plugins.
func TestNamespacePlugins(t *testing.T) {
	const path, object = "/api/v1/namespaces/x/configmaps", `{"metadata":{"name":"c"}}`
	for _, row := range []struct {
		enable, disable  string
		code             int
		exists, immortal bool
	}{
		{"", "", 404, false, true},
		{"NamespaceAutoProvision", "", 201, true, true},
		{"", "NamespaceLifecycle", 201, false, false},
		{"NamespaceExists", "NamespaceLifecycle", 404, false, false},
		{"NamespaceAutoProvision,NamespaceExists", "NamespaceLifecycle", 201, true, false},
	} {
		name := "+" + row.enable + " -" + row.disable
		s := &tidemark.Server{Admission: tidemark.Admission{Enable: names(row.enable), Disable: names(row.disable)}}
		c := servertest.Start(t, s).RESTConfig()
		exchange(t, c, http.MethodPost, path+"?dryRun=All", object)
		if code, _, _ := exchange(t, c, http.MethodGet, "/api/v1/namespaces/x", ""); code != 404 {
			t.Errorf("%s: a dry-run makes the namespace", name)
		}
		if code, b := post(t, c, path, object); code != row.code {
			t.Errorf("%s: %d %s, want %d", name, code, b, row.code)
		}
		if code, _, _ := exchange(t, c, http.MethodGet, "/api/v1/namespaces/x", ""); (code == 200) != row.exists {
			t.Errorf("%s: the namespace: %d", name, code)
		}
		if code, _, b := exchange(t, c, http.MethodDelete, "/api/v1/namespaces/kube-public", ""); (code == 403) != row.immortal {
			t.Errorf("%s: deleting kube-public: %d %s", name, code, b)
		}
	}
}

func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
