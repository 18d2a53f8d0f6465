package httpapi

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

// TestSlowest: the slowest requests of two windows are kept, and no others.
func TestSlowest(t *testing.T) {
	var s slowest
	begin := time.Now()
	h := &Handler{}
	note := func(at, took time.Duration) {
		q := &request{h: h, exchange: exchange{r: httptest.NewRequest("GET", "/version", nil), timing: timing{start: begin.Add(at)}, sent: sent{code: 200, isPage: true}}}
		q.info = newRequestInfo(q.r)
		q.info.User = &authn.User{Name: "ann"}
		s.note(q, took)
	}
	kept := func(at time.Duration) (all []time.Duration) {
		for _, r := range s.all(begin.Add(at)) {
			all = append(all, r.took)
			if r.user != "ann" || r.what != "get /version" || r.code != 200 {
				t.Errorf("the row is %+v", r)
			}
		}
		return all
	}
	for i := range 2 * overviewRows {
		note(0, time.Duration(i+1)*time.Second)
	}
	note(0, time.Millisecond)
	if got := kept(time.Minute); len(got) != overviewRows || got[0] != 2*overviewRows*time.Second || got[overviewRows-1] != (overviewRows+1)*time.Second {
		t.Errorf("the slowest are %v", got)
	}
	later := slowestWindow + time.Minute
	note(later, time.Millisecond) // the first of the next window
	if got := kept(later); len(got) != overviewRows || got[overviewRows-1] != (overviewRows+1)*time.Second {
		t.Errorf("in the next window: %v", got)
	}
	if got := kept(later + slowestWindow + time.Second); len(got) != 1 || got[0] != time.Millisecond {
		t.Errorf("in the window after that: %v", got)
	}
	if got := kept(later + 10*slowestWindow); len(got) != 0 {
		t.Errorf("much later: %v", got)
	}
}

// TestAsked shows what requests ask for.
func TestAsked(t *testing.T) {
	for want, a := range map[string]authz.Attributes{
		"list pods":                    {IsResource: true, Verb: "list", Resource: "pods"},
		"get deployments.apps shop/a":  {IsResource: true, Verb: "get", Resource: "deployments", Group: "apps", Namespace: "shop", Name: "a"},
		"update pods/status shop/a":    {IsResource: true, Verb: "update", Resource: "pods", Subresource: "status", Namespace: "shop", Name: "a"},
		"get namespaces /shop":         {IsResource: true, Verb: "get", Resource: "namespaces", Name: "shop"},
		"get /version":                 {Verb: "get", Path: "/version"},
		"get configmaps default/a?b?c": {IsResource: true, Verb: "get", Resource: "configmaps", Namespace: "default", Name: "a\tb\nc"},
	} {
		if got := asked(&a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
