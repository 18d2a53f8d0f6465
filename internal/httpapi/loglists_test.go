package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
)

// onDisk is a log in memory that claims to be on disk, so that old states are read back from it.
type onDisk struct{ store.Log }

func (d onDisk) Replay(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	b, err := d.Log.Replay(ctx, load)
	b.InMemory = false
	return b, err
}

// TestMetricsOfLogLists: lists that read the log are counted apart, with their time.
func TestMetricsOfLogLists(t *testing.T) {
	old, err := stores.Open(t.Context(), store.Options{Log: onDisk{memlog.New()}, MaxMemory: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Registry = &registry.Registry{Store: old} }})
	s.create(t, "default", "a", 10)
	then := old.Any().Revision()
	for i := range 10 {
		s.create(t, "default", fmt.Sprint("b", i), 500<<10)
	}
	if a := s.do(t, "GET", fmt.Sprint(maps, "?resourceVersionMatch=Exact&resourceVersion=", then), ""); a.code != 200 || strings.Count(a.body, `"uid"`) != 1 {
		t.Fatalf("%d %.200s", a.code, a.body)
	}
	s.do(t, "GET", maps+"?limit=1", "")
	page := s.do(t, "GET", "/metrics", "").body
	for _, want := range []string{
		`apiserver_storage_list_total{group="",index="",resource="configmaps",storage="etcd"} 1`,
		`apiserver_storage_list_duration_seconds_count{group="",resource="configmaps",streamed="false"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}
