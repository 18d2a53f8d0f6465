package store

import (
	"context"
	"iter"
	"time"
)

// ForkLogs keeps the logs of forks, each with its name, a DNS label, and with facts, which it does not interpret.
// The methods are safe for concurrent use for different names. All but List are called for one fork at a time.
type ForkLogs interface {
	// List returns the facts of all forks by their names. It opens no log. It removes the files that Create or Delete left
	// when the process ended in them, so it is called once, before the others.
	List() (map[string][]byte, error)
	// Create makes the log of a fork. When it returns nil, the fork is durable. Otherwise there is none. ErrNoSpace:
	// the medium is nearly full.
	Create(ctx context.Context, name string, facts []byte, begin Beginning) error
	// Open opens the log of a fork. The caller closes it before the log of the server.
	Open(ctx context.Context, name string) (Log, error)
	// Delete removes a fork whose log is closed. When it returns nil, the fork is gone permanently; its files may be
	// removed later.
	Delete(name string) error
}

// Beginning is the state that a log begins with.
type Beginning struct {
	Revision Revision
	// Time is Bounds.Time.
	Time time.Time
	// Objects yields the objects with their collections. They are stored as they are.
	Objects iter.Seq2[string, *Object]
	// Err returns the error that ended Objects early; nil: it never ends early.
	Err func() error
}
