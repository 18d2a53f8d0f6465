package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// # Transactions
//
// A transaction is one or more writes that the store makes together or not at all. On a Log, its
// conditions are decided on the newest state, under the lock of their writer, in O(log n) each. On a
// Shared, the log decides them.
//
//	Write.If   the object that is written is at this revision
//	Need       another object is at this revision
//	Guard      no other transaction has claimed a name since this revision
//
// A transaction that fails changes nothing, and the error is returned once everything that
// it rests on is published: the caller decides again by the state that is there then.
//
// On a Shared, all three are comparisons of the revisions of keys, and a guard is a key of its own.

// Txn is a transaction.
type Txn struct {
	// Writes are made in this order, at least one and at most MaxTxnWrites. On a Log, each has a
	// revision of its own. On a Shared, all may have the same one.
	Writes []Write
	// Needs and Guards are further conditions.
	Needs  []Need
	Guards []Guard
	// Times gets when the log wrote the transaction; nil: the caller does not need it.
	Times *LogTimes
}

// LogTimes is when the log wrote a group of transactions: it appended them and made them durable. The zero value: it
// did not.
type LogTimes struct {
	Began, Ended time.Time
	// Writes and Bytes are those of the group, as in the metrics of the log.
	Writes, Bytes int
}

const (
	// MaxTxnWrites limits the writes and the needs of a transaction.
	MaxTxnWrites = 1024
	// MaxTxnGuards limits its guards.
	MaxTxnGuards = 1 << 16
)

// Need is the condition that an object which the transaction does not write is still the
// one that it was decided by.
type Need struct {
	Collection, Key string
	// Modified is the revision of that object; zero: there is none.
	Modified Revision
}

// Guard orders the transactions that claim something which is not the key of an object, such
// as a port number or a name in a status. On a Log, guards live in memory: after a restart no
// transaction is under way.
type Guard struct {
	Name string
	// Seen is the revision of the state that the transaction was decided by. It fails if
	// another transaction has claimed the name at a later revision.
	Seen Revision
	// Claim: the transaction claims the name.
	Claim bool
}

// ErrStale: a need or a guard of a transaction does not hold. Nothing was written; the
// transaction may be decided again by a newer state.
var ErrStale = errors.New("the transaction was decided by a state that has changed")

// TxnError says which condition of a transaction does not hold. It wraps ErrExists,
// ErrNotFound or ErrConflict for a write; ErrStale for a need, for a guard, and for a write of
// an object that the transaction writes before.
type TxnError struct {
	Part TxnPart
	// Index is in Txn.Writes, Txn.Needs or Txn.Guards. On a Shared it is zero for all guards: the log does not report which
	// one does not hold.
	Index int
	Err   error
}

// TxnPart is a part of a transaction.
type TxnPart uint8

// The parts of a transaction.
const (
	WritePart TxnPart = iota
	NeedPart
	GuardPart
)

func (e *TxnError) Error() string {
	return fmt.Sprintf("%s %d: %v", [...]string{"write", "need", "guard"}[e.Part], e.Index, e.Err)
}

func (e *TxnError) Unwrap() error { return e.Err }

// Check returns an error when no log can keep the transaction: an *UnfitError for a cause that can
// follow from the request of a client, another error for a mistake of the caller. Apply begins with
// it, before the transaction joins a group; a dry-run calls it alone.
func (t *Txn) Check() error {
	switch n := len(t.Writes); {
	case n == 0:
		return errors.New("a transaction has no writes")
	case n > MaxTxnWrites:
		return TooManyWrites(t.Writes[0].Key, n)
	}
	if len(t.Needs) > MaxTxnWrites || len(t.Guards) > MaxTxnGuards {
		return fmt.Errorf("a transaction has at most %d needs and %d guards, not %d and %d", MaxTxnWrites, MaxTxnGuards, len(t.Needs), len(t.Guards))
	}
	for i := range t.Writes {
		w := &t.Writes[i]
		if w.Next && (i == 0 || !t.Writes[i-1].makes(w.Collection, w.Key)) {
			return errors.New("a write that follows another one of its object stands directly behind it")
		}
		if err := w.Check(); err != nil {
			return err
		}
	}
	return nil
}

// TooManyWrites returns the error of a transaction that begins with the write of a key and has more than MaxTxnWrites.
func TooManyWrites(key string, writes int) error {
	return &UnfitError{Key: key, Parts: true, Why: fmt.Sprintf("the transaction has %d writes: want at most %d", writes, MaxTxnWrites)}
}

