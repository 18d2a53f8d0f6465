package httpapi

import (
	"context"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// historySchemas finds the schemas of the objects of changes, for one request. A page may have thousands of changes, so each
// schema is found once: that of a definition which is gone is read back from the history, which takes long.
type historySchemas struct {
	q    *request
	ctx  context.Context
	at   *resource.Catalog         // that now is of; a watch may see others
	now  map[string]*resource.Type // by collection; nil: the definition is gone
	past map[string]*pastType      // by collection
	all  map[versionedType]*apply.Schema
}

type versionedType struct {
	*resource.Type
	apiVersion string
}

// pastType is the type of a definition that is gone. It is that of all changes with made < revision <= upTo.
type pastType struct {
	*resource.Type
	made, upTo store.Revision
}

// find returns the schema of the objects of a collection in a version, when a revision was made; nil: it is not known.
func (s *historySchemas) find(collection, apiVersion string, r store.Revision) *apply.Schema {
	if c := s.q.h.c.Catalog(); c != s.at {
		s.at = c
		clear(s.now)
		clear(s.all)
	}
	t, known := s.now[collection]
	if !known {
		t = typeOf(s.at, func(t *resource.Type) bool { return t.Collection == collection })
		s.now[collection] = t
	}
	if t == nil {
		t = s.gone(collection, r)
	}
	if t == nil {
		return nil
	}
	of := versionedType{t, apiVersion}
	found, known := s.all[of]
	if !known {
		if v := t.At(apiVersion); v != nil {
			t = v
		}
		if schema, err := s.q.h.c.Registry.SchemaOf(s.ctx, t); err == nil {
			found = schema
		}
		s.all[of] = found
	}
	return found
}

// gone returns the type of a definition that is gone as it was before a revision, nil if there was none.
func (s *historySchemas) gone(collection string, r store.Revision) *resource.Type {
	p := s.past[collection]
	if p != nil && p.made < r && r <= p.upTo {
		return p.Type
	}
	if r <= 1 {
		return nil
	}
	t, made, err := s.q.h.c.PastType(s.ctx, collection, r-1, func(made store.Revision) *resource.Type {
		if p != nil && p.made == made {
			return p.Type
		}
		return nil
	})
	if err != nil {
		return nil
	}
	if t == nil {
		made = r - 1 // there may have been one before
	}
	s.past[collection] = &pastType{t, made, r}
	return t
}
