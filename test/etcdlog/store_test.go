package etcdlog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestSuite runs the suite of stores on a shared log. It takes long.
func TestSuite(t *testing.T) {
	tier.Full(t)
	storetest.RunShared(t, func(t *testing.T) storetest.SharedMedium {
		c := startCluster(t, 1, nil)
		expire := func(collection string, keys ...string) store.Revision {
			r := &pb.TxnRequest{}
			for _, key := range keys {
				r.Success = append(r.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(prefix + "/" + collection + "/" + key)}}})
			}
			response, err := c.members[0].etcd.Server.Txn(t.Context(), r)
			must(t, err)
			return store.Revision(response.Header.Revision)
		}
		return storetest.SharedMedium{Open: func(t testing.TB) store.Shared { return openUnowned(t, c) }, Expire: expire}
	}, nil)
}

// serve starts a server in this process that keeps its objects in the cluster.
func serve(t testing.TB, c *cluster) (*tidemark.Server, kubernetes.Interface) {
	t.Helper()
	s := &tidemark.Server{InProcess: true, Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, s.Start(ctx))
	t.Cleanup(func() { must(t, s.Close()) })
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	must(t, err)
	return s, client
}

// TestServe runs a server on etcd through its API, and starts it again.
func TestServe(t *testing.T) {
	c := startCluster(t, 1, nil)
	s, client := serve(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	maps := client.CoreV1().ConfigMaps("default")
	events, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=a"})
	must(t, err)
	defer events.Stop()
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"x": "1"}}, metav1.CreateOptions{})
	must(t, err)
	if _, err := maps.Create(ctx, made, metav1.CreateOptions{}); err == nil {
		t.Error("a second create: got no error")
	}
	old := made.DeepCopy()
	made.Data["x"] = "2"
	made, err = maps.Update(ctx, made, metav1.UpdateOptions{})
	must(t, err)
	if _, err := maps.Update(ctx, old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: got %v, want a conflict", err)
	}
	r, err := c.members[0].etcd.Server.Range(ctx, &pb.RangeRequest{Key: []byte("/registry/configmaps/default/a")})
	if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value[:4]) != "k8s\x00" || fmt.Sprint(r.Kvs[0].ModRevision) != made.ResourceVersion {
		t.Errorf("etcd has %v, %v, want protobuf at revision %s", r, err, made.ResourceVersion)
	}
	must(t, s.Close())
	for _, want := range []watch.EventType{watch.Added, watch.Modified} {
		if e := <-events.ResultChan(); e.Type != want {
			t.Errorf("got the event %v, want %v", e.Type, want)
		}
	}

	_, client = serve(t, c)
	maps = client.CoreV1().ConfigMaps("default")
	got, err := maps.Get(ctx, "a", metav1.GetOptions{})
	must(t, err)
	if a, b := asJSON(t, got), asJSON(t, made); a != b {
		t.Errorf("after a restart: got\n%s\nwant\n%s", a, b)
	}
	past, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=a", ResourceVersion: old.ResourceVersion})
	must(t, err)
	defer past.Stop()
	must(t, maps.Delete(ctx, "a", metav1.DeleteOptions{}))
	for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
		if e := <-past.ResultChan(); e.Type != want {
			t.Errorf("a watch from before the restart: got the event %v, want %v", e.Type, want)
		}
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Name: "a", Namespace: "default"}}
	_, err = client.CoreV1().Events("default").Create(ctx, event, metav1.CreateOptions{})
	must(t, err)
	r, err = c.members[0].etcd.Server.Range(ctx, &pb.RangeRequest{Key: []byte("/registry/events/default/e")})
	if err != nil || len(r.Kvs) != 1 || r.Kvs[0].Lease == 0 {
		t.Errorf("etcd has the event %v, %v, want it with a lease", r, err)
	}
}

func asJSON(t testing.TB, o any) string {
	t.Helper()
	b, err := json.Marshal(o)
	must(t, err)
	return string(b)
}
