package tidemark

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/peers"
	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/storage"
)

// replicationTime is how long a stream of changes lasts at most. A follower then asks for another one.
const replicationTime = time.Hour

// replication returns the paths for followers. A follower begins with a backup, so a server without a data directory
// has none.
func (w *World) replication() []httpapi.Mount {
	if w.running.storage.Backups == nil {
		return nil
	}
	s := replication.NewServer(w.store)
	s.Check = checkTransaction
	s.Facts = func() (map[string]string, error) {
		facts, err := w.server.facts(w.running)
		return peers.Values(facts), err
	}
	return []httpapi.Mount{
		{Path: replication.Path + "/head", Handler: http.HandlerFunc(s.ServeHead)},
		{Path: replication.Path + "/changes", Stream: true, Timeout: replicationTime, Handler: http.HandlerFunc(s.ServeChanges)},
		{Path: replication.Path + "/transactions", BodyBytes: replication.MaxTransaction, Handler: http.HandlerFunc(s.ServeTransaction)},
	}
}

// factsPause is the pause between two attempts to reach the server for its facts.
const factsPause = 5 * time.Second

// checkFollowed returns an error if the server that this one follows differs in what servers must have in common. If it
// cannot be reached, checkFollowed compares them later, in the background; a difference then ends this server.
func (w *World) checkFollowed(ctx context.Context, own []peers.Fact) error {
	s, followed := w.server, w.running.storage.Followed
	differs, asked := followedDiffers(ctx, followed, own)
	if asked || ctx.Err() != nil {
		return errors.Join(differs, ctx.Err())
	}
	w.background.Go(func() {
		for {
			select {
			case <-time.After(factsPause):
			case <-w.ending.Done():
				return
			}
			if differs, asked := followedDiffers(w.ending, followed, own); asked {
				if differs != nil {
					s.fail(differs)
				}
				return
			}
		}
	})
	return nil
}

// followedDiffers returns an error if the server that is followed differs. asked reports whether it has responded.
func followedDiffers(ctx context.Context, followed *storage.Followed, own []peers.Fact) (differs error, asked bool) {
	theirs, err := followed.Facts(ctx)
	if apierrors.ReasonForError(err) == metav1.StatusReasonForbidden {
		return fmt.Errorf("the server %s, which this one follows: %w", followed.URL, err), true
	}
	if err != nil {
		return nil, false // the log of the follower has the reason
	}
	for _, f := range own {
		if value, ok := theirs[f.Name]; ok && !f.Agrees(value) {
			return fmt.Errorf("the server %s, which this one follows, has %s", followed.URL, f.Difference(value)), true
		}
	}
	return nil, true
}

// maxFollowerLag is the lag up to which a connected follower authorizes reads of older versions and watches by its copy.
// It never does so for other requests: see httpapi.Config.Behind.
const maxFollowerLag = 10 * time.Second

// behind reports whether the world, if its objects are the copy of a follower, is too far behind; nil: it is no copy. While
// the server cannot be reached, reads of the copy go on.
func (w *World) behind() func() bool {
	followed := w.running.storage.Followed
	if followed == nil || w.fork != nil {
		return nil
	}
	return func() bool {
		lag := followed.Lag()
		return lag.Connected && lag.Time > maxFollowerLag
	}
}

// followerMetrics returns how far the server is behind the one that it follows.
func (r *running) followerMetrics() []httpapi.Metric {
	if !r.follows() {
		return nil
	}
	lag, connected := r.storage.Followed.Lag(), 0.0
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
