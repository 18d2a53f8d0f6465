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
	r.sealed = encryption.NewActive(set)
	log, sealing, err := s.Shared.OpenShared(ctx, r.sealed)
	if err != nil {
		return nil, err
	}
	r.shared = log
	sealed, copied := sealing.(*encryption.Log)
	if copied { // the copy of a follower
		sealed.StandIns = s.standIns()
	}
	if !s.follows() {
		r.identity = newIdentity()
	}
	objects, err := store.Open(ctx, store.Options{
		Shared:    log,
		Sealing:   sealing,
		Now:       s.now,
		Retention: s.History.Retention,
		MaxMemory: s.History.MaxMemoryBytes,
		Note:      s.note,
		OnFatal:   s.fail,
		Packed:    packed,
	})
	if copied && err == nil && sealed.Unread() != nil {
		s.note(true, "requests for some objects fail", "err", sealed.Unread())
	}
	if err == nil && s.Encryption.AutomaticReload {
		r.sealed.Follow(s.encryptionConfig())
	}
	return objects, err
}
