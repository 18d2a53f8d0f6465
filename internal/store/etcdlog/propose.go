package etcdlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Propose
//
//	loop until the outcome is known, for 10 s at most:
//	    if the outcome of the last try is unknown:
//	        raise the fence; earlier requests are decided then
//	        made if a key had our value behind the version that it replaces
//	        unknown if the key was deleted and that is all that we write: another client may have
//	        done it
//	        not made otherwise
//	    send the transaction
//	    made                  -> made
//	    refused by the fence  -> learn its revision, again
//	    refused               -> refused
//	    too many requests     -> overloaded
//	    not sent              -> again
//	    no response             -> unknown, again
//
// The transaction is not sent again before its last try is known not to be made: its conditions can hold
// once more when it was made. That is so for a creation whose object another client has deleted.

// proposal is a transaction that is being proposed.
type proposal struct {
	*request
	l       *Log
	since   int64 // a revision from before the first try
	unknown bool  // the last try may have been made, or may still be on its way
	last    error // of the last try that failed
	late    int   // how many tries got no response in time
	// fencesLate is how many writes of the fence got no response in time.
	fencesLate int
}

// Propose implements store.Shared.
func (l *Log) Propose(ctx context.Context, t *store.Txn) (store.Decision, error) {
	for tries := 0; ; tries++ {
		r, err := l.request(ctx, t)
		if err != nil {
			return store.Decision{}, err
		}
		p := &proposal{request: r, l: l, since: l.seen.revision.Load()}
		l.pending.add(t, r)
		d, err := p.decide(ctx)
		if err != nil || !d.Made {
			l.pending.drop(r)
		}
		if tries > 0 || !errors.Is(err, errNoLease) {
			return d, err
		}
	}
}

// errNoLease: the cluster does not know the lease of a put any more.
var errNoLease = errors.New("the lease has ended")

// decide proposes until the outcome is known or there is no time left.
func (p *proposal) decide(ctx context.Context) (store.Decision, error) {
	began := time.Now()
	for tries := 0; ; tries++ {
		d, done, err := p.once(ctx)
		if done || err != nil {
			return d, err
		}
		if ctx.Err() != nil || p.l.late(began, quick) {
			return d, p.giveUp(ctx)
		}
		if !p.unknown && p.last == nil { // refused by the fence alone
			continue
		}
		if !pause(ctx, tries) {
			return d, p.giveUp(ctx)
		}
	}
}

