package conformance

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
)

// window is the history of the server in these tests.
const window = 2 * time.Second

// forgetful is a server that keeps its history for a window.
func forgetful(t *testing.T) *rest.Config {
	t.Helper()
	s := &tidemark.Server{InProcess: true, History: tidemark.History{Retention: window}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.RESTConfig()
}

// instead replaces responses 410.
func instead(w when, other func(req *http.Request, next http.RoundTripper) (*http.Response, error)) step {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusGone || !w(req) {
			return resp, err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return other(req, next)
	}
}

// emptyList is a list of nothing.
func emptyList(w when) step {
	const text = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"99999999"},"items":[]}`
	return instead(w, says(always, http.StatusOK, text))
}

// mostRecentList forgets which version was asked for.
func mostRecentList(w when) step {
	return instead(w, without(always, "resourceVersion", "resourceVersionMatch", "continue"))
}

var windowFaults = []fault{
	{"410 told as an empty list", "window.list", "want exactly", func() step { return emptyList(lists) }},
	{"410 told as the most recent list", "window.list", "want exactly", func() step { return mostRecentList(lists) }},
	{"410 that ends", "window.list", "is served again", func() step {
		first := true
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if lists(req) && req.URL.Query().Has("resourceVersion") && first {
				first = false
				return says(always, http.StatusGone, `{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}`)(req, next)
			}
			return next.RoundTrip(req)
		}
	}},
	{"410 without a Status", "window.list", "want a Status", func() step { return instead(lists, says(always, http.StatusGone, `{}`)) }},
	{"410 with another reason", "window.list", "want a Status", func() step {
		return instead(lists, says(always, http.StatusGone, `{"kind":"Status","apiVersion":"v1","code":410,"reason":"Conflict"}`))
	}},
	{"a token that is gone ends the list", "window.chunks", "the first one of", func() step { return emptyList(lists.and(having("continue"))) }},
	{"a token that is gone begins anew", "window.chunks", "the first one of", func() step { return mostRecentList(lists.and(having("continue"))) }},
	{"the token of a 410 leads to nothing", "window.chunks", "the token that came with 410", func() step {
		gone := false
		return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if gone {
				return dropItem(lists.and(having("continue")))(req, next)
			}
			resp, err := next.RoundTrip(req)
			gone = err == nil && resp.StatusCode == http.StatusGone
			return resp, err
		}
	}},
	{"a watch that is gone is silent", "window.watch", "the ERROR 410", func() step {
		return both(with(watches, "timeoutSeconds", "1"), onType(watches, failure, drop))
	}},
	{"a watch whose version is gone begins with the rest of the history", "window.watch", "or the ERROR 410", func() step {
		return nth(watches, 1, drop)
	}},
	{"a watch that goes on misses an event", "window.follow", "did not come", func() step { return nth(watches, 3, drop) }},
	{"a watch that goes on ends with its window", "window.follow", "got the event", func() step {
		return nth(watches, 4, func(event) []event {
			return []event{{failure, object{"kind": "Status", "code": 410.0, "reason": "Expired"}}}
		})
	}},
}

// TestWindow: the checks pass with a server whose window ends while they run, and each is
// tripped by one that returns something else than 410.
func TestWindow(t *testing.T) {
	t.Run("passes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			config := forgetful(t)
			report, err := Run(t.Context(), config, Options{Areas: []string{"window"}, Window: window}, progress.Progress{})
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range report.Results {
				if got.Outcome != Passed {
					t.Errorf("%s: %s: %s\n%v", got.ID, got.Outcome, got.Message, got.Exchanges)
				}
			}
			if got := one(t, config, "window.list", Options{}); got.Outcome != Skipped {
				t.Errorf("without a window: %s %s", got.Outcome, got.Message)
			}
		})
	})
	for _, f := range windowFaults {
		t.Run(f.check+"/"+f.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := one(t, behind(forgetful(t), f.step()), f.check, Options{Window: window})
				if got.Outcome != Failed || !strings.Contains(got.Message, f.says) {
					t.Errorf("%s: %s, want %q\n%v", got.Outcome, got.Message, f.says, got.Exchanges)
				}
			})
		})
	}
}
