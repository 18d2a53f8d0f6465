package tidemark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/backups"
	"github.com/tidemark-dev/tidemark/internal/cron"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/world"
)

// Storage is where a server keeps its objects: a *datadir.Dir, an *etcdstore.Cluster or a *follower.Copy. Only this module
// can implement it, because its method has types of internal packages. Other programs can wrap one of these.
type Storage interface {
	// Open opens the log, and locks it against other processes. Start calls it once; the server closes the log.
	Open(ctx context.Context, o storage.Options) (*storage.Opened, error)
}

// History limits how much history clients can read: watch from, list at an exact resource
// version, page through. The response to requests for older versions is 410 Gone.
type History struct {
	// Retention is how long a replaced state stays readable, counted while the
	// server runs; zero: an hour.
	Retention time.Duration
	// MaxDiskBytes limits the size of history in the storage; zero: 4 GiB. All kept forks together have as much again.
	// Etcd keeps its history until its compaction, whatever the limit.
	MaxDiskBytes int64
}

// Memory limits the memory of a server, about. Forks have limits of their own: see Forks.
type Memory struct {
	// MaxObjectBytes limits the memory that the current objects use: their bytes and a few hundred for each. At the
	// limit, the server refuses writes that grow objects with 507; reads, deletions and other writes succeed. Zero: half
	// of what remains of the process's memory limit (GOMEMLIMIT, its control groups, the machine) after MaxHistoryBytes,
	// at least 64 MiB. Negative: no limit.
	MaxObjectBytes int64
	// MaxHistoryBytes limits the memory for history; the rest is read from the storage. Zero: 128 MiB.
	MaxHistoryBytes int64
	// MaxRepresentationBytes limits the cache of representations that clients share:
	// compressed lists, and objects as protobuf, CBOR and table rows. It is a part of the memory for
	// history. Zero: three quarters of MaxHistoryBytes, 96 MiB if that is zero too.
	MaxRepresentationBytes int64
}

// Encryption encrypts objects at rest. docs/how-to/encrypt-secrets.md shows how.
type Encryption struct {
	// ProviderConfigFile is an EncryptionConfiguration of apiserver.config.k8s.io/v1, as
	// kube-apiserver reads it: which resources are encrypted, and with which keys. Empty: nothing
	// is encrypted. A file that lacks the key of a stored object is refused.
	ProviderConfigFile string
	// AutomaticReload reads the file again when it changes. A changed file that is invalid, or
	// that lacks a key, is refused, and the one before stays in effect. False: it is read once.
	AutomaticReload bool
}

// Check returns an error if there is no file to reload. It opens no file.
func (e *Encryption) Check() error {
	if e.AutomaticReload && e.ProviderConfigFile == "" {
		return errors.New("the encryption configuration is to be reloaded, and no file of it is given")
	}
	return nil
}

// DefaultBackupKeep is how many backups of the schedule are kept by default.
const DefaultBackupKeep = 5

// leastBackupPause is the shortest pause between two backups of a schedule.
const leastBackupPause = time.Minute

// Backups makes backups on a schedule, which Dir.Restore of package datadir takes. The zero value makes none. They need a
// Storage with a data directory. A server that follows another one makes none: that one does.
type Backups struct {
	// Schedule is when to make them: five fields of cron in local time, or @hourly, @daily, @weekly, @monthly, @every and
	// a duration of a minute or more. "TZ=Europe/Berlin " before it is a time zone. Empty: none are made.
	Schedule string
	// Place is where they are kept, such as a *backups.Folder. The server opens and closes it. Nil without a
	// Schedule alone.
	Place backups.Place
	// Keep is how many are kept; zero: DefaultBackupKeep; negative: all.
	Keep int
	// MaxAge is how long they are kept; zero: for ever. The newest one is always kept.
	MaxAge time.Duration
}

// Check returns an error if the fields are not valid.
func (b *Backups) Check() error {
	_, err := b.schedule()
	return err
}

// schedule returns the schedule; nil: there is none.
func (b *Backups) schedule() (*cron.Schedule, error) {
	switch {
	case b.Schedule == "" && b.Place == nil:
		return nil, nil
	case b.Schedule == "":
		return nil, errors.New("a place for backups without a schedule: say when to make them, as @daily")
	case b.Place == nil:
		return nil, errors.New("a schedule of backups without a place: name a folder or a bucket")
	case b.MaxAge < 0:
		return nil, fmt.Errorf("backups cannot be kept for %v", b.MaxAge)
	}
	s, err := cron.Parse(b.Schedule)
	if err != nil {
		return nil, fmt.Errorf("the schedule of backups %q: %w; want five fields such as \"0 */6 * * *\", or @hourly, @daily, @every 6h", b.Schedule, err)
	}
	first := s.Next(time.Now())
	if first.IsZero() {
		return nil, fmt.Errorf("the schedule of backups %q has no time in the next years", b.Schedule)
	}
	if s.Next(first).Sub(first) < leastBackupPause {
		return nil, fmt.Errorf("the schedule of backups %q: want a pause of %v or more", b.Schedule, leastBackupPause)
	}
	return s, nil
}

func (b *Backups) config() (world.Backups, error) {
	schedule, err := b.schedule()
	return world.Backups{Schedule: schedule, Text: b.Schedule, Place: b.Place, Keep: max(cmp.Or(b.Keep, DefaultBackupKeep), 0), MaxAge: b.MaxAge}, err
}
