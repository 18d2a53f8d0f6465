package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

const policyHead = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"

func parse(t testing.TB, text string) *Policy {
	t.Helper()
	p, _, err := ParsePolicy([]byte(policyHead + text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPolicyErrors: the words are those of kube-apiserver.
func TestPolicyErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "failed decoding: Object 'Kind' is missing",
		"kind: Policy":                       "failed decoding: Object 'apiVersion' is missing",
		"{":                                  "failed decoding",
		policyHead:                           "loaded illegal policy with 0 rules",
		policyHead + "rules: [{}]":           "rules[0].level: Required value",
		policyHead + "rules: [{level: All}]": `rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", "Request", "RequestResponse"`,
		policyHead + "omitStages: [Never]\nrules: [{level: None}]":                      `omitStages[0]: Invalid value: "Never": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic`,
		policyHead + "rules: [{level: None, nonResourceURLs: [api]}]":                   `rules[0].nonResourceURLs[0]: Invalid value: "api": non-resource URL rules must begin with a '/' character`,
		policyHead + "rules: [{level: None, nonResourceURLs: ['/a*b']}]":                "non-resource URL wildcards '*' must be the final character of the rule",
		policyHead + "rules: [{level: None, resources: [{group: 'a/v1'}]}]":             `rules[0].resources.group: Invalid value: "a/v1"`,
		policyHead + "rules: [{level: None, resources: [{resourceNames: [a]}]}]":        "using resourceNames requires at least one resource",
		policyHead + "rules: [{level: None, namespaces: [a], nonResourceURLs: ['/a']}]": "rules cannot apply to both regular resources and non-resource URLs",
		strings.ReplaceAll(policyHead, "Policy", "Event"):                               "unknown group version field audit.k8s.io/v1, Kind=Event in policy",
	} {
		if _, _, err := ParsePolicy([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestPolicyLenient: unknown and repeated fields are reported, and do not count.
func TestPolicyLenient(t *testing.T) {
	p, strict, err := ParsePolicy([]byte(policyHead + "more: 1\nrules: [{level: Metadata, level: None, users: [a]}]"))
	if err != nil || strict == nil || !strings.Contains(strict.Error(), `unknown field "more"`) || p == nil {
		t.Errorf("%v, %v", strict, err)
	}
}

// request makes attributes: "USER[/GROUP] VERB NAMESPACE GROUP/RESOURCE[/SUBRESOURCE] [NAME]" or
// "USER VERB PATH". "-" is empty; the user "?" is not authenticated.
func request(t testing.TB, text string) *authz.Attributes {
	t.Helper()
	f := strings.Fields(text)
	for i := range f {
		if f[i] == "-" {
			f[i] = ""
		}
	}
	a := &authz.Attributes{Verb: f[1]}
	if name, group, _ := strings.Cut(f[0], "/"); name != "?" {
		a.User = &authn.User{Name: name, Groups: []string{group, "all"}}
	}
	if strings.HasPrefix(f[2], "/") {
		a.Path = f[2]
		return a
	}
	a.IsResource, a.Namespace = true, f[2]
	a.Group, a.Resource, _ = strings.Cut(f[3], "/")
	a.Resource, a.Subresource, _ = strings.Cut(a.Resource, "/")
	if len(f) > 4 {
		a.Name = f[4]
	}
	return a
}

// TestDecisions: rules and the requests that they match, the first one with the level Metadata.
func TestDecisions(t *testing.T) {
	for _, row := range []struct {
		rule    string
		matches []string
		others  []string
	}{
		{"", []string{"u get /x", "u get ns /pods", "? get /x"}, nil},
		{"users: [u]", []string{"u get /x"}, []string{"v get /x", "? get /x"}},
		{"users: [a, b, c, d, e, f, g, h, i, u]", []string{"u get /x", "a get /x"}, []string{"v get /x"}},
		{"userGroups: [g]", []string{"u/g get /x"}, []string{"u/h get /x", "? get /x"}},
		{"verbs: [get, list]", []string{"u list ns /pods", "u get /x"}, []string{"u watch ns /pods"}},
		{"namespaces: [ns]", []string{"u get ns /pods"}, []string{"u get other /pods", "u get - /nodes", "u get /x"}},
		{`namespaces: [""]`, []string{"u get - /nodes"}, []string{"u get ns /pods"}},
		{`resources: [{group: ""}]`, []string{"u get ns /pods", "u get ns /pods/log"}, []string{"u get ns apps/deployments", "u get /x"}},
		{`resources: [{group: "*", resources: [deployments]}]`, []string{"u get ns apps/deployments"}, []string{"u get ns apps/deployments/scale", "u get ns /pods"}},
		{`resources: [{resources: [pods/log]}]`, []string{"u get ns /pods/log"}, []string{"u get ns /pods", "u get ns /pods/exec"}},
		{`resources: [{resources: ["*"]}]`, []string{"u get ns /pods", "u get ns /pods/log"}, []string{"u get ns apps/deployments"}},
		{`resources: [{resources: ["pods/*"]}]`, []string{"u get ns /pods", "u get ns /pods/log"}, []string{"u get ns /services/proxy"}},
		{`resources: [{resources: ["*/log"]}]`, []string{"u get ns /pods/log"}, []string{"u get ns /pods", "u get ns /pods/exec"}},
		{`resources: [{resources: [a, b, c, d, e, f, g, h, i, pods/log]}]`, []string{"u get ns /pods/log", "u get ns /a"}, []string{"u get ns /pods"}},
		{`resources: [{resources: [pods], resourceNames: [x]}]`, []string{"u get ns /pods x"}, []string{"u get ns /pods y", "u list ns /pods"}},
		{`nonResourceURLs: ["/healthz*"]`, []string{"u get /healthz", "u get /healthz/ping"}, []string{"u get /livez", "u get ns /pods"}},
		{`nonResourceURLs: ["*"]`, []string{"u get /x"}, []string{"u get ns /pods"}},
		{`nonResourceURLs: ["/x"]`, []string{"u get /x"}, []string{"u get /x/y"}},
	} {
		p := parse(t, "rules: [{level: Metadata, "+row.rule+"}]")
		for _, text := range row.matches {
			if got := p.Decide(request(t, text)).Level; got != Metadata {
				t.Errorf("%s: %s has the level %v", row.rule, text, got)
			}
		}
		for _, text := range row.others {
			if got := p.Decide(request(t, text)).Level; got != None {
				t.Errorf("%s: %s has the level %v", row.rule, text, got)
			}
		}
	}
}

// TestDecisionOptions: the first rule counts; stages are added, omitManagedFields is replaced.
func TestDecisionOptions(t *testing.T) {
	p := parse(t, `
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: Request, verbs: [get], omitStages: [Panic]}
- {level: RequestResponse, omitManagedFields: false}
- {level: None}
`)
	d := p.Decide(request(t, "u get /x"))
	if d.Level != Request || !d.OmitManagedFields || !d.Omits(RequestReceived) || !d.Omits(Panic) || d.Omits(ResponseComplete) {
		t.Errorf("%+v", d)
	}
	if d = p.Decide(request(t, "u post /x")); d.Level != RequestResponse || d.OmitManagedFields || d.Omits(Panic) {
		t.Errorf("%+v", d)
	}
}

// FuzzPolicy: no policy and no request panics.
func FuzzPolicy(f *testing.F) {
	f.Add(policyHead+"rules: [{level: Metadata, resources: [{group: a, resources: ['*/x', 'y/*'], resourceNames: [n]}]}]", "u", "get", "pods")
	f.Add(`{"kind":"Policy","apiVersion":"audit.k8s.io/v1","rules":[{"level":"None","nonResourceURLs":["/*"]}]}`, "u", "get", "/x")
	f.Fuzz(func(_ *testing.T, text, user, verb, resource string) {
		p, _, err := ParsePolicy([]byte(text))
		if err != nil {
			return
		}
		p.Decide(&authz.Attributes{User: &authn.User{Name: user}, Verb: verb, IsResource: true, Resource: resource, Subresource: verb})
		p.Decide(&authz.Attributes{Verb: verb, Path: resource})
	})
}

// typicalPolicy has as many rules as those that hosted clusters use.
func typicalPolicy() string {
	var b strings.Builder
	b.WriteString("omitStages: [RequestReceived]\nrules:\n")
	for i := range 10 {
		fmt.Fprintf(&b, "- {level: None, users: ['system:kube-%d'], verbs: [watch, get, update], namespaces: [kube-system], resources: [{group: '', resources: [endpoints, services, services/status]}]}\n", i)
	}
	for i := range 15 {
		fmt.Fprintf(&b, "- {level: Request, verbs: [get, list, watch], resources: [{group: group%d.k8s.io}, {group: other%d.k8s.io}]}\n", i, i)
	}
	b.WriteString("- {level: Metadata}\n")
	return b.String()
}

func BenchmarkDecide(b *testing.B) {
	p, a := parse(b, typicalPolicy()), request(b, "u/g get ns /pods p")
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(a)
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	p, a := parse(t, typicalPolicy()), request(t, "u/g get ns /pods p")
	if n := testing.AllocsPerRun(100, func() { p.Decide(a) }); n != 0 {
		t.Errorf("a decision allocates %v times", n)
	}
}
