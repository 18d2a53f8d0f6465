package crd

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
)

// Set has the served types: the built-in kinds and those of the stored definitions. Its methods are
// safe for concurrent use.
type Set struct {
	store   *store.Store
	builtin *resource.Catalog
	log     *slog.Logger
	// connections are those to conversion webhooks.
	connections *remote.Connections

	identity *identity

	ctx context.Context // of the requests to conversion webhooks
	end context.CancelFunc

	// schemas are the compiled schemas of the set and of its forks.
	schemas *schemas
	// forked is true if the set is a fork or has forks, which share its definitions.
	forked atomic.Bool
	served *derived.Value[*served]
	pasts  pasts
}

// identity identifies a Set. It does not hold the Set in memory.
type identity struct{ _ byte }

// served is the catalog of a state.
type served struct {
	catalog *resource.Catalog
	// byGroup are the definitions by their groups and keys. States share those of the
	// groups that did not change between them.
	byGroup map[string]map[string]*entry
	bytes   int64 // of all definitions: see documentBytes
}

// entry returns the entry of a definition, or nil.
func (s *served) entry(key string) *entry { return s.byGroup[groupOf(key)][key] }

// groupOf is the group of a definition: its name ends with it.
func groupOf(key string) string {
	_, group, _ := strings.Cut(key, ".")
	return group
}

// entry is the part of the catalog for one definition.
type entry struct {
	*definition
	newest *store.Object    // the definition; its spec equals the one that it was read from
	types  []*resource.Type // nil while it is not established
	own    *resource.Type   // in which its objects are reached, whatever is served
	// fresh is true if all objects were written in the stored version by the current schema.
	fresh bool
}

// size returns the documentBytes of a definition, 0 for none.
func (e *entry) size() int64 {
	if e == nil {
		return 0
	}
	return e.bytes
}

// NewSet makes a set. A definition that cannot be read is logged and not served.
func NewSet(s *store.Store, builtin *resource.Catalog, log *slog.Logger) *Set {
	set := &Set{store: s, builtin: builtin, log: log, schemas: new(schemas), identity: new(identity), connections: remote.NewConnections(remote.Services(s), nil)}
	set.ctx, set.end = context.WithCancel(context.Background())
	set.served = derived.NewIncremental(&served{catalog: builtin}, set.follow, Collection)
	return set
}

// Fork returns a set for a fork of the store. It shares the catalog and the compiled schemas, and reads
// the definitions that differ in the fork. It may outlive the set. If a definition has a conversion
// webhook, the fork reads all definitions itself, because the webhook depends on Services of the store. So does a fork with
// other built-in kinds.
func (s *Set) Fork(fork *store.Store, builtin *resource.Catalog) *Set {
	f := NewSet(fork, builtin, s.log)
	f.schemas = s.schemas
	s.forked.Store(true)
	f.forked.Store(true)
	if now := s.now(); builtin == s.builtin && !now.converts() {
		f.served.Share(s.served)
	}
	return f
}

// converts reports whether a definition has a conversion webhook.
func (s *served) converts() bool {
	for _, group := range s.byGroup {
		for _, e := range group {
			if e.hasWebhook() {
				return true
			}
		}
	}
	return false
}

// Close ends the conversions by webhooks.
func (s *Set) Close() {
	s.end()
	s.connections.Close()
}

// Catalog returns the types that the newest state serves.
func (s *Set) Catalog() *resource.Catalog { return s.now().catalog }

func (s *Set) now() *served { return s.served.At(s.store.Any()) }

// follow makes the catalog of a state from that of an earlier one. Its cost grows with the
// number of changes, and with the number of groups.
func (s *Set) follow(from *served, then, now store.Snapshot) *served {
	next := &served{byGroup: maps.Clone(from.byGroup), bytes: from.bytes}
	if next.byGroup == nil {
		next.byGroup = map[string]map[string]*entry{}
	}
	touched, changed := map[string]bool{}, map[string]bool{} // groups
	for before, after := range now.Since(then) {
		key := keyOf(before, after)
		group := groupOf(key)
		if !touched[group] {
			touched[group] = true
			if next.byGroup[group] = maps.Clone(from.byGroup[group]); next.byGroup[group] == nil {
				next.byGroup[group] = map[string]*entry{}
			}
		}
		next.bytes -= next.byGroup[group][key].size()
		if s.take(next.byGroup[group], key, after) {
			changed[group] = true
		}
		next.bytes += next.byGroup[group][key].size()
	}
	for group := range touched {
		if len(next.byGroup[group]) == 0 {
			delete(next.byGroup, group)
		}
	}
	next.catalog = from.catalog
	if len(changed) > 0 {
		next.catalog = from.catalog.With(s.groups(next, changed))
	}
	return next
}

