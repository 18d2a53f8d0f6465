package etcdlog

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// leaser gives leases to keys that end by themselves. One lease is given to all keys with the same
// time to live that are written within LeaseReuse, and to mostPerLease keys at most: the end of a
// lease deletes its keys in one transaction.
type leaser struct {
	mu    sync.Mutex
	kinds map[time.Duration]*leaseKind
}

// leaseKind is the lease that is given out for one time to live.
type leaseKind struct {
	granting chan struct{} // has room for the one that asks for a lease

	mu    sync.Mutex // guards the rest
	lease lease
	until time.Time // when the lease is not given out any more
	given int
}

// lease is one lease of etcd.
type lease struct {
	id   int64
	kind *leaseKind
}

// mostPerLease is how many keys get the same lease.
const mostPerLease = 1000

// get returns a lease that ends after the time, and not much later.
func (s *leaser) get(ctx context.Context, l *Log, ttl time.Duration) (lease, error) {
	s.mu.Lock()
	if s.kinds == nil {
		s.kinds = map[time.Duration]*leaseKind{}
	}
	k := s.kinds[ttl]
	if k == nil {
		k = &leaseKind{granting: make(chan struct{}, 1)}
		s.kinds[ttl] = k
	}
	s.mu.Unlock()
	select {
	case k.granting <- struct{}{}:
		defer func() { <-k.granting }()
	case <-ctx.Done():
		return lease{}, ctx.Err()
	}
	if shared, ok := k.take(); ok {
		return shared, nil
	}
	id, until, err := l.grant(ctx, ttl)
	if err != nil {
		return lease{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lease, k.until, k.given = lease{id, k}, until, 1
	return k.lease, nil
}

// take returns the lease that is given out, unless a new one is needed.
func (k *leaseKind) take() (lease, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease.id == 0 || k.given >= mostPerLease || !time.Now().Before(k.until) {
		return lease{}, false
	}
	k.given++
	return k.lease, true
}

// grant makes a lease. A lease whose grant has no response ends without a key.
func (l *Log) grant(ctx context.Context, ttl time.Duration) (id int64, until time.Time, err error) {
	// Keys should not stay much longer than they have to.
	reuse := min(l.o.LeaseReuse, max(ttl/20, time.Second))
	seconds := int64((ttl + reuse + time.Second - 1) / time.Second)
	began := time.Now()
	for tries := 0; ; tries++ {
		asked := time.Now()
		response, err := try(ctx, quick.each, func(ctx context.Context) (*pb.LeaseGrantResponse, error) {
			return l.leases.LeaseGrant(withLeader(ctx), &pb.LeaseGrantRequest{TTL: seconds})
		})
		switch {
		case err == nil:
			return response.ID, asked.Add(time.Duration(response.TTL)*time.Second - ttl), nil
		case ctx.Err() != nil:
			return 0, until, ctx.Err()
		case is(err, rpctypes.ErrGRPCNoSpace):
			l.refused()
			return 0, until, errFull
		case is(err, rpctypes.ErrGRPCRequestTooManyRequests):
			return 0, until, overloaded(err)
		case !transient(err) || l.late(began, quick):
			return 0, until, unavailable(err, time.Second)
		}
		if !pause(ctx, tries) {
			return 0, until, ctx.Err()
		}
	}
}

// lost forgets leases that the cluster does not know.
func (s *leaser) lost(leases []lease) {
	for _, gone := range leases {
		gone.kind.mu.Lock()
		if gone.kind.lease.id == gone.id {
			gone.kind.lease = lease{}
		}
		gone.kind.mu.Unlock()
	}
}
