package integration_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/fault"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestControlFaults checks that faults are added, listed with their counts, and removed, that each
// world has its own, and that they do not affect apply.
func TestControlFaults(t *testing.T) {
	a := startControl(t)
	a.create(`{"name": "w"}`)
	var root, w control.Description
	a.do(http.StatusOK, "GET", "/control/v1/worlds/root", "", &root)
	a.do(http.StatusOK, "GET", "/control/v1/worlds/w", "", &w)
	const faults = "/control/v1/worlds/w/faults"
	type state struct {
		ID              string
		Fault           string
		Selected, Fired uint64
	}
	var added state
	a.do(http.StatusCreated, "POST", faults, `{"fault": "status", "code": 503, "after": 1, "resource": "configmaps"}`, &added)
	a.applyYAML("w", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n")
	const path = "/api/v1/namespaces/default/configmaps"
	for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		if code, text := getAs(t, w.Kubeconfig, path); code != want {
			t.Errorf("request %d: %d %s", i, code, text)
		}
		if code, text := getAs(t, root.Kubeconfig, path); code != http.StatusOK {
			t.Errorf("request %d to the parent: %d %s", i, code, text)
		}
	}
	var all struct{ Faults []state }
	a.do(http.StatusOK, "GET", faults, "", &all)
	if want := (state{added.ID, "status", 2, 1}); len(all.Faults) != 1 || all.Faults[0] != want {
		t.Errorf("the faults are %+v, want %+v", all.Faults, want)
	}
	a.do(http.StatusNoContent, "DELETE", faults+"/"+added.ID, "", nil)
	a.do(http.StatusNotFound, "DELETE", faults+"/"+added.ID, "", nil)
	if code, text := getAs(t, w.Kubeconfig, path); code != http.StatusOK {
		t.Errorf("after the removal: %d %s", code, text)
	}
	a.do(http.StatusCreated, "POST", faults, `{"fault": "drop"}`, nil)
	a.do(http.StatusNoContent, "DELETE", faults, "", nil)
	a.do(http.StatusBadRequest, "POST", faults, `{"fault": "conflict", "verbs": ["get"]}`, nil)
	a.do(http.StatusBadRequest, "POST", faults, `{"fault": "drop", "often": true}`, nil)
	for range 100 {
		a.do(http.StatusCreated, "POST", faults, `{"fault": "drop"}`, nil)
	}
	a.do(http.StatusInsufficientStorage, "POST", faults, `{"fault": "drop"}`, nil)
}

// TestControlRequests: the requests for resources are recorded in their order, from the moment of the demand, and
// without those of apply.
func TestControlRequests(t *testing.T) {
	a := startControl(t)
	var root control.Description
	a.do(http.StatusOK, "GET", "/control/v1/worlds/root", "", &root)
	const requests, path = "/control/v1/worlds/root/requests", "/api/v1/namespaces/default/configmaps"
	type record struct {
		Requests []fault.Request
		Missed   uint64
	}
	var none record
	getAs(t, root.Kubeconfig, path+"/before")
	a.do(http.StatusOK, "GET", requests, "", &none)
	if none.Requests == nil || len(none.Requests) > 0 {
		t.Errorf("without a demand there are the requests %+v", none.Requests)
	}
	a.do(http.StatusNoContent, "POST", requests, "", nil)
	getAs(t, root.Kubeconfig, path+"?resourceVersion=1&resourceVersionMatch=Exact")
	getAs(t, root.Kubeconfig, "/version")
	a.applyYAML("root", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n")
	getAs(t, root.Kubeconfig, path+"/a")
	var all record
	a.do(http.StatusOK, "GET", requests, "", &all)
	for i := range all.Requests {
		all.Requests[i].User, all.Requests[i].UserAgent = "", ""
	}
	want := []fault.Request{
		{Verb: "list", Resource: "configmaps", Namespace: "default", Old: true},
		{Verb: "get", Resource: "configmaps", Namespace: "default", Name: "a"},
	}
	if !slices.Equal(all.Requests, want) || all.Missed != 0 {
		t.Errorf("the record is %+v, want %+v", all, want)
	}
	a.do(http.StatusNoContent, "POST", requests, "", nil)
	a.do(http.StatusOK, "GET", requests, "", &all)
	if len(all.Requests) > 0 {
		t.Errorf("a new record begins with %+v", all.Requests)
	}
	a.do(http.StatusNotFound, "GET", "/control/v1/worlds/none/requests", "", nil)
	var open struct{ Watches []fault.Request }
	a.do(http.StatusOK, "GET", "/control/v1/worlds/root/watches", "", &open)
	if open.Watches == nil || len(open.Watches) > 0 {
		t.Errorf("the watches are %+v", open.Watches)
	}
}

// TestControlSettle: the response has the last revision that the controllers write.
func TestControlSettle(t *testing.T) {
	a := startControl(t)
	a.applyYAML("root", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n")
	var settled control.Settled
	a.do(http.StatusOK, "POST", "/control/v1/worlds/root/settle", `{}`, &settled)
	var d control.Description
	a.do(http.StatusOK, "GET", "/control/v1/worlds/root", "", &d)
	if settled.Revision != d.Revision {
		t.Errorf("settled at %d, the revision is %d", settled.Revision, d.Revision)
	}
	if code, text := getAs(t, d.Kubeconfig, "/api/v1/namespaces/team/serviceaccounts/default"); code != http.StatusOK {
		t.Errorf("the controllers have not done their work: %d %s", code, text)
	}
	requests := settled.Requests
	settled = control.Settled{}
	a.do(http.StatusOK, "POST", "/control/v1/worlds/root/settle", `{"quietMilliseconds": 30}`, &settled)
	if settled.Revision != d.Revision {
		t.Errorf("settled at %d, the revision is %d", settled.Revision, d.Revision)
	}
	if settled.Requests != requests+1 {
		t.Errorf("%d requests have begun, want one more than %d", settled.Requests, requests)
	}
	for _, body := range []string{`{"timeoutMilliseconds": -1}`, `{"timeoutMilliseconds": 600001}`, `{"quietMilliseconds": -1}`, `{"quietMilliseconds": 600001}`} {
		a.do(http.StatusBadRequest, "POST", "/control/v1/worlds/root/settle", body, nil)
	}
	a.do(http.StatusNotFound, "POST", "/control/v1/worlds/none/settle", `{}`, nil)
}

// TestControlSettleTime: a world has settled when it was quiet for as long as the client wants. A quiet beyond the timeout is
// an error.
func TestControlSettleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := servertest.Start(t, &tidemark.Server{InProcess: true}).Control()
		for _, row := range []struct {
			body, want string
			code       int
			takes      time.Duration
		}{
			{`{}`, "", http.StatusOK, 0},
			{`{"quietMilliseconds": 30}`, "", http.StatusOK, 30 * time.Millisecond},
			{`{"quietMilliseconds": 600000, "timeoutMilliseconds": 20}`, "quiet for 10m0s", http.StatusGatewayTimeout, 20 * time.Millisecond},
		} {
			w, begin := httptest.NewRecorder(), time.Now()
			r := httptest.NewRequest("POST", "/control/v1/worlds/root/settle", strings.NewReader(row.body))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(w, r)
			if took := time.Since(begin); w.Code != row.code || !strings.Contains(w.Body.String(), row.want) || took != row.takes {
				t.Errorf("%s: %d %s after %v, want %d %q after %v", row.body, w.Code, w.Body, took, row.code, row.want, row.takes)
			}
		}
	})
}
