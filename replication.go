package tidemark

import (
	"net/http"
	"time"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// replicationTime is how long a stream of changes lasts at most. A follower then asks for another one.
const replicationTime = time.Hour

// replication returns the paths for followers. A follower begins with a backup, so a server without a data directory
// has none.
func (w *World) replication() []httpapi.Mount {
	if _, ok := w.server.Storage.(store.BackupSource); !ok || w.server.At != 0 {
		return nil
	}
	s := replication.NewServer(w.store)
	s.Check = replication.CheckObjects
	return []httpapi.Mount{
		{Path: replication.Path + "/head", Handler: http.HandlerFunc(s.ServeHead)},
		{Path: replication.Path + "/changes", Stream: true, Timeout: replicationTime, Handler: http.HandlerFunc(s.ServeChanges)},
		{Path: replication.Path + "/transactions", BodyBytes: replication.MaxTransaction, Handler: http.HandlerFunc(s.ServeTransaction)},
	}
}

// followerMetrics returns how far the server is behind the one that it follows.
func (r *running) followerMetrics() []httpapi.Metric {
	log, ok := r.shared.(interface{ Lag() replication.Lag })
	if !ok {
		return nil
	}
	lag, connected := log.Lag(), 0.0
	if lag.Connected {
		connected = 1
	}
	return []httpapi.Metric{
		{
			Name:  "tidemark_follower_lag_seconds",
			Help:  "For how long the server has not had all changes of the server that it follows; 0 if it has them.",
			Value: lag.Time.Seconds(),
		},
		{
			Name:  "tidemark_follower_lag_revisions",
			Help:  "How many revisions the server that it follows is known to be ahead.",
			Value: float64(lag.Revisions),
		},
		{
			Name:  "tidemark_follower_connected",
			Help:  "Whether the server that it follows sends its changes.",
			Value: connected,
		},
	}
}
