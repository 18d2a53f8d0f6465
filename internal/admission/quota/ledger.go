package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Ledger charges writes to the ResourceQuotas of their namespaces. Its methods are safe for
// concurrent use.
//
// A write and its charge are one transaction: the object, and the status of each quota that
// counts it. So a limit is never exceeded, and no charge is left over, however many writers
// there are and however their writes end. In each namespace one charged write at a time commits:
// it takes the writes that wait, refuses those that do not fit, and commits the others with one
// update of each quota, until its own is done.
//
// A limit holds once it is in the status of its quota. A write that was decided by a
// state without it starts again if the quota was written since then (the guard of the namespace).
type Ledger struct {
	// Quotas is the type of ResourceQuotas.
	Quotas *resource.Type
	// Uncharged: there is no plugin that charges, so that used resources are only counted.
	Uncharged bool
	// Limited are the resources that only a quota permits.
	Limited []LimitedResource
	// Now is the wall clock; nil: time.Now.
	Now func() time.Time

	stored stored

	mu         sync.Mutex
	namespaces map[string]*namespace // those with writes that wait or are committed
}

// namespace is the queue of a namespace.
type namespace struct {
	committing chan struct{} // has a value while a writer commits or a quota is counted

	users   int      // guarded by Ledger.mu
	waiting []*entry // guarded by Ledger.mu
}

// entry is a write that waits for its charge and its commit.
type entry struct {
	charge
	t    *registry.Transaction
	done chan struct{} // closed when the write has ended; the writer reads the others then
	made []*store.Object
	err  error
}

// manager is the field manager of charges, as in kube-apiserver.
const manager = "kube-apiserver"

func (l *Ledger) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// Plugins returns the admission plugin ResourceQuota, which charges writes in namespaces with
// quotas, and a plugin for the guards of namespaces.
func (l *Ledger) Plugins() []registry.Plugin {
	return []registry.Plugin{
		{
			Handles: func(s *store.State, t registry.Target, o admissionv1.Operation) bool {
				return chargeable(t, o) && (len(l.Limited) > 0 || count(s, t.Namespace) > 0)
			},
			Validate: l.check, Commit: l.commit,
		},
		{
			Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
				return chargeable(t, o) || t.Type.Collection == Collection && o == admissionv1.Update
			},
			Record: record,
		},
	}
}

// chargeable reports whether an operation may be charged: a create in a namespace, or an update
// that can change the used resources.
func chargeable(t registry.Target, o admissionv1.Operation) bool {
	collection := t.Type.Collection
	switch {
	case t.Namespace == "" || o == admissionv1.Delete:
		return false
	case o == admissionv1.Create:
		return t.Subresource == ""
	}
	return t.Subresource == "" && kinds[collection] != nil || t.Subresource == "resize" && collection == pods || t.Subresource == "status" && collection == claims
}

// count returns how many quotas a namespace has.
func count(s *store.State, namespace string) int {
	return s.Snapshot(Collection).Count(namespace+"/", "")
}

// guardOf is the guard that each write of a quota claims, except for charges.
func guardOf(namespace string) string { return "quota/" + namespace }

// check refuses writes of limited resources without a quota, and a dry-run that would exceed a
// quota.
func (l *Ledger) check(_ context.Context, a *registry.Attributes) error {
	if !a.DryRun && len(l.Limited) == 0 {
		return nil
	}
	c := l.chargeOf(a)
	if c == nil {
		return nil
	}
	quotas, err := l.stored.in(a.State, a.Namespace)
	if err == nil && len(l.Limited) > 0 {
		err = c.covered(l.Limited, a.Type.GroupResource(), quotas)
	}
	if err != nil || !a.DryRun {
		return err
	}
	for _, q := range quotas {
		if _, err := c.on(q); err != nil {
			return err
		}
	}
	return nil
}

// record claims the guard of the namespace for writes of quotas, and holds other writes to it.
func record(_ context.Context, t *registry.Transaction) error {
	if t.Type.Collection == Collection {
		t.Claim(guardOf(t.Namespace))
	} else {
		t.Unclaimed(guardOf(t.Namespace))
	}
	return nil
}

