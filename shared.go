package tidemark

import (
	"context"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// openShared opens the store on a log that other servers use too.
func (s *Server) openShared(ctx context.Context, r *running) (*store.Store, error) {
	if !r.follows() {
		r.identity = newIdentity()
	}
	objects, err := store.Open(ctx, store.Options{
		Shared:    r.storage.Shared,
		Sealing:   r.storage.Sealing,
		Now:       s.now,
		Retention: s.History.Retention,
		MaxMemory: s.Memory.MaxHistoryBytes,
		Note:      s.note,
		OnFatal:   s.fail,
		Packed:    packed,
	})
	if r.follows() && err == nil {
		if unread := r.storage.Followed.Unread(); unread != nil {
			s.note(true, "requests for some objects fail", "err", unread)
		}
	}
	if err == nil && s.Encryption.AutomaticReload {
		r.sealed.Follow(s.encryptionConfig())
	}
	return objects, err
}
