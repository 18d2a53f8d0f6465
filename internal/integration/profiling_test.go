package integration_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestProfiles: administrators get profiles. Those that take time have a bound.
func TestProfiles(t *testing.T) {
	t.Parallel() // two profiles take a second each
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}, Diagnostics: tidemark.Diagnostics{Profiling: true}})
	admin := s.RESTConfig()
	for _, row := range []struct {
		path string
		code int
		part string // of the response
	}{
		{"/debug/pprof/", http.StatusOK, `<a href="goroutine?debug=1">goroutine</a>`},
		{"/debug/pprof", http.StatusOK, "<title>/debug/pprof/</title>"}, // after a redirection
		{"/debug/pprof/goroutine?debug=1", http.StatusOK, "goroutine profile: total"},
		{"/debug/pprof/goroutine?debug=2", http.StatusOK, "TestProfiles"},
		{"/debug/pprof/heap?gc=1", http.StatusOK, "\x1f\x8b"},
		{"/debug/pprof/profile?seconds=1", http.StatusOK, "\x1f\x8b"},
		{"/debug/pprof/trace?seconds=1", http.StatusOK, "go 1."},
		{"/debug/pprof/profile?seconds=51", http.StatusBadRequest, "the parameter seconds is not a number from 1 to 50"},
		{"/debug/pprof/trace?seconds=-1", http.StatusBadRequest, "the parameter seconds is not a number from 1 to 50"},
		{"/debug/pprof/trace?seconds=1e9", http.StatusBadRequest, "the parameter seconds is not a number from 1 to 50"},
		{"/debug/pprof/heap?seconds=1", http.StatusBadRequest, "this profile shows the present"},
		{"/debug/pprof/heap?debug=x", http.StatusBadRequest, "the parameter debug is not 0, 1 or 2"},
		{"/debug/pprof/cmdline", http.StatusNotFound, "404"}, // arguments may be secret
		{"/debug/pprof/none", http.StatusNotFound, "404"},
		{"/debug/pproff", http.StatusNotFound, "404"},
	} {
		code, body := servertest.Get(t, admin, row.path)
		if code != row.code || !strings.Contains(body, row.part) {
			t.Errorf("%s: %d %.200q, want %d with %q", row.path, code, body, row.code, row.part)
		}
	}
}

// TestProfilesNeedRights: profiles are for those who may get their paths, and off by default.
func TestProfilesNeedRights(t *testing.T) {
	off := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}})
	if code, _ := servertest.Get(t, off.RESTConfig(), "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("without Profiling: %d", code)
	}
	on := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}, Diagnostics: tidemark.Diagnostics{Profiling: true}})
	user, err := on.RESTConfigFor("u")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/none"} {
		if code, _ := servertest.Get(t, user, path); code != http.StatusForbidden {
			t.Errorf("%s as a user: %d", path, code)
		}
		if code, _ := servertest.Get(t, servertest.Anonymous(on), path); code != http.StatusForbidden {
			t.Errorf("%s without credentials: %d", path, code)
		}
	}
	if _, pattern := http.DefaultServeMux.Handler(&http.Request{Method: "GET", URL: &url.URL{Path: "/debug/pprof/heap"}}); pattern != "" {
		t.Errorf("http.DefaultServeMux serves profiles at %q", pattern)
	}
}
