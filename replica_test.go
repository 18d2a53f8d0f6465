package tidemark_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

func mustReplica(t testing.TB, w *tidemark.World, o tidemark.ReplicaOptions) *tidemark.Replica {
	t.Helper()
	r, err := w.Replica(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// names returns the names of the ConfigMaps of a list that these tests have created.
func names(l head) string {
	var all []string
	for _, i := range l.Items {
		if !strings.HasPrefix(i.Metadata.Name, "kube-") {
			all = append(all, i.Metadata.Name)
		}
	}
	return strings.Join(all, " ")
}

// number is a revision as a resourceVersion.
func number(r uint64) string { return fmt.Sprint(r) }

// TestReplicaReads: each read of the specification, at a replica that stands three changes behind.
func TestReplicaReads(t *testing.T) {
	reached(t, func(t *testing.T, w *tidemark.World) {
		c := w.RESTConfig()
		settle(t, w)
		must(t, c, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
		old := w.Revision()
		r := mustReplica(t, w, tidemark.ReplicaOptions{Name: "old", At: old})
		must(t, c, http.StatusCreated, "POST", configMaps, configMap("b", "1"))
		middle := w.Revision()
		must(t, c, http.StatusOK, "PATCH", configMaps+"/a", `{"data":{"v":"2"}}`)
		must(t, c, http.StatusCreated, "POST", configMaps, configMap("c", "1"))
		now := w.Revision()
		if r.Revision() != old || r.URL() != w.URL()+"/replica/old" {
			t.Errorf("the replica %s is at %d, want %d", r.URL(), r.Revision(), old)
		}
		at := r.RESTConfig()
		for _, test := range []struct{ query, revision, names string }{
			{"resourceVersion=0", number(old), "a"},
			{"resourceVersion=0&resourceVersionMatch=NotOlderThan", number(old), "a"},
			{"resourceVersion=0&limit=1", number(old), "a"},
			{"resourceVersion=" + number(old), number(old), "a"},
			{"", number(now), "a b c"},
			{"limit=500", number(now), "a b c"},
			{"resourceVersionMatch=Exact&resourceVersion=" + number(middle), number(middle), "a b"},
			{"resourceVersionMatch=Exact&resourceVersion=" + number(now), number(now), "a b c"},
			{"resourceVersion=0", number(old), "a"},
			// The replica moves to the resource version of a read, and does not go back.
			{"resourceVersionMatch=NotOlderThan&resourceVersion=" + number(middle), number(middle), "a b"},
			{"resourceVersion=0", number(middle), "a b"},
		} {
			got := get[head](t, at, configMaps+"?"+test.query)
			if got.Metadata.ResourceVersion != test.revision || names(got) != test.names {
				t.Errorf("%q: %s at %s, want %s at %s", test.query, names(got), got.Metadata.ResourceVersion, test.names, test.revision)
			}
		}
		for query, want := range map[string]string{"": `"v":"2"`, "?resourceVersion=0": `"v":"1"`, "?resourceVersion=" + number(old): `"v":"1"`} {
			if got := must(t, at, http.StatusOK, "GET", configMaps+"/a"+query, ""); !strings.Contains(got, want) {
				t.Errorf("get %q: %s, want %s", query, got, want)
			}
		}
		must(t, at, http.StatusNotFound, "GET", configMaps+"/c?resourceVersion=0", "")
		must(t, at, http.StatusOK, "GET", configMaps+"/c", "")
		// Writes go to the newest state.
		must(t, at, http.StatusConflict, "POST", configMaps, configMap("c", "2"))
		must(t, at, http.StatusConflict, "PUT", configMaps+"/a", fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":%q}}`, number(old)))
		must(t, at, http.StatusOK, "DELETE", configMaps+"/c", "")
		must(t, c, http.StatusNotFound, "GET", configMaps+"/c", "")
		r.Advance(1)
		if got := must(t, at, http.StatusOK, "GET", configMaps+"/a?resourceVersion=0", ""); !strings.Contains(got, `"v":"2"`) {
			t.Errorf("after one change more: %s", got)
		}
		r.CatchUp()
		if got := get[head](t, at, configMaps+"?resourceVersion=0"); names(got) != "a b" || got.Metadata.ResourceVersion != number(w.Revision()) {
			t.Errorf("after the replica has caught up: %s at %s", names(got), got.Metadata.ResourceVersion)
		}
		must(t, c, http.StatusCreated, "POST", configMaps, configMap("d", "1"))
		must(t, at, http.StatusOK, "GET", configMaps+"/d?resourceVersion=0", "")
	})
}

// TestReplicaWatch: watches begin with the state that their resourceVersion selects, and deliver later events
// when the replica has reached them. Held events do not keep the world from settling.
func TestReplicaWatch(t *testing.T) {
	reached(t, func(t *testing.T, w *tidemark.World) {
		c := w.RESTConfig()
		settle(t, w)
		must(t, c, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
		old := w.Revision()
		r := mustReplica(t, w, tidemark.ReplicaOptions{At: old})
		must(t, c, http.StatusCreated, "POST", configMaps, configMap("b", "1"))
		now := w.Revision()
		const initial = "&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
		const own = "&fieldSelector=metadata.name!=kube-root-ca.crt"
		watches := map[string]func() string{}
		for name, query := range map[string]string{
			"any": "?watch=1&resourceVersion=0" + own, "unset": "?watch=1" + own, "exact": "?watch=1&resourceVersion=" + number(old) + own,
			"newer": "?watch=1&resourceVersion=" + number(now) + own,
			"list":  "?watch=1" + initial + own, "list any": "?watch=1&resourceVersion=0" + initial + own,
		} {
			watches[name] = openWatch(t, r.RESTConfig(), configMaps+query)
		}
		expect := func(name string, parts ...string) {
			t.Helper()
			for _, part := range parts {
				if event := watches[name](); !strings.Contains(event, part) {
					t.Errorf("the watch %q sends %q, want %q", name, event, part)
				}
			}
		}
		end := func(r uint64) string {
			return `"resourceVersion":"` + number(r) + `","annotations":{"k8s.io/initial-events-end"`
		}
		expect("any", `"name":"a"`)
		expect("unset", `"name":"a"`, `"name":"b"`)
		expect("list", `"name":"a"`, `"name":"b"`, end(now))
		expect("list any", `"name":"a"`, end(old))
		must(t, c, http.StatusCreated, "POST", configMaps, configMap("c", "1"))
		must(t, c, http.StatusOK, "DELETE", configMaps+"/a", "")
		settle(t, w)
		r.Advance(1)
		for _, name := range []string{"any", "exact", "list any"} {
			expect(name, `"name":"b"`)
		}
		settle(t, w)
		r.CatchUp()
		for name := range watches {
			expect(name, `"name":"c"`, `"DELETED"`)
		}
		must(t, c, http.StatusCreated, "POST", configMaps, configMap("d", "1"))
		for name := range watches {
			expect(name, `"name":"d"`)
		}
		r.Close()
		for name := range watches {
			if event := watches[name](); event != "" {
				t.Errorf("after the end of the replica, the watch %q sends %q", name, event)
			}
		}
		must(t, r.RESTConfig(), http.StatusNotFound, "GET", configMaps, "")
	})
}

// TestReplicaLag: a replica with a lag follows the world at the distance.
func TestReplicaLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := servertest.Start(t, &tidemark.Server{InProcess: true, Controllers: []string{"-*"}}).Root()
		c := w.RESTConfig()
		begin := w.Revision()
		r := mustReplica(t, w, tidemark.ReplicaOptions{Lag: 2})
		events := follow(t, r.RESTConfig(), configMaps+"?watch=1&resourceVersion="+number(begin))
		for i := range 5 {
			must(t, c, http.StatusCreated, "POST", configMaps, configMap(fmt.Sprint("c", i), "1"))
			synctest.Wait()
			if want := max(0, i-1); len(events) != want {
				t.Errorf("after %d writes, the watch has %d events, want %d", i+1, len(events), want)
			}
		}
		if got := get[head](t, r.RESTConfig(), configMaps+"?resourceVersion=0"); names(got) != "c0 c1 c2" {
			t.Errorf("the replica has %s", names(got))
		}
		settle(t, w)
	})
}

// TestReplicaErrors: names, limits and impossible resource versions.
func TestReplicaErrors(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{InProcess: true})
	w := s.Root()
	for _, o := range []tidemark.ReplicaOptions{
		{Name: "Not A Label"}, {At: 1}, {At: w.Revision() + 1_000_000}, {At: w.Revision(), Lag: 1},
	} {
		if r, err := w.Replica(o); err == nil {
			t.Errorf("%+v: a replica at %d", o, r.Revision())
		}
	}
	mustReplica(t, w, tidemark.ReplicaOptions{Name: "one"})
	if _, err := w.Replica(tidemark.ReplicaOptions{Name: "one"}); !errors.Is(err, tidemark.ErrReplicaExists) {
		t.Errorf("a second replica with the name: %v", err)
	}
	for len(w.Replicas()) < tidemark.MaxReplicas {
		mustReplica(t, w, tidemark.ReplicaOptions{})
	}
	if _, err := w.Replica(tidemark.ReplicaOptions{}); !errors.Is(err, tidemark.ErrTooManyReplicas) {
		t.Errorf("one replica too many: %v", err)
	}
	must(t, s.RESTConfig(), http.StatusNotFound, "GET", "/replica/none"+configMaps, "")
	f := mustFork(t, w, tidemark.ForkOptions{})
	if got := len(f.Replicas()); got != 0 {
		t.Errorf("a fork has %d replicas", got)
	}
	mustReplica(t, f, tidemark.ReplicaOptions{Lag: 3})
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Replica(tidemark.ReplicaOptions{}); !errors.Is(err, tidemark.ErrForkClosed) {
		t.Errorf("a replica of a fork that was closed: %v", err)
	}
}
