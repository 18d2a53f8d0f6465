package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// settleHook is the name of the webhook that marks a point in time.
const settleHook = "settled"

// settle waits until the server acts on all configurations. It acts on each kind in the order of
// changes, so that a mark of each kind, made last, takes effect last.
func (r *run) settle(ctx context.Context) error {
	if r.marks++; r.marks == 1 {
		r.vars["nssettle"] = "settle-" + r.vars["id"]
		if err := r.namespace(r.vars["nssettle"]); err != nil {
			return err
		}
	}
	mark := fmt.Sprintf("settle-%s-%d", r.vars["id"], r.marks)
	mine := fmt.Sprintf(`{"matchLabels":{"kubernetes.io/metadata.name":%q}}`, r.vars["nssettle"])
	rules := `[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]`
	condition := fmt.Sprintf(`[{"name":"mark","expression":"object.metadata.name == '%s'"}]`, mark)
	hook := func(which string) string {
		return fmt.Sprintf(`[{"name":"settle.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","rules":%s,"namespaceSelector":%s,"matchConditions":%s,
			"clientConfig":{"url":"%s/%s%s","caBundle":%q}}]`, rules, mine, condition, r.vars["hook"], settleHook, which, r.vars["ca"])
	}
	base := "/apis/admissionregistration.k8s.io/v1/"
	match := fmt.Sprintf(`{"resourceRules":%s,"namespaceSelector":%s}`, rules, mine)
	meta := fmt.Sprintf(`"metadata":{"name":%q}`, mark)
	for _, one := range [][2]string{
		{"validatingwebhookconfigurations", `{` + meta + `,"webhooks":` + hook("a") + `}`},
		{"mutatingwebhookconfigurations", `{` + meta + `,"webhooks":` + hook("b") + `}`},
		{"validatingadmissionpolicies", `{` + meta + `,"spec":{"matchConstraints":` + match + `,"matchConditions":` + condition + `,"validations":[{"expression":"false","message":"settledc"}]}}`},
		{"validatingadmissionpolicybindings", `{` + meta + `,"spec":{"policyName":"` + mark + `","validationActions":["Warn"]}}`},
		{"mutatingadmissionpolicies", `{` + meta + `,"spec":{"reinvocationPolicy":"Never","matchConstraints":` + match + `,"matchConditions":` + condition +
			`,"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/data', value: {'settled': 'd'}}]"}}]}}`},
		{"mutatingadmissionpolicybindings", `{` + meta + `,"spec":{"policyName":"` + mark + `"}}`},
	} {
		status, _, body, err := r.send(ctx, request{method: "POST", path: base + one[0], body: one[1]}, "")
		if err != nil || status != http.StatusCreated {
			return fmt.Errorf("marking %s: %d %s %v", one[0], status, body, err)
		}
		defer r.send(ctx, request{method: "DELETE", path: base + one[0] + "/" + mark}, "")
	}
	probe := request{method: "POST", path: "/api/v1/namespaces/" + r.vars["nssettle"] + "/configmaps?dryRun=All", body: `{` + meta + `}`}
	for end := time.Now().Add(untilTimeout); ; time.Sleep(20 * time.Millisecond) {
		status, header, body, err := r.send(ctx, probe, "")
		if err != nil {
			return err
		}
		var object struct{ Data map[string]string }
		warnings := strings.Join(header.Values("Warning"), "")
		if status == http.StatusCreated && json.Unmarshal(body, &object) == nil && object.Data["settled"] == "d" &&
			strings.Contains(warnings, "settleda") && strings.Contains(warnings, "settledb") && strings.Contains(warnings, "settledc") {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the configurations are not in effect: %d %q %s", status, warnings, body)
		}
	}
}

// keepParams makes kube-apiserver watch built-in parameters as long as it runs. Without a policy that
// stays, it stops when a policy with such parameters goes, and later policies find no parameters.
func (s *server) keepParams(ctx context.Context) error {
	r := &run{server: s}
	for _, kind := range []string{"ConfigMap", "Secret"} {
		name := "scenarios-keep-" + strings.ToLower(kind)
		body := fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"paramKind":{"apiVersion":"v1","kind":%q},"validations":[{"expression":"true"}],
			"matchConstraints":{"resourceRules":[{"apiGroups":["keep.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["nothings"]}]}}}`, name, kind)
		policy := request{method: "POST", path: "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", body: body}
		binding := request{method: "POST", path: "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", body: fmt.Sprintf(
			`{"metadata":{"name":%q},"spec":{"policyName":%q,"paramRef":{"name":"none","namespace":"default","parameterNotFoundAction":"Allow"},"validationActions":["Deny"]}}`, name, name)}
		for _, q := range []request{policy, binding} {
			if status, _, hookResponse, err := r.send(ctx, q, ""); err != nil || status != http.StatusCreated && status != http.StatusConflict {
				return fmt.Errorf("keeping parameters: %d %s %v", status, hookResponse, err)
			}
		}
	}
	return nil
}
