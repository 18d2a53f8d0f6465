package integration_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestPlay: the changes of a directory are made again, in their order, with their verbs and users, and clients cannot write.
func TestPlay(t *testing.T) {
	dir := t.TempDir()
	clock := new(tidemark.Clock)
	before := &instantWorld{Server: &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Clock: clock, Controllers: []string{"-*"}}}
	if err := before.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before.c = before.RESTConfig()
	before.write(t, http.MethodPost, "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
	from := before.Root().Revision()
	clock.Advance(time.Minute)
	middle := clock.Now()
	before.write(t, http.MethodPost, instantMaps, `{"metadata":{"name":"a"},"data":{"x":"1"}}`)
	clock.Advance(time.Hour)
	before.write(t, "MERGE", instantMaps+"/a", `{"data":{"x":"2"}}`)
	clock.Advance(time.Hour)
	before.write(t, http.MethodDelete, instantMaps+"/a", "")
	head := before.Root().Revision()
	since := map[string]string{"since": fmt.Sprint(from)}
	want := changeLines(listChanges(t, before.c, changesPath, 100, since))
	if len(want) != 3 {
		t.Fatalf("the changes are %q", want)
	}
	servertest.Stop(t, before.Server)

	for name, s := range map[string]*tidemark.Server{
		"by revision": {At: from},
		"by time":     {AtTime: middle.Add(-time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			s.Storage, s.Play = &datadir.Dir{Path: dir, ReadOnly: true}, 1e9
			servertest.Start(t, s)
			await.True(t, "all changes are played", func() bool { return s.Root().Revision() >= head })
			got := listChanges(t, s.RESTConfig(), changesPath, 100, map[string]string{"since": fmt.Sprint(from), "resource": "configmaps"})
			if fmt.Sprint(changeLines(got)) != fmt.Sprint(want) {
				t.Errorf("played %q, want %q", changeLines(got), want)
			}
			for i := range got {
				if got[i].User == "" || got[i].Time.After(middle) {
					t.Errorf("the change is %+v", got[i])
				}
			}
			if code, _, b := exchange(t, s.RESTConfig(), http.MethodPost, instantMaps, `{"metadata":{"name":"b"}}`); code != http.StatusMethodNotAllowed {
				t.Errorf("a write: %d %s", code, b)
			}
			if code, _, b := exchange(t, s.RESTConfig(), http.MethodGet, "/api/v1/namespaces/default/pods/p/log", ""); code != http.StatusNotImplemented {
				t.Errorf("the log of a container: %d %s", code, b)
			}
		})
	}
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir, ReadOnly: true}, AtTime: middle.Add(time.Minute)})
	if code, _, b := exchange(t, s.RESTConfig(), http.MethodGet, instantMaps+"/a", ""); code != http.StatusOK {
		t.Errorf("the state of a time: %d %s", code, b)
	}
	if code, _, b := exchange(t, s.RESTConfig(), http.MethodGet, "/api/v1/namespaces/default/pods/p/log", ""); code != http.StatusNotImplemented {
		t.Errorf("the log of a container: %d %s", code, b)
	}
}
