package crd

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Set is what a server serves: the built-in kinds, and what the stored definitions say.
// Its methods are safe for concurrent use.
type Set struct {
	store   *store.Store
	builtin *resource.Catalog
	log     *slog.Logger

	schemas schemas
	mu      sync.Mutex // held to follow the store
	served  atomic.Pointer[served]
}

// served is the catalog of a state.
type served struct {
	snapshot store.Snapshot
	catalog  *resource.Catalog
	byKey    map[string]*entry
}

// entry is what a definition adds to the catalog.
type entry struct {
	*definition
	types []*resource.Type // nil while it is not established
}

// NewSet makes a set. A definition that cannot be read is logged and not served.
func NewSet(s *store.Store, builtin *resource.Catalog, log *slog.Logger) *Set {
	set := &Set{store: s, builtin: builtin, log: log}
	set.served.Store(&served{catalog: builtin, byKey: map[string]*entry{}})
	return set
}

// Catalog is what is served in the newest state.
func (s *Set) Catalog() *resource.Catalog {
	snapshot := s.store.Any().Snapshot(Collection)
	now := s.served.Load()
	if now.snapshot.Same(snapshot) {
		return now.catalog
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Whoever waited may have a state that is older than the one that is served.
	snapshot = s.store.Any().Snapshot(Collection)
	if now = s.served.Load(); !now.snapshot.Same(snapshot) {
		now = s.follow(now, snapshot)
		s.served.Store(now)
	}
	return now.catalog
}

// follow makes the catalog of a state from that of another.
func (s *Set) follow(from *served, snapshot store.Snapshot) *served {
	next := &served{snapshot: snapshot, byKey: make(map[string]*entry, len(from.byKey)+1)}
	changed := map[string]bool{} // groups
	for o := range snapshot.Scan("", "") {
		old := from.byKey[o.Key]
		if old != nil && old.stored == o {
			next.byKey[o.Key] = old
			continue
		}
		e := s.enter(o)
		if e == nil {
			continue
		}
		next.byKey[o.Key] = e
		if len(e.types) > 0 {
			changed[e.head.Spec.Group] = true
		}
	}
	for key, old := range from.byKey {
		if next.byKey[key] == old {
			continue
		}
		s.schemas.forget(old.definition)
		old.close()
		if len(old.types) > 0 {
			changed[old.head.Spec.Group] = true
		}
	}
	next.catalog = from.catalog
	if len(changed) > 0 {
		next.catalog = from.catalog.With(s.groups(next, changed))
	}
	return next
}

// enter reads a definition.
func (s *Set) enter(o *store.Object) *entry {
	d, err := read(o, s.store)
	if err != nil {
		s.log.Error("a definition cannot be read, and what it defines is not served", "err", err)
		return nil
	}
	e := &entry{definition: d}
	if d.established() {
		for _, v := range d.versions {
			v.kept = &s.schemas
		}
		e.types = d.types()
	}
	return e
}

// groups makes anew the groups that changed; one without versions is served no more.
func (s *Set) groups(next *served, changed map[string]bool) []resource.Group {
	byGroup := map[string]map[string][]*resource.Type{}
	for name := range changed {
		byGroup[name] = map[string][]*resource.Type{}
		if g := s.builtin.Group(name); g != nil {
			for _, v := range g.Versions {
				byGroup[name][v.Name] = slices.Clone(v.Types)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(next.byKey)) {
		e := next.byKey[key]
		versions := byGroup[e.head.Spec.Group]
		if versions == nil {
			continue
		}
		for _, t := range e.types {
			versions[t.Version] = append(versions[t.Version], t)
		}
	}
	var all []resource.Group
	for _, name := range slices.Sorted(maps.Keys(byGroup)) {
		g := resource.Group{Name: name}
		for _, version := range slices.SortedFunc(maps.Keys(byGroup[name]), newer) {
			types := byGroup[name][version]
			slices.SortStableFunc(types, byResource)
			g.Versions = append(g.Versions, resource.Version{Name: version, Types: types})
		}
		all = append(all, g)
	}
	return all
}

// Waiting yields the keys of the definitions of a group whose names are not all
// accepted.
func (s *Set) Waiting(group string) []string {
	s.Catalog()
	var all []string
	for key, e := range s.served.Load().byKey {
		if strings.HasSuffix(key, "."+group) && !e.namesAccepted() {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}
