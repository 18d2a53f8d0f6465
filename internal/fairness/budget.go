package fairness

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// budget is an amount of something, such as bytes, that requests hold. It has three bounds:
//
//   - An eighth is reserved for privileged users, who may take everything.
//   - A 64th is reserved for each of the first 16 levels, so that a level with many users
//     leaves something for others.
//   - A user can hold at most as much as is still free. So one user gets half of what is not
//     reserved, two get a third each, and something is always left for the next one.
//
// A refused request counts nothing, not even for a moment. So it never makes another one fail.
type budget struct {
	limit int64
	used  atomic.Int64 // written under mu

	mu     sync.Mutex // guards the fields below, and the amounts of users and levels; taken last
	shared int64      // beyond the levels' reserves
	levels int64
}

// reservingLevels is how many levels have a reserve.
const reservingLevels = 16

// join and leave count the levels with a reserve.
func (b *budget) join()  { b.countLevels(1) }
func (b *budget) leave() { b.countLevels(-1) }

func (b *budget) countLevels(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.levels += n
}

// reserve is the amount that is reserved for a level.
func (b *budget) reserve() int64 { return b.limit / 64 }

// open is the amount that levels share. The caller holds mu.
func (b *budget) open() int64 {
	return b.limit - b.limit/8 - min(b.levels, reservingLevels)*b.reserve()
}

// holder has the counters that an amount is charged to: of a user, which may be nil, and of a
// level.
type holder struct {
	user, level *int64 // guarded by the mu of the budget
	privileged  bool
}

// take counts n and reports whether it fits; if not, nothing is counted.
func (b *budget) take(h holder, n int64) bool {
	if n == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := n
	if h.user != nil {
		mine += *h.user
	}
	more := b.beyond(*h.level+n) - b.beyond(*h.level)
	free := b.limit - b.used.Load() - n
	if free < 0 || !h.privileged && (free < b.limit/8 || more > 0 && mine > b.open()-b.shared-more) {
		return false
	}
	b.count(h, n)
	return true
}

// give returns n.
func (b *budget) give(h holder, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(h, -n)
}

// count adds n, which may be negative. The caller holds mu.
func (b *budget) count(h holder, n int64) {
	b.used.Add(n)
	b.shared += b.beyond(*h.level+n) - b.beyond(*h.level)
	*h.level += n
	if h.user != nil {
		*h.user += n
	}
}

// beyond returns how much a level holds beyond its reserve.
func (b *budget) beyond(atLevel int64) int64 { return max(0, atLevel-b.reserve()) }

// user counts the amounts of a user.
type user struct {
	name                        string
	bytes, watches, connections int64 // guarded by the mu of the budgets
	requests                    int   // those that refer to the user; guarded by the mu of its shard
}

// users has the users with requests, and keeps some of the others.
type users struct {
	seed   maphash.Seed
	once   sync.Once
	shards [16]struct {
		mu   sync.Mutex
		byID map[string]*user
		_    [40]byte // shards share no cache line
	}
}

// keptUsers is how many users of a shard are kept after their last request, so that
// sequential requests do not allocate a user each.
const keptUsers = 4

// get returns the user until put is called.
func (us *users) get(name string) *user {
	us.once.Do(func() { us.seed = maphash.MakeSeed() })
	s := &us.shards[maphash.String(us.seed, name)%uint64(len(us.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.byID[name]
	if u == nil {
		if s.byID == nil {
			s.byID = map[string]*user{}
		}
		u = &user{name: name}
		s.byID[name] = u
	}
	u.requests++
	return u
}

// put ends a use of the user.
func (us *users) put(u *user) {
	s := &us.shards[maphash.String(us.seed, u.name)%uint64(len(us.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.requests--; u.requests == 0 && len(s.byID) > keptUsers {
		delete(s.byID, u.name)
	}
}