// repeated returns a write of an object that another write of the transaction changes, too, -1
// if there is none. A write with Next is none.
func (t *Txn) repeated() int {
	if len(t.Writes) == 1 {
		return -1
	}
	seen := make(map[[2]string]bool, len(t.Writes))
	for i := range t.Writes {
		w := &t.Writes[i]
		if p := [2]string{w.Collection, w.Key}; w.Next {
			continue
		} else if seen[p] {
			return i
		} else {
			seen[p] = true
		}
	}
	return -1
}

func (w *Write) makes(collection, key string) bool {
	return w.Value != nil && w.Collection == collection && w.Key == key
}

// Limits that every log supports, in bytes. The log does not check these again: a violation
// there is fatal.
const (
	// MaxKey bounds a collection's name, and the key of a new object.
	MaxKey = 4 << 10
	// MaxValue bounds the value of an object. It is far above the size of a request,
	// and far below the 4 GiB that a batch of Pebble holds.
	MaxValue = 64 << 20
)

// Check is Txn.Check of one write.
func (w *Write) Check() error {
	switch {
	case w.Collection == "":
		return errors.New("a write needs a collection")
	case w.Value == nil && w.If == 0 && !w.Next:
		return errors.New("a deletion needs the revision of what it deletes")
	case w.Next && w.If != 0:
		return errors.New("a write that follows another one has no revision to name")
	case w.Key == "":
		return w.unfit("a key is not empty", false)
	case strings.IndexByte(w.Key, 0) >= 0:
		return w.unfit("a key has no zero byte", false)
	case strings.IndexByte(w.Collection, 0) >= 0 || len(w.Collection) > MaxKey:
		return w.unfit(fmt.Sprintf("the collection's name has a zero byte or more than %d bytes", MaxKey), false)
	case len(w.Key) > MaxKey && w.If == 0: // an older server may have stored longer ones
		return w.unfit(fmt.Sprintf("a key has at most %d bytes", MaxKey), false)
	case len(w.Value) > MaxValue:
		return w.unfit(fmt.Sprintf("a value has at most %d bytes", MaxValue), true)
	case w.Value != nil && (w.RevisionAt < 0 || w.RevisionAt > len(w.Value)):
		return fmt.Errorf("RevisionAt is %d in a value of %d bytes", w.RevisionAt, len(w.Value))
	}
	return nil
}

func (w *Write) unfit(why string, size bool) error {
	const shown = 64 // bytes
	return &UnfitError{Key: w.Key[:min(len(w.Key), shown)], Why: why, Size: size}
}

// Holds compares the conditions of a transaction with the objects of a state: those of its writes and its needs. The state has
// no guards.
func (t *Txn) Holds(object func(collection, key string) *Object) error {
	for i := range t.Writes {
		w := &t.Writes[i]
		if w.Next {
			continue
		}
		if err := CheckCondition(object(w.Collection, w.Key), w.If); err != nil {
			return &TxnError{WritePart, i, err}
		}
	}
	return CheckNeeds(t.Needs, object)
}

// NeedsHold returns a *TxnError if a need of the transaction does not hold in a state.
func (t *Txn) NeedsHold(s *State) error { return CheckNeeds(t.Needs, s.Get) }

// CheckNeeds returns a *TxnError if one of the needs does not hold for the objects of a state.
func CheckNeeds(needs []Need, object func(collection, key string) *Object) error {
	for i := range needs {
		n := &needs[i]
		if o := object(n.Collection, n.Key); o == nil && n.Modified != 0 || o != nil && o.Modified != n.Modified {
			return &TxnError{NeedPart, i, ErrStale}
		}
	}
	return nil
}

// CheckCondition compares the condition of a write, Write.If, with the object that it would replace.
func CheckCondition(before *Object, condition Revision) error {
	switch {
	case condition == 0 && before != nil:
		return ErrExists
	case condition != 0 && before == nil:
		return ErrNotFound
	case condition != 0 && before.Modified != condition:
		return ErrConflict
	}
	return nil
}

// A Write is one conditional change of one object.
type Write struct {
	Collection string
	Key        string

	// Value holds the object's bytes without the digits of its resource version,
	// which the store inserts at RevisionAt once it has given the write its
	// revision. Nil deletes the object. The store keeps no reference to it.
	Value      []byte
	RevisionAt int

	// Deleting marks a step of a deletion, such as setting the deletion timestamp. It is
	// exempt from the quota, and a full log stores it in the space reserved for deletions.
	Deleting bool

	// If is the revision that the object must have. Zero: the object must be absent.
	If Revision
	// Origin is how and by whom the write is made; nil: unknown. The store sets Origin.Time
	// itself. It keeps no reference to the Origin nor to its Actor.
	Origin *Origin

	// Next: the write changes the object that the write directly before it in the transaction makes.
	// If is zero then.
	Next bool
}
