package store

import (
	"sync"
	"sync/atomic"
)

// # Budgets
//
// A budget bounds the memory of several stores together, such as all forks of a server. Each store has an
// account, which counts its objects as its quota does, and its history as Options.MaxMemory does. The store
// sets the sums after each commit: one atomic addition to the budget. Objects that forks keep of their parents count, too:
// see loans.go.
//
//	a write that grows objects    is refused with a *QuotaError when the budget is spent, with the exceptions of quota.go
//	the history of a store        is dropped at its next write, but for leastHistory bytes, while the budget is overspent
//	a cache of a store            gets no new entries while the budget is spent, see Charge
//	a new store                   is refused, and so are copies of old objects and the history that it would begin with
//
// So the history of a store never keeps the store itself from writing. The history of others may.
//
// Forks of a fork share its objects. So the objects of a store that was closed count until all of its forks
// have closed their accounts.

// Budget is a bound on the memory of several stores together. All methods are safe for concurrent use.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{limit: bytes} }

// Used returns how many bytes all accounts take. It may be above the limit: small updates, deletions, and
// leastHistory of each store go on.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit returns how many bytes the accounts may take.
func (b *Budget) Limit() int64 { return b.limit }

// Open opens an account for a store that is about to be forked; most bounds its copies, in bytes. The
// error is a *QuotaError if the budget is spent. Store.Close closes the account of its Options. Until there
// is a store, the caller closes it.
func (b *Budget) Open(most int64) (*Account, error) {
	if used := b.Used(); used >= b.limit {
		return nil, &QuotaError{Used: used, Limit: b.limit, AllForks: true}
	}
	return &Account{budget: b, most: most}, nil
}

// Account is the part of a budget that one store uses. All methods are safe for concurrent use. A nil account counts
// nothing and limits nothing.
type Account struct {
	budget *Budget
	most   int64    // of copies
	lender *Account // of the store that was forked; nil: it has none. Set by lend, before the store is used
	loan   *loan    // the objects that the fork keeps of it. Set by Store.loan, before the store is used

	mu            sync.Mutex
	current, past int64 // bytes that count in the budget: of the objects, and of the history
	heirs         int   // accounts of forks of the store that are in use
	closed        bool
}

// copied counts an object that a fork would have alone. If it does not fit, the error is a *QuotaError, and
// it does not count.
func (a *Account) copied(bytes int64) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current+bytes > a.most {
		return &QuotaError{Used: a.current, Limit: a.most, Grows: bytes, Fork: true}
	}
	return a.take(&a.current, bytes)
}

// Reserve counts all objects of a state, for a store that begins with copies of them. If they do not fit, the
// error is a *QuotaError, and they do not count. Time: O(objects).
func (a *Account) Reserve(s *State) error { return a.copied(s.size() - s.copied) }

// remembered is copied for a change in the history that a fork would begin with.
func (a *Account) remembered(bytes int64) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.take(&a.past, bytes)
}

// take adds bytes to a sum of the account if they fit into the budget. The caller holds mu.
func (a *Account) take(sum *int64, bytes int64) error {
	if used := a.budget.used.Add(bytes); used > a.budget.limit {
		a.budget.used.Add(-bytes)
		return &QuotaError{Used: used - bytes, Limit: a.budget.limit, Grows: bytes, AllForks: true}
	}
	*sum += bytes
	return nil
}

// set sets the bytes of the store.
func (a *Account) set(objects, history int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.budget.used.Add(objects + history - a.current - a.past)
		a.current, a.past = objects, history
	}
}

// lend notes that the store of the account to shares objects of this one's. It reports false if this one is
// closed.
func (a *Account) lend(to *Account) bool {
	if a == nil || to == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.heirs++
	to.lender = a
	return true
}

// Close takes the account's bytes out of the budget: the history at once, the objects when no fork shares
// them. It is idempotent.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return
	}
	a.closed = true
	a.budget.used.Add(-a.past)
	a.past = 0
	a.release()
}

// release takes the objects of a closed account out of the budget if no fork shares them any more. The caller
// holds mu, which release unlocks.
func (a *Account) release() {
	if !a.closed || a.heirs > 0 {
		a.mu.Unlock()
		return
	}
	a.budget.used.Add(-a.current)
	a.current = 0
	a.mu.Unlock()
	a.loan.remove()
	if l := a.lender; l != nil {
		l.mu.Lock()
		l.heirs--
		l.release()
	}
}

// over returns how many bytes the accounts have beyond the budget. It may be negative.
func (a *Account) over() int64 { return a.budget.used.Load() - a.budget.limit }
