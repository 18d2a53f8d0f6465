package etcdlog_test

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestExportAllocators: an export has no allocators of kube-apiserver, neither those that are there nor the changes of
// them.
func TestExportAllocators(t *testing.T) {
	c := startCluster(t, 1, nil)
	client, err := clientv3.New(clientv3.Config{Endpoints: c.servers()})
	must(t, err)
	defer client.Close()
	cluster := &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1}
	export, err := cluster.OpenExport(nil)
	must(t, err)
	defer func() { must(t, export.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	const version = `"resourceVersion":"`
	write := func(collection, key, value string) store.Revision {
		t.Helper()
		codec := cluster.Codec(nil)
		b, err := codec.Encode(collection, []byte(value), strings.Index(value, version)+len(version))
		must(t, err)
		made, err := client.Put(ctx, codec.Keys.Of(collection, key), string(b))
		must(t, err)
		return store.Revision(made.Header.Revision)
	}
	writeAll := func() store.Revision {
		t.Helper()
		for _, key := range []string{"servicenodeports", "serviceips"} {
			write("ranges", key, `{"kind":"RangeAllocation","apiVersion":"v1","metadata":{"resourceVersion":""},"range":"30000-32767","data":"AQ=="}`)
		}
		return write("configmaps", "default/a", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","resourceVersion":""}}`)
	}

	head := writeAll()
	others, objects := map[string]int{}, 0
	for i, err := range export.Items(ctx, head) {
		must(t, err)
		must(t, i.Err)
		if i.Other != "" {
			others[i.Other]++
			continue
		}
		if objects++; i.Collection != "configmaps" {
			t.Errorf("the export has %s", i.Key)
		}
	}
	if objects != 1 || others[`of servers: "/registry/ranges"`] != 2 {
		t.Errorf("%d objects and %v, want one and 2 allocators", objects, others)
	}

	last := writeAll()
	for b, err := range export.Follow(ctx, head) {
		must(t, err)
		for _, e := range b.Entries {
			if e.Collection != "configmaps" {
				t.Errorf("followed: %s %s", e.Collection, e.Key)
			}
		}
		if b.Through >= last {
			break
		}
	}
}
