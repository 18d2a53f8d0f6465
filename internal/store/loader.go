package store

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Loader collects the objects that a log replays.
type Loader struct {
	o     *Options
	bytes atomic.Int64 // State.bytes
	mu    sync.Mutex
	parts map[string]*loaderPart
	// standIns are the objects that could not be read; guarded by mu, too.
	standIns []loadedObject
}

// loadedObject is an object of a collection.
type loadedObject struct {
	collection string
	*Object
}

type loaderPart struct {
	mu      sync.Mutex
	objects []*Object
}

// NewLoader returns a loader for a store with options.
func NewLoader(o Options) *Loader {
	o.setDefaults()
	return &Loader{o: &o}
}

// Load adds an object of a collection. It is safe for concurrent use.
func (l *Loader) Load(name string, o *Object) error {
	l.mu.Lock()
	p := l.parts[name]
	if p == nil {
		if l.parts == nil {
			l.parts = map[string]*loaderPart{}
		}
		p = new(loaderPart)
		l.parts[strings.Clone(name)] = p
	}
	l.mu.Unlock()
	if l.o.packs(name, len(o.Held)) {
		packLoaded(o)
	}
	l.bytes.Add(ObjectBytes(o))
	if o.isUnreadable() {
		l.mu.Lock()
		l.standIns = append(l.standIns, loadedObject{name, o})
		l.mu.Unlock()
	}
	p.mu.Lock()
	p.objects = append(p.objects, o)
	p.mu.Unlock()
	return nil
}

// collections builds the trees, of several collections at a time.
func (l *Loader) collections(head Revision) map[string]*collection {
	all := make(map[string]*collection, len(l.parts))
	var wg sync.WaitGroup
	for name, p := range l.parts {
		c := newCollection(name, len(all), head)
		all[name] = c
		wg.Go(func() {
			byKey := func(a, b *Object) int { return strings.Compare(a.Key, b.Key) }
			if !slices.IsSortedFunc(p.objects, byKey) {
				slices.SortFunc(p.objects, byKey)
			}
			c.root = build(p.objects)
			p.objects = nil
		})
	}
	wg.Wait()
	return all
}

// objects returns the loaded objects of a collection, in the order of keys.
func (l *Loader) objects(name string) []*Object {
	p := l.parts[name]
	if p == nil {
		return nil
	}
	slices.SortFunc(p.objects, func(a, b *Object) int { return strings.Compare(a.Key, b.Key) })
	return p.objects
}

// Publisher makes a store of the loaded objects. It is called once, after the last Load. The caller makes a Writer and passes it
// to Start.
func (l *Loader) Publisher(b Bounds) Publisher {
	s := &Store{}
	names := l.collections(b.Head)
	s.names.Store(&names)
	indexes := make(map[string]int, len(names))
	for name, c := range names {
		indexes[name] = c.index
	}
	state := &State{revision: b.Head, indexes: indexes, roots: roots(nil).with(slices.Collect(maps.Values(names))), bytes: l.bytes.Load(), time: b.Time}
	if len(l.standIns) > 0 {
		s.standIns = map[*Object]*collection{}
	}
	for _, o := range l.standIns {
		s.standIns[o.Object] = names[o.collection]
	}
	if len(l.standIns) > 0 {
		s.noteUnreadable(b.Head)
	}
	s.trees.start(state, 1)
	s.start(*l.o, b, state)
	s.account()
	return Publisher{s}
}
