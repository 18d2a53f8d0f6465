package tidemark

import (
	"context"
	"errors"

	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// checkShared checks what goes together with Shared.
func (s *Server) checkShared() error {
	switch {
	case s.Shared == nil:
	case s.Storage != nil:
		return errors.New("the objects are either in Storage or in Shared")
	case s.Encryption.AutomaticReload:
		return errors.New("the encryption configuration cannot be reloaded while the objects are in a shared storage")
	}
	return nil
}

// follows reports whether the server follows another one.
func (s *Server) follows() bool {
	_, following := s.Shared.(FollowingStorage)
	return following
}

// openShared opens the store on a log that other servers use too.
func (s *Server) openShared(ctx context.Context, r *running, set *encryption.Set) (*store.Store, error) {
	log, sealing, err := s.Shared.OpenShared(ctx, set)
	if err != nil {
		return nil, err
	}
	r.sealed = encryption.Wrap(nil, set) // for metrics and health
	r.shared = log
	if !s.follows() {
		r.identity = newIdentity()
	}
	return store.Open(ctx, store.Options{
		Shared:    log,
		Sealing:   sealing,
		Now:       s.now,
		Retention: s.History.Retention,
		MaxMemory: s.History.MaxMemoryBytes,
		Note:      s.note,
		OnFatal:   s.fail,
		Packed:    packed,
	})
}
