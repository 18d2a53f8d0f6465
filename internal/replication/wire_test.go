package replication

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

var someOrigin = &store.Origin{Time: time.UnixMicro(1_700_000_000_000_001).UTC(), Verb: store.VerbPatch, AuditID: store.NewAuditID("some text"),
	Actor: &store.Actor{User: "alice", UserAgent: "kubectl", FieldManager: "m", Subresource: "status"}}

func someTxn() *store.Txn {
	return &store.Txn{
		Writes: []store.Write{
			{Collection: "pods", Key: "ns/a", Value: []byte(`{"rv":""}`), RevisionAt: 7, If: 5, Origin: someOrigin, Deleting: true},
			{Collection: "pods", Key: "ns/a", Next: true},
			{Collection: "services", Key: "ns/b", Value: []byte{}},
		},
		Needs:  []store.Need{{Collection: "c", Key: "k", Modified: 1 << 62}, {Collection: "c", Key: "absent"}},
		Guards: []store.Guard{{Name: "port", Seen: 9, Claim: true}, {Name: "other"}},
	}
}

// TestTxn encodes a transaction and decodes it again.
func TestTxn(t *testing.T) {
	want := someTxn()
	got, err := decodeTxn(encodeTxn(want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: got %+v, want %+v", err, got, want)
	}
}

// someMessage is a message with a change of each kind.
func someMessage() []byte {
	var m encoder
	for _, v := range []uint64{12, 3, 15, 2} {
		m.uint(v)
	}
	m.string("pods")
	m.string("ns/a")
	m.uint(11)
	m.uint(hasObject | hasOrigin)
	m.uint(4)
	m.uint(7)
	m.bytes([]byte(`{"rv":"11"}`))
	m.origin(someOrigin)
	m.string("pods")
	m.string("ns/b")
	m.uint(12)
	m.uint(0)
	return append(binary.AppendUvarint(nil, uint64(len(m))), m...)
}

// TestMessage decodes a message.
func TestMessage(t *testing.T) {
	m, err := readMessage(bytes.NewReader(someMessage()))
	if err != nil || m.through != 12 || m.floor != 3 || m.head != 15 || len(m.entries) != 2 {
		t.Fatalf("%v: %+v", err, m)
	}
	a, b := m.entries[0], m.entries[1]
	if a.Collection != "pods" || a.Key != "ns/a" || a.Revision != 11 || a.Object == nil || a.Object.Created != 4 || a.Object.Modified != 11 || a.Object.RevisionAt != 7 ||
		string(a.Object.Held) != `{"rv":"11"}` || !reflect.DeepEqual(a.Origin, someOrigin) {
		t.Errorf("%+v", a)
	}
	if b.Key != "ns/b" || b.Revision != 12 || b.Object != nil || b.Origin != nil {
		t.Errorf("%+v", b)
	}
}

// FuzzTxn: no body ends the process or takes more memory than a multiple of its size, and what is decoded is encoded
// to the same transaction.
func FuzzTxn(f *testing.F) {
	f.Add(encodeTxn(someTxn()))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		decoded, err := decodeTxn(b)
		if err != nil {
			return
		}
		if decoded.Check() != nil {
			return
		}
		again, err := decodeTxn(encodeTxn(decoded))
		if err != nil || !reflect.DeepEqual(again, decoded) {
			t.Errorf("%v: %+v, and again %+v", err, decoded, again)
		}
	})
}

// FuzzMessage: no message ends the process.
func FuzzMessage(f *testing.F) {
	f.Add(someMessage())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = readMessage(bytes.NewReader(b))
	})
}
