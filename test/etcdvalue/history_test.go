package etcdvalue_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestHistory checks the values that a kube-apiserver v1.36 has written into its etcd since the
// last compaction: each value is decoded, encoded to the same bytes, and decoded again to the same
// object. It writes nothing, so it can be used on any cluster whose values are not encrypted.
func TestHistory(t *testing.T) {
	tier.Full(t)
	if *endpoint == "" {
		t.Skip("-etcd is not set")
	}
	db, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	h := history{t: t, seen: map[string]int{}, skipped: map[string]int{}, unknown: map[string]int{}}
	head, err := db.Get(t.Context(), h.codec.Keys.Root(), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range head.Kvs {
		h.check(kv)
	}
	from := int64(1)
	for from < head.Header.Revision {
		from = h.follow(db, from, head.Header.Revision)
	}
	t.Logf("%d values of %d collections, %d outdated; not compared: %v; unknown: %v", h.values, len(h.seen), h.outdated, h.skipped, h.unknown)
}

type history struct {
	t                *testing.T
	codec            etcdvalue.Codec
	seen, unknown    map[string]int
	values, outdated int
	failed           int
	skipped          map[string]int
}

// follow checks the changes from a revision on, and returns the one to continue with: a later one
// after a compaction.
func (h *history) follow(db *clientv3.Client, from, to int64) int64 {
	for w := range db.Watch(h.t.Context(), h.codec.Keys.Root(), clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if w.CompactRevision > 0 {
			return w.CompactRevision
		}
		if err := w.Err(); err != nil {
			h.t.Fatal(err)
		}
		for _, e := range w.Events {
			if e.Type == mvccpb.PUT {
				h.check(e.Kv)
			}
			from = e.Kv.ModRevision
		}
		if from >= to {
			return to
		}
	}
	h.t.Fatal("the watch has ended")
	return 0
}

// unsteady reports whether kube-apiserver itself would write other bytes: it stores some updates
// without defaults that it adds whenever it reads, such as the behavior of an autoscaler that was
// written as v1, and the phase of a claim. An empty certificate is not in the JSON.
func (h *history) unsteady(collection string, value []byte) bool {
	if collection == "certificatesigningrequests.certificates.k8s.io" && bytes.Contains(value, []byte("\x1a\x02\x12\x00")) {
		return true
	}
	envelope, err := wire.OpenEnvelope(value)
	if err != nil {
		return false // not protobuf
	}
	for typ := range builtin.Catalog().Types() {
		if typ.Collection != collection || typ.Conversion != nil || typ.Strategy.Default == nil {
			continue
		}
		o := typ.New()
		if err := o.(interface{ Unmarshal([]byte) error }).Unmarshal(envelope.Raw); err != nil {
			h.t.Fatal(err)
		}
		typ.Strategy.Default(o)
		raw, err := wire.Message(o)
		return err == nil && !bytes.Equal(raw, envelope.Raw)
	}
	return false
}

func (h *history) check(kv *mvccpb.KeyValue) {
	p := h.codec.Keys.Find(string(kv.Key))
	switch p.Class {
	case etcdvalue.Unknown:
		h.unknown[string(kv.Key)]++
		return
	case etcdvalue.Internal:
		return
	}
	h.values++
	h.seen[p.Collection]++
	if h.failed > 20 {
		return
	}
	d, err := h.codec.Decode(p.Collection, kv.Value)
	if err != nil {
		h.failed++
		h.t.Errorf("%s: %v", kv.Key, err)
		return
	}
	if d.Outdated {
		h.outdated++
		return
	}
	again, err := h.codec.Encode(p.Collection, d.JSON, d.RevisionAt)
	switch {
	case err == nil && bytes.Equal(again, kv.Value):
	case err == nil && h.unsteady(p.Collection, kv.Value):
		h.skipped[p.Collection]++
	default:
		h.failed++
		h.t.Errorf("%s, encoded again, %v:\n got %q\nwant %q", kv.Key, err, again, kv.Value)
	}
	var before, after any
	second, err := h.codec.Decode(p.Collection, again)
	if err != nil || json.Unmarshal(d.JSON, &before) != nil || json.Unmarshal(second.JSON, &after) != nil || !reflect.DeepEqual(before, after) {
		h.failed++
		h.t.Errorf("%s, decoded again, %v:\n got %s\nwant %s", kv.Key, err, second.JSON, d.JSON)
	}
}
