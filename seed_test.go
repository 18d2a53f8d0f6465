package tidemark_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

var seedRuns = flag.Int("seed.runs", 5, "how often TestSeed runs its scenario")

// TestSeed runs a scenario several times with the same seed, each in a bubble of its own. The histories of the
// root world and of a fork have the same bytes. Another seed makes other UIDs and names.
func TestSeed(t *testing.T) {
	first := seededHistory(t, 7)
	for run := 1; run < *seedRuns; run++ {
		if again := seededHistory(t, 7); !bytes.Equal(first, again) {
			t.Fatalf("run %d with the seed 7 has another history:\n%s", run+1, firstDifference(first, again))
		}
	}
	if bytes.Equal(first, seededHistory(t, 8)) {
		t.Error("the seeds 7 and 8 make the same history")
	}
	t.Logf("%d changes, SHA-256 %x", bytes.Count(first, []byte("\n")), sha256.Sum256(first))
	for _, part := range []string{`"loop":"namespace"`, `"loop":"garbage-collector"`, `"loop":"event-ttl"`, `"deployments.apps"`, `"verb":"deletecollection"`} {
		if !strings.Contains(string(first), part) {
			t.Errorf("the history lacks %s", part)
		}
	}
}

// seededHistory returns the histories of a server with a seed: of its root world, then of a fork.
func seededHistory(t *testing.T, seed uint64) (history []byte) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Start(t, &tidemark.Server{InProcess: true, Seed: seed, History: tidemark.History{Retention: 100 * time.Hour}})
		seedScenario(t, s.RESTConfig(), "shop")
		history = controlText(t, s, "/control/v1/worlds/root/history")
		fork, err := s.Root().Fork(t.Context(), tidemark.ForkOptions{Name: "try"})
		if err != nil {
			t.Fatal(err)
		}
		seedScenario(t, fork.RESTConfig(), "stall")
		history = append(history, controlText(t, s, "/control/v1/worlds/try/history")...)
	})
	return history
}

// seedScenario is a client that waits between its writes.
func seedScenario(t *testing.T, c *rest.Config, namespace string) {
	t.Helper()
	do := func(method, path, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := servertest.Client(t, c).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if response, _ := io.ReadAll(resp.Body); resp.StatusCode/100 != 2 {
			t.Fatalf("%s %s: %s %s", method, path, resp.Status, response)
		}
		synctest.Wait()
	}
	do("POST", "/api/v1/namespaces", `{"metadata":{"name":"`+namespace+`"}}`)
	shop, apps := "/api/v1/namespaces/"+namespace, "/apis/apps/v1/namespaces/"+namespace
	for i := range 20 {
		do("POST", shop+"/configmaps", fmt.Sprintf(`{"metadata":{"generateName":"c-","labels":{"i":"%d"}}}`, i%2))
	}
	do("POST", apps+"/deployments", `{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	_, body := servertest.Get(t, c, apps+"/deployments/web")
	_, rest, _ := strings.Cut(body, `"uid":"`)
	owner, _, _ := strings.Cut(rest, `"`)
	for range 10 {
		do("POST", shop+"/pods", fmt.Sprintf(`{"metadata":{"generateName":"web-","labels":{"a":"b"},
			"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"%s"}]},"spec":{"containers":[{"name":"c","image":"i"}]}}`, owner))
		do("POST", shop+"/secrets", fmt.Sprintf(`{"metadata":{"generateName":"web-","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"%s"}]}}`, owner))
	}
	do("POST", shop+"/services", `{"metadata":{"name":"web"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
	do("POST", shop+"/events", `{"metadata":{"generateName":"e-"},"involvedObject":{"namespace":"`+namespace+`"}}`)
	do("DELETE", apps+"/deployments/web?propagationPolicy=Background", "")
	do("DELETE", shop+"/configmaps?labelSelector=i%3D1", "")
	do("DELETE", shop+"/serviceaccounts", "")
	time.Sleep(30 * time.Minute)
	synctest.Wait()
	do("POST", "/api/v1/namespaces/default/events", `{"metadata":{"generateName":"e-"},"involvedObject":{"namespace":"default"}}`)
	do("DELETE", shop, "")
	time.Sleep(2 * time.Hour)
	synctest.Wait()
}

// controlText returns a response of the control API.
func controlText(t *testing.T, s *tidemark.Server, path string) []byte {
	t.Helper()
	status, response, err := s.Host().Control(t.Context(), http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Close()
	text, err := io.ReadAll(response)
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: %d %s %v", path, status, text, err)
	}
	return text
}

// firstDifference shows the first lines that differ.
func firstDifference(a, b []byte) string {
	one, two := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range min(len(one), len(two)) {
		if !bytes.Equal(one[i], two[i]) {
			return fmt.Sprintf("line %d of %d and %d:\n%s\n%s", i+1, len(one), len(two), one[i], two[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(one), len(two))
}

// TestForkSeed: forks with the same seed make the same UIDs, also in other servers and with other names, and
// never those of their parents.
func TestForkSeed(t *testing.T) {
	uid := func(w *tidemark.World, name string) string {
		t.Helper()
		post(t, w.RESTConfig(), "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"`+name+`"}}`)
		_, body := servertest.Get(t, w.RESTConfig(), "/api/v1/namespaces/default/configmaps/"+name)
		_, rest, _ := strings.Cut(body, `"uid":"`)
		id, _, _ := strings.Cut(rest, `"`)
		return id
	}
	fork := func(w *tidemark.World, seed uint64) *tidemark.World {
		t.Helper()
		f, err := w.Fork(t.Context(), tidemark.ForkOptions{Seed: seed, Controllers: []string{"-*"}})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	var first []string
	for i := range 2 {
		s := servertest.Start(t, &tidemark.Server{InProcess: true})
		uid(s.Root(), "random")
		f := fork(s.Root(), 5)
		got := []string{uid(f, "a"), uid(fork(s.Root(), 6), "a"), uid(fork(f, 5), "b"), uid(fork(f, 0), "b")}
		if i == 0 {
			first = got
		} else if !slices.Equal(got, first) {
			t.Errorf("the UIDs are %v, and then %v", first, got)
		}
		got = slices.Sorted(slices.Values(got))
		if len(slices.Compact(got)) != 4 {
			t.Errorf("UIDs come twice: %v", first)
		}
	}
}
