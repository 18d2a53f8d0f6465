package tidemark

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// random returns the source of UIDs, names and addresses of a world, nil if there is no seed: then
// they are unpredictable. The source is safe for concurrent use.
func (w *World) random() func([]byte) {
	seed := w.server.Seed
	if seed == 0 {
		return nil
	}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	name := fnv.New64a()
	name.Write([]byte(w.Name()))
	binary.LittleEndian.PutUint64(key[8:], name.Sum64())
	source := rand.NewChaCha8(key)
	var mu sync.Mutex
	return func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = source.Read(b) // never fails
	}
}

// firstRevision is the revision of an empty store in memory. Zero: the wall clock decides, so that
// clients that come back see no old revision.
func (s *Server) firstRevision() store.Revision {
	switch {
	case s.Seed != 0:
		return 1
	case s.Clock != nil:
		return store.Revision(max(1, s.Clock.Now().UnixMicro()))
	}
	return 0
}
