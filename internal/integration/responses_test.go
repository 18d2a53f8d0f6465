package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestOtherUID checks the errors of writes and deletions with the UID of another
// object. Messages are those of kube-apiserver v1.37.
func TestOtherUID(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	c := s.RESTConfig()
	const (
		core, apps = "/api/v1/namespaces/default/", "/apis/apps/v1/namespaces/default/"
		template   = `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}`
	)
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, nil},
		{"POST " + things, thing("a", `{"n":1}`), 201, nil},
		{"POST " + core + "services", `{"metadata":{"name":"a"},"spec":{"ports":[{"port":1}]}}`, 201, nil},
		{"POST " + core + "configmaps", `{"metadata":{"name":"a"}}`, 201, nil},
		{"POST /api/v1/nodes", `{"metadata":{"name":"a"}}`, 201, nil},
		{"POST " + pods, `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"b"}]}}`, 201, nil},
		{"POST " + apps + "deployments", `{"metadata":{"name":"a"},"spec":{` + template + `}}`, 201, nil},
	})
	for place, row := range map[string]struct{ path, body string }{
		"/registry/services/specs/default/a":                   {core + "services/a", `{"metadata":{"name":"a","uid":"x"},"spec":{"ports":[{"port":1}]}}`},
		"/registry/configmaps/default/a":                       {core + "configmaps/a", `{"metadata":{"name":"a","uid":"x"}}`},
		"/registry/minions/a":                                  {"/api/v1/nodes/a", `{"metadata":{"name":"a","uid":"x"}}`},
		"/registry/deployments/default/a":                      {apps + "deployments/a", `{"metadata":{"name":"a","uid":"x"},"spec":{` + template + `}}`},
		"/registry/example.com/things/default/a":               {things + "/a", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"x","resourceVersion":"1"},"spec":{"n":1}}`},
		"/registry/apiregistration.k8s.io/apiservices/v1.apps": {"/apis/apiregistration.k8s.io/v1/apiservices/v1.apps", `{"metadata":{"name":"v1.apps","uid":"x"},"spec":{"group":"apps","version":"v1","groupPriorityMinimum":1,"versionPriority":1}}`},
	} {
		code, _, response := exchange(t, c, http.MethodPut, row.path, row.body)
		if want := `Code: 4, Key: ` + place + `, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: x, `; code != 409 || !strings.Contains(string(response), want) {
			t.Errorf("PUT %s: %d %s, want 409 with %s", row.path, code, response, want)
		}
		code, _, response = exchange(t, c, http.MethodPut, row.path+"?dryRun=All", row.body)
		if want := `Key: ` + strings.TrimPrefix(place, "/registry") + `, `; code != 409 || !strings.Contains(string(response), want) {
			t.Errorf("PUT %s as a dry run: %d %s, want 409 with %s", row.path, code, response, want)
		}
	}
	const immutable = `Invalid value: "x": field is immutable`
	for _, path := range []string{pods + "/a/status", pods + "/a/ephemeralcontainers", apps + "deployments/a/status"} {
		run(t, c, []step{{"MERGE " + path, `{"metadata":{"uid":"x"}}`, 422, values{
			"details.causes.0.message": quoted(immutable), "details.causes.1": "null",
		}}})
	}
	for request, want := range map[string]string{
		"MERGE " + apps + "deployments/a/scale":         `Operation cannot be fulfilled on deployments/scale.apps "a": Precondition failed: UID in precondition: x, UID in object meta: `,
		"DELETE /api/v1/namespaces/default":             `Operation cannot be fulfilled on namespaces "default": Precondition failed: UID in precondition: x, UID in object meta: `,
		"DELETE /api/v1/namespaces/other":               `Operation cannot be fulfilled on namespaces "other": Precondition failed: UID in precondition: x, UID in object meta: `,
		"DELETE " + definitions + "/things.example.com": `Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io "things.example.com": Precondition failed: UID in precondition: x, UID in object meta: `,
		"DELETE " + core + "configmaps/a":               `Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition (x) does not match the UID in record (`,
	} {
		if strings.HasSuffix(request, "/other") {
			run(t, c, []step{{"POST /api/v1/namespaces", `{"metadata":{"name":"other"}}`, 201, nil}})
		}
		method, path, _ := strings.Cut(request, " ")
		body := `{"metadata":{"uid":"x"}}`
		if method == "DELETE" {
			body = `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"x"}}`
		}
		_, _, response := exchange(t, c, method, path, body)
		var status struct{ Message string }
		if err := json.Unmarshal(response, &status); err != nil || !strings.Contains(status.Message, want) {
			t.Errorf("%s: %s, want %s", request, response, want)
		}
	}
}

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// TestRefusals checks causes and messages, which are those of kube-apiserver v1.36.
func TestRefusals(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const (
		maps       = "/api/v1/namespaces/default/configmaps"
		jobs       = "/apis/batch/v1/namespaces/default/jobs"
		services   = "/apis/apiregistration.k8s.io/v1/apiservices"
		deployment = "/apis/apps/v1/namespaces/default/deployments"
	)
	long := strings.Repeat("j", 64)
	tooLong := values{"details.causes.0.field": `"metadata.managedFields[0].manager"`, "details.causes.1": "null"}
	managed := `"managedFields":[{"manager":"` + long + long + `x","operation":"Update","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}]`
	run(t, c, []step{
		{"POST " + services, `{"spec":{"group":"a.example.com","version":"v1","groupPriorityMinimum":10,"versionPriority":10,"service":{"name":"a","namespace":"b"}}}`, 422,
			`APIService.apiregistration.k8s.io "" is invalid: metadata.name: Required value: name or generateName is required`},
		{"POST " + jobs, `{"metadata":{"name":"` + long + `"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"b"}]}}}}`, 422,
			`Job.batch "` + long + `" is invalid: spec.template.labels: Invalid value: "` + long + `": must be no more than 63 bytes`},
		{"POST " + maps, `{"metadata":{"name":"a"},"data":{"a":"b"}}`, 201, nil},
		{"PUT " + maps + "/a", `{"metadata":{"name":"a",` + managed + `},"data":{"a":"b","c":"d"}}`, 422, tooLong},
		{"POST " + deployment, `{"metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}`, 201, nil},
	})
	for body, why := range map[string]string{
		`{"spec":{"replicas":"x","template":{"spec":{"volumes":[{"name":"v","emptyDir":{"medium":null}}]}}}}`: `"map[spec:map[replicas:x template:map[spec:map[volumes:[map[emptyDir:map[] name:v]]]]]]": unrecognized type: int32`,
		`{"spec":{"replicas":"x"}}`:                             `"map[spec:map[replicas:x]]": unrecognized type: int32`,
		`{"spec":{"replicas":1.5}}`:                             `"map[spec:map[replicas:1.5]]": cannot convert float64 to int32`,
		`{"spec":{"template":"x"}}`:                             `"map[spec:map[template:x]]": cannot restore struct from: string`,
		`{"metadata":{"labels":{"a":1}}}`:                       `"map[metadata:map[labels:map[a:1]]]": cannot convert int64 to string`,
		`{"metadata":{"labels":{"a":1e3}}}`:                     `"map[metadata:map[labels:map[a:1000]]]": unrecognized type: string`,
		`{"metadata":{"labels":-0.0}}`:                          `"map[metadata:map[labels:-0]]": cannot restore map from float64`,
		`{"spec":{"template":{"spec":{"tolerations":[1.0]}}}}`:  `"map[spec:map[template:map[spec:map[tolerations:[1]]]]]": cannot restore struct from: float64`,
		`{"metadata":{"labels":"x"}}`:                           `"map[metadata:map[labels:x]]": cannot restore map from string`,
		`{"spec":{"template":{"spec":{"containers":{"a":1}}}}}`: `"map[spec:map[template:map[spec:map[containers:map[a:1]]]]]": cannot restore slice from map`,
	} {
		run(t, c, []step{{"PATCH " + deployment + "/a", body, 422, ` "" is invalid: patch: Invalid value: ` + why}})
	}
}

// TestIgnoredPatches checks the errors of patches that cannot be read. With fieldValidation=Ignore, kube-apiserver does not
// look for unknown members in a patch, so other code finds the error.
func TestIgnoredPatches(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const maps = "/api/v1/namespaces/default/configmaps"
	run(t, c, []step{{"POST " + maps, `{"metadata":{"name":"a"},"data":{"a":"b"}}`, 201, nil}})
	for _, tt := range []struct{ verb, body, ignore, warn string }{
		{"MERGE", `{"data":{"a":01}}`, "invalid JSON patch", "invalid JSON patch"},
		{"MERGE", `x`, "invalid JSON patch", "invalid JSON patch"},
		{"MERGE", `"x"`, "Invalid JSON Patch", "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"},
		{"JSON", `[{"op":"add","path":"/data/a","value":01}]`, "invalid JSON patch", "invalid JSON patch"},
		{"JSON", `{"op":1}`, "json: cannot unmarshal object into Go value of type jsonpatch.Patch", "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"},
	} {
		run(t, c, []step{
			{tt.verb + " " + maps + "/a?fieldValidation=Ignore", tt.body, 400, tt.ignore},
			{tt.verb + " " + maps + "/a", tt.body, 400, tt.warn},
		})
	}
	run(t, c, []step{{"MERGE " + maps + "/a?fieldValidation=Ignore", `{"metadata":{"generation":1e400}}`, 422, nil}})
}

// TestStrategicWarnings checks the paths of unknown fields in a strategic merge patch: kube-apiserver leaves out the keys of
// maps, and sorts the paths as texts.
func TestStrategicWarnings(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const slices = "/apis/resource.k8s.io/v1/resourceslices"
	device := `{"name":"d","capacity":{"x":{"value":"10"%s}}}`
	run(t, c, []step{{"POST " + slices, `{"metadata":{"name":"a"},"spec":{"driver":"a.example.com","nodeName":"n","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":[` + fmt.Sprintf(device, "") + `]}}`, 201, nil}})
	body := `{"spec":{"devices":[` + fmt.Sprintf(device, `,"odd":1`) + `],"b-c":2,"b":{"a":3}},"a":1.0}`
	for mode, want := range map[string]values{
		"Warn":   {"spec.devices.0.capacity.x.value": `"10"`},
		"Strict": {"message": `"ResourceSlice in version \"v1\" cannot be handled as a ResourceSlice: strict decoding error: unknown field \"a\", unknown field \"spec.b\", unknown field \"spec.b-c\", unknown field \"spec.devices[0].capacity.odd\""`},
	} {
		code := map[string]int{"Warn": 200, "Strict": 400}[mode]
		run(t, c, []step{{"PATCH " + slices + "/a?dryRun=All&fieldValidation=" + mode, body, code, want}})
	}
}

// TestLastAppliedWithoutAnnotations checks that the last-applied configuration of an
// object with null annotations has no annotations.
func TestLastAppliedWithoutAnnotations(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const maps = "/api/v1/namespaces/default/configmaps"
	run(t, c, []step{
		{"POST " + maps, `{"metadata":{"name":"a","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"}},"data":{"a":"b"}}`, 201, nil},
		{"APPLY " + maps + "/a?fieldManager=kubectl&force=true", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":null},"data":{"a":"x"}}`, 200,
			values{"metadata.annotations": `{"kubectl.kubernetes.io/last-applied-configuration":"{\"apiVersion\":\"v1\",\"data\":{\"a\":\"x\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"}`}},
	})
}

// TestBookmarkRows checks that the table row of a bookmark has no data of an object.
func TestBookmarkRows(t *testing.T) { synctest.Test(t, testBookmarkRows) }

func testBookmarkRows(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{InProcess: true}).RESTConfig()
	for path, cells := range map[string]string{
		"/apis/apps/v1/deployments":      `["","0/0",0,0,"\u003cunknown\u003e","","",""]`,
		"/apis/apps/v1/statefulsets":     `["","0/0","\u003cunknown\u003e","",""]`,
		"/apis/apps/v1/replicasets":      `["",0,0,0,"\u003cunknown\u003e","","","\u003cnone\u003e"]`,
		"/api/v1/replicationcontrollers": `["",0,0,0,"\u003cunknown\u003e","","","\u003cnone\u003e"]`,
	} {
		run(t, c, []step{{"TABLE " + path + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1", "", 200,
			values{"type": `"BOOKMARK"`, "object.rows.0.cells": cells}}})
	}
}