func keyOf(before, after *store.Object) string {
	if after == nil {
		return before.Key
	}
	return after.Key
}

// take sets the entry of a definition in its group; o is nil for a deleted one. It reports whether
// the served types change.
func (s *Set) take(group map[string]*entry, key string, o *store.Object) (changed bool) {
	old := group[key]
	delete(group, key)
	var e *entry
	if o != nil {
		if e = s.enter(o, old); e != nil {
			group[key] = e
		}
	}
	if old != nil && (e == nil || e.definition != old.definition) {
		if e != nil && e.outdated != old.outdated && old.of == s.identity {
			old.outdated.Store(true)
		}
		if !s.forked.Load() { // otherwise others may use it; its schemas are evicted in time
			s.schemas.forget(old.definition)
		}
		if old.of == s.identity {
			old.close()
		}
		changed = len(old.types) > 0
	}
	return changed || e != nil && len(e.types) > 0 && (old == nil || old.definition != e.definition)
}

// enter reads a definition. Old is its previous entry, or nil. If the definition is unchanged, its
// entry stays, so that watches continue.
func (s *Set) enter(o *store.Object, old *entry) *entry {
	d, err := read(o, s)
	if err != nil {
		s.log.Error("a definition cannot be read, and what it defines is not served", "err", err)
		return nil
	}
	if old != nil && old.same(d) {
		kept := *old
		kept.newest = o
		return &kept
	}
	if old != nil && old.deletedAs(d) {
		d.outdated = old.outdated
	}
	e := &entry{definition: d, newest: o}
	for _, v := range d.versions {
		v.kept = s.schemas
	}
	e.fresh = d.head.Metadata.Generation <= 1 || old != nil && old.fresh && old.sameStorage(d)
	served, own := d.makeTypes(e.fresh)
	if e.own = own; d.established() {
		e.types = served
	}
	return e
}

// same reports whether two states of a definition serve the same.
func (d *definition) same(o *definition) bool {
	a, b := &d.head, &o.head
	return a.Metadata == b.Metadata && d.established() == o.established() && d.namesAccepted() == o.namesAccepted() &&
		reflect.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames)
}

// deletedAs reports whether the next state of a definition is that of its deletion, which
// changes nothing else.
func (d *definition) deletedAs(o *definition) bool {
	a, b := d.head.Metadata, o.head.Metadata
	deleted := a.DeletionTimestamp == "" && b.DeletionTimestamp != "" && b.Generation <= a.Generation+1
	a.DeletionTimestamp, a.Generation = b.DeletionTimestamp, b.Generation
	return deleted && a == b
}

// sameStorage reports whether two states of a definition store objects alike.
func (d *definition) sameStorage(o *definition) bool {
	a, b := d.storage(), o.storage()
	return d.head.Metadata.UID == o.head.Metadata.UID && a != nil && b != nil && a.Name == b.Name &&
		bytes.Equal(a.schemaText(), b.schemaText())
}

// Own is the type in which the server reaches the objects of a definition, whatever of
// it is served; nil when there is no such definition.
func (s *Set) Own(key string) *resource.Type {
	if e := s.now().entry(key); e != nil {
		return e.own
	}
	return nil
}

// groups makes anew the groups that changed; one without versions is served no more.
func (s *Set) groups(next *served, changed map[string]bool) []resource.Group {
	byGroup := map[string]map[string][]*resource.Type{}
	for name := range changed {
		versions := map[string][]*resource.Type{}
		if g := s.builtin.Group(name); g != nil {
			for _, v := range g.Versions {
				versions[v.Name] = slices.Clone(v.Types)
			}
		}
		group := next.byGroup[name]
		for _, key := range slices.Sorted(maps.Keys(group)) {
			for _, t := range group[key].types {
				versions[t.Version] = append(versions[t.Version], t)
			}
		}
		byGroup[name] = versions
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

// Waits reports whether the names of a definition are not all accepted.
func (s *Set) Waits(key string) bool {
	e := s.now().entry(key)
	return e != nil && !e.namesAccepted()
}

// Waiting yields the keys of the definitions of a group whose names are not all
// accepted.
func (s *Set) Waiting(group string) []string {
	var all []string
	for key, e := range s.now().byGroup[group] {
		if !e.namesAccepted() {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}
