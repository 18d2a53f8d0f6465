package integration_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

var hooksPeer = flag.String("hooks-peer", "", "kubeconfig of a kube-apiserver; TestWebhooks records its responses")

const hooksFile = "testdata/webhooks.txt"

// hookCase is a scenario with webhooks. NS stands for its namespace.
type hookCase struct {
	name string
	// mutating and validating are configurations, by their names, of webhooks: members besides
	// those that every webhook has (hookDefaults). The member "path" is that of the URL.
	mutating, validating map[string][]string
	// responses are those at paths; the others allow.
	responses map[string]webhooktest.Response
	// steps are requests: "METHOD path body". A line that begins with "-" is not shown.
	steps []string
	// brief: calls are shown without the objects.
	brief bool
}

// hookDefaults are members of a webhook that a case does not set.
var hookDefaults = map[string]string{
	"sideEffects": `"None"`, "admissionReviewVersions": `["v1"]`,
	"rules": `[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["configmaps"]}]`,
}

// TestWebhooks compares responses, and the requests to webhooks, with those of a kube-apiserver
// v1.36.3. With -hooks-peer, it records them.
func TestWebhooks(t *testing.T) {
	if *hooksPeer != "" {
		recordHooks(t)
		return
	}
	recorded, err := os.ReadFile(hooksFile)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for section := range strings.SplitSeq(string(recorded), "\n=== ") {
		name, text, _ := strings.Cut(strings.TrimPrefix(section, "=== "), "\n")
		want[name] = strings.TrimSpace(text)
	}
	// Webhooks would see the ConfigMaps of controllers.
	c := rest.CopyConfig(servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig())
	for _, one := range hookCases {
		t.Run(one.name, func(t *testing.T) {
			got := runHooks(t, c, one, 0)
			wanted := want[one.name]
			if change := hookDifferences[one.name]; change != nil {
				if changed := change(wanted); changed != wanted {
					wanted = changed
				} else {
					t.Error("the difference is stale")
				}
			}
			if diff := diffLines(wanted, got); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
		delete(want, one.name)
	}
	for name := range want {
		t.Errorf("the recorded case %s is stale", name)
	}
}

func recordHooks(t *testing.T) {
	c, err := clientcmd.BuildConfigFromFlags("", *hooksPeer)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(hookCases))
	t.Run("cases", func(t *testing.T) {
		for i, one := range hookCases {
			t.Run(one.name, func(t *testing.T) {
				t.Parallel()
				texts[i] = runHooks(t, c, one, 2*time.Second)
			})
		}
	})
	var b strings.Builder
	for i, one := range hookCases {
		fmt.Fprintf(&b, "=== %s\n%s\n\n", one.name, texts[i])
	}
	if err := os.WriteFile(hooksFile, []byte(strings.TrimSpace(b.String())+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// diffLines returns the lines that only one of two texts has.
func diffLines(want, got string) string {
	if want == got {
		return ""
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out strings.Builder
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			fmt.Fprintf(&out, "- %s\n+ %s\n", x, y)
		}
	}
	return out.String()
}

// runHooks runs a case, and returns its output. A server takes delay until configurations have an
// effect.
func runHooks(t *testing.T, base *rest.Config, one hookCase, delay time.Duration) string {
	t.Helper()
	hook := webhooktest.Start(t)
	for path, a := range one.responses {
		hook.On(path, a)
	}
	r := &hookRun{T: t, admin: base, hook: hook, ns: "hooks-" + strings.ToLower(strings.ReplaceAll(one.name, " ", "-"))}
	if delay > 0 {
		r.ns += fmt.Sprintf("-%04x", rand.IntN(1<<16))
	}
	as := rest.CopyConfig(base)
	as.Impersonate = rest.ImpersonationConfig{UserName: "hooks", Groups: []string{"system:masters"}}
	r.user = as
	r.must("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"hooks":%q}}}`, r.ns, r.ns))
	if delay > 0 {
		defer exchange(t, base, "DELETE", "/api/v1/namespaces/"+r.ns, "")
	}
	defer r.clean()
	for kind, all := range map[string]map[string][]string{"Mutating": one.mutating, "Validating": one.validating} {
		for name, hooks := range all {
			r.configure(kind, name, hooks)
		}
	}
	givePeer(delay)
	for _, s := range one.steps {
		r.step(s, one.brief)
	}
	return strings.TrimSpace(r.out.String())
}

type hookRun struct {
	*testing.T
	admin, user *rest.Config
	hook        *webhooktest.Server
	ns          string
	stored      []string // paths of configurations
	out         strings.Builder
}

func (r *hookRun) must(method, path, body string) {
	r.Helper()
	if code, _, b := exchange(r.T, r.admin, method, path, body); code > 299 {
		r.Fatalf("%s %s %s: %d %s", method, path, body, code, b)
	}
}

// configure stores a configuration. Its webhooks see the namespace of the case
// alone, and objects outside of namespaces with its label.
func (r *hookRun) configure(kind, name string, hooks []string) {
	r.Helper()
	var all []string
	for _, h := range hooks {
		members := map[string]json.RawMessage{}
		h = strings.NewReplacer("NS", r.ns, "URL", r.hook.URL).Replace(h)
		if err := json.Unmarshal([]byte("{"+h+"}"), &members); err != nil {
			r.Fatalf("%s: %v", h, err)
		}
		for key, value := range hookDefaults {
			if members[key] == nil {
				members[key] = json.RawMessage(value)
			}
		}
		if members["clientConfig"] == nil {
			var path string
			_ = json.Unmarshal(members["path"], &path)
			members["clientConfig"] = json.RawMessage(r.hook.Config(path))
		}
		delete(members, "path")
		if members["namespaceSelector"] == nil {
			members["namespaceSelector"] = json.RawMessage(fmt.Sprintf(`{"matchLabels":{"hooks":%q}}`, r.ns))
		}
		text, err := json.Marshal(members)
		if err != nil {
			r.Fatal(err)
		}
		all = append(all, string(text))
	}
	path := "/apis/admissionregistration.k8s.io/v1/" + strings.ToLower(kind) + "webhookconfigurations"
	r.must("POST", path, fmt.Sprintf(`{"metadata":{"name":"%s-%s"},"webhooks":[%s]}`, r.ns, name, strings.Join(all, ",")))
	r.stored = append(r.stored, path+"/"+r.ns+"-"+name)
}

// clean removes the configurations.
func (r *hookRun) clean() {
	for _, path := range r.stored {
		exchange(r.T, r.admin, "DELETE", path, "")
	}
}

// step sends a request, and shows the response and the calls.
func (r *hookRun) step(s string, brief bool) {
	r.Helper()
	s, hidden := strings.CutPrefix(s, "-")
	s = strings.ReplaceAll(s, "NS", r.ns)
	parts := strings.SplitN(s, " ", 3)
	body := ""
	if len(parts) > 2 {
		body = parts[2]
	}
	r.hook.Take()
	code, header, b := exchange(r.T, r.user, parts[0], parts[1], body)
	if hidden {
		if code > 299 {
			r.Fatalf("%s: %d %s", s, code, b)
		}
		return
	}
	r.show("> %s", s)
	r.show("< %d %s", code, r.bodyOf(b))
	for _, w := range header.Values("Warning") {
		r.show("warning %s", w)
	}
	calls := slices.DeleteFunc(r.hook.Take(), func(c *webhooktest.Review) bool { return c.Request.UserInfo.Username != "hooks" })
	slices.SortStableFunc(calls, func(a, b *webhooktest.Review) int { return strings.Compare(a.HTTP.URL.Path, b.HTTP.URL.Path) })
	for _, call := range calls {
		r.show("call %s %s", call.HTTP.URL, r.reviewOf(call, brief))
	}
}

func (r *hookRun) show(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	text = strings.ReplaceAll(text, r.ns, "NS")
	text = strings.ReplaceAll(text, r.hook.URL, "URL")
	text = strings.ReplaceAll(text, strings.TrimPrefix(r.hook.URL, "https://"), "HOST")
	for _, n := range normalized {
		text = n.of.ReplaceAllString(text, n.by)
	}
	r.out.WriteString(text + "\n")
}

var normalized = []struct {
	of *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`"resourceVersion":"\d+"`), `"resourceVersion":"RV"`},
	{regexp.MustCompile(`127.0.0.1:\d+->`), `LOCAL->`},
	{regexp.MustCompile(`"g-[a-z0-9]{5}"`), `"g-RANDOM"`},
	{regexp.MustCompile(`in scheme \\"[^"]*"`), `in scheme \"SCHEME\"`},
}

// bodyOf returns a body without the parts that differ from run to run.
func (r *hookRun) bodyOf(b []byte) string {
	var tree map[string]any
	if err := json.Unmarshal(b, &tree); err != nil {
		return string(b)
	}
	return compact(tree)
}

func (r *hookRun) reviewOf(call *webhooktest.Review, brief bool) string {
	var tree map[string]any
	if err := json.Unmarshal(call.Body, &tree); err != nil {
		r.Fatal(err)
	}
	if request, ok := tree["request"].(map[string]any); ok && brief {
		for _, key := range []string{"object", "oldObject"} {
			if o, ok := request[key].(map[string]any); ok {
				request[key] = fmt.Sprint(o["apiVersion"], " ", o["kind"])
			}
		}
		delete(request, "userInfo")
	}
	return fmt.Sprintf("%s %s", call.HTTP.Header.Get("Content-Type"), compact(tree))
}

// compact returns JSON with sorted members.
func compact(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

func hangUp(w http.ResponseWriter, _ *webhooktest.Review) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		c.Close()
		return
	}
	panic(http.ErrAbortHandler)
}

// text responds with a code and a text.
func text(code int, contentType, body string) webhooktest.Response {
	return func(w http.ResponseWriter, _ *webhooktest.Review) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// hang responds when the caller has left.
func hang(_ http.ResponseWriter, r *webhooktest.Review) { <-r.HTTP.Context().Done() }

// TestWebhooksSkipReviews: webhooks see reviews of tokens and access only if the feature that hides them is disabled.
func TestWebhooksSkipReviews(t *testing.T) {
	reviews := map[string]string{
		tokenReviews:  `{"spec":{"token":"x"}}`,
		accessReviews: `{"spec":{"user":"u","resourceAttributes":{"verb":"get","resource":"pods"}}}`,
		selfAccess:    `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`,
		localAccess:   `{"metadata":{"namespace":"default"},"spec":{"user":"u","resourceAttributes":{"namespace":"default","verb":"get","resource":"pods"}}}`,
		"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": `{"spec":{"namespace":"default"}}`,
		"/apis/authentication.k8s.io/v1/selfsubjectreviews":     `{}`,
	}
	const everything = `"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]`
	for _, hidden := range []bool{true, false} {
		hook := webhooktest.Start(t)
		c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}, FeatureGates: map[string]bool{"ExcludeAdmissionWebhookVirtualResources": hidden}}).RESTConfig()
		text := fmt.Sprintf(`{"metadata":{"name":"w"},"webhooks":[{"name":"w.example.com",%s,"sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":%s}]}`, everything, hook.Config("/"))
		create[admissionregistrationv1.MutatingWebhookConfiguration](t, c, mutatingPath, text)
		create[admissionregistrationv1.ValidatingWebhookConfiguration](t, c, validatingPath, text)
		for path, body := range reviews {
			run(t, c, []step{{"POST " + path, body, 201, nil}})
			want := 0
			if !hidden {
				want = 2
			}
			if got := len(hook.Take()); got != want {
				t.Errorf("POST %s with the feature %t: the webhooks are called %d times, want %d", path, hidden, got, want)
			}
		}
	}
}
