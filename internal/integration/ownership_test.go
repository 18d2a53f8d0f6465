package integration_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// owners returns the fields of an object that each manager owns, by "manager operation".
func owners(t *testing.T, object []byte) map[string]string {
	t.Helper()
	var o struct {
		Metadata struct {
			ManagedFields []struct {
				Manager, Operation string
				FieldsV1           json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(object, &o); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	all := map[string]string{}
	for _, e := range o.Metadata.ManagedFields {
		all[e.Manager] = string(e.FieldsV1)
	}
	return all
}

// TestOwnersOfWhatIsSent checks that a manager owns the fields that it sent, whatever the request
// stores of them. The owners are those that kube-apiserver's field managers find.
func TestOwnersOfWhatIsSent(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const (
		leases    = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
		ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
		nodes     = "/apis/storage.k8s.io/v1/csinodes"
		accounts  = "/api/v1/namespaces/default/serviceaccounts"
		sets      = "/apis/apps/v1/namespaces/default/daemonsets"
		stateful  = "/apis/apps/v1/namespaces/default/statefulsets"
		maps      = "/api/v1/namespaces/default/configmaps"
		ranges    = "/api/v1/namespaces/default/limitranges"
	)
	type write struct{ request, body string }
	tests := []struct {
		name   string
		writes []write // by the managers a, b, c
		want   map[string]string
	}{
		{
			"an empty list in an element of an atomic list",
			[]write{
				{"POST " + ingresses, `{"metadata":{"name":"i"},"spec":{"tls":[{}],"defaultBackend":{"resource":{"kind":"K","name":"n"}}}}`},
				{"MERGE " + ingresses + "/i", `{"spec":{"tls":[{"hosts":[]}]}}`},
			},
			map[string]string{"a": `{"f:spec":{"f:defaultBackend":{".":{},"f:resource":{}}}}`, "b": `{"f:spec":{"f:tls":{}}}`},
		},
		{
			"an empty list that JSON omits elsewhere",
			[]write{
				{"POST " + ingresses, `{"metadata":{"name":"j","labels":{"a":"b"}},"spec":{"defaultBackend":{"resource":{"kind":"K","name":"n"}}}}`},
				{"MERGE " + ingresses + "/j", `{"spec":{"tls":[]},"metadata":{"finalizers":[]}}`},
			},
			map[string]string{"a": `{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:defaultBackend":{".":{},"f:resource":{}}}}`},
		},
		{
			"an empty list without omitempty",
			[]write{
				{"POST " + nodes, `{"metadata":{"name":"n"},"spec":{"drivers":[{"name":"d","nodeID":"x"}]}}`},
				{"MERGE " + nodes + "/n", `{"spec":{"drivers":[{"name":"d","nodeID":"x","topologyKeys":[]}]}}`},
			},
			map[string]string{
				"a": `{"f:spec":{"f:drivers":{"k:{\"name\":\"d\"}":{".":{},"f:name":{},"f:nodeID":{}}}}}`,
				"b": `{"f:spec":{"f:drivers":{"k:{\"name\":\"d\"}":{"f:topologyKeys":{}}}}}`,
			},
		},
		{
			"a field that a feature gate drops",
			[]write{
				{"POST " + leases, `{"metadata":{"name":"l"},"spec":{"holderIdentity":"x"}}`},
				{"MERGE " + leases + "/l", `{"spec":{"strategy":"OldestEmulationVersion"}}`},
			},
			map[string]string{"a": `{"f:spec":{"f:holderIdentity":{}}}`, "b": `{"f:spec":{"f:strategy":{}}}`},
		},
		{
			"tolerations that admission adds again",
			[]write{
				{"POST " + pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],"tolerations":[{"key":"x"}]}}`},
				{"MERGE " + pods + "/p", `{"spec":{"tolerations":[{"key":"x"}]}}`},
			},
			map[string]string{"b": `{"f:spec":{"f:tolerations":{}}}`},
		},
		{
			"an annotation that the server sets",
			[]write{
				{"POST " + sets, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
				{"MERGE " + sets + "/d", `{"spec":{"template":{"spec":{"hostNetwork":true}}}}`},
			},
			map[string]string{"b": `{"f:spec":{"f:template":{"f:spec":{"f:hostNetwork":{}}}}}`},
		},
		{
			"the server drops parts of an atomic element of a keyed list",
			[]write{
				{"APPLY " + accounts + "/s", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"s"},"secrets":[{"name":"n","namespace":"x","fieldPath":"q"}]}`},
				{"MERGE " + accounts + "/s", `{"secrets":[{"name":"n","namespace":"x"}]}`},
			},
			map[string]string{"b": `{"f:secrets":{"k:{\"name\":\"n\"}":{}}}`},
		},
		{
			"the same when its first owner no longer applies it",
			[]write{
				{"APPLY " + accounts + "/u", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"u"},"secrets":[{"name":"n","fieldPath":"q"}]}`},
				{"MERGE " + accounts + "/u", `{"secrets":[{"name":"n","namespace":"x"}]}`},
				{"APPLY " + accounts + "/u?fieldManager=a", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"u","labels":{"a":"b"}}}`},
			},
			map[string]string{"a": `{"f:metadata":{"f:labels":{"f:a":{}}}}`, "b": `{"f:secrets":{"k:{\"name\":\"n\"}":{}}}`},
		},
		{
			"two groups of a kind",
			[]write{
				{"POST /api/v1/namespaces/default/events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"},"reason":"r"}`},
				{"MERGE /apis/events.k8s.io/v1/namespaces/default/events/e", `{"metadata":{"labels":{"a":"b"}}}`},
			},
			map[string]string{"b": `{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`}, // kube-apiserver has no schema of the other group
		},
		{
			"an alpha field, which is not stored",
			[]write{
				{"POST " + stateful, `{"metadata":{"name":"s"},"spec":{"selector":{"matchLabels":{"a":"b"}},"serviceName":"x","template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}},"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"10%"}}}}`},
				{"MERGE " + stateful + "/s", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2,"maxUnavailable":2}}}}`},
			},
			map[string]string{"b": `{"f:spec":{"f:updateStrategy":{"f:rollingUpdate":{"f:maxUnavailable":{},"f:partition":{}}}}}`},
		},
		{
			"an ephemeral container, and what its subresource does not store",
			[]write{
				{"POST " + pods, `{"metadata":{"name":"e"},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
				{"MERGE " + pods + "/e/ephemeralcontainers", `{"metadata":{"labels":{"a":"b"}},"spec":{"hostAliases":[{"ip":"1.2.3.4"}]}}`},
			},
			map[string]string{"b": `{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:hostAliases":{".":{},"k:{\"ip\":\"1.2.3.4\"}":{".":{},"f:ip":{}}}}}`},
		},
		{
			"a resize, and what its subresource does not store",
			[]write{
				{"POST " + pods, `{"metadata":{"name":"r"},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
				{"MERGE " + pods + "/r/resize", `{"spec":{"activeDeadlineSeconds":7}}`},
			},
			map[string]string{"b": `{"f:spec":{"f:activeDeadlineSeconds":{}}}`},
		},
		{
			"empty defaults in an element of an atomic list",
			[]write{
				{"POST " + ranges, `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container"}]}}`},
				{"PUT " + ranges + "/l", `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container"}]}}`},
				{"PUT " + ranges + "/l", `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","default":{}}]}}`},
			},
			map[string]string{"a": `{"f:spec":{"f:limits":{}}}`},
		},
		{
			"an owner reference that a patch repeats",
			[]write{
				{"POST " + maps, `{"metadata":{"name":"c","ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]}}`},
				{"JSON " + maps + "/c", `[{"op":"add","path":"/metadata/ownerReferences/0","value":{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}}]`},
			},
			map[string]string{"a": `{"f:metadata":{"f:ownerReferences":{}}}`, "b": `{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"u\"}":{}}}}`},
		},
		{
			"two versions of a kind",
			[]write{
				{"POST /apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", `{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"n"}}}`},
				{"MERGE /apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/h", `{"spec":{"maxReplicas":4}}`},
			},
			map[string]string{"a": `{"f:spec":{"f:minReplicas":{},"f:scaleTargetRef":{},"f:targetCPUUtilizationPercentage":{}}}`, "b": `{"f:spec":{"f:maxReplicas":{}}}`},
		},
	}
	for _, tt := range tests {
		var last []byte
		for i, w := range tt.writes {
			request := w.request
			if !strings.Contains(request, "?") {
				request += "?fieldManager=" + string(rune('a'+i))
			}
			method, path, _ := strings.Cut(request, " ")
			code, _, b := exchange(t, c, method, path, w.body)
			if last = b; code >= http.StatusMultipleChoices {
				t.Errorf("%s: %s: %d %s", tt.name, request, code, b)
			}
		}
		got := owners(t, last)
		if slices.ContainsFunc([]string{"tolerations", "an annotation", "an alpha", "an ephemeral", "a resize"}, func(name string) bool { return strings.HasPrefix(tt.name, name) }) {
			if tt.want["a"] == "" {
				delete(got, "a") // owns much
			}
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: owners are %q, want %q\n%s", tt.name, got, tt.want, last)
		}
	}
	// The same write again changes neither an owner nor the object.
	_, _, before := exchange(t, c, "GET", ingresses+"/i", "")
	run(t, c, []step{{"MERGE " + pods + "/p?fieldManager=b", `{"spec":{"tolerations":[{"key":"x"}]}}`, 200, nil}})
	_, _, once := exchange(t, c, "GET", pods+"/p", "")
	run(t, c, []step{
		{"MERGE " + pods + "/p?fieldManager=b", `{"spec":{"tolerations":[{"key":"x"}]}}`, 200, map[string]string{"metadata.resourceVersion": pick(t, once, "metadata.resourceVersion")}},
		{"MERGE " + ingresses + "/i?fieldManager=b", `{"spec":{"tls":[{"hosts":[]}]}}`, 200, map[string]string{"metadata.resourceVersion": pick(t, before, "metadata.resourceVersion")}},
	})
}

