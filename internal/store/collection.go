package store

import (
	"fmt"
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/store/notify"
)

// collection is one collection of the store. Its index in a State never changes.
type collection struct {
	name  string
	index int

	// The tree of the published state, or of the one that is about to be published. Guarded by Store.mu, as is touched:
	// whether they differ.
	root    *node
	touched bool

	recent

	writes [3]atomic.Pointer[exposition.Histogram] // by Operation; nil before the first one
}

func newCollection(name string, index int, opened Revision) *collection {
	c := &collection{name: name, index: index}
	c.trimmed, c.newest = opened, opened
	return c
}

// recent is the recent changes of a collection and the topics of its cursors.
type recent struct {
	mu      sync.RWMutex
	records deque[record]
	trimmed Revision // all changes above it are in records
	newest  Revision // of the newest record; without records at least that of any change
	topics  map[string]*topic
	// epoch changes when objects change without a revision: cursors from before are expired. See renew.go. history.mu
	// guards its changes.
	epoch atomic.Uint32
}

// topic is a set of keys that cursors select. A topic without cursors is
// forgotten.
type topic struct {
	notify.Topic
	prefix string
}

// selects reports whether the topic has the key.
func (t *topic) selects(key string) bool {
	switch {
	case t.prefix == "":
		return true
	case t.prefix[len(t.prefix)-1] == '/':
		return strings.HasPrefix(key, t.prefix)
	}
	return key == t.prefix
}

// record is a change with hashes that decide quickly whether a cursor selects it.
type record struct {
	revision  Revision
	namespace uint32 // hash of the key up to its slash, with it; zero without
	key       uint32 // hash of the key
	change    *Change
}

var seed = maphash.MakeSeed()

func hash(s string) uint32 { return uint32(maphash.String(seed, s)) }

// namespaceOf returns the part of the key up to its slash, with it.
func namespaceOf(key string) string { return key[:strings.IndexByte(key, '/')+1] }

// record adds a change, and appends the topics that it concerns to notified. A topic knows
// of the change before it is published: see Cursors.
func (c *recent) record(ch *Change, notified []*notify.Topic) []*notify.Topic {
	key := ch.Key()
	namespace := namespaceOf(key)
	r := record{revision: ch.Revision, key: hash(key), change: ch}
	if namespace != "" {
		r.namespace = hash(namespace)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records.push(r)
	c.newest = ch.Revision
	if len(c.topics) == 0 {
		return notified
	}
	add := func(prefix string) {
		if t := c.topics[prefix]; t != nil {
			t.Note(uint64(ch.Revision))
			if t.Mark() {
				notified = append(notified, &t.Topic)
			}
		}
	}
	add("")
	if namespace != "" {
		add(namespace)
	}
	add(key)
	return notified
}

// trim drops the oldest change, whose revision is r.
func (c *recent) trim(r Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records.pop().change.drop()
	c.trimmed = max(c.trimmed, r)
}

// after returns the index of the first record above the revision. The caller
// holds mu.
func (c *recent) after(r Revision) int {
	i, j := 0, c.records.len()
	for i < j {
		m := int(uint(i+j) >> 1)
		if c.records.at(m).revision <= r {
			i = m + 1
		} else {
			j = m
		}
	}
	return i
}

// effective is the revision of the last change before index i: all revisions from
// there to the next change have the same tree. The caller holds mu.
func (c *recent) effective(i int) Revision {
	if i > 0 {
		return c.records.at(i - 1).revision
	}
	return c.trimmed
}

// changedAfter reports whether the collection has changed after a revision.
func (c *recent) changedAfter(r Revision) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.newest > r
}

// wakeAll wakes every cursor of the collection.
func (c *recent) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.topics {
		t.WakeAll()
	}
}

// lose records that the changes of the collection up to a revision are not in memory. It appends all of its topics to notified.
func (c *recent) lose(r Revision, notified []*notify.Topic) []*notify.Topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimmed, c.newest = r, r
	for t := range maps.Values(c.topics) {
		t.Note(uint64(r))
		notified = append(notified, &t.Topic)
	}
	return notified
}

// took returns the histogram of the durations of an operation.
func (c *collection) took(o Operation) *exposition.Histogram {
	p := &c.writes[o]
	if h := p.Load(); h != nil {
		return h
	}
	p.CompareAndSwap(nil, writeBuckets.New())
	return p.Load()
}

// check checks that the records are in order and that each continues the one before it.
func (c *recent) check() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	versions := map[string]*Object{}
	last := c.trimmed
	for i := range c.records.len() {
		r := c.records.at(i)
		ch := r.change
		if r.revision < last || r.revision <= c.trimmed || r.revision != ch.Revision {
			return fmt.Errorf("the change of revision %d stands after %d", r.revision, last)
		}
		last = r.revision
		key := ch.Key()
		if before, known := versions[key]; known && before != ch.Before {
			return fmt.Errorf("the change of %q at %d does not continue the one before", key, r.revision)
		}
		versions[key] = ch.After
	}
	return nil
}