// giveUp returns the error of a transaction whose outcome is not known in time.
func (p *proposal) giveUp(ctx context.Context) error {
	switch {
	case p.unknown && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", store.ErrUnknown, ctx.Err())
	case p.unknown:
		return fmt.Errorf("%w: %w", store.ErrUnknown, &failure{p.last})
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return unavailable(p.last, time.Second)
}

// deletionTry is the limit of a try that only deletes: if it was made is never known without its response.
const deletionTry = 5 * time.Second

// limit returns the limit of a try.
func (p *proposal) limit() time.Duration {
	if p.writes[p.telling()].value == nil {
		return deletionTry
	}
	return quick.limit(p.late)
}

// once makes one try. An error is final.
func (p *proposal) once(ctx context.Context) (d store.Decision, done bool, err error) {
	if p.unknown {
		if d, done, err := p.settle(ctx); done || err != nil || p.unknown {
			return d, done, err
		}
	}
	if err := p.l.moved(); err != nil {
		return d, false, err
	}
	p.fenced.TargetUnion = &pb.Compare_ModRevision{ModRevision: p.l.fences[p.fence].Load()}
	before := p.l.seen.now()
	var to peer.Peer
	response, err := try(ctx, p.limit(), func(ctx context.Context) (*pb.TxnResponse, error) {
		return p.l.kv.Txn(withLeader(ctx), &p.pb, grpc.Peer(&to))
	})
	if err != nil {
		return p.failed(ctx, err, to.Addr != nil)
	}
	if err := p.l.seen.check(before, response.Header); err != nil {
		return d, false, uncertain(err)
	}
	d = store.Decision{Made: response.Succeeded, Revision: store.Revision(response.Header.Revision)}
	if !d.Made && p.fenceMoved(response) {
		p.last = nil
		return d, false, p.l.moved()
	}
	return d, true, nil
}

// settle finds out whether the last try was made. If that cannot be known yet, the outcome stays unknown.
func (p *proposal) settle(ctx context.Context) (d store.Decision, done bool, err error) {
	err = p.l.raiseFence(ctx, fencing.limit(p.fencesLate), p.fence, p.fenced.GetModRevision())
	if isLate(err) {
		p.fencesLate++
	}
	if err == nil {
		d, err = p.outcome(ctx)
	}
	switch {
	case errors.Is(err, store.ErrUnknown):
		return d, false, err
	case errors.Is(err, store.ErrReset):
		return d, false, uncertain(err)
	case err != nil:
		p.last = err
		return d, false, nil
	}
	p.unknown = false
	return d, d.Made, nil
}

// outcome returns whether a try was made that has been decided.
func (p *proposal) outcome(ctx context.Context) (store.Decision, error) {
	response, err := p.l.read(ctx, &pb.RangeRequest{Key: []byte(p.writes[p.telling()].etcdKey)}, quick)
	if err != nil {
		return store.Decision{}, err
	}
	made, at, err := p.made(ctx, response.Kvs, response.Header.Revision)
	return store.Decision{Made: made, Revision: at}, err
}

// fenceMoved reports whether the fence is not where the try expected it. The response is a refusal.
func (p *proposal) fenceMoved(response *pb.TxnResponse) bool {
	kvs := response.Responses[len(response.Responses)-1].GetResponseRange().Kvs
	was, is := p.fenced.GetModRevision(), int64(0)
	if len(kvs) > 0 {
		is = kvs[0].ModRevision
	}
	if is == was {
		return false
	}
	p.l.learnFence(p.fence, was, kvs)
	return true
}

// failed handles the error of a try. Sent reports whether a member may have got it.
func (p *proposal) failed(ctx context.Context, err error, sent bool) (d store.Decision, done bool, final error) {
	p.last = err
	if isLate(err) {
		p.late++
	}
	switch code := status.Code(err); {
	case is(err, rpctypes.ErrGRPCNoSpace):
		return p.noSpace(ctx)
	case is(err, rpctypes.ErrGRPCRequestTooLarge), code == codes.ResourceExhausted && !is(err, rpctypes.ErrGRPCRequestTooManyRequests):
		return d, false, &store.UnfitError{Key: p.key, Why: "the object is larger than etcd accepts (its flag --max-request-bytes): " + status.Convert(err).Message(), Size: true}
	case is(err, rpctypes.ErrGRPCLeaseNotFound):
		p.l.leaser.lost(p.leases)
		return d, false, unavailable(errNoLease, time.Second)
	case is(err, rpctypes.ErrGRPCRequestTooManyRequests): // earlier tries have been settled
		return d, false, overloaded(err)
	case is(err, rpctypes.ErrGRPCNotSupportedForLearner):
		return d, false, nil // refused before raft
	case outdatedAuth(err):
		return d, false, nil // refused by each member alike
	case !sent:
		return d, false, nil
	case !transient(err):
		return d, false, unavailable(err, 0)
	}
	p.unknown = true
	return d, false, nil
}

// uncertain returns the error of a transaction that ends while a try may have been made.
func uncertain(err error) error { return fmt.Errorf("%w: %w", store.ErrUnknown, err) }

// errFull is the error of writes while the alarm NOSPACE is raised.
var errFull = fmt.Errorf("%w: the database of etcd has reached its quota: compact and defragment it, then disarm the alarm", store.ErrNoSpace)

// noSpace decides a transaction to which etcd responded with NOSPACE. The member that reaches the quota makes
// the transaction and sends this response nevertheless; later ones are not made.
func (p *proposal) noSpace(ctx context.Context) (d store.Decision, done bool, err error) {
	d, err = p.outcome(ctx)
	switch {
	case err != nil:
		return d, false, uncertain(err)
	case d.Made:
		return d, true, nil
	}
	if !p.l.space.full.Load() {
		p.l.poll(ctx) // for the size that the log of the process and the metrics show
	}
	p.l.refused()
	return d, false, errFull
}

// is reports whether an event is the change that the write makes, from the version that it replaces.
func (w *write) is(e *mvccpb.Event) bool {
	was := int64(0)
	if e.PrevKv != nil {
		was = e.PrevKv.ModRevision
	}
	if was != w.was || was == 0 && e.Kv.CreateRevision != e.Kv.ModRevision {
		return false
	}
	if w.value == nil {
		return e.Type == mvccpb.DELETE
	}
	return e.Type == mvccpb.PUT && bytes.Equal(e.Kv.Value, w.value)
}

// telling returns the index of the write whose event shows whether the transaction was made: the first
// one with a value, if there is one. The deletion of a version looks the same whichever server makes it.
func (p *proposal) telling() int {
	return max(0, slices.IndexFunc(p.writes, func(w write) bool { return w.value != nil }))
}

var errDeleted = errors.New("etcd: the object was deleted, by this request or by another one")

// made reports whether the last try was made, and at which revision, by the telling write: a change
// from the version that it replaces to the one that it stores. The key was read at a revision. The error is
// store.ErrUnknown if only a deletion was found.
func (p *proposal) made(ctx context.Context, kvs []*mvccpb.KeyValue, read int64) (bool, store.Revision, error) {
	w := &p.writes[p.telling()]
	switch {
	case len(kvs) > 0 && kvs[0].ModRevision == w.was, len(kvs) > 0 && kvs[0].ModRevision <= p.since:
		return false, 0, nil
	}
	var at store.Revision
	r := scanRange{key: w.etcdKey, after: p.since, upTo: read, before: true}
	err := p.l.scan(ctx, r, func(e *mvccpb.Event) error {
		if e.PrevKv == nil && e.Type == mvccpb.PUT && e.Kv.CreateRevision != e.Kv.ModRevision && bytes.Equal(e.Kv.Value, w.value) {
			return errCompacted // the version before it: it may be the one that the write replaces
		}
		if !w.is(e) {
			return nil
		}
		at = store.Revision(e.Kv.ModRevision)
		return errDone
	})
	if err != nil && !errors.Is(err, errDone) {
		return false, 0, uncertain(err)
	}
	if at != 0 && w.value == nil {
		return false, 0, uncertain(errDeleted)
	}
	return at != 0, at, nil
}
