package etcdlog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestMoved marks the objects as moved. A server that runs ends, a log that was suspended and has seen nothing of the mark
// writes nothing, and no server starts until the mark is removed.
func TestMoved(t *testing.T) {
	c := startCluster(t, 1, nil)
	s, _ := serve(t, c)
	suspended := openUnowned(t, c)
	defer suspended.Close()
	if _, err := suspended.Load(t.Context(), func(string, *store.Object) error { return nil }); err != nil {
		t.Fatal(err)
	}
	write := func(key string) (store.Decision, error) {
		return suspended.Propose(t.Context(), &store.Txn{Writes: []store.Write{{Collection: "configmaps", Key: key, Value: []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":""}}`), RevisionAt: 98}}})
	}
	e, err := (&etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1}).OpenExport(nil)
	must(t, err)
	defer e.Close()
	must(t, e.MarkMoved(t.Context(), "somewhere else"))
	if d, err := write("default/a"); !errors.Is(err, store.ErrReset) || !strings.Contains(err.Error(), "were moved to somewhere else") {
		t.Errorf("a write by a log that was suspended: %+v, %v", d, err)
	}
	await.Value(t, "the end of the server", s.Done())
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "were moved to somewhere else") {
		t.Errorf("the server has ended: %v", err)
	}
	another := func() *tidemark.Server {
		return &tidemark.Server{InProcess: true, Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1}}
	}
	if err := another().Start(t.Context()); err == nil || !strings.Contains(err.Error(), "etcdctl del --prefix") {
		t.Errorf("a server starts: %v", err)
	}
	must(t, e.MarkMoved(t.Context(), ""))
	back := openUnowned(t, c)
	defer back.Close()
	if _, err := back.Load(t.Context(), func(collection string, o *store.Object) error {
		if collection == "configmaps" && o.Key == "default/a" {
			t.Error("the suspended log has written")
		}
		return nil
	}); err != nil {
		t.Errorf("without the mark: %v", err)
	}
}