// chargeOf returns the charge of a write, or nil.
func (l *Ledger) chargeOf(a *registry.Attributes) *charge {
	k := kindOf(a.Type.Collection)
	if k == nil || a.Operation == admissionv1.Update && !k.updates {
		return nil
	}
	c := &charge{kind: k, object: a.Object, old: a.Old, free: a.Subresource == "status", now: l.now()}
	c.fail = func(format string, args ...any) error {
		return apierrors.NewForbidden(a.Type.GroupResource(), a.Name, fmt.Errorf(format, args...))
	}
	if pod, ok := a.Object.(*corev1.Pod); ok && a.Old != nil && a.Subresource == "" && isTerminating(pod) == isTerminating(a.Old.(*corev1.Pod)) {
		return nil
	}
	return c
}

// commit commits a write with its charge.
func (l *Ledger) commit(ctx context.Context, t *registry.Transaction) ([]*store.Object, error) {
	if t.Own().Value == nil {
		return t.Apply(ctx)
	}
	c := l.chargeOf(t.Attributes)
	if c == nil {
		return t.Apply(ctx)
	}
	quotas, err := l.stored.in(t.State, t.Namespace)
	if err != nil {
		return nil, err
	}
	charged := false
	for _, q := range quotas {
		added, err := c.on(q)
		charged = charged || added != nil || err != nil // a rejection is decided by the newest state
	}
	if !charged {
		return t.Apply(ctx)
	}
	e := &entry{charge: *c, t: t, done: make(chan struct{})}
	n := l.enter(t.Namespace, e)
	defer l.leave(t.Namespace, n)
	select {
	case <-e.done:
	case n.committing <- struct{}{}:
		l.commitUntil(ctx, n, e)
	case <-ctx.Done():
		l.withdraw(n, e, ctx.Err())
	}
	select {
	case <-e.done:
		return e.made, e.err
	default:
		return nil, fmt.Errorf("the write may still happen: %w", ctx.Err())
	}
}

// enter joins the queue of a namespace, with a write that waits, or nil.
func (l *Ledger) enter(name string, e *entry) *namespace {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.namespaces[name]
	if n == nil {
		if l.namespaces == nil {
			l.namespaces = map[string]*namespace{}
		}
		n = &namespace{committing: make(chan struct{}, 1)}
		l.namespaces[name] = n
	}
	n.users++
	if e != nil {
		n.waiting = append(n.waiting, e)
	}
	return n
}

func (l *Ledger) leave(name string, n *namespace) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(l.namespaces, name)
	}
}

// withdraw ends a write that still waits.
func (l *Ledger) withdraw(n *namespace, e *entry, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(n.waiting, e); i >= 0 {
		n.waiting = slices.Delete(n.waiting, i, i+1)
		e.end(nil, fmt.Errorf("the write was not made: %w", err))
	}
}

// take takes the first writes that wait, as many as one transaction has.
func (l *Ledger) take(n *namespace) []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, bytes, most := 0, 0, mostEntries
	if len(n.waiting) > 0 && n.waiting[0].t.Registry().Store.Shared() {
		most = 1 // a watch must not continue in the middle of a transaction, see store.Shared
	}
	for ; size < min(len(n.waiting), most) && bytes < mostBytes; size++ {
		bytes += len(n.waiting[size].t.Own().Value)
	}
	batch := slices.Clone(n.waiting[:size])
	n.waiting = slices.Delete(n.waiting, 0, size)
	return batch
}

// giveBack returns writes that are not done to the front of the queue.
func (l *Ledger) giveBack(n *namespace, batch []*entry) {
	left := slices.DeleteFunc(batch, (*entry).isDone)
	l.mu.Lock()
	defer l.mu.Unlock()
	n.waiting = slices.Concat(left, n.waiting)
}

// A transaction has the writes of at most mostEntries requests, and stops at mostBytes. On a log
// that servers share, it has the writes of one.
const (
	mostEntries = 64
	mostBytes   = 1 << 20
)

