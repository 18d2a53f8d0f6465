package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Encoding
//
// Numbers are uvarints. Strings and bytes have their length in front.
//
//	stream       message...; its changes wait for one whose through is not less than their revisions
//	message      length (of the rest), through, floor, head, number of changes, change...
//	change       collection, key, revision, flags, [created, revisionAt, bytes], [origin]
//	transaction  number of writes, write..., number of needs, need..., number of guards, guard...
//	write        collection, key, flags, if, [revisionAt, value], [origin]
//	need         collection, key, modified
//	guard        name, seen, claim (0 or 1)
//	origin       time (microseconds since 1970, 0 if unknown), verb, audit ID, flag, [actor: five strings], with the flag 2 the impersonator

const (
	hasObject = 1 << iota // a change: the object after it; a write: the value
	hasOrigin
	isDeleting
	isNext
)

const (
	// maxMessage limits a message. Behind almost messageBytes it can have the largest object, with its origin and its
	// names.
	maxMessage = messageBytes + store.MaxValue + 1<<20
	// MaxTransaction limits the encoding of a transaction.
	MaxTransaction = 32 << 20
)

var errShort = errors.New("the encoding ends early")

type encoder []byte

func (e *encoder) uint(v uint64)       { *e = binary.AppendUvarint(*e, v) }
func (e *encoder) bytes(b []byte)      { e.uint(uint64(len(b))); *e = append(*e, b...) }
func (e *encoder) string(s string)     { e.uint(uint64(len(s))); *e = append(*e, s...) }
func (e *encoder) at(r store.Revision) { e.uint(uint64(r)) }

// decoder reads an encoding. After an error all values are zero.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.rest = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// count reads the number of things that have at least so many bytes each.
func (d *decoder) count(least int) int {
	n := d.uint()
	if n > uint64(len(d.rest)/least) {
		d.fail(errShort)
		return 0
	}
	return int(n)
}

// most is count with a limit.
func (d *decoder) most(least, limit int) int {
	n := d.count(least)
	if n > limit {
		d.fail(fmt.Errorf("%d parts of a kind: want at most %d", n, limit))
		return 0
	}
	return n
}

// bytes returns a part of the encoding.
func (d *decoder) bytes() []byte {
	n := d.count(1)
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) string() string     { return string(d.bytes()) }
func (d *decoder) at() store.Revision { return store.Revision(d.uint()) }

func (e *encoder) origin(o *store.Origin) {
	at := int64(0)
	if !o.Time.IsZero() {
		at = o.Time.UnixMicro()
	}
	e.uint(uint64(max(at, 0)))
	e.uint(uint64(o.Verb))
	e.string(o.AuditID.String())
	if o.Actor == nil {
		e.uint(0)
		return
	}
	flag := uint64(1) // earlier versions support no other flag
	if o.Actor.Impersonator != "" {
		flag = 2
	}
	e.uint(flag)
	for _, s := range [...]string{o.Actor.User, o.Actor.UserAgent, o.Actor.FieldManager, o.Actor.Subresource, o.Actor.Loop} {
		e.string(s)
	}
	if flag == 2 {
		e.string(o.Actor.Impersonator)
	}
}

func (d *decoder) origin() *store.Origin {
	o := new(store.Origin)
	if at := d.uint(); at > 0 {
		o.Time = time.UnixMicro(int64(at)).UTC()
	}
	o.Verb = store.Verb(d.uint())
	if id := d.string(); id != "" {
		o.AuditID = store.NewAuditID(id)
	}
	if flag := d.uint(); flag != 0 {
		o.Actor = new(store.Actor)
		fields := []*string{&o.Actor.User, &o.Actor.UserAgent, &o.Actor.FieldManager, &o.Actor.Subresource, &o.Actor.Loop}
		if flag == 2 {
			fields = append(fields, &o.Actor.Impersonator)
		}
		for _, s := range fields {
			*s = d.string()
			*s = (*s)[:min(len(*s), store.MaxActorField)]
		}
	}
	return o
}

// change encodes a change, without the object before it.
func (e *encoder) change(collection string, c *store.Change) {
	flags := uint64(hasOrigin)
	if c.After != nil {
		flags |= hasObject
	}
	e.string(collection)
	e.string(c.Key())
	e.at(c.Revision)
	e.uint(flags)
	if o := c.After; o != nil {
		e.at(o.Created)
		e.uint(uint64(o.RevisionAt))
		e.bytes(o.Bytes())
	}
	origin := c.Origin()
	e.origin(&origin)
}

