package store

import (
	"cmp"
	"time"
)

// Options configure a store. The zero value works, but for Log or Shared.
type Options struct {
	// Log is the log of a store that is its only writer; Shared is one that others append to as
	// well. One of them is set.
	Log    Log
	Shared Shared

	// Retention is how long a revision can be read after a newer one replaced it,
	// in running time; zero means DefaultRetention. On a Shared it bounds the history in memory
	// alone: the log has a compaction of its own.
	Retention time.Duration
	// MaxMemory bounds the bytes that history holds in memory: replaced versions,
	// changes, tree nodes that only old states use, states that readers pinned, and
	// caches (see Charge). Zero means DefaultMaxMemory.
	MaxMemory int64
	// MaxDisk bounds Usage.HistoryBytes of a Log; zero means DefaultMaxDisk.
	MaxDisk int64

	// Packed are the collections whose large objects are held compressed because they are
	// seldom read. Object.Bytes unpacks them.
	Packed map[string]bool

	// Encryption is set if the log encrypts values; nil: it does not.
	Encryption Encryption

	// Now is the clock; nil means time.Now. It gives changes their Origin.Time, and measures the
	// age of revisions. For that, only differences between two calls in one process count, by the
	// monotonic reading where there is one. Timers and pauses use package time.
	Now func() time.Time

	// Note is called with messages for an operator about space, and pairs of names and
	// values. A warning may need action. Note must not call the store. Nil discards the
	// messages.
	Note func(warning bool, message string, pairs ...any)

	// Account is the account of a fork in the budget of all forks; nil: there is no such budget. The store closes
	// it, unless Open or Fork fails.
	Account *Account

	// OnDivergence is called once when the state is no longer the one that a fork began with, in a goroutine of its
	// own: after the first write, or by Open if the log is beyond Base. Nil: it is not called. The store compacts
	// nothing before.
	OnDivergence func()
	// Base is the revision that the log of a fork began with. Fork ignores it.
	Base Revision

	// OnFatal is called once if the log failed and no more writes can be acknowledged, or if a
	// Shared was reset (ErrReset), so that the state is void. The process has to end. Nil panics.
	OnFatal func(error)
}

// Encryption has the methods of a log that encrypts values, besides those of Log. All methods are safe for concurrent
// use.
type Encryption interface {
	// Writable returns why the log cannot store a write at present, or nil: it cannot encrypt, or
	// the record of the version that the write replaces is damaged. Append must not fail for
	// these reasons, since a failed Append ends the process. Writable may read from the medium.
	Writable(w *Write) error
	// Outdated reports whether the log would encrypt an object in another way now than it did
	// when it stored the current version. It may read that version from the medium.
	Outdated(collection, key string) bool
}

// Defaults of Options; sizes in bytes.
const (
	DefaultRetention = time.Hour
	DefaultMaxMemory = 128 << 20
	DefaultMaxDisk   = 4 << 30
)

func (o *Options) setDefaults() {
	o.Retention = cmp.Or(o.Retention, DefaultRetention)
	o.MaxMemory = cmp.Or(o.MaxMemory, DefaultMaxMemory)
	o.MaxDisk = cmp.Or(o.MaxDisk, DefaultMaxDisk)
	if o.Note == nil {
		o.Note = func(bool, string, ...any) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// leastPacked is the least number of bytes for which packing pays.
const leastPacked = 4 << 10

// packs reports whether an object of a collection is packed.
func (o *Options) packs(collection string, size int) bool {
	return size >= leastPacked && o.Packed[collection]
}
