package tidemark

import (
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

// serveBackup answers with a backup of the data directory. The user may get it.
func (r *running) serveBackup(rw http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet || q.URL.Path != backupPath {
		fail(rw, http.StatusMethodNotAllowed, "a backup is made with GET "+backupPath)
		return
	}
	if r.storage.Backups == nil {
		why := "its objects are in memory only, or in etcd, which makes its own backups"
		switch {
		case r.follows():
			why = "it follows " + r.storage.Followed.URL + ": use that server"
		case r.root.server.At != 0:
			why = "it begins with an older state, and keeps changes in memory: copy the directory of that"
		}
		fail(rw, http.StatusNotImplemented, "the server has no data directory to back up: "+why)
		return
	}
	s, err := r.beginBackup(q.Context())
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
		if err := s.Close(); err != nil {
			r.root.server.note(true, "the files of a backup were not removed", "error", err)
		}
	}()
	rw.Header().Set("Content-Type", "application/x-tar")
	rw.Header().Set("Cache-Control", "no-store")
	if err := s.Write(q.Context(), rw); err != nil {
		r.root.server.note(true, "a backup was broken off", "error", err)
		panic(http.ErrAbortHandler) // the client must not take it for a whole one
	}
}

// beginBackup makes a copy of the storage.
func (r *running) beginBackup(ctx context.Context) (store.Backup, error) {
	// The key of service account tokens is made when it is needed first: a copy must have the same one.
	if _, _, err := r.keys.KeyIDs(); err != nil {
		return nil, err
	}
	return r.storage.Backups.Backup(ctx)
}

// backupRetrySeconds is the Retry-After while another backup is under way.
const backupRetrySeconds = 10
