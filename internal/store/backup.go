package store

import (
	"context"
	"errors"
	"io"
)

// ErrBackupRunning is the error of BackupSource.Backup while there is another Backup.
var ErrBackupRunning = errors.New("another backup is under way")

// A BackupSource is a storage that can be copied while it is in use.
type BackupSource interface {
	// Backup makes a copy of everything that the storage has. There is one at a time. Errors: ErrBackupRunning;
	// ErrNoSpace, if the medium is nearly full; ErrClosed; errors.ErrUnsupported, if
	// nothing is written to the storage.
	Backup(ctx context.Context) (Backup, error)
	// Verify reads a whole backup, as Backup.Write writes it. It returns an error if something is missing or damaged.
	Verify(ctx context.Context, r io.Reader) error
}

// A Backup is a copy of a storage: each log as of one revision, with its history, and the certificates and keys.
// Its methods are called by one goroutine at a time.
type Backup interface {
	// Write writes the backup as a tar archive.
	Write(ctx context.Context, w io.Writer) error
	// Close removes the copy.
	Close() error
}
