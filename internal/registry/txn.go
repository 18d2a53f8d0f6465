package registry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/tracing"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Transaction is the write of a request, with the other writes that are stored together with it and
// the conditions that must hold when it is stored.
type Transaction struct {
	*Attributes
	store.Txn
	own      int // the index of the request's own write
	registry *Registry
	held     []func() // see Hold
	// needsNamespace is set if the first need is about the namespace of a new object.
	needsNamespace bool

	// Buffers for the parts of most transactions.
	writes [1]store.Write
	guards [2]store.Guard
	needs  [1]store.Need
}

// Own returns the request's own write. Its Value is nil if the object is removed, by a deletion or
// by an update that takes off the last finalizer.
func (t *Transaction) Own() *store.Write { return &t.Writes[t.own] }

// Before adds a write ahead of the request's own.
func (t *Transaction) Before(w store.Write) {
	t.Writes = append(t.Writes, store.Write{})
	copy(t.Writes[t.own+1:], t.Writes[t.own:])
	t.Writes[t.own] = w
	t.own++
}

// After adds a write behind the request's own.
func (t *Transaction) After(w store.Write) { t.Writes = append(t.Writes, w) }

// Need requires that another object does not change between the state of the request and the
// commit.
func (t *Transaction) Need(collection, key string) {
	t.Needs = append(t.Needs, need(t.State, collection, key))
}

func need(s *store.State, collection, key string) store.Need {
	n := store.Need{Collection: collection, Key: key}
	if o := s.Get(collection, key); o != nil {
		n.Modified = o.Modified
	}
	return n
}

// Claim claims a name. Of the transactions that were decided by the same state, only one can claim
// it.
func (t *Transaction) Claim(name string) {
	t.Guards = append(t.Guards, store.Guard{Name: name, Seen: t.State.Revision(), Claim: true})
}

// Unclaimed requires that no other transaction has claimed a name since the state of the request.
func (t *Transaction) Unclaimed(name string) {
	t.Guards = append(t.Guards, store.Guard{Name: name, Seen: t.State.Revision()})
}

// namespaceGuard begins the name of the guard that the deletion of a namespace claims. A transaction that creates an object
// in the namespace fails if the guard was claimed. Other changes of the namespace, such as of its labels, do not matter.
//
// On a shared log, a kube-apiserver may delete the namespace, and claims no guard. So a new object needs the version of the
// namespace instead. Deletions claim the guard there too: a follower sends them to its server, whose own new objects rely
// on the guard.
const namespaceGuard = "namespace/"

// inNamespace adds the condition that the deletion of the namespace of a new object has not begun since the
// state of the request, which checkNamespace has checked.
func (t *Transaction) inNamespace() {
	switch r := t.registry; {
	case !r.Store.Shared():
		t.Unclaimed(namespaceGuard + t.Namespace)
	case !r.Namespaces.Unchecked:
		t.Need("namespaces", t.Namespace)
		t.needsNamespace = true
	}
}

// renewNamespace reports whether a transaction can be committed again after an error: its namespace has
// changed, is still the same one, and is not being deleted. It then needs the new version.
func (t *Transaction) renewNamespace(err error) bool {
	var failed *store.TxnError
	if !t.needsNamespace || !errors.As(err, &failed) || failed.Part != store.NeedPart || failed.Index != 0 {
		return false
	}
	n := &t.Needs[0]
	before, now := t.State.Get(n.Collection, n.Key), t.registry.Store.Any().Get(n.Collection, n.Key)
	if before == nil || now == nil || now.Created != before.Created || now.Modified == n.Modified || isDeleted(now) {
		return false
	}
	n.Modified = now.Modified
	return true
}

// Hold calls a function when the transaction was committed or rejected, which releases resources of
// a plugin.
func (t *Transaction) Hold(release func()) { t.held = append(t.held, release) }

func (t *Transaction) release() {
	for _, f := range t.held {
		f()
	}
}

// Apply commits the transaction. A plugin with a Commit calls it, or makes the transaction a part
// of a larger one.
func (t *Transaction) Apply(ctx context.Context) ([]*store.Object, error) {
	return t.registry.Store.Apply(ctx, &t.Txn)
}

// Registry returns the registry of the request.
func (t *Transaction) Registry() *Registry { return t.registry }

