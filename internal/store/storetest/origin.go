package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
)

// someOrigin returns a random origin as a caller of the store gives it, nil now and then.
func someOrigin(chance *rand.Rand) *store.Origin {
	if chance.IntN(8) == 0 {
		return nil
	}
	o := &store.Origin{Verb: store.Verb(1 + chance.IntN(6))}
	if chance.IntN(8) > 0 {
		o.Actor = &store.Actor{User: fmt.Sprint("user-", chance.IntN(4)), UserAgent: fmt.Sprint("agent/", chance.IntN(3))}
		switch chance.IntN(20) {
		case 0:
			o.Actor = &store.Actor{}
		case 1: // a client that tries to fill the tables
			o.Actor.UserAgent = fmt.Sprint(chance.Uint64())
		case 2:
			o.Actor.FieldManager, o.Actor.Subresource = "manager", "status"
		case 3:
			o.Actor.Loop = "garbage-collector"
			o.Actor.Impersonator = "an administrator"
		}
	}
	switch chance.IntN(4) {
	case 0:
		var u [16]byte
		for i := range u {
			u[i] = byte(1 + chance.IntN(255))
		}
		o.AuditID = store.AuditUUID(u)
	case 1:
		o.AuditID = store.NewAuditID(strings.Repeat("t", chance.IntN(store.MaxAuditID+1)))
	}
	return o
}

// caused returns the fields of an origin that a caller sets, as text: all but the time.
func caused(o *store.Origin) string {
	if o == nil {
		return "unknown"
	}
	actor := "no actor"
	if o.Actor != nil {
		actor = fmt.Sprintf("%q", *o.Actor)
	}
	if o.Actor == nil && o.Verb == 0 && o.AuditID == (store.AuditID{}) {
		return "unknown"
	}
	return fmt.Sprintf("%s by %s, %q", o.Verb, actor, o.AuditID)
}

