package expression

import (
	"container/list"
	"sync"
)

// Bounds of the cache of programs. A policy keeps its own programs. The cache serves the next version of
// the policy, and the request that stores it.
const (
	maxPrograms    = 256
	maxProgramText = 1 << 20 // bytes of expressions and of their variables' types
)

// programs caches the programs that were used last.
var programs = &cache{maxEntries: maxPrograms, maxText: maxProgramText}

type programKey struct {
	text     string
	env      environmentKey
	declared string // Composition.signature
	returns  string
}

func (k *programKey) size() int { return len(k.text) + len(k.declared) + len(k.returns) }

// cache remembers the programs that were used last, within bounds. It is safe for concurrent use.
type cache struct {
	maxEntries, maxText int

	mu    sync.Mutex // guards the fields below
	at    map[programKey]*list.Element
	order list.List // of *cached, the last used first
	text  int       // sum of the sizes of the keys
}

type cached struct {
	key     programKey
	program *Program
}

func (c *cache) get(key programKey) (*Program, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.at[key]
	if e == nil {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).program, true
}

func (c *cache) put(key programKey, p *Program) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[programKey]*list.Element{}
	}
	if c.at[key] != nil || key.size() > c.maxText {
		return
	}
	c.at[key] = c.order.PushFront(&cached{key, p})
	c.text += key.size()
	for c.text > c.maxText || c.order.Len() > c.maxEntries {
		last := c.order.Remove(c.order.Back()).(*cached)
		delete(c.at, last.key)
		c.text -= last.key.size()
	}
}
