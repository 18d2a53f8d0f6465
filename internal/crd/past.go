package crd

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	// maxPasts is the maximum number of old catalogs that a set keeps. Their definitions are large.
	maxPasts = 2
	// maxPastRevisions is the maximum number of revisions whose catalogs it knows.
	maxPastRevisions = 256
)

// pasts are the catalogs of old states.
type pasts struct {
	mu         sync.Mutex
	byRevision map[store.Revision]print
	catalogs   map[print]*resource.Catalog
	order      []print // the keys of catalogs, in the order of their last use
}

// print identifies the definitions of a state.
type print [sha256.Size]byte

// find returns the catalog of a revision, nil if it is not known.
func (p *pasts) find(r store.Revision) *resource.Catalog {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, known := p.byRevision[r]
	if !known {
		return nil
	}
	return p.use(key)
}

// use returns a catalog that is kept, or nil. The caller holds mu.
func (p *pasts) use(key print) *resource.Catalog {
	c := p.catalogs[key]
	if c == nil {
		return nil
	}
	p.keep(key, c)
	return c
}

// keep keeps a catalog, and drops the one that was not used for the longest time. The caller holds mu.
func (p *pasts) keep(key print, c *resource.Catalog) {
	if p.catalogs == nil {
		p.catalogs, p.byRevision = map[print]*resource.Catalog{}, map[store.Revision]print{}
	}
	for i, k := range p.order {
		if k == key {
			p.order = append(p.order[:i], p.order[i+1:]...)
			break
		}
	}
	p.catalogs[key], p.order = c, append(p.order, key)
	if len(p.order) > maxPasts {
		delete(p.catalogs, p.order[0])
		p.order = p.order[1:]
	}
}

// Past returns the types that the state of a revision served, with the errors of store.Exact. It is that of Catalog if the
// definitions are the same now. Definitions that did not change since are shared with it.
func (s *Set) Past(ctx context.Context, r store.Revision) (*resource.Catalog, error) {
	if c := s.pasts.find(r); c != nil {
		return c, nil
	}
	v, err := s.store.Exact(ctx, Collection, r, 0)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	now := s.now()
	var all []*store.Object
	same, hash := true, sha256.New()
	for o, err := range v.Scan("", "") {
		if err != nil {
			return nil, err
		}
		e := now.entry(o.Key)
		same = same && e != nil && e.newest.Modified == o.Modified
		all = append(all, o)
		hash.Write(binary.BigEndian.AppendUint64(append([]byte(o.Key), 0), uint64(o.Modified)))
	}
	if same && len(all) == now.definitions() {
		return now.catalog, nil
	}
	key := print(hash.Sum(nil))
	s.pasts.mu.Lock()
	defer s.pasts.mu.Unlock() // a catalog is made once
	c := s.pasts.use(key)
	if c == nil {
		c = s.past(now, all)
		s.pasts.keep(key, c)
	}
	if len(s.pasts.byRevision) >= maxPastRevisions {
		clear(s.pasts.byRevision)
	}
	s.pasts.byRevision[r] = key
	return c, nil
}

// past makes the catalog of old definitions.
func (s *Set) past(now *served, all []*store.Object) *resource.Catalog {
	then := &served{byGroup: map[string]map[string]*entry{}}
	groups := map[string]bool{}
	for _, o := range all {
		e := now.entry(o.Key)
		if e == nil || e.newest.Modified != o.Modified {
			if e = s.enter(o, nil); e == nil {
				continue
			}
		}
		group := groupOf(o.Key)
		if then.byGroup[group] == nil {
			then.byGroup[group] = map[string]*entry{}
		}
		then.byGroup[group][o.Key], groups[group] = e, true
	}
	return s.builtin.With(s.groups(then, groups))
}

// definitions returns the number of definitions.
func (s *served) definitions() (n int) {
	for _, group := range s.byGroup {
		n += len(group)
	}
	return n
}

// PastType returns the type in which the state of a revision stored the objects of a definition, and when that definition
// was made; nil if there was none. It reads one definition, so it is much cheaper than Past. Known is the type that an
// earlier call returned with the same time; nil: there is none. It has the errors of store.Exact.
func (s *Set) PastType(ctx context.Context, key string, r store.Revision, known func(made store.Revision) *resource.Type) (*resource.Type, store.Revision, error) {
	v, err := s.store.Exact(ctx, Collection, r, 0)
	if err != nil {
		return nil, 0, err
	}
	defer v.Close()
	o, err := v.Get(key)
	if err != nil || o == nil {
		return nil, 0, err
	}
	if t := known(o.Modified); t != nil {
		return t, o.Modified, nil
	}
	e := s.now().entry(key)
	if e == nil || e.newest.Modified != o.Modified {
		e = s.enter(o, nil)
	}
	if e == nil {
		return nil, o.Modified, nil
	}
	return e.own, o.Modified, nil
}
