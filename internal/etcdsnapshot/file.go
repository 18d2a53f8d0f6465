package etcdsnapshot

import (
	"encoding/binary"
	"fmt"
	"iter"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The buckets that every database of etcd has, and the keys in meta.
var (
	keyBucket   = []byte("key")
	metaBucket  = []byte("meta")
	leaseBucket = []byte("lease")

	// buckets are all of etcd 3.6. Empty ones spare a restored member their creation.
	buckets = [][]byte{
		keyBucket, metaBucket, leaseBucket, []byte("alarm"), []byte("cluster"), []byte("members"), []byte("members_removed"),
		[]byte("auth"), []byte("authRoles"), []byte("authUsers"),
	}

	finishedKey  = []byte("finishedCompactRev")
	scheduledKey = []byte("scheduledCompactRev")
)

// Version is one version of a key, or its deletion.
type Version struct {
	Key []byte
	// Value is nil for a deletion.
	Value []byte
	// Revision made the version, Created made the key.
	Revision, Created int64
	// Count is 1 for the first version of the key, 2 for the second one, and so on.
	Count int64
	// Lease ends the key; zero: none.
	Lease int64
}

// deleted reports that the version is a deletion.
func (v *Version) deleted() bool { return v.Value == nil }

const (
	revisionBytes = 17
	tombstone     = 't'
)

// place is where a change is in the file. Changes of one revision have the indices 0, 1, 2 and so on.
type place struct {
	revision, index int64
	deleted         bool
}

// key returns the key of a place.
func (p place) key() []byte {
	b := make([]byte, revisionBytes, revisionBytes+1)
	binary.BigEndian.PutUint64(b, uint64(p.revision))
	b[8] = '_'
	binary.BigEndian.PutUint64(b[9:], uint64(p.index))
	if p.deleted {
		b = append(b, tombstone)
	}
	return b
}

// cutPlace is the inverse of place.key.
func cutPlace(key []byte) (place, error) {
	deleted := len(key) == revisionBytes+1 && key[revisionBytes] == tombstone
	if len(key) != revisionBytes && !deleted || key[8] != '_' {
		return place{}, fmt.Errorf("the key %x is no revision", key)
	}
	return place{int64(binary.BigEndian.Uint64(key)), int64(binary.BigEndian.Uint64(key[9:])), deleted}, nil
}

// changesOf yields the changes of a revision, in their order.
func changesOf(c *bolt.Cursor, revision int64) iter.Seq2[Version, error] {
	return func(yield func(Version, error) bool) {
		for key, value := c.Seek(place{revision: revision}.key()); key != nil; key, value = c.Next() {
			p, err := cutPlace(key)
			if err == nil && p.revision != revision {
				return
			}
			var v Version
			if err == nil {
				v, err = unmarshal(p, value)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// marshal returns the stored form of a version. A deletion has the key alone.
func (v *Version) marshal() ([]byte, error) {
	kv := &mvccpb.KeyValue{Key: v.Key}
	if !v.deleted() {
		kv = &mvccpb.KeyValue{Key: v.Key, Value: v.Value, CreateRevision: v.Created, ModRevision: v.Revision, Version: v.Count, Lease: v.Lease}
	}
	return proto.Marshal(kv)
}

// unmarshal is the inverse of marshal.
func unmarshal(at place, b []byte) (Version, error) {
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(b, &kv); err != nil {
		return Version{}, fmt.Errorf("revision %d: %w", at.revision, err)
	}
	v := Version{Key: kv.Key, Revision: at.revision}
	if at.deleted {
		return v, nil
	}
	if kv.ModRevision != at.revision {
		return Version{}, fmt.Errorf("revision %d has a value of revision %d", at.revision, kv.ModRevision)
	}
	v.Value, v.Created, v.Count, v.Lease = kv.Value, kv.CreateRevision, kv.Version, kv.Lease
	if v.Value == nil {
		v.Value = []byte{}
	}
	return v, nil
}

// leaseRecord returns the key and the value of a lease.
func leaseRecord(id int64, seconds int64) (key, value []byte) {
	key = binary.BigEndian.AppendUint64(nil, uint64(id))
	value = protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(id))
	return key, protowire.AppendVarint(protowire.AppendTag(value, 2, protowire.VarintType), uint64(seconds))
}