// errBroken is the response to writes that were committed together with one that panicked.
var errBroken = apierrors.NewInternalError(errors.New("charging the quotas of the namespace was broken off"))

// commitUntil commits writes that wait, in order, until one of them is done or its context ends.
// The caller has n.committing, which it releases.
func (l *Ledger) commitUntil(ctx context.Context, n *namespace, own *entry) {
	defer func() { <-n.committing }()
	for !own.isDone() {
		if ctx.Err() != nil {
			l.withdraw(n, own, ctx.Err())
			return
		}
		l.commitSome(context.WithoutCancel(ctx), n)
	}
}

// commitSome commits the first writes that wait.
func (l *Ledger) commitSome(ctx context.Context, n *namespace) {
	batch := l.take(n)
	completed := false
	defer func() {
		for _, e := range batch { // after a panic, which the server may survive
			if !completed && !e.isDone() {
				e.end(nil, errBroken)
			}
		}
		l.giveBack(n, batch)
	}()
	if err := l.commitBatch(ctx, batch); err != nil { // it may be about one of them
		for i, e := range batch {
			if e.isDone() {
				continue
			}
			if err := l.commitBatch(ctx, batch[i:i+1:i+1]); err != nil {
				e.end(nil, err)
			}
		}
	}
	completed = true
}

func (e *entry) end(made []*store.Object, err error) {
	e.made, e.err = made, err
	close(e.done)
}

func (e *entry) isDone() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// commitBatch commits writes and their charges together, and ends those that are committed or
// refused. The others have to be tried again. An error is about all of them.
func (l *Ledger) commitBatch(ctx context.Context, batch []*entry) error {
	r, name := batch[0].t.Registry(), batch[0].t.Namespace
	s := r.Store.Any()
	quotas, err := l.stored.in(s, name)
	if err != nil {
		return err
	}
	for i, q := range quotas { // fit charges the copies
		charged := *q
		quotas[i] = &charged
	}
	txn := store.Txn{Guards: []store.Guard{{Name: guardOf(name), Seen: s.Revision()}}}
	changed, claimed := make([]bool, len(quotas)), map[string]bool{}
	var included []*entry
	for _, e := range batch {
		if e.isDone() || !e.holds(s) || !e.claims(claimed) || !e.fit(quotas, changed) {
			continue
		}
		included = append(included, e)
		if e.t.Times != nil && txn.Times == nil {
			txn.Times = new(store.LogTimes)
		}
		txn.Writes = append(txn.Writes, e.t.Writes...)
		txn.Needs = append(txn.Needs, e.t.Needs...)
		txn.Guards = append(txn.Guards, e.t.Guards...)
	}
	if len(txn.Writes) == 0 {
		return nil
	}
	most := len(txn.Writes)
	for i := range changed {
		if changed[i] {
			most++
		}
	}
	if most > store.MaxTxnWrites { // before the work for each quota
		return store.TooManyWrites(txn.Writes[0].Key, most)
	}
	for i, q := range quotas {
		if !changed[i] {
			continue
		}
		w, err := l.update(ctx, r, s, q)
		if err != nil {
			return err
		}
		if w.Value != nil {
			txn.Writes = append(txn.Writes, w)
		}
	}
	made, err := r.Store.Apply(ctx, &txn)
	var failed *store.TxnError
	switch {
	case errors.As(err, &failed):
		attribute(included, failed, r.Store.Shared())
		return nil
	case err != nil:
		return err
	}
	for _, e := range included {
		if e.t.Times != nil {
			*e.t.Times = *txn.Times
		}
		n := len(e.t.Writes)
		e.end(made[:n:n], nil)
		made = made[n:]
	}
	return nil
}

// holds reports whether the needs of a write hold in a state. Otherwise it ends the write, whose
// request starts again.
func (e *entry) holds(s *store.State) bool {
	if err := e.t.NeedsHold(s); err != nil {
		e.end(nil, err)
		return false
	}
	return true
}

