package httpapi_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchesOfChangesWait: between two changes a watch sleeps, with and without bookmarks. One that does not sleep never
// lets the time of the bubble go on.
func TestWatchesOfChangesWait(t *testing.T) {
	for query, bookmarks := range map[string]int{
		"": 0, "&allowWatchBookmarks=true": 3, // after 60 and 120 s, and 2 s before the end
	} {
		t.Run(query, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := filled(t, 1, 10)
				began := time.Now()
				r := serve(h, "GET", "/apis/tidemark.dev/v1/changes?watch=true&timeoutSeconds=150"+query, "")
				if got := time.Since(began); r.Code != 200 || got != 150*time.Second {
					t.Errorf("%d after %v", r.Code, got)
				}
				if n := strings.Count(r.Body.String(), `"type":"BOOKMARK"`); n != bookmarks {
					t.Errorf("%d bookmarks, want %d: %s", n, bookmarks, r.Body)
				}
			})
		})
	}
}
