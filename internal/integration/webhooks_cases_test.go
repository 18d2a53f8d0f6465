package integration_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

const (
	newConfigMap = `POST /api/v1/namespaces/NS/configmaps {"metadata":{"name":"a"},"data":{"k":"v"}}`
	deployment   = `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	scaler       = `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`
)

// one is a configuration x with these webhooks.
func one(webhooks ...string) map[string][]string { return map[string][]string{"x": webhooks} }

// hooked returns a webhook with a path.
func hooked(path, members string) string {
	if members != "" {
		members = "," + members
	}
	return fmt.Sprintf(`"name":"%s.hooks.example.com","path":"/%s"%s`, path, path, members)
}

func on(resources string) string {
	return fmt.Sprintf(`"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":[%s]}]`, resources)
}

func responses(pairs ...any) map[string]webhooktest.Response {
	all := map[string]webhooktest.Response{}
	for i := 0; i < len(pairs); i += 2 {
		a, ok := pairs[i+1].(webhooktest.Response)
		if !ok {
			a = pairs[i+1].(func(http.ResponseWriter, *webhooktest.Review))
		}
		all["/"+pairs[i].(string)] = a
	}
	return all
}

// failing returns a case of a validating webhook, with its response to a create.
func failing(name string, a webhooktest.Response) hookCase {
	return hookCase{name: name, validating: one(hooked("a", "")), responses: responses("a", a), steps: []string{newConfigMap}, brief: true}
}

// patching returns a case of a mutating webhook, with its response to a create.
func patching(name string, a webhooktest.Response) hookCase {
	return hookCase{name: name, mutating: one(hooked("a", "")), responses: responses("a", a), steps: []string{newConfigMap}, brief: true}
}

var hookCases = []hookCase{
	{name: "verbs", mutating: one(hooked("m", "")), validating: one(hooked("v", "")), steps: []string{
		newConfigMap,
		`PUT /api/v1/namespaces/NS/configmaps/a {"metadata":{"name":"a"},"data":{"k":"w"}}`,
		`MERGE /api/v1/namespaces/NS/configmaps/a?fieldManager=me {"data":{"l":"w"}}`,
		`APPLY /api/v1/namespaces/NS/configmaps/a?fieldManager=me {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"m":"w"}}`,
		`APPLY /api/v1/namespaces/NS/configmaps/b?fieldManager=me&force=true {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"m":"w"}}`,
		`DELETE /api/v1/namespaces/NS/configmaps/a?gracePeriodSeconds=3`,
		`DELETE /api/v1/namespaces/NS/configmaps?labelSelector=no=one`,
		`DELETE /api/v1/namespaces/NS/configmaps?fieldSelector=metadata.name=b`,
		`POST /api/v1/namespaces/NS/configmaps?dryRun=All&fieldManager=x&fieldValidation=Strict {"metadata":{"name":"c"}}`,
	}},
	{name: "generated names", mutating: one(hooked("m", "")), validating: one(hooked("v", "")), steps: []string{
		`POST /api/v1/namespaces/NS/configmaps?dryRun=All {"metadata":{"generateName":"g-"}}`,
	}},
	{name: "v1beta1", mutating: one(hooked("m", `"admissionReviewVersions":["v2","v1beta1","v1"]`)), validating: one(hooked("v", `"admissionReviewVersions":["v1beta1"]`)), steps: []string{newConfigMap}},
	{name: "dry run", mutating: one(hooked("m", `"sideEffects":"NoneOnDryRun"`)), steps: []string{
		`POST /api/v1/namespaces/NS/configmaps?dryRun=All {"metadata":{"name":"c"}}`}, brief: true},
	{name: "equivalent", validating: map[string][]string{"x": {
		hooked("one", `"rules":[{"operations":["*"],"apiGroups":["autoscaling"],"apiVersions":["v1"],"resources":["*"]}]`),
		hooked("two", `"rules":[{"operations":["*"],"apiGroups":["autoscaling"],"apiVersions":["v2"],"resources":["*"]}]`),
		hooked("exact", `"matchPolicy":"Exact","rules":[{"operations":["*"],"apiGroups":["autoscaling"],"apiVersions":["v1"],"resources":["*"]}]`),
	}}, mutating: one(hooked("m", `"rules":[{"operations":["*"],"apiGroups":["autoscaling"],"apiVersions":["v1"],"resources":["*"]}]`)),
		responses: responses("m", webhooktest.Patch(`[{"op":"replace","path":"/spec/maxReplicas","value":7},{"op":"add","path":"/spec/targetCPUUtilizationPercentage","value":33}]`)),
		steps:     []string{"POST /apis/autoscaling/v2/namespaces/NS/horizontalpodautoscalers " + scaler}},
	{name: "events", validating: map[string][]string{"x": {
		hooked("core", `"rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["events"]}]`),
		hooked("new", `"rules":[{"operations":["*"],"apiGroups":["events.k8s.io"],"apiVersions":["v1"],"resources":["events"]}]`),
	}}, steps: []string{
		`POST /api/v1/namespaces/NS/events {"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","namespace":"NS","name":"p"},"reason":"R","message":"m","type":"Normal"}`,
	}},
	{name: "scale", mutating: one(hooked("m", on(`"deployments/scale"`))), validating: one(hooked("v", on(`"*/scale"`)), hooked("object", on(`"deployments"`))),
		responses: responses("m", webhooktest.Patch(`[{"op":"replace","path":"/spec/replicas","value":5}]`)),
		steps: []string{
			"-POST /apis/apps/v1/namespaces/NS/deployments " + deployment,
			`PUT /apis/apps/v1/namespaces/NS/deployments/d/scale {"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","namespace":"NS"},"spec":{"replicas":2}}`,
		}},
	{name: "status", mutating: one(hooked("m", on(`"*/status"`))), responses: responses("m", webhooktest.Patch(`[{"op":"add","path":"/spec/replicas","value":9},{"op":"add","path":"/metadata/labels","value":{"l":"m"}},{"op":"add","path":"/status/replicas","value":4}]`)),
		steps: []string{
			"-POST /apis/apps/v1/namespaces/NS/deployments " + deployment,
			`MERGE /apis/apps/v1/namespaces/NS/deployments/d/status {"status":{"observedGeneration":1}}`,
		}, brief: true},
	{name: "bindings and evictions", validating: one(hooked("v", on(`"pods/*"`))), steps: []string{
		`POST /api/v1/namespaces/NS/pods/p/eviction {"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`,
	}, brief: true},
	{name: "namespaces", validating: one(hooked("v", on(`"namespaces","namespaces/status"`))), steps: []string{
		`POST /api/v1/namespaces?dryRun=All {"metadata":{"name":"NS-x","labels":{"hooks":"NS"}}}`,
		`POST /api/v1/namespaces?dryRun=All {"metadata":{"name":"NS-x","labels":{"hooks":"other"}}}`,
		`POST /api/v1/namespaces?dryRun=All {"metadata":{"generateName":"g-","labels":{"hooks":"NS"}}}`,
		`MERGE /api/v1/namespaces/NS?dryRun=All {"metadata":{"labels":{"l":"m"}}}`,
		`DELETE /api/v1/namespaces/NS?dryRun=All`,
	}, brief: true},
	{name: "cluster scope", validating: one(
		hooked("object", on(`"clusterroles"`)+`,"objectSelector":{"matchLabels":{"hooks":"NS"}}`),
		hooked("scope", `"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"Cluster"}],"objectSelector":{"matchLabels":{"hooks":"NS"}}`),
		hooked("other", `"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"Namespaced"}],"objectSelector":{"matchLabels":{"hooks":"NS"}}`)), steps: []string{
		`POST /apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All {"metadata":{"name":"NS-x","labels":{"hooks":"NS"}}}`,
	}, brief: true},
	{name: "object selector", validating: one(hooked("v", `"objectSelector":{"matchLabels":{"l":"m"}}`)), steps: []string{
		`POST /api/v1/namespaces/NS/configmaps {"metadata":{"name":"a","labels":{"l":"m"}}}`,
		`MERGE /api/v1/namespaces/NS/configmaps/a {"metadata":{"labels":{"l":"n"}}}`,
		`MERGE /api/v1/namespaces/NS/configmaps/a {"metadata":{"labels":{"l":"o"}}}`,
	}, brief: true},
	{name: "order", mutating: map[string][]string{"b": {hooked("b1", ""), hooked("b2", "")}, "a": {hooked("a1", ""), hooked("a2", "")}}, responses: responses(
		"a1", webhooktest.Patch(`[{"op":"add","path":"/data/o","value":"a1"}]`), "a2", webhooktest.Patch(`[{"op":"replace","path":"/data/o","value":"a2"}]`),
		"b1", webhooktest.Patch(`[{"op":"test","path":"/data/o","value":"a2"},{"op":"replace","path":"/data/o","value":"b1"}]`), "b2", webhooktest.Patch(`[{"op":"replace","path":"/data/o","value":"b2"}]`)),
		steps: []string{newConfigMap}},
	{name: "reinvocation", mutating: one(hooked("a", `"reinvocationPolicy":"IfNeeded"`), hooked("b", `"reinvocationPolicy":"IfNeeded"`), hooked("c", ""), hooked("d", `"reinvocationPolicy":"IfNeeded"`)),
		responses: responses("c", webhooktest.Patch(`[{"op":"add","path":"/data/c","value":"1"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "reinvocation without need", mutating: one(hooked("a", `"reinvocationPolicy":"IfNeeded"`), hooked("b", "")),
		responses: responses("b", webhooktest.Patch(`[{"op":"replace","path":"/data/k","value":"v"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "reinvocation by itself", mutating: one(hooked("a", `"reinvocationPolicy":"IfNeeded"`)),
		responses: responses("a", webhooktest.Patch(`[{"op":"add","path":"/data/c","value":"1"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "no first call in the second round", mutating: one(hooked("a", `"reinvocationPolicy":"IfNeeded","objectSelector":{"matchLabels":{"l":"m"}}`), hooked("b", "")),
		responses: responses("b", webhooktest.Patch(`[{"op":"add","path":"/metadata/labels","value":{"l":"m"}}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "warnings", mutating: one(hooked("m", "")), validating: one(hooked("v", "")), responses: responses(
		"m", webhooktest.JSON(`"allowed":true,"warnings":["first","second \"quoted\"","first"]`), "v", webhooktest.JSON(`"allowed":false,"warnings":["third","first",""],"status":{"message":"no"}`)),
		steps: []string{newConfigMap}, brief: true},
	{name: "several deny", validating: one(hooked("a", ""), hooked("b", "")), responses: responses("a", webhooktest.Deny("no"), "b", webhooktest.Allow), steps: []string{newConfigMap}, brief: true},
	{name: "patched name", mutating: one(hooked("m", "")), responses: responses("m", webhooktest.Patch(`[{"op":"replace","path":"/metadata/name","value":"other"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "patch of metadata", mutating: one(hooked("m", "")), responses: responses("m", webhooktest.Patch(`[{"op":"add","path":"/metadata/labels","value":{"l":"m"}},{"op":"add","path":"/metadata/uid","value":"x"},{"op":"add","path":"/metadata/generation","value":7},{"op":"add","path":"/metadata/finalizers","value":["a.b/c"]}]`)),
		steps: []string{newConfigMap, `MERGE /api/v1/namespaces/NS/configmaps/a {"data":{"k":"w"}}`}, brief: true},
	{name: "patched namespace", mutating: one(hooked("m", "")), responses: responses("m", webhooktest.Patch(`[{"op":"replace","path":"/metadata/namespace","value":"default"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "patch that is not valid", mutating: one(hooked("m", "")), responses: responses("m", webhooktest.Patch(`[{"op":"add","path":"/data/a b","value":"x"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "unknown field", mutating: one(hooked("a", `"reinvocationPolicy":"IfNeeded"`), hooked("m", "")), responses: responses("m", webhooktest.Patch(`[{"op":"add","path":"/nothing","value":"x"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "wrong type", mutating: one(hooked("m", "")), responses: responses("m", webhooktest.Patch(`[{"op":"add","path":"/data/x","value":3}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "delete with a patch", mutating: one(hooked("m", `"rules":[{"operations":["DELETE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]`)), responses: responses("m", webhooktest.Patch(`[{"op":"add","path":"/data/a","value":"x"}]`)),
		steps: []string{"-" + newConfigMap, `DELETE /api/v1/namespaces/NS/configmaps/a`}, brief: true},
	{name: "applied", mutating: one(hooked("m", "")), responses: responses("m", webhooktest.Patch(`[{"op":"add","path":"/data/by","value":"hook"},{"op":"replace","path":"/data/k","value":"hook"}]`)), steps: []string{
		`APPLY /api/v1/namespaces/NS/configmaps/b?fieldManager=me {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"k":"v","l":"v"}}`,
		`MERGE /api/v1/namespaces/NS/configmaps/b?fieldManager=you {"data":{"n":"v"}}`,
	}, brief: true},
	patching("undecodable patch", webhooktest.Patch(`nonsense`)),
	patching("patch of another shape", webhooktest.Patch(`{"op":"add"}`)),
	patching("empty patch", webhooktest.Patch(`[]`)),
	patching("patch to a missing path", webhooktest.Patch(`[{"op":"remove","path":"/data/none"}]`)),
	patching("failed test", webhooktest.Patch(`[{"op":"test","path":"/data/k","value":"x"}]`)),
	patching("unknown operation", webhooktest.Patch(`[{"op":"merge","path":"/data/k","value":"x"}]`)),
	patching("patch of the whole", webhooktest.Patch(`[{"op":"replace","path":"","value":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"y"}}}]`)),
	patching("patch without type", webhooktest.JSON(`"allowed":true,"patch":"W10="`)),
	patching("type without patch", webhooktest.JSON(`"allowed":true,"patchType":"JSONPatch"`)),
	patching("other patch type", webhooktest.JSON(`"allowed":true,"patchType":"MergePatch","patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYSIsInZhbHVlIjoieCJ9XQ=="`)),
	patching("empty patch type", webhooktest.JSON(`"allowed":true,"patchType":"","patch":"W10="`)),
	patching("denied with a patch", webhooktest.JSON(`"allowed":false,"patchType":"JSONPatch","patch":"W10="`)),
	failing("denied", webhooktest.Deny("no")),
	failing("denied without explanation", webhooktest.JSON(`"allowed":false`)),
	failing("denied with a code", webhooktest.JSON(`"allowed":false,"status":{"code":418,"reason":"Teapot","message":"short"}`)),
	failing("denied with a reason", webhooktest.JSON(`"allowed":false,"status":{"code":403,"reason":"Forbidden"}`)),
	failing("denied with a small code", webhooktest.JSON(`"allowed":false,"status":{"code":200,"status":"Success","message":"fine"}`)),
	failing("denied with details", webhooktest.JSON(`"allowed":false,"status":{"code":422,"reason":"Invalid","message":"m","details":{"name":"n","group":"g","kind":"k","uid":"u","retryAfterSeconds":3,"causes":[{"reason":"FieldValueInvalid","message":"cm","field":"spec.x"}]},"metadata":{"resourceVersion":"3"}}`)),
	failing("validating with a patch", webhooktest.JSON(`"allowed":true,"patchType":"JSONPatch","patch":"W10="`)),
	failing("validating with a patch type", webhooktest.JSON(`"allowed":true,"patchType":"JSONPatch"`)),
	failing("status 500", text(500, "text/plain", "boom")),
	failing("status 500 in JSON", text(500, "application/json", `{"a":"b"}`)),
	failing("status 500 without a body", text(500, "", "")),
	failing("status 500 with a Status", text(500, "application/json", `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"mine","reason":"Conflict","code":409}`)),
	failing("status 400", text(400, "text/plain", "boom")),
	failing("status 401", text(401, "text/plain", "boom")),
	failing("status 403", text(403, "text/plain", "boom")),
	failing("status 404", text(404, "text/plain", "boom")),
	failing("status 409", text(409, "text/plain", "boom")),
	failing("status 418", text(418, "text/plain", "boom")),
	failing("status 429", text(429, "text/plain", "boom")),
	failing("status 503", text(503, "text/plain", "boom")),
	failing("status 302", text(302, "text/plain", "boom")),
	failing("status 201", func(w http.ResponseWriter, r *webhooktest.Review) { w.WriteHeader(201); webhooktest.Allow(w, r) }),
	failing("empty body", text(200, "application/json", "")),
	failing("no JSON", text(200, "application/json", "nonsense")),
	failing("broken JSON", text(200, "application/json", `{"a":`)),
	failing("JSON list", text(200, "application/json", `[]`)),
	failing("no kind", text(200, "application/json", `{"response":{"allowed":true}}`)),
	failing("other kind", text(200, "application/json", `{"apiVersion":"v1","kind":"Pod"}`)),
	failing("status object", text(200, "application/json", `{"apiVersion":"v1","kind":"Status","status":"Failure","message":"mine","reason":"Conflict","code":409}`)),
	failing("no response", text(200, "application/json", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)),
	failing("other uid", text(200, "application/json", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"other","allowed":true}}`)),
	failing("without group", func(w http.ResponseWriter, r *webhooktest.Review) {
		fmt.Fprintf(w, `{"response":{"uid":%q,"allowed":true}}`, r.Request.UID)
	}),
	failing("v1beta1 for v1", func(w http.ResponseWriter, r *webhooktest.Review) {
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, r.Request.UID)
	}),
	failing("YAML", func(w http.ResponseWriter, r *webhooktest.Review) {
		fmt.Fprintf(w, "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse: {uid: %q, allowed: true}\n", r.Request.UID)
	}),
	failing("wrong type of a field", text(200, "application/json", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":"yes"}}`)),
	failing("odd content type", text(200, "a/b/c; d", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)),
	failing("hung up", hangUp),
	{name: "v1beta1 gets v1", validating: one(hooked("a", `"admissionReviewVersions":["v1beta1"]`)), responses: responses("a", text(200, "application/json", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":true}}`)), steps: []string{newConfigMap}, brief: true},
	{name: "v1beta1 without kind", validating: one(hooked("a", `"admissionReviewVersions":["v1beta1"]`)), responses: responses("a", text(200, "application/json", `{"response":{"allowed":false}}`)), steps: []string{newConfigMap}, brief: true},
	{name: "v1beta1 patch without type", mutating: one(hooked("a", `"admissionReviewVersions":["v1beta1"]`)), responses: responses("a", text(200, "application/json", `{"response":{"allowed":true,"patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYSIsInZhbHVlIjoieCJ9XQ=="}}`)), steps: []string{newConfigMap}, brief: true},
	{name: "timeout", validating: one(hooked("a", `"timeoutSeconds":1`)), responses: responses("a", hang), steps: []string{newConfigMap}, brief: true},
	{name: "timeout of the request", validating: one(hooked("a", `"timeoutSeconds":10`)), steps: []string{`POST /api/v1/namespaces/NS/configmaps?timeout=3s {"metadata":{"name":"a"}}`}, brief: true},
	{name: "ignored failures", mutating: one(hooked("m", `"failurePolicy":"Ignore"`)), validating: one(hooked("v", `"failurePolicy":"Ignore"`)), responses: responses("m", webhooktest.Patch(`x`), "v", text(500, "text/plain", "boom")), steps: []string{newConfigMap}, brief: true},
	{name: "ignored policy and a denial", mutating: one(hooked("m", `"failurePolicy":"Ignore"`)), responses: responses("m", webhooktest.Deny("no")), steps: []string{newConfigMap}, brief: true},
	{name: "ignored policy and a patch that fails", mutating: one(hooked("m", `"failurePolicy":"Ignore"`)), responses: responses("m", webhooktest.Patch(`[{"op":"remove","path":"/data/none"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "conditions", validating: one(hooked("true", `"matchConditions":[{"name":"c","expression":"object.data.k == 'v'"}]`),
		hooked("false", `"matchConditions":[{"name":"c","expression":"object.metadata.name == 'x'"},{"name":"d","expression":"object.none == 1"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "condition fails", validating: one(hooked("v", `"matchConditions":[{"name":"c","expression":"object.none == 1"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "condition fails in a mutating webhook", mutating: one(hooked("m", `"matchConditions":[{"name":"c","expression":"object.none == 1"}]`)), steps: []string{newConfigMap, `POST /api/v1/namespaces/NS/configmaps?dryRun=All {"metadata":{"generateName":"g-"}}`}, brief: true},
	{name: "condition fails and is ignored", validating: one(hooked("v", `"failurePolicy":"Ignore","matchConditions":[{"name":"c","expression":"object.none == 1"}]`)), steps: []string{newConfigMap}, brief: true},
	{name: "missing service", validating: one(hooked("v", `"clientConfig":{"service":{"namespace":"NS","name":"nope","path":"/a/b"}}`)), steps: []string{newConfigMap}, brief: true},
	{name: "missing port", validating: one(hooked("v", `"clientConfig":{"service":{"namespace":"NS","name":"s"}}`)), steps: []string{
		`-POST /api/v1/namespaces/NS/services {"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`, newConfigMap}, brief: true},
	{name: "headless service", validating: one(hooked("v", `"clientConfig":{"service":{"namespace":"NS","name":"s","port":80}}`)), steps: []string{
		`-POST /api/v1/namespaces/NS/services {"metadata":{"name":"s"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`, newConfigMap}, brief: true},
	{name: "refused connection", validating: one(hooked("v", `"clientConfig":{"url":"https://127.0.0.1:1/x"}`)), steps: []string{newConfigMap}, brief: true},
	{name: "unknown certificate", validating: one(hooked("v", `"clientConfig":{"url":"URL/x"}`)), steps: []string{newConfigMap}, brief: true},
	{name: "odd bundle", validating: one(hooked("v", `"clientConfig":{"url":"https://127.0.0.1:1/x","caBundle":"eA=="}`)), steps: []string{newConfigMap}, brief: true},
	{name: "webhooks are exempt", validating: one(hooked("v", on(`"*/*"`)+`,"objectSelector":{"matchLabels":{"hooks":"NS"}}`)), steps: []string{
		`POST /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?dryRun=All {"metadata":{"name":"NS-e","labels":{"hooks":"NS"}}}`,
		`POST /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings?dryRun=All {"metadata":{"name":"NS-e","labels":{"hooks":"NS"}},"spec":{"policyName":"p","validationActions":["Deny"]}}`,
	}, brief: true},
}

// hookDifferences are deliberate differences from the records.
var hookDifferences = map[string]func(recorded string) string{
	// The managed fields of a Scale that is being written have no time yet.
	"scale": func(text string) string {
		lines := strings.Split(text, "\n")
		lines[2] = strings.Replace(lines[2], `"subresource":"scale","time":"TIME"`, `"subresource":"scale"`, 1)
		return strings.Join(lines, "\n")
	},
}
