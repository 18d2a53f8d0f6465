package replication

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

var someOrigin = &store.Origin{Time: time.UnixMicro(1_700_000_000_000_001).UTC(), Verb: store.VerbPatch, AuditID: store.NewAuditID("some text"),
	Actor: &store.Actor{User: "alice", UserAgent: "kubectl", FieldManager: "m", Subresource: "status", Impersonator: "root"}}

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

// TestManyChanges: a message with more changes than a server sends is refused before they are decoded.
func TestManyChanges(t *testing.T) {
	const count = 1 << 18
	var m encoder
	for _, v := range []uint64{12, 3, 15, count} {
		m.uint(v)
	}
	m = append(m, make([]byte, 4*count)...)
	m = append(binary.AppendUvarint(nil, uint64(len(m))), m...)
	var err error
	allocations := testing.AllocsPerRun(1, func() { _, err = readMessage(bytes.NewReader(m)) })
	if err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("got %v", err)
	}
	if allocations > 100 {
		t.Errorf("%v allocations", allocations)
	}
}

// TestImpossible: decisions and messages that no server can send are refused.
func TestImpossible(t *testing.T) {
	one := &store.Txn{Writes: make([]store.Write, 1)}
	for _, d := range []Decision{
		{Made: true},
		{Made: true, First: 5, Last: 5},
		{Made: true, First: 10, Last: 10},
		{Made: true, First: 11, Last: 12},
		{Made: true, First: 12, Last: 11},
		{Made: true, First: 1 << 60, Last: 1 << 60},
		{Last: 1 << 60},
	} {
		if d.check(one, 10, 1000) == nil {
			t.Errorf("%+v is possible", d)
		}
	}
	for _, d := range []Decision{{Made: true, First: 11, Last: 11}, {Made: true, First: 900, Last: 900}, {Last: 3}, {Last: 15}} {
		if err := d.check(one, 10, 1000); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
	for _, m := range []message{{through: 1 << 60}, {head: 1 << 60}, {floor: 1 << 60}, {entries: []store.Entry{{Revision: 1 << 60}}}} {
		if m.check(1000) == nil {
			t.Errorf("%+v is possible", m)
		}
	}
}

// FuzzTxn checks that no body causes a panic or takes more memory than a multiple of its size, and
// that a decoded transaction is encoded to the same bytes.
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

// FuzzMessage checks that no message causes a panic.
func FuzzMessage(f *testing.F) {
	f.Add(someMessage())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = readMessage(bytes.NewReader(b))
	})
}