// TestEmptiedByApply applies values that an earlier configuration filled, and that are empty or null
// now. As in kube-apiserver, a value that an apply empties becomes null, or absent: validation rejects
// a null, and the next apply of an absent list stores it.
func TestEmptiedByApply(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const strings, named = `{"type":"string"}`, `"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"m":{"type":"object","additionalProperties":{"type":"string"}}}}`
	const definition = `{"metadata":{"name":"widgets.empty.test"},"spec":{"group":"empty.test","names":{"plural":"widgets","kind":"Widget"},"scope":"Namespaced",
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
			"map":{"type":"object","additionalProperties":` + strings + `},
			"nullable":{"type":"object","nullable":true,"additionalProperties":` + strings + `},
			"keyed":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],` + named + `},
			"set":{"type":"array","x-kubernetes-list-type":"set","items":` + strings + `},
			"object":{"type":"object","properties":{"a":` + strings + `,"map":{"type":"object","additionalProperties":` + strings + `}}},
			"value":` + strings + `}}}}}}]}}`
	run(t, c, []step{{"POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition, 201, nil}})
	tests := []struct{ name, full, empty, once, twice string }{
		{"a", `{"map":{"k":"v"}}`, `{"map":{}}`, `422`, `422`},
		{"b", `{"nullable":{"k":"v"}}`, `{"nullable":{}}`, `{"nullable":null}`, `{"nullable":{}}`},
		{"c", `{"nullable":{"k":"v"}}`, `{"nullable":null}`, `{"nullable":null}`, `{"nullable":null}`},
		{"d", `{"value":"x","keyed":[{"name":"n"}]}`, `{"value":"x","keyed":[]}`, `{"value":"x"}`, `{"keyed":[],"value":"x"}`},
		{"e", `{"value":"x","set":["a"]}`, `{"value":"x","set":[]}`, `{"value":"x"}`, `{"set":[],"value":"x"}`},
		{"f", `{"object":{"a":"x"}}`, `{"object":{}}`, `422`, `422`},
		{"g", `{"object":{"map":{"k":"v"}}}`, `{"object":{"map":{}}}`, `422`, `422`},
		{"h", `{"keyed":[{"name":"n","m":{"k":"v"}}]}`, `{"keyed":[{"name":"n","m":{}}]}`, `422`, `422`},
		{"i", `{"value":"x","map":{"k":"v"}}`, `{"value":"x","map":null}`, `422`, `422`},
		{"j", `null`, `null`, `422`, `422`},
	}
	for _, tt := range tests {
		path := "/apis/empty.test/v1/namespaces/default/widgets/" + tt.name + "?fieldManager=c"
		config := func(spec string) string {
			return `{"apiVersion":"empty.test/v1","kind":"Widget","metadata":{"name":"` + tt.name + `"},"spec":` + spec + `}`
		}
		exchange(t, c, "APPLY", path, config(tt.full))
		for i, want := range []string{tt.once, tt.twice} {
			code, _, body := exchange(t, c, "APPLY", path, config(tt.empty))
			got := "422"
			if code == 200 {
				got = pick(t, body, "spec")
			}
			if got != want {
				t.Errorf("%s after %s, apply %d: %d %s, want %s", tt.empty, tt.full, i, code, got, want)
			}
		}
	}
}

// TestUnchangedApplyWarns checks that an apply that changes nothing has the warnings of the kind, each time.
func TestUnchangedApplyWarns(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"type":"kubernetes.io/tls","data":{"tls.crt":"eA==","tls.key":"eA=="}}`
	for i := range 3 {
		code, header, _ := exchange(t, c, "APPLY", "/api/v1/namespaces/default/secrets/s?fieldManager=c", secret)
		if got, want := header.Get("Warning"), `299 - "tls: failed to find any PEM data in certificate input"`; code/100 != 2 || got != want {
			t.Errorf("apply %d: %d, warning %q, want %q", i, code, got, want)
		}
	}
}

// TestUnchangedApplyIsValidated checks that rules of custom resources see an apply that changes nothing, each time.
func TestUnchangedApplyIsValidated(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	run(t, c, []step{{"POST " + definitions, definition(`"a":{"type":"string","x-kubernetes-validations":[{"rule":"!oldSelf.hasValue() || oldSelf.value() != self","optionalOldSelf":true}]}`), 201, nil}})
	const path = "/apis/example.com/v1/namespaces/default/things/t?fieldManager=c"
	if code, _, body := exchange(t, c, "APPLY", path, thing("t", `{"a":"x"}`)); code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	for i, spec := range []string{`{"a":"x"}`, `{"a":"x"}`, `{"b":1}`} {
		if code, _, body := exchange(t, c, "APPLY", path, thing("t", spec)); (code == 422) != (i < 2) {
			t.Errorf("apply %d of %s: %d %s", i, spec, code, body)
		}
	}
}

// TestNumbersInApply checks that an apply sets an integer by every text of the number.
func TestNumbersInApply(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	for text, want := range map[string]string{"-0.0": "0", "-0": "0", "1.0": "1", "1e3": "1000", "0.1e1": "1"} {
		config := `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b"},"spec":{"minAvailable":` + text + `,"selector":{}}}`
		code, _, body := exchange(t, c, "APPLY", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b?fieldManager=c", config)
		if got := pick(t, body, "spec.minAvailable"); code/100 != 2 || got != want {
			t.Errorf("minAvailable: %s: %d, %s, want %s", text, code, body, want)
		}
	}
}

// TestNullBytes checks that a null in a map of bytes is stored as empty bytes.
func TestNullBytes(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const secrets, maps = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/configmaps"
	empty := map[string]string{"data": `{"a":"","b":"Yg=="}`}
	binary := map[string]string{"binaryData": `{"a":""}`}
	run(t, c, []step{
		{"POST " + secrets + "?dryRun=All", `{"metadata":{"name":"s"},"data":{"a":null,"b":"Yg=="}}`, 201, empty},
		{"POST " + secrets, `{"metadata":{"name":"s"},"data":{"a":null,"b":"Yg=="}}`, 201, empty},
		{"GET " + secrets + "/s", "", 200, empty},
		{"GET " + secrets, "", 200, map[string]string{"items.0.data": empty["data"]}},
		{"PUT " + secrets + "/s", `{"metadata":{"name":"s"},"data":{"a":null,"b":"Yg=="}}`, 200, empty},
		{"APPLY " + secrets + "/s?fieldManager=c&force=true", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"a":null,"b":"Yg=="}}`, 200, empty},
		{"APPLY " + secrets + "/t?fieldManager=c", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"t"},"data":{"a":"!"}}`, 400,
			`failed to convert new object (/t; /v1, Kind=Secret) to proper version: unable to convert unstructured object to /v1, Kind=Secret: error decoding from json: illegal base64 data at input byte 0`},
		{"POST " + maps, `{"metadata":{"name":"m"},"binaryData":{"a":null}}`, 201, binary},
		{"PUT " + maps + "/m", `{"metadata":{"name":"m"},"binaryData":{"a":null}}`, 200, binary},
	})
}