// TestLegacyPolicies checks the effect of orphanDependents in the query on objects of several
// kinds. The finalizers are those of kube-apiserver v1.36.
func TestLegacyPolicies(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const (
		foreground, orphan = `["foregroundDeletion"]`, `["orphan"]`
		core               = "/api/v1/namespaces/default/"
		kept               = `["a.b/c"]`
		cleanup            = `["customresourcecleanup.apiextensions.k8s.io"]`
	)
	meta := func(name, more string) string { return `{"metadata":{"name":"` + name + `"` + more + `}}` }
	definition := definition(`"n":{"type":"integer"}`)
	for _, row := range []struct {
		collection, name, body string
		deletions              [][2]string // the query, and the finalizers after it
		code                   int
	}{
		{"/api/v1/namespaces", "n1", meta("n1", ""), [][2]string{{"orphanDependents=false", foreground}, {"orphanDependents=true", foreground}, {"propagationPolicy=Background", foreground}}, 202},
		{"/api/v1/namespaces", "n2", meta("n2", ""), [][2]string{{"orphanDependents=true", orphan}, {"propagationPolicy=Background", orphan}}, 200},
		{"/api/v1/namespaces", "n3", meta("n3", ""), [][2]string{{"propagationPolicy=Foreground", foreground}, {"", foreground}}, 200},
		{"/api/v1/namespaces", "n4", meta("n4", ""), [][2]string{{"propagationPolicy=Background", "null"}, {"propagationPolicy=Orphan", "null"}}, 200},
		{core + "configmaps", "a", meta("a", `,"finalizers":["a.b/c"]`), [][2]string{{"orphanDependents=false", kept}, {"orphanDependents=true", `["a.b/c","orphan"]`}, {"", `["a.b/c","orphan"]`}, {"propagationPolicy=Foreground", `["a.b/c","foregroundDeletion"]`}, {"orphanDependents=false", kept}}, 202},
		{definitions, "things.example.com", definition, [][2]string{{"propagationPolicy=Foreground", cleanup}}, 200}, // it goes then
	} {
		run(t, c, []step{{"POST " + row.collection, row.body, 201, nil}})
		for i, d := range row.deletions {
			code, _, b := exchange(t, c, http.MethodDelete, row.collection+"/"+row.name+"?"+d[0], "")
			if got := pick(t, b, "metadata.finalizers"); code >= 300 || i == 0 && code != row.code || got != d[1] {
				t.Errorf("DELETE %s?%s: %d, finalizers %s, want %s", row.name, d[0], code, got, d[1])
			}
		}
	}
	// A collection takes them, too.
	run(t, c, []step{
		{"POST " + core + "secrets", meta("s", ""), 201, nil},
		{"DELETE " + core + "secrets?orphanDependents=true&propagationPolicy=Orphan", "", 422, nil},
		{"DELETE " + core + "secrets?orphanDependents=true", "", 200, nil},
		{"GET " + core + "secrets/s", "", 200, values{"metadata.finalizers": orphan}},
		{"DELETE " + core + "secrets?orphanDependents=false", "", 200, nil},
		{"GET " + core + "secrets/s", "", 404, nil},
	})
}

