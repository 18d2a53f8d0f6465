package pebblelog

import (
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Origins
//
// A header ends with the origin of its change. The actor is not in it: thousands of changes have the
// same one. The first change of an actor defines it, in the space a/ at the change's own revision and
// in the same batch. Later changes refer to the definition by their distance from it.
//
//	revision   100                  101           102                103
//	a/         100 alice, kubectl                 102 bob, curl
//	r/         ... distance 0       distance 1    distance 0         distance 3 (alice)
//
// A definition serves actorReach revisions, then the next change defines the actor anew. So changes
// above the cut refer to no definition at or below cut - actorReach, and a compaction removes those:
// user agents that clients invent go with the changes that have them.
//
// The log remembers definitions in memory. It forgets them when it closes or when there are too many;
// it then defines the actors once more.

const (
	// actorReach is a part of the format.
	actorReach = 1 << 14
	// mostActors bounds the definitions in memory, those of the writer and those of each reader.
	mostActors = 2048
	// noActor is the distance of a change whose actor is unknown.
	noActor = 1<<16 - 1
)

// An origin: time in microseconds since 1970, verb, distance, audit ID. The highest bit of the verb is
// set if the audit ID is a UUID of 16 bytes; otherwise it is a text, which may be empty.
const (
	originFixed = 8 + 1 + 2
	uuidBit     = 0x80
)

// origin is the end of a header.
type origin struct {
	time     int64
	verb     store.Verb
	distance store.Revision
	audit    store.AuditID
}

func appendOrigin(b []byte, o origin) []byte {
	b = be.AppendUint64(b, uint64(o.time))
	if id, ok := o.audit.UUID(); ok {
		b = append(b, byte(o.verb)|uuidBit)
		b = be.AppendUint16(b, uint16(o.distance))
		return append(b, id[:]...)
	}
	b = append(b, byte(o.verb))
	b = be.AppendUint16(b, uint16(o.distance))
	return append(b, o.audit.String()...)
}

func readOrigin(b []byte) (origin, error) {
	if len(b) < originFixed {
		return origin{}, errShort
	}
	o := origin{time: int64(be.Uint64(b)), verb: store.Verb(b[8] &^ uuidBit), distance: store.Revision(be.Uint16(b[9:]))}
	if o.distance >= actorReach && o.distance != noActor {
		return origin{}, fmt.Errorf("a distance of %d to its actor", o.distance)
	}
	rest := b[originFixed:]
	switch {
	case b[8]&uuidBit == 0 && len(rest) <= store.MaxAuditID:
		o.audit = store.NewAuditID(string(rest))
	case b[8]&uuidBit != 0 && len(rest) == 16:
		o.audit = store.AuditUUID([16]byte(rest))
	default:
		return origin{}, errShort
	}
	if id, ok := o.audit.UUID(); ok != (b[8]&uuidBit != 0) {
		return origin{}, fmt.Errorf("an audit ID %x in the wrong form", id)
	}
	return o, nil
}

// An actor: checksum over its revision and the rest; then the length, in a byte, and the text of each
// field. The impersonator is there only if it is not empty: earlier versions did not write it.

// firstActorFields is how many fields each definition has.
const firstActorFields = 5

func appendActor(b []byte, h *hasher, r store.Revision, a *store.Actor) []byte {
	start := len(b)
	b = be.AppendUint64(b, 0)
	for i, text := range [...]string{a.User, a.UserAgent, a.FieldManager, a.Subresource, a.Loop, a.Impersonator} {
		if i == firstActorFields && text == "" {
			continue
		}
		text = text[:min(len(text), store.MaxActorField)]
		b = append(append(b, byte(len(text))), text...)
	}
	be.PutUint64(b[start:], h.actor(r, b[start+8:]))
	return b
}

// actor is the checksum of a definition.
func (h *hasher) actor(r store.Revision, content []byte) uint64 {
	b := be.AppendUint64(h.buf[:0], uint64(r))
	b = append(b, content...)
	h.buf = b
	return xxhash.Sum64(b)
}

func readActor(h *hasher, r store.Revision, b []byte) (*store.Actor, error) {
	if len(b) < 8 {
		return nil, errShort
	}
	content := b[8:]
	if h.actor(r, content) != be.Uint64(b) {
		return nil, errChecksum
	}
	a := &store.Actor{}
	for i, field := range [...]*string{&a.User, &a.UserAgent, &a.FieldManager, &a.Subresource, &a.Loop, &a.Impersonator} {
		if i == firstActorFields && len(content) == 0 {
			break
		}
		if len(content) == 0 || len(content) < 1+int(content[0]) {
			return nil, errShort
		}
		n := 1 + int(content[0])
		*field, content = string(content[1:n]), content[n:]
	}
	if len(content) > 0 {
		return nil, errShort
	}
	return a, nil
}

// addOrigin returns the origin of an entry for its header. If the actor has no definition, addOrigin
// adds one to the batch; size is that of its key and record.
func (l *Log) addOrigin(batch *pebble.Batch, e *store.Entry) (o origin, size int, err error) {
	o = origin{time: e.Origin.Time.UnixMicro(), verb: e.Origin.Verb, distance: noActor, audit: e.Origin.AuditID}
	a := e.Origin.Actor
	if a == nil {
		return o, 0, nil
	}
	if at, known := l.actors[a]; known && e.Revision-at < l.o.reach {
		o.distance = e.Revision - at
		return o, 0, nil
	}
	if len(l.actors) >= mostActors {
		clear(l.actors)
	}
	l.actors[a], o.distance = e.Revision, 0
	l.record = appendActor(l.record[:0], &l.hash, e.Revision, a)
	return o, actorKeySize + len(l.record), batch.Set(appendActorKey(nil, e.Revision), l.record, nil)
}

// origin returns the origin of the change with a header, nil if it has none.
func (v *view) origin(r store.Revision, h header) (*store.Origin, error) {
	if h.origin == nil {
		return nil, nil
	}
	o, err := readOrigin(h.origin)
	if err != nil {
		return nil, v.log.damaged(fmt.Sprintf("the origin of revision %d", r), err)
	}
	made := &store.Origin{Time: time.UnixMicro(o.time).UTC(), Verb: o.verb, AuditID: o.audit}
	if o.distance == noActor {
		return made, nil
	}
	made.Actor, err = v.actor(r - o.distance)
	if err != nil {
		return nil, v.log.damaged(fmt.Sprintf("the actor of revision %d, used by revision %d", r-o.distance, r), err)
	}
	return made, nil
}

// actor returns the actor that was defined at a revision.
func (v *view) actor(r store.Revision) (*store.Actor, error) {
	if a := v.actors[r]; a != nil {
		return a, nil
	}
	b, closer, err := v.snap.Get(appendActorKey(nil, r))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, errAbsent
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	a, err := readActor(&v.hash, r, b)
	if err != nil {
		return nil, err
	}
	if v.actors == nil {
		v.actors = map[store.Revision]*store.Actor{}
	} else if len(v.actors) >= mostActors {
		clear(v.actors)
	}
	v.actors[r] = a
	return a, nil
}

// defines returns the size, key and record, of the actor that a change defines; zero if it defines
// none.
func (v *view) defines(r store.Revision, h header) (uint64, error) {
	if h.origin == nil {
		return 0, nil
	}
	if o, err := readOrigin(h.origin); err != nil || o.distance != 0 {
		return 0, err
	}
	b, closer, err := v.snap.Get(appendActorKey(nil, r))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, errAbsent
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	return uint64(actorKeySize + len(b)), nil
}

// forgetActors adds to a batch the removal of the actors that no change above the cut refers to. Those
// of the cut before it are gone.
func (l *Log) forgetActors(batch *pebble.Batch, before, cut store.Revision) error {
	if cut < l.o.reach {
		return nil
	}
	from := store.Revision(0)
	if before >= l.o.reach {
		from = before - l.o.reach + 1
	}
	return batch.DeleteRange(appendActorKey(nil, from), appendActorKey(nil, cut-l.o.reach+1), nil)
}
