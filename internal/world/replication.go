package world

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
	if w.process.storage.Backups == nil {
		return nil
	}
	s := replication.NewServer(w.store)
	s.Check = checkTransaction
	s.Facts = func() (map[string]string, error) {
		facts, err := w.process.facts()
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

// checkFollowed returns an error if the server that this one follows differs in a setting that
// servers must have in common. If it cannot be reached, checkFollowed compares them later, in the
// background; a difference then ends this server.
func (s *Server) checkFollowed(ctx context.Context, own []peers.Fact) error {
	p, followed := s.process, s.process.storage.Followed
	differs, asked := followedDiffers(ctx, followed, own)
	if asked || ctx.Err() != nil {
		return errors.Join(differs, ctx.Err())
	}
	s.background.Go(func() {
		for {
			select {
			case <-time.After(factsPause):
			case <-p.ending.Done():
				return
			}
			if differs, asked := followedDiffers(p.ending, followed, own); asked {
				if differs != nil {
					p.Failure.Fail(differs)
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
