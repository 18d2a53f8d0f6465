package encryption

import (
	"fmt"
	"iter"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Encrypt returns the stored form of objects with their collections, for a log that begins with them. An object that
// cannot be encrypted ends the sequence; failed then returns the error.
func (s *Set) Encrypt(objects iter.Seq2[string, *store.Object]) (encrypted iter.Seq2[string, *store.Object], failed func() error) {
	var err error
	l := &Log{Active: new(Active)} // for its counts alone
	encrypted = func(yield func(string, *store.Object) bool) {
		for collection, o := range objects {
			if r := s.rule(collection); r != nil {
				var stored *store.Object
				if stored, err = l.encrypt(r, collection, o); err != nil {
					err = fmt.Errorf("%s %s cannot be encrypted: %w", collection, o.Key, err)
					return
				}
				o = stored
			}
			if !yield(collection, o) {
				return
			}
		}
	}
	return encrypted, func() error { return err }
}
