package tidemark_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestOverview: administrators see what is under way, the slowest requests, the largest collections and the heaviest
// users. Others have no right to.
func TestOverview(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, &tidemark.Server{})
	for i := range 30 {
		must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"large-%d"},"data":{"v":%q}}`, i, strings.Repeat("x", 50_000)))
	}
	watcher, err := s.RESTConfigFor("watcher", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	client := servertest.Client(t, watcher)
	watch, err := client.Get(s.URL() + configMaps + "?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	if _, err := watch.Body.Read(make([]byte, 1)); err != nil { // it is open
		t.Fatal(err)
	}

	code, page := servertest.Get(t, s.RESTConfig(), "/debug/tidemark")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, page)
	}
	rows := map[string]string{}
	for line := range strings.Lines(page) {
		fields := strings.Fields(line)
		if len(fields) > 0 && rows[fields[0]] == "" {
			rows[fields[0]] = strings.Join(fields, " ")
		}
	}
	if got := rows["watcher"]; got != "watcher 0 0 1" {
		t.Errorf("the user has the row %q", got)
	}
	if got := rows["configmaps"]; !strings.HasPrefix(got, "configmaps 3") { // and those of the server
		t.Errorf("the collection has the row %q", got)
	}
	for _, want := range []string{"Requests that execute or wait for seats: 1\n", "get /debug/tidemark", "create " + configMaps, "The slowest requests of the last 10 to 20 minutes", "The largest collections"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
	servertest.WantCode(t, servertest.Anonymous(s), "/debug/tidemark", http.StatusForbidden, "")
	viewer, err := s.RESTConfigFor("viewer")
	if err != nil {
		t.Fatal(err)
	}
	servertest.WantCode(t, viewer, "/debug/tidemark", http.StatusForbidden, "")
	must(t, s.RESTConfig(), http.StatusMethodNotAllowed, "POST", "/debug/tidemark", "{}")
}
