package store

import (
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Origin is when, by which verb and by whom a change was made. It is immutable. A field that a log of an
// older format does not have is zero.
type Origin struct {
	// Time is when the change was committed, by Options.Now, in UTC and in whole microseconds.
	// It never decreases from one change of a log to the next, also across restarts and jumps of
	// the clock. On a Shared, the time of a change by another server is when this store read it. Zero: unknown.
	Time time.Time
	// Verb is that of the request. One request can make several changes, which may be of other
	// kinds: an update that removes the last finalizer removes the object.
	Verb Verb
	// Actor is who made the change; nil: unknown. Changes of equal actors usually share one Actor.
	Actor *Actor
	// AuditID is that of the request; zero for a write of the server itself.
	AuditID AuditID
}

// Actor is who makes a change, and how. A field is empty if it is unknown or does not apply.
type Actor struct {
	// User is the name of the user: with impersonation, of the impersonated one.
	User string
	// UserAgent is the header of that name.
	UserAgent string
	// FieldManager is the manager that owns the changed fields; empty for a deletion.
	FieldManager string
	// Subresource is the subresource of the request.
	Subresource string
	// Loop names the part of the server that makes the change without a request of a client: a
	// controller, or "startup". Empty: a client makes it.
	Loop string
	// Impersonator is the name of the user who sent the request as User; empty: no user is impersonated.
	Impersonator string
}

const (
	// MaxActorField bounds each field of an Actor, in bytes. The rest is cut off.
	MaxActorField = 255
	// MaxAuditID bounds an audit ID, in bytes. The rest is cut off.
	MaxAuditID = 64
)

// fields returns pointers to all fields.
func (a *Actor) fields() [6]*string {
	return [...]*string{&a.User, &a.UserAgent, &a.FieldManager, &a.Subresource, &a.Loop, &a.Impersonator}
}

// Verb is the verb of a request that writes.
type Verb uint8

// The verbs. Logs store these numbers.
const (
	VerbUnknown Verb = iota
	VerbCreate
	VerbUpdate
	VerbPatch
	VerbApply
	VerbDelete
	VerbDeleteCollection
)

var verbs = [...]string{"", "create", "update", "patch", "apply", "delete", "deletecollection"}

// String returns the verb as in RBAC, "apply" for server-side apply, and "" for VerbUnknown.
func (v Verb) String() string {
	if int(v) < len(verbs) {
		return verbs[v]
	}
	return fmt.Sprintf("verb %d", uint8(v))
}

// AuditID is the audit ID of a request. Nearly all are UUIDs, which take 16 bytes. AuditIDs can be
// compared with ==.
type AuditID struct {
	uuid [16]byte
	text string // if it is not a UUID
}

// NewAuditID returns an audit ID by its text. It cuts the text off after MaxAuditID bytes.
func NewAuditID(text string) AuditID {
	if u, ok := parseUUID(text); ok {
		return AuditID{uuid: u}
	}
	return AuditID{text: strings.Clone(text[:min(len(text), MaxAuditID)])}
}

// AuditUUID returns the audit ID that is a UUID.
func AuditUUID(u [16]byte) AuditID { return AuditID{uuid: u} }

// UUID returns the bytes of an audit ID that is a UUID.
func (a AuditID) UUID() (u [16]byte, ok bool) { return a.uuid, a.uuid != [16]byte{} }

// String returns the text.
func (a AuditID) String() string {
	if _, ok := a.UUID(); !ok {
		return a.text
	}
	var s [36]byte
	at := 0
	for i, b := range a.uuid {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			s[at] = '-'
			at++
		}
		hex.Encode(s[at:], []byte{b})
		at += 2
	}
	return string(s[:])
}

// parseUUID reads a UUID as String writes it. The UUID of zeros is none.
func parseUUID(s string) (u [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	at := 0
	for i := range u {
		if s[at] == '-' {
			at++
		}
		high, low := digit(s[at]), digit(s[at+1])
		if high > 15 || low > 15 {
			return [16]byte{}, false
		}
		u[i] = high<<4 | low
		at += 2
	}
	return u, u != [16]byte{}
}

// digit is the value of a lower-case hexadecimal digit, above 15 for another character.
func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 16
}

// mostActors bounds each of the two generations of actors.
const mostActors = 2048

// actorOverhead is the memory of an Actor and its place among the shared ones, in bytes, including the allocator's rounding.
const actorOverhead = 256

// actors shares equal actors, so that thousands of changes hold one. Clients choose user agents, so
// it only knows the recent actors: when one generation is full, the one before it is forgotten.
type actors struct {
	mu           sync.Mutex
	last         *Actor
	newer, older map[Actor]*Actor
}

// share returns a shared copy of an actor, within the limits. If it is a new one, bytes is the memory
// that it takes.
func (t *actors) share(a *Actor) (shared *Actor, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != nil && *t.last == *a {
		return t.last, 0
	}
	key := *a
	for _, f := range key.fields() {
		*f = (*f)[:min(len(*f), MaxActorField)]
	}
	if shared = t.newer[key]; shared == nil {
		if shared = t.older[key]; shared == nil {
			shared = new(Actor)
			*shared = key
			bytes = actorOverhead
			for _, f := range shared.fields() {
				*f = strings.Clone(*f) // it may be a part of a request's headers
				bytes += int64(len(*f))
			}
		}
		if t.newer == nil || len(t.newer) == mostActors {
			t.newer, t.older = map[Actor]*Actor{}, t.newer
		}
		t.newer[*shared] = shared
	}
	t.last = shared
	return shared, bytes
}