// testOrigin reads origins from memory, back from the log, after a restart and after a compaction.
// The clock goes backwards meanwhile.
func testOrigin(t *testing.T, medium Medium) {
	open := medium(t)
	now := time.Date(2026, 11, 23, 4, 5, 6, 7891, time.UTC)
	clock := func() time.Time { return now }
	s := Open(t, store.Options{Log: open(t), Now: clock})
	start := s.Any().Revision()
	alice := &store.Actor{User: "alice", UserAgent: "kubectl/v1", FieldManager: "kubectl", Subresource: "status"}
	loop := store.Actor{User: "system:apiserver", Loop: "namespace"}
	id := store.NewAuditID("5d8c3c9a-0f0e-4c1e-9c55-0123456789ab")
	write := func(w store.Write, o *store.Origin) store.Revision {
		w.Origin = o
		return mustCommit(t, s, w).Modified
	}
	a := write(put("pods", "ns/a", "1", 0), &store.Origin{Verb: store.VerbCreate, Actor: alice, AuditID: id})
	now = now.Add(time.Second)
	a = write(put("pods", "ns/a", "2", a), &store.Origin{Verb: store.VerbApply, Actor: alice, AuditID: store.NewAuditID("mine")})
	now = now.Add(-time.Hour) // the time of the next change does not follow
	write(del("pods", "ns/a", a), &store.Origin{Verb: store.VerbDelete, Actor: &loop})
	write(put("pods", "ns/b", "3", 0), nil)
	alice.User = "mallory" // the store has a copy
	second := time.Date(2026, 11, 23, 4, 5, 7, 7000, time.UTC)
	alice.User = "alice"
	want := []store.Origin{
		{Time: second.Add(-time.Second), Verb: store.VerbCreate, Actor: alice, AuditID: id},
		{Time: second, Verb: store.VerbApply, Actor: alice, AuditID: store.NewAuditID("mine")},
		{Time: second, Verb: store.VerbDelete, Actor: &loop},
		{Time: second},
	}
	checkOrigins(t, s, start, want)
	floor, _ := s.Bounds()
	if floor > start {
		t.Fatalf("the floor is %d, above %d", floor, start)
	}
	for range 2 {
		Close(t, s)
		s = Open(t, store.Options{Log: open(t), Now: clock})
		checkOrigins(t, s, start, want)
	}
	last := mustCommit(t, s, put("pods", "ns/c", "4", 0))
	c, err := s.Watch("pods", "", last.Modified-1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := drain(t, c, make([]*store.Change, 1)); len(got) != 1 || got[0].Origin().Time != second {
		t.Errorf("after a restart with a clock that went backwards, the time is %v, want %v", got[0].Origin().Time, second)
	}
}

// checkOrigins compares the origins of the changes of pods after a revision, as a cursor and a feed
// read them.
func checkOrigins(t *testing.T, s *store.Store, after store.Revision, want []store.Origin) {
	t.Helper()
	c, err := s.Watch("pods", "", after)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := drain(t, c, make([]*store.Change, 3))
	f, err := s.Feed(after)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := make([]store.CollectionChange, len(want))
	n, err := f.TryNext(t.Context(), all)
	if err != nil || n != len(want) || len(got) != len(want) {
		t.Fatalf("%d and %d changes, %v, want %d", len(got), n, err, len(want))
	}
	for i := range want {
		for _, o := range []store.Origin{got[i].Origin(), all[i].Origin()} {
			if o.Time != want[i].Time || caused(&o) != caused(&want[i]) {
				t.Errorf("change %d: got %v %s, want %v %s", i, o.Time, caused(&o), want[i].Time, caused(&want[i]))
			}
		}
	}
}

// testOriginLimits has clients that send long and ever new user agents.
func testOriginLimits(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	start := s.Any().Revision()
	long := strings.Repeat("x", 10*store.MaxActorField)
	for i := range 3 {
		w := put("pods", fmt.Sprint("long-", i), "", 0)
		w.Origin = &store.Origin{Actor: &store.Actor{User: long, UserAgent: long, FieldManager: long, Subresource: long, Loop: long, Impersonator: long},
			AuditID: store.NewAuditID(long)}
		mustCommit(t, s, w)
	}
	c, err := s.Watch("pods", "", start)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cut := long[:store.MaxActorField]
	got := drain(t, c, make([]*store.Change, 8))
	if len(got) != 3 {
		t.Fatalf("%d changes", len(got))
	}
	o := got[0].Origin()
	if want := (store.Actor{User: cut, UserAgent: cut, FieldManager: cut, Subresource: cut, Loop: cut, Impersonator: cut}); *o.Actor != want {
		t.Errorf("fields of %d bytes: got %d", len(long), len(o.Actor.User))
	}
	if got := o.AuditID.String(); got != long[:store.MaxAuditID] {
		t.Errorf("an audit ID of %d bytes: got %d", len(long), len(got))
	}
	if second := got[1].Origin(); second.Actor != o.Actor {
		t.Error("changes of equal actors hold two of them")
	}

	before := s.Stats().HistoryBytes
	const writes, name = 100, 200
	for i := range writes {
		w := put("pods", fmt.Sprint("new-", i), "", 0)
		w.Origin = &store.Origin{Actor: &store.Actor{UserAgent: fmt.Sprintf("%0*d", name, i)}}
		mustCommit(t, s, w)
	}
	if grown := s.Stats().HistoryBytes - before; grown < writes*name {
		t.Errorf("%d new actors of %d bytes count %d bytes in history", writes, name, grown)
	}
	grows := func(id string) int64 {
		before := s.Stats().HistoryBytes
		for i := range writes {
			w := put("pods", fmt.Sprintf("id-%s-%d", id[:1], i), "", 0)
			w.Origin = &store.Origin{AuditID: store.NewAuditID(id)}
			mustCommit(t, s, w)
		}
		return s.Stats().HistoryBytes - before
	}
	uuids, texts := grows("5d8c3c9a-0f0e-4c1e-9c55-0123456789ab"), grows(strings.Repeat("x", store.MaxAuditID))
	if got := texts - uuids; got < writes*store.MaxAuditID {
		t.Errorf("%d audit IDs of %d bytes that are no UUIDs count %d bytes in history", writes, store.MaxAuditID, got)
	}
}

// testForkTimes forks a store whose clock is ahead of the fork's.
func testForkTimes(t *testing.T, medium Medium, log ForkLog) {
	ahead := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := Open(t, store.Options{Log: medium(t)(t), Now: func() time.Time { return ahead }})
	mustCommit(t, s, put("pods", "ns/a", "1", 0))
	if got := s.Any().Time(); got != ahead {
		t.Errorf("the state is of %v, want %v", got, ahead)
	}
	f, err := stores.Fork(s, s.Any(), store.Options{Log: log(s.Any(), s.Any().Revision(), nil), Now: func() time.Time { return ahead.Add(-time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	defer Close(t, f)
	after := f.Any().Revision()
	mustCommit(t, f, put("pods", "ns/b", "2", 0))
	checkOrigins(t, f, after, []store.Origin{{Time: ahead}})
}
