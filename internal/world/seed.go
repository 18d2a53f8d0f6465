package world

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// The uses of random bytes. Each has a source of its own.
const (
	forObjects = "" // UIDs, names and addresses
	forAudit   = "/audit"
	forKeys    = "/keys"
)

// seed is where the random values of a world come from.
type seed struct {
	number uint64 // zero: they are unpredictable
	// name is that of the fork, so that worlds with the number of the server have other values; empty: there is only
	// one such world.
	name string
	// depth is the number of ancestors. A world never repeats the values of an ancestor, whose objects it has.
	depth uint64
}

// fork returns the seed of a fork of the world. Number zero: the fork inherits that of the world.
func (s seed) fork(number uint64, name string) seed {
	if number != 0 {
		return seed{number: number, depth: s.depth + 1}
	}
	return seed{s.number, name, s.depth + 1}
}

// source returns a source of random bytes, nil if there is no seed. The source is safe for concurrent use.
func (s seed) source(use string) func([]byte) {
	if s.number == 0 {
		return nil
	}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], s.number)
	name := fnv.New64a()
	name.Write([]byte(s.name + use))
	binary.LittleEndian.PutUint64(key[8:], name.Sum64())
	binary.LittleEndian.PutUint64(key[16:], s.depth)
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
func (c *Config) firstRevision() store.Revision {
	switch {
	case c.Seed != 0:
		return 1
	case c.Clock != nil:
		return store.Revision(max(1, c.Clock.Now().UnixMicro()))
	}
	return 0
}