// commit stores the write of a request, with the additions of plugins. The error is
// store.ErrExists, ErrNotFound or ErrConflict if the request's own object has changed since the
// request read it, and store.ErrStale if another object has. A dry-run checks whether the write is
// possible, and returns the response that it would have.
//
// A log may accept smaller objects than checkSize: the limit of etcd is 1.5 MiB for a request. An object that is too large
// for the log is written without its managed fields.
func (r *Registry) commit(ctx context.Context, a *Attributes, c store.Write) (*store.Object, error) {
	made, err := r.commitOnce(ctx, a, c)
	if err == nil {
		return made, nil // before unstorable, which allocates
	}
	if tooLarge(err) && !a.w.owners.hasDecided { // an apply is refused: it is about managed fields
		lean := c
		if lean.Value = withoutManaged(c.Value, locateManaged(c.Value)); len(lean.Value) < len(c.Value) {
			made, err = r.commitOnce(ctx, a, lean)
		}
	}
	return made, unstorable(a.Target, err)
}

// tooLarge reports whether the store cannot keep a write because of its size.
func tooLarge(err error) bool {
	var refused *store.UnfitError
	return errors.As(err, &refused) && refused.Size
}

// commitOnce makes one try of commit. The error may be a *store.UnfitError, too.
func (r *Registry) commitOnce(ctx context.Context, a *Attributes, c store.Write) (*store.Object, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if a.DryRun {
		return r.dryRun(a, c)
	}
	t := &Transaction{Attributes: a, registry: r, writes: [1]store.Write{c}}
	t.Writes, t.Guards, t.Needs = t.writes[:], t.guards[:0], t.needs[:0]
	defer t.release()
	switch {
	case a.Type.Collection == "namespaces" && (c.Value == nil || c.Deleting):
		t.Claim(namespaceGuard + a.Name)
	case c.If == 0 && a.Namespace != "":
		t.inNamespace()
	}
	apply := func() ([]*store.Object, error) { return t.Apply(ctx) }
	for i := range r.Plugins {
		p := &r.Plugins[i]
		if p.Record == nil && p.Commit == nil || !a.handling.has(i) {
			continue
		}
		if p.Record != nil {
			if err := p.Record(ctx, t); err != nil {
				return nil, err
			}
		}
		if p.Commit != nil {
			apply = func() ([]*store.Object, error) { return p.Commit(ctx, t) }
		}
	}
	origin := a.w.origin(ctx)
	for i := range t.Writes { // one that has an origin is part of several requests
		if t.Writes[i].Origin == nil {
			t.Writes[i].Origin = origin
		}
	}
	times, began := timesOf(ctx), time.Time{}
	if times != nil {
		began = time.Now()
		if tracing.Recording(ctx) {
			t.Times = new(store.LogTimes)
		}
	}
	made, err := apply()
	for t.renewNamespace(err) {
		made, err = apply()
	}
	if times != nil {
		ended := time.Now()
		times.commit.Add(int64(ended.Sub(began)))
		if t.Times != nil {
			recordCommit(ctx, t.Times, began, ended)
		}
	}
	if err != nil {
		return nil, t.failed(err)
	}
	a.w.committed = true
	return made[t.own], nil
}

// recordCommit records the span of a commit, and of the log's part in it. The difference is waiting for the group
// of writes before, and publishing.
func recordCommit(ctx context.Context, log *store.LogTimes, began, ended time.Time) {
	ctx, span := tracing.Start(ctx, "commit", trace.WithTimestamp(began))
	defer span.End(trace.WithTimestamp(ended))
	if !log.Began.IsZero() {
		tracing.Record(ctx, "log append and sync", log.Began, log.Ended,
			attribute.Int("tidemark.log.group.writes", log.Writes), attribute.Int("tidemark.log.group.bytes", log.Bytes))
	}
}

// failed converts the error of a commit to one about the request.
func (t *Transaction) failed(err error) error {
	var failed *store.TxnError
	switch {
	case !errors.As(err, &failed):
		return err
	case failed.Part == store.WritePart && failed.Index == t.own:
		return failed.Err
	}
	return store.ErrStale
}

func (r *Registry) dryRun(a *Attributes, c store.Write) (*store.Object, error) {
	current := r.Store.Any().Get(c.Collection, c.Key)
	switch {
	case current == nil && c.If != 0:
		return nil, store.ErrNotFound
	case current != nil && c.If == 0:
		return nil, store.ErrExists
	case current != nil && c.If != current.Modified:
		return nil, store.ErrConflict
	case c.Value == nil:
		return current, nil
	case current == nil && a.sentVersion == 0:
		return &store.Object{Key: c.Key, Held: withoutRevision(wire.Encoded{Bytes: c.Value, RevisionAt: c.RevisionAt})}, nil
	case current == nil:
		return withRevision(c.Key, wire.Encoded{Bytes: c.Value, RevisionAt: c.RevisionAt}, a.sentVersion), nil
	}
	return withRevision(c.Key, wire.Encoded{Bytes: c.Value, RevisionAt: c.RevisionAt}, current.Modified), nil
}
