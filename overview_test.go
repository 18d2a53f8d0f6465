package tidemark_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestOverview: administrators see the running requests, the slowest ones, the largest collections
// and the heaviest users. Others have no right to.
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
	// The watch has given its seat back when it sends the events after its first ones.
	events := json.NewDecoder(watch.Body)
	for _, name := range []string{"large-29", "later", "latest"} {
		if name != "large-29" {
			must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		}
		for seen := ""; seen != name; {
			var event struct{ Object metav1.PartialObjectMetadata }
			if err := events.Decode(&event); err != nil {
				t.Fatal(err)
			}
			seen = event.Object.Name
		}
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
