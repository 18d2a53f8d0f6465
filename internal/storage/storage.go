// Package storage says what a server gets when it opens the place of its objects: a log, and what else the place can do.
package storage

import (
	"context"
	"time"

	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Options is what the server gives to a place that it opens.
type Options struct {
	// Encryption encrypts values. A log that is Opened.Shared owns it. The server applies it to Opened.Log, and
	// closes it if the place cannot be opened.
	Encryption *encryption.Active
	// StandIns selects the values of a Followed place that are replaced if they cannot be decrypted.
	StandIns encryption.StandIns
}

// Opened is a place that is open. A function or an interface that is nil is something that the place cannot do. All
// functions are valid until the log is closed, and safe for concurrent use.
type Opened struct {
	// Log is a log of this server alone, Shared one that other servers append to as well. One of them is set. The server
	// closes it.
	Log    store.Log
	Shared store.Shared
	// Head is the newest revision of Log.
	Head store.Revision
	// Encryption is set if Shared encrypts values.
	Encryption store.Encryption

	// Dir is a directory for the other files of the server, such as its certificate authority. The lock of the log guards
	// it too. Empty: these files are not kept.
	Dir string
	// Usable returns why nothing can be written any more, such as a directory that was replaced, or nil.
	Usable func() error
	// Forks keeps forks.
	Forks store.ForkLogs
	// Backups copies the place while it is in use.
	Backups store.BackupSource
	// Keep leaves a copy of a state of Shared for the next start, which then is sooner. It has until the end of the context.
	Keep func(context.Context, *store.State) error
	// Members returns the processes that hold Shared together.
	Members func(context.Context) []store.Member
	// HealthTimeout and ReadyTimeout are how long the health checks etcd and etcd-readiness wait for Shared. Zero: there
	// is no Shared.
	HealthTimeout, ReadyTimeout time.Duration
	// Followed is the server whose objects Shared has a copy of; nil: it is no copy.
	Followed *Followed
}

// Followed is a server that another one follows. It runs the controllers, and makes the objects that every server has.
type Followed struct {
	// URL is the address of the server.
	URL string
	// Lag returns how far the copy is behind.
	Lag func() replication.Lag
	// Facts returns what the two servers must have in common. The server responds with them.
	Facts func(context.Context) (map[string]string, error)
	// Unread returns the error about the values of the copy that cannot be decrypted, or nil. It is for use after the load.
	Unread func() error
}