// TestRepeatedErrors checks errors that the validation of metadata finds several times: custom resources, definitions and
// API services report them each time, as kube-apiserver v1.37 does.
func TestRepeatedErrors(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{
		{"POST " + definitions, definition(`"n":{"type":"integer"}`), 201, nil},
		{"POST " + things, thing("a", `{"n":1}`), 201, nil},
		{"POST /api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`, 201, nil},
		{"POST /apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"a"},"spec":{}}`, 201, nil},
	})
	const wrong = `{"metadata":{"labels":{"a":"b c"}}}`
	for path, n := range map[string]int{
		"/api/v1/namespaces/default/configmaps/a":                  1,
		"/apis/coordination.k8s.io/v1/namespaces/default/leases/a": 1,
		things + "/a":                                         3,
		definitions + "/things.example.com":                   4,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.apps": 4,
	} {
		_, _, response := exchange(t, c, "MERGE", path, wrong)
		var status struct {
			Details struct{ Causes []struct{ Message string } }
		}
		if err := json.Unmarshal(response, &status); err != nil || len(status.Details.Causes) != n {
			t.Errorf("%s: %d causes, want %d: %s", path, len(status.Details.Causes), n, response)
		}
	}
}

// TestReadableDeletion checks deletions with the option for objects that cannot be read, of those that can be read.
func TestReadableDeletion(t *testing.T) {
	const (
		maps   = "/api/v1/namespaces/default/configmaps"
		ignore = `"ignoreStoreReadErrorWithClusterBreakingPotential":true`
		field  = "ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: "
		no     = `Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed because the object is decodable from storage`
	)
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{
		{"POST " + maps, `{"metadata":{"name":"a"}}`, 201, nil},
		{"DELETE " + maps + "/a", "{" + ignore + "}", 409, no},
		{"DELETE " + maps + "/a", `{"dryRun":["All"],` + ignore + "}", 409, no},
		{"DELETE " + maps + "/a", `{"gracePeriodSeconds":0,` + ignore + "}", 422, `DeleteOptions.meta.k8s.io "" is invalid: ` + field + "cannot be set together with .gracePeriodSeconds"},
		{"DELETE " + maps + "/none", "{" + ignore + "}", 404, nil},
		{"DELETE " + maps, "{" + ignore + "}", 422, `DeleteOptions.meta.k8s.io "" is invalid: ` + field + "is not allowed with DELETECOLLECTION, try again after removing the option"},
		{"GET " + maps + "/a", "", 200, nil},
	})
	off := servertest.Start(t, &tidemark.Server{FeatureGates: map[string]bool{"AllowUnsafeMalformedObjectDeletion": false}}).RESTConfig()
	run(t, off, []step{
		{"POST " + maps, `{"metadata":{"name":"a"}}`, 201, nil},
		{"DELETE " + maps + "/a", `{"gracePeriodSeconds":0,` + ignore + "}", 200, nil}, // as if it were not there
	})
}
