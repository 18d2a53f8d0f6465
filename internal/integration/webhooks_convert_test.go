package integration_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

// TestWebhooksOfConvertedKind: webhooks for one version of a custom kind with a conversion webhook see
// requests of both versions in theirs, and a patch in that version is stored. A request in the version
// of the webhook is converted as often as without the webhook.
func TestWebhooksOfConvertedKind(t *testing.T) {
	hook, conversion := webhooktest.Start(t), &converter{}
	server, ca := serveHook(t, conversion)
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	run(t, c, []step{{"POST " + definitions, twoVersions(server.URL, ca), 201, nil}})
	const things = "/apis/example.com/%s/namespaces/default/things"
	body := func(version, name, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"example.com/%s","kind":"Thing","metadata":{"name":%q},"spec":%s}`, version, name, spec)
	}
	post := func(version string) string { return "POST " + fmt.Sprintf(things, version) }

	run(t, c, []step{{post("v2"), body("v2", "before", `{"count":1}`), 201, nil}})
	without := conversion.asked.Load()

	const rules = `"rules":[{"operations":[%s],"apiGroups":["example.com"],"apiVersions":["v2"],"resources":["things"]}],"sideEffects":"None","admissionReviewVersions":["v1"]`
	configure := func(path, operations string) string {
		return fmt.Sprintf(`{"metadata":{"name":"w"},"webhooks":[{"name":"w.example.com",`+rules+`,"clientConfig":%s}]}`, operations, hook.Config(path))
	}
	hook.On("/mutate", webhooktest.Patch(`[{"op":"replace","path":"/spec/count","value":7}]`))
	create[admissionregistrationv1.MutatingWebhookConfiguration](t, c, mutatingPath, configure("/mutate", `"CREATE"`))
	create[admissionregistrationv1.ValidatingWebhookConfiguration](t, c, validatingPath, configure("/validate", `"CREATE","DELETE"`))

	before := conversion.asked.Load()
	run(t, c, []step{{post("v2"), body("v2", "b", `{"count":2}`), 201, values{"spec": `{"count":7}`}}})
	if calls := conversion.asked.Load() - before; calls != without {
		t.Errorf("a request in the version of the webhook is converted %d times, without the webhook %d times", calls, without)
	}
	run(t, c, []step{
		{post("v1"), body("v1", "a", `{"n":2}`), 201, values{"spec": `{"n":7}`}},
		{"GET " + fmt.Sprintf(things, "v2") + "/a", "", 200, values{"spec": `{"count":7}`}},
		{"DELETE " + fmt.Sprintf(things, "v1") + "/a", "", 200, nil},
	})
	var seen []string
	for _, r := range hook.Take() {
		raw := r.Request.Object.Raw
		if raw == nil {
			raw = r.Request.OldObject.Raw
		}
		var o struct {
			APIVersion string
			Spec       json.RawMessage
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, fmt.Sprintf("%s %s %s %s of %s", r.HTTP.URL.Path, r.Request.Operation, o.APIVersion, o.Spec, r.Request.RequestKind.Version))
	}
	want := []string{
		`/mutate CREATE example.com/v2 {"count":2} of v2`, `/validate CREATE example.com/v2 {"count":7} of v2`,
		`/mutate CREATE example.com/v2 {"count":2} of v1`, `/validate CREATE example.com/v2 {"count":7} of v1`,
		`/validate DELETE example.com/v2 {"count":7} of v1`,
	}
	if !slices.Equal(seen, want) {
		t.Errorf("webhooks saw\n%q, want\n%q", seen, want)
	}
}

// TestWebhookReinvokesPolicy: a mutating policy with reinvocationPolicy IfNeeded is evaluated once
// more after a webhook has changed the object. One with Never is not.
func TestWebhookReinvokesPolicy(t *testing.T) {
	hook := webhooktest.Start(t)
	hook.On("/mutate", webhooktest.Patch(`[{"op":"add","path":"/data/hook","value":"x"}]`))
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	for _, when := range []string{"IfNeeded", "Never"} {
		// The policy counts the entries that it sees.
		text := fmt.Sprintf(`{"metadata":{"name":"count-%[1]s"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]},
			"reinvocationPolicy":%[2]q,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'%[2]s': string(object.data.size())}}}"}}]}}`, strings.ToLower(when), when)
		create[admissionregistrationv1.MutatingAdmissionPolicy](t, c, "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", text)
		create[admissionregistrationv1.MutatingAdmissionPolicyBinding](t, c, "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
			fmt.Sprintf(`{"metadata":{"name":"count-%[1]s"},"spec":{"policyName":"count-%[1]s"}}`, strings.ToLower(when)))
	}
	create[admissionregistrationv1.MutatingWebhookConfiguration](t, c, mutatingPath, configuration("m", "", hook.Config("/mutate")))
	made := create[corev1.ConfigMap](t, c, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"},"data":{"one":"1"}}`)
	if got := [...]string{made.Labels["IfNeeded"], made.Labels["Never"]}; got != [...]string{"2", "1"} {
		t.Errorf("the policies have counted %q", got)
	}
}