// claims adds the claims of a write to those of a transaction. It is false if another write of the
// transaction has one of them: then this one has to wait for the next transaction, whose guards
// see the claims of the first one.
func (e *entry) claims(claimed map[string]bool) bool {
	for _, g := range e.t.Guards {
		if g.Claim && claimed[g.Name] {
			return false
		}
	}
	for _, g := range e.t.Guards {
		if g.Claim {
			claimed[g.Name] = true
		}
	}
	return true
}

// attribute ends the write of a batch whose condition does not hold. If the condition is one of
// the charges, no write ends: all are charged again by a newer state.
//
// A shared log does not report which guard failed. A batch has a single write there, and its request starts again. This is
// also right if the guard of the quotas failed, because the write has the same guard with an older revision.
func attribute(batch []*entry, failed *store.TxnError, shared bool) {
	if shared && failed.Part == store.GuardPart {
		for _, e := range batch {
			e.end(nil, &store.TxnError{Part: failed.Part, Err: failed.Err})
		}
		return
	}
	index := failed.Index
	if failed.Part == store.GuardPart {
		index-- // the first one is about the quotas
	}
	for _, e := range batch {
		n := [...]int{store.WritePart: len(e.t.Writes), store.NeedPart: len(e.t.Needs), store.GuardPart: len(e.t.Guards)}[failed.Part]
		if index >= 0 && index < n {
			e.end(nil, &store.TxnError{Part: failed.Part, Index: index, Err: failed.Err})
			return
		}
		index -= n
	}
}

// fit charges a write to the quotas, in memory, if it fits all of them. Otherwise it ends the
// write. Changed are the quotas that were charged.
func (e *entry) fit(quotas []*corev1.ResourceQuota, changed []bool) bool {
	adds := make([]corev1.ResourceList, len(quotas))
	for i, q := range quotas {
		var err error
		if adds[i], err = e.on(q); err != nil {
			e.end(nil, err)
			return false
		}
	}
	for i, q := range quotas {
		if adds[i] != nil {
			add(q, adds[i])
			changed[i] = true
		}
	}
	return true
}

// update makes the write of a charged quota.
func (l *Ledger) update(ctx context.Context, r *registry.Registry, s *store.State, q *corev1.ResourceQuota) (store.Write, error) {
	t := registry.Target{Type: l.Quotas, Subresource: "status", Namespace: q.Namespace, Name: q.Name}
	return r.PrepareEdit(ctx, t, s.Get(Collection, q.Namespace+"/"+q.Name), manager, func(o metav1.Object) error {
		o.(*corev1.ResourceQuota).Status.Used = q.Status.Used
		return nil
	})
}

// errNothing ends an edit that changes nothing.
var errNothing = errors.New("the quota is up to date")

// Recount counts the resources that a quota limits, and writes them into its status as a field
// manager, with the limits that hold from now on. Next is when that has to be done again although
// nothing changes; zero: never. It is no error if the quota does not exist.
func (l *Ledger) Recount(ctx context.Context, r *registry.Registry, namespace, name, by string) (next time.Time, err error) {
	n := l.enter(namespace, nil)
	defer l.leave(namespace, n)
	select { // so that no charge comes between the count and its write
	case n.committing <- struct{}{}:
		defer func() { <-n.committing }()
	case <-ctx.Done():
		return next, ctx.Err()
	}
	t := registry.Target{Type: l.Quotas, Subresource: "status", Namespace: namespace, Name: name}
	_, err = r.Edit(ctx, t, by, func(o metav1.Object) error {
		q := o.(*corev1.ResourceQuota)
		var used corev1.ResourceList
		var err error
		if used, next, err = Used(r.Store.Any(), q, l.now()); err != nil {
			return err
		}
		if equal(used, q.Status.Used) && equal(q.Spec.Hard, q.Status.Hard) {
			return errNothing
		}
		q.Status.Hard, q.Status.Used = q.Spec.Hard, used
		return nil
	})
	if errors.Is(err, errNothing) || apierrors.IsNotFound(err) {
		err = nil
	}
	return next, err
}
