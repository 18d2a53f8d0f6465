package follower_test

import (
	"encoding/json"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestQuiet: a follower writes nothing when it starts, serves reads, and ends.
func TestQuiet(t *testing.T) {
	t.Parallel()
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}})
	head := func() (h replication.Head) {
		t.Helper()
		code, text := servertest.Get(t, p.RESTConfig(), replication.Path+"/head")
		if err := json.Unmarshal([]byte(text), &h); err != nil || code != 200 {
			t.Fatalf("%d %s", code, text)
		}
		return h
	}
	before := head()
	dir := t.TempDir()
	for range 2 {
		f := following(p.RESTConfig(), dir)
		must(t, f.Start(t.Context()))
		if a, b := state(t, p), state(t, f); a != b {
			t.Errorf("the server has\n%s\nand the follower\n%s", a, b)
		}
		must(t, f.Close())
	}
	if after := head(); after.Revision != before.Revision {
		t.Errorf("the server is at revision %d, and was at %d before it had a follower", after.Revision, before.Revision)
	}
}
