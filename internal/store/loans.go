package store

import (
	"slices"
	"sync"
	"sync/atomic"
)

// # Objects that forks keep in memory
//
// A fork keeps the objects of the state that it began with, also those that its parent has replaced or deleted since.
// They count in the budget of the fork, so that unused forks do not fill the memory.
//
// The forks of a store are in the order of their bases. An object that was written at a revision and is replaced now is kept
// by the forks with a base from that revision on: a range whose last fork is the newest one. The bytes are in the account
// of the last fork, by the first one:
//
//	forks 10, 20, 30; the object of revision 15 is replaced     kept[20] of 30 grows
//	30 is closed                                                the bytes move to kept[20] of 20
//	20 is closed instead                                        they move to kept[30] of 30
//	both are closed                                             they do not count any more
//
// A fork of an older state also counts the objects that were replaced between the state and its beginning, if the
// history has them in memory. Other forks may count the same objects.

// loans are the forks of a store. The zero value has none. They outlive the store. All methods are safe for concurrent use.
type loans struct {
	count atomic.Int32 // of forks: without any, a commit takes no lock

	mu    sync.Mutex
	forks []*loan // by base
}

// loan is a fork that may still read the state that it began with.
type loan struct {
	of   *loans
	base Revision
	used *atomic.Int64   // of the budget
	kept map[*loan]int64 // bytes of replaced objects that this fork is the newest to keep, by the oldest fork that keeps them
}

// add adds a fork with so many bytes that only it keeps.
func (p *loans) add(base Revision, used *atomic.Int64, bytes int64) *loan {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := &loan{of: p, base: base, used: used, kept: map[*loan]int64{}}
	i := len(p.forks)
	for i > 0 && p.forks[i-1].base > base {
		i--
	}
	p.forks = slices.Insert(p.forks, i, one)
	p.count.Add(1)
	one.keep(one, bytes)
	return one
}

// keep counts bytes, of which first is the first fork.
func (p *loan) keep(first *loan, bytes int64) {
	if bytes == 0 {
		return
	}
	p.kept[first] += bytes
	p.used.Add(bytes)
}

// replaced counts an object that the store has replaced or deleted.
func (p *loans) replaced(modified Revision, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, _ := slices.BinarySearchFunc(p.forks, modified, func(one *loan, r Revision) int {
		if one.base < r {
			return -1
		}
		return 1
	})
	if i < len(p.forks) {
		p.forks[len(p.forks)-1].keep(p.forks[i], bytes)
	}
}

// remove removes the fork. Objects that other forks keep count for them. A nil loan is none.
func (p *loan) remove() {
	if p == nil {
		return
	}
	all := p.of
	all.mu.Lock()
	defer all.mu.Unlock()
	i := slices.Index(all.forks, p)
	for first, bytes := range p.kept {
		p.used.Add(-bytes)
		if first != p {
			all.forks[i-1].keep(first, bytes)
		}
	}
	for _, later := range all.forks[i+1:] {
		if bytes := later.kept[p]; bytes != 0 {
			delete(later.kept, p)
			later.kept[all.forks[i+1]] += bytes
		}
	}
	all.forks = slices.Delete(all.forks, i, i+1)
	all.count.Add(-1)
}
