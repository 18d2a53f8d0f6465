package history

import (
	"sync"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	// maxShared is the maximum number of comparisons that are shared, maxSharedBytes about the memory of the objects that
	// they refer to and of their fields.
	maxShared      = 64
	maxSharedBytes = 16 << 20
)

// Shared has the comparisons of recent changes, so that the watches of one change compare its objects once. The zero value
// is ready. It is safe for concurrent use.
type Shared struct {
	mu    sync.Mutex
	all   map[*store.Change]*comparison
	order []*store.Change // the oldest comes first
	bytes int
}

// comparison is a change, and its fields by a schema. The zero value is one that is not shared.
type comparison struct {
	size int // of the objects, and of the fields when they are known

	read          sync.Once
	before, after []byte
	was, is       head

	once   sync.Once
	form   *apply.Schema
	fields []apply.Field
}

// load reads the objects of the change.
func (made *comparison) load(c *store.Change) {
	made.read.Do(func() {
		made.before, made.after = bytesOf(c.Before), bytesOf(c.After)
		made.was, made.is = headOf(made.before), headOf(made.after)
	})
}

// diff returns the fields of the change by a schema, after load.
func (s *Shared) diff(c *store.Change, made *comparison, form *apply.Schema) []apply.Field {
	made.once.Do(func() {
		made.form, made.fields = form, form.Diff(made.before, made.after, apply.DiffOptions{})
		if s != nil {
			s.grow(c, made)
		}
	})
	if made.form != form { // the schema has changed
		return form.Diff(made.before, made.after, apply.DiffOptions{})
	}
	return made.fields
}

// grow counts the fields of a comparison.
func (s *Shared) grow(c *store.Change, made *comparison) {
	size := fieldsSize(made.fields)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[c] == made {
		made.size += size
		s.bytes += size
		s.evict()
	}
}

// find returns the comparison of a change whose objects have a size.
func (s *Shared) find(c *store.Change, size int) *comparison {
	if s == nil {
		return new(comparison)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.all[c]; found != nil {
		return found
	}
	if s.all == nil {
		s.all = map[*store.Change]*comparison{}
	}
	made := &comparison{size: size}
	s.all[c], s.order = made, append(s.order, c)
	s.bytes += size
	s.evict()
	return made
}

// evict drops the oldest comparisons until few are left, with few bytes, and at least one. The caller holds mu.
func (s *Shared) evict() {
	for len(s.order) > maxShared || s.bytes > maxSharedBytes && len(s.order) > 1 {
		oldest := s.order[0]
		s.bytes -= s.all[oldest].size
		delete(s.all, oldest)
		s.order = append(s.order[:0], s.order[1:]...)
	}
}
