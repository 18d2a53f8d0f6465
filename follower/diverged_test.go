package follower_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestDiverged restores an earlier state of the server under a running follower, with the history and the resource
// versions of that state, and lets it get ahead of the follower. The follower ends: its copy has a change that the
// server does not have.
func TestDiverged(t *testing.T) {
	p := &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}}
	must(t, p.Start(t.Context()))
	t.Cleanup(func() { p.Close() })
	backup := new(bytes.Buffer)
	r, err := servertest.Client(t, p.RESTConfig()).Get(p.URL() + "/backup")
	must(t, err)
	_, err = backup.ReadFrom(r.Body)
	must(t, errors.Join(err, r.Body.Close()))

	f := start(t, following(p.RESTConfig(), t.TempDir()))
	_, err = maps(p)(t.Context(), "lost", "1")
	must(t, err)
	if got := state(t, f); !strings.Contains(got, " lost ") {
		t.Fatalf("the follower has %s", got)
	}
	port, err := strconv.Atoi(p.URL()[strings.LastIndex(p.URL(), ":")+1:])
	must(t, err)
	must(t, p.Close())

	restored := t.TempDir()
	_, err = (&datadir.Dir{Path: restored}).Restore(t.Context(), backup, datadir.RestoreOptions{KeepHistory: true})
	must(t, err)
	ahead := &tidemark.Server{Storage: &datadir.Dir{Path: restored}, Controllers: []string{"-*"}}
	must(t, ahead.Start(t.Context()))
	for i := range 10 {
		_, err := maps(ahead)(t.Context(), fmt.Sprint("other-", i), "2")
		must(t, err)
	}
	must(t, ahead.Close())
	start(t, &tidemark.Server{Storage: &datadir.Dir{Path: restored}, Controllers: []string{"-*"}, Port: port})
	select {
	case <-f.Done():
		if err := f.Err(); !errors.Is(err, store.ErrReset) {
			t.Errorf("the follower ended with %v, want %v", err, store.ErrReset)
		}
	case <-time.After(time.Minute):
		t.Errorf("a minute has passed, and the follower goes on with\n%s", state(t, f))
	}
}

// TestOtherCluster: the copy of a server that has no history left is not continued from another server which is
// ahead of it.
func TestOtherCluster(t *testing.T) {
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}, History: tidemark.History{Retention: time.Millisecond}})
	last, err := maps(p)(t.Context(), "last", "1")
	must(t, err)
	at, err := strconv.Atoi(last.ResourceVersion)
	must(t, err)
	waitFor(t, "the history is empty", func() bool {
		code, _ := servertest.Get(t, p.RESTConfig(), fmt.Sprintf("/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=%d", at-1))
		return code == http.StatusGone
	})
	dir := t.TempDir()
	f := following(p.RESTConfig(), dir)
	must(t, f.Start(t.Context()))
	must(t, f.Close())

	other := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}})
	for i := range 20 {
		_, err := maps(other)(t.Context(), fmt.Sprint("other-", i), "2")
		must(t, err)
	}
	f = following(other.RESTConfig(), dir)
	defer f.Close()
	if err := f.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "it has changes that the server") {
		t.Errorf("the copy of another server goes on: %v", err)
	}
}