func (d *decoder) change() (made store.Entry) {
	made.Collection, made.Key, made.Revision = d.string(), d.string(), d.at()
	flags := d.uint()
	if flags&hasObject != 0 {
		o := &store.Object{Key: made.Key, Created: d.at(), Modified: made.Revision}
		at := d.uint()
		o.Held = append([]byte(nil), d.bytes()...)
		if d.err == nil && at > uint64(len(o.Held)) {
			d.fail(fmt.Errorf("%s %q has its revision at %d of %d bytes", made.Collection, made.Key, at, len(o.Held)))
		}
		o.RevisionAt = int32(at)
		made.Object = o
	}
	if flags&hasOrigin != 0 {
		made.Origin = d.origin()
	}
	return made
}

// message is a part of the stream of changes.
type message struct {
	through, floor, head store.Revision
	entries              []store.Entry
	bytes                int // of the encoding
}

// readMessage reads a message. It allocates only for bytes that have arrived.
func readMessage(r interface {
	io.Reader
	io.ByteReader
}) (m message, err error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return m, err
	}
	if n > maxMessage {
		return m, fmt.Errorf("a message of %d bytes: want at most %d", n, maxMessage)
	}
	b := bytes.NewBuffer(make([]byte, 0, min(n, 2*messageBytes))) // most messages fit
	if _, err := io.CopyN(b, r, int64(n)); err != nil {
		return m, err
	}
	d := decoder{rest: b.Bytes()}
	m.bytes = int(n)
	m.through, m.floor, m.head = d.at(), d.at(), d.at()
	for range d.most(4, heldChanges) {
		m.entries = append(m.entries, d.change())
	}
	return m, d.end()
}

// check returns an error if the message has a revision beyond the largest possible one.
func (m *message) check(newest store.Revision) error {
	at := max(m.through, m.head, m.floor)
	for i := range m.entries {
		at = max(at, m.entries[i].Revision)
	}
	if at > newest {
		return fmt.Errorf("the server sent the impossible revision %d", at)
	}
	return nil
}

// end returns the error of the decoder, or an error if bytes are left.
func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%d bytes follow", len(d.rest))
	}
	return d.err
}

// encodeTxn encodes a transaction.
func encodeTxn(t *store.Txn) []byte {
	var e encoder
	e.uint(uint64(len(t.Writes)))
	for i := range t.Writes {
		w := &t.Writes[i]
		flags := uint64(0)
		for flag, on := range map[uint64]bool{hasObject: w.Value != nil, hasOrigin: w.Origin != nil, isDeleting: w.Deleting, isNext: w.Next} {
			if on {
				flags |= flag
			}
		}
		e.string(w.Collection)
		e.string(w.Key)
		e.uint(flags)
		e.at(w.If)
		if w.Value != nil {
			e.uint(uint64(w.RevisionAt))
			e.bytes(w.Value)
		}
		if w.Origin != nil {
			e.origin(w.Origin)
		}
	}
	e.uint(uint64(len(t.Needs)))
	for _, n := range t.Needs {
		e.string(n.Collection)
		e.string(n.Key)
		e.at(n.Modified)
	}
	e.uint(uint64(len(t.Guards)))
	for _, g := range t.Guards {
		claim := uint64(0)
		if g.Claim {
			claim = 1
		}
		e.string(g.Name)
		e.at(g.Seen)
		e.uint(claim)
	}
	return e
}

// decodeTxn decodes a transaction. Its values are parts of b.
func decodeTxn(b []byte) (*store.Txn, error) {
	d, t := decoder{rest: b}, new(store.Txn)
	for range d.most(4, store.MaxTxnWrites) {
		w := store.Write{Collection: d.string(), Key: d.string()}
		flags := d.uint()
		w.If, w.Deleting, w.Next = d.at(), flags&isDeleting != 0, flags&isNext != 0
		if flags&hasObject != 0 {
			at := d.uint()
			w.Value = d.bytes()
			if w.Value == nil {
				w.Value = []byte{}
			}
			w.RevisionAt = int(min(at, uint64(len(w.Value)+1))) // Txn.Check rejects an offset after the end
		}
		if flags&hasOrigin != 0 {
			w.Origin = d.origin()
		}
		t.Writes = append(t.Writes, w)
	}
	for range d.most(3, store.MaxTxnWrites) {
		t.Needs = append(t.Needs, store.Need{Collection: d.string(), Key: d.string(), Modified: d.at()})
	}
	for range d.most(3, store.MaxTxnGuards) {
		t.Guards = append(t.Guards, store.Guard{Name: d.string(), Seen: d.at(), Claim: d.uint() != 0})
	}
	return t, d.end()
}
