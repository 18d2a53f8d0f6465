package etcdlog_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// TestStoreSuite runs the suite of several stores on one log, which is an etcd.
func TestStoreSuite(t *testing.T) {
	c := startCluster(t, 1, nil)
	storetest.RunShared(t, func(t *testing.T) storetest.SharedMedium {
		client, err := clientv3.New(clientv3.Config{Endpoints: c.servers()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if _, err := client.Delete(context.Background(), "/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		return storetest.SharedMedium{
			Open: func(t testing.TB) store.Shared {
				l, err := etcdlog.Open(etcdlog.Options{Servers: c.servers(), Codec: codec(), CompactionInterval: -1})
				if err != nil {
					t.Fatal(err)
				}
				return l
			},
			// One transaction deletes the keys, as the end of a lease does.
			Expire: func(collection string, keys ...string) store.Revision {
				var ops []clientv3.Op
				seen := map[string]bool{}
				for _, key := range keys {
					if !seen[key] {
						ops = append(ops, clientv3.OpDelete(prefix+"/"+collection+"/"+key))
					}
					seen[key] = true
				}
				r, err := client.Txn(context.Background()).Then(ops...).Commit()
				if err != nil {
					t.Error(err)
					return 0
				}
				return store.Revision(r.Header.Revision)
			},
		}
	}, nil)
}
