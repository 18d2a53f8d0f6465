package world

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// backupPath is where clients get a backup: docs/how-to/restart-and-backup.md. The root world authorizes the requests.
const backupPath = "/backup"

// backupTime is how long a backup may take, with the time in which the client reads it. Meanwhile there is no other, and
// the disk has the files that the logs have dropped since.
const backupTime = time.Hour

func (p *process) backupTime() time.Duration { return cmp.Or(p.BackupTime, backupTime) }

// serveBackup responds with a backup of the data directory. The user may get it.
func (s *Server) serveBackup(rw http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet || q.URL.Path != backupPath {
		fail(rw, http.StatusMethodNotAllowed, "a backup is made with GET "+backupPath)
		return
	}
	if s.process.storage.Backups == nil {
		why := "its objects are in memory only, or in etcd, which makes its own backups"
		switch {
		case s.process.follows():
			why = "it follows " + s.process.storage.Followed.URL + ": use that server"
		case s.process.At != 0:
			why = "it begins with an older state, and keeps changes in memory: copy the directory of that"
		}
		fail(rw, http.StatusNotImplemented, "the server has no data directory to back up: "+why)
		return
	}
	b, err := s.beginBackup(q.Context())
	switch {
	case errors.Is(err, store.ErrBackupRunning):
		rw.Header().Set("Retry-After", strconv.Itoa(backupRetrySeconds))
		fail(rw, http.StatusTooManyRequests, err.Error()+", please try again later")
		return
	case errors.Is(err, store.ErrNoSpace):
		fail(rw, http.StatusInsufficientStorage, err.Error())
		return
	case errors.Is(err, context.DeadlineExceeded):
		fail(rw, http.StatusGatewayTimeout, "the backup was not made in the time that it may take")
		return
	case errors.Is(err, errors.ErrUnsupported):
		fail(rw, http.StatusNotImplemented, err.Error())
		return
	case err != nil:
		fail(rw, http.StatusInternalServerError, "backup: "+err.Error())
		return
	}
	defer func() {
		if err := b.Close(); err != nil {
			s.process.note(true, "the files of a backup were not removed", "error", err)
		}
	}()
	rw.Header().Set("Content-Type", "application/x-tar")
	rw.Header().Set("Cache-Control", "no-store")
	if err := b.Write(q.Context(), rw); err != nil {
		s.process.note(true, "a backup was broken off", "error", err)
		panic(http.ErrAbortHandler) // the client must not take it for a whole one
	}
}

// beginBackup makes a copy of the storage.
func (s *Server) beginBackup(ctx context.Context) (store.Backup, error) {
	// The key of service account tokens is made when it is needed first: a copy must have the same one.
	if _, _, err := s.process.keys.KeyIDs(); err != nil {
		return nil, err
	}
	return s.process.storage.Backups.Backup(ctx)
}

// backupRetrySeconds is the Retry-After while another backup is under way.
const backupRetrySeconds = 10
