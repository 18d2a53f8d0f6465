package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Books keep what is used of the quotas of all namespaces. Their methods are safe for
// concurrent use.
//
// In a namespace one works on the quotas at a time, with its turn:
//
//	charge:  take all charges that wait; refuse what does not fit; write the status of
//	         each quota once for all that do; they are under way until their writes end
//	recount: count what is stored, add what is under way and not yet seen; write
//
// So a limit is never exceeded by writes of this server that begin when it holds, that is,
// stands in the status, however many there are at once: what was charged is stored, under
// way, or failed, and only what has failed may be forgotten by a recount. A recount that
// cannot tell whether a write that is under way is stored counts it, too, and asks for
// another one when the write has ended.
//
// Writes that began before a limit held are not charged for it, and the first recount
// cannot know of those that are not stored yet. A caller that has quotas recounted does so again
// when they have ended (registry.Registry.AfterWrites); until then they come on top.
type Books struct {
	Registry *registry.Registry
	// Quotas is the type of ResourceQuotas.
	Quotas *resource.Type
	// Uncharged: writes do not ask, so that what is used is only counted.
	Uncharged bool
	// Now is the wall clock; nil: time.Now.
	Now func() time.Time

	// recount is called with a namespace whose quotas say too much.
	recount atomic.Pointer[func(namespace string)]

	stored stored

	mu    sync.Mutex
	pages map[string]*page // of namespaces where something is under way
}

// page is a namespace.
type page struct {
	turn sync.Mutex // to work on the quotas

	users int // who has the page; guarded by Books.mu

	mu       sync.Mutex
	waiting  []*entry
	underWay map[*entry]struct{}
}

// entry is a charge on its way through the books.
type entry struct {
	charge
	at        object
	uid       types.UID
	recounted bool // while it was under way; guarded by page.mu
}

// object is where an object will stand, and the version of it before.
type object struct {
	collection, key string
	before          store.Revision
}

// manager is the field manager of what the books write while a write is admitted: that
// of kube-apiserver.
const manager = "kube-apiserver"

// OnStale has f called with a namespace when what its quotas say is used was not all
// stored. It must not wait.
func (b *Books) OnStale(f func(namespace string)) { b.recount.Store(&f) }

func (b *Books) now() time.Time {
	if b.Now != nil {
		return b.Now()
	}
	return time.Now()
}

func (b *Books) state() *store.State { return b.Registry.Store.Any() }

// Wants is the Wants of the step. In a namespace without quotas nothing is looked at.
func (b *Books) Wants(t registry.Target, verb string) bool {
	if t.Namespace == "" || verb == "delete" {
		return false
	}
	collection := t.Type.Collection
	switch t.Subresource {
	case "":
		if verb == "update" && kinds[collection] == nil {
			return false
		}
	case "resize":
		if collection != pods {
			return false
		}
	case "status":
		if collection != claims {
			return false
		}
	default:
		return false
	}
	return b.state().Snapshot(Collection).Count(t.Namespace+"/", "") > 0
}

// Admit is the Admit of the step: it charges a write, and refuses what would exceed a
// quota.
func (b *Books) Admit(ctx context.Context, a *registry.Admission) error {
	e := b.entry(a)
	if e == nil {
		return nil
	}
	quotas, err := b.stored.in(b.state(), a.Namespace)
	if err != nil {
		return err
	}
	charged := false
	for _, q := range quotas {
		added, err := e.on(q)
		if err != nil {
			return err
		}
		charged = charged || added != nil
	}
	if a.DryRun || !charged {
		return nil
	}
	p := b.open(a.Namespace)
	underWay := false
	defer func() {
		if !underWay {
			b.close(a.Namespace, p)
		}
	}()
	b.await(context.WithoutCancel(ctx), p, a.Namespace, e)
	if underWay = e.err == nil && len(e.places) > 0; underWay {
		a.OnEnd(func(stored bool) { b.end(a.Namespace, p, e, stored) })
	}
	return e.err
}

// await returns when a charge is made or refused: by another goroutine, or with its turn.
func (b *Books) await(ctx context.Context, p *page, namespace string, e *entry) {
	p.mu.Lock()
	p.waiting = append(p.waiting, e)
	p.mu.Unlock()
	p.turn.Lock()
	defer p.turn.Unlock()
	if !e.done {
		b.charge(ctx, p, namespace) // of others, too
	}
}

// entry is what a write has to be charged for; nil: nothing.
func (b *Books) entry(a *registry.Admission) *entry {
	k := kindOf(a.Type.Collection)
	if k == nil {
		return nil
	}
	meta := a.Object.(metav1.Object)
	e := &entry{at: object{collection: a.Type.Collection, key: a.Namespace + "/" + meta.GetName()}, uid: meta.GetUID()}
	e.charge = charge{kind: k, object: a.Object, old: a.Old, free: a.Subresource == "status", now: b.now()}
	e.fail = func(format string, args ...any) error {
		return apierrors.NewForbidden(a.Type.GroupResource(), meta.GetName(), fmt.Errorf(format, args...))
	}
	if a.Old == nil {
		return e
	}
	if pod, ok := a.Object.(*corev1.Pod); ok && a.Subresource == "" && isTerminating(pod) == isTerminating(a.Old.(*corev1.Pod)) {
		return nil
	}
	if o := b.state().Get(e.at.collection, e.at.key); o != nil {
		e.at.before = o.Modified
	}
	return e
}

// open takes the page of a namespace.
func (b *Books) open(namespace string) *page {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[namespace]
	if p == nil {
		p = &page{underWay: map[*entry]struct{}{}}
		if b.pages == nil {
			b.pages = map[string]*page{}
		}
		b.pages[namespace] = p
	}
	p.users++
	return p
}

func (b *Books) close(namespace string, p *page) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(b.pages, namespace)
	}
}

// end takes a charge off whose write has ended.
func (b *Books) end(namespace string, p *page, e *entry, stored bool) {
	p.mu.Lock()
	delete(p.underWay, e)
	stale := !stored || e.recounted
	p.mu.Unlock()
	b.close(namespace, p)
	if stale {
		b.stale(namespace)
	}
}

func (b *Books) stale(namespace string) {
	if f := b.recount.Load(); f != nil {
		(*f)(namespace)
	}
}

// charge charges all who wait. The caller has the turn.
func (b *Books) charge(ctx context.Context, p *page, namespace string) {
	p.mu.Lock()
	all := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	through := false
	defer func() {
		if !through { // a panic, which the server may survive: who is charged is not known
			for _, e := range all {
				e.done, e.err = true, errBroken
			}
			b.stale(namespace)
		}
	}()
	b.chargeAll(ctx, p, namespace, all)
	through = true
}

func (b *Books) chargeAll(ctx context.Context, p *page, namespace string, all []*entry) {
	quotas, err := b.stored.in(b.state(), namespace)
	for _, e := range all {
		e.done, e.err = true, err
	}
	if err != nil {
		return
	}
	b.refuse(all, quotas)
	for _, q := range quotas {
		if err := b.chargeOn(ctx, q, all); err != nil {
			for _, e := range all {
				if e.err == nil {
					e.err = err
				}
			}
		}
	}
	p.mu.Lock()
	stale := false
	for _, e := range all {
		switch {
		case e.err == nil && len(e.places) > 0:
			p.underWay[e] = struct{}{}
		case len(e.places) > 0: // on one quota and then refused by another
			stale = true
		}
	}
	p.mu.Unlock()
	if stale {
		b.stale(namespace)
	}
}

// refuse finds out what does not fit, one after the other, before anything is charged.
func (b *Books) refuse(all []*entry, quotas []*corev1.ResourceQuota) {
	running := make([]*corev1.ResourceQuota, len(quotas))
	for i, q := range quotas {
		running[i] = q.DeepCopy()
	}
	for _, e := range all {
		adds := make([]corev1.ResourceList, len(running))
		for i, q := range running {
			if adds[i], e.err = e.on(q); e.err != nil {
				break
			}
		}
		if e.err != nil {
			continue
		}
		for i, q := range running {
			add(q, adds[i])
		}
	}
}

// errNothing ends an edit that changes nothing.
var errNothing = errors.New("nothing is charged")

// errBroken is the answer to those who were charged together with one that panicked.
var errBroken = apierrors.NewInternalError(errors.New("charging the quotas of the namespace was broken off"))

// chargeOn charges one quota for all that are not refused. Another goroutine may change its
// status meanwhile; then all is looked at again.
func (b *Books) chargeOn(ctx context.Context, q *corev1.ResourceQuota, all []*entry) error {
	adds, errs := make([]corev1.ResourceList, len(all)), make([]error, len(all))
	err := b.edit(ctx, q.Namespace, q.Name, manager, func(now *corev1.ResourceQuota) error {
		clear(adds)
		clear(errs)
		changed := false
		for i, e := range all {
			if e.err != nil {
				continue
			}
			if adds[i], errs[i] = e.on(now); errs[i] == nil && adds[i] != nil {
				add(now, adds[i])
				changed = true
			}
		}
		if !changed {
			return errNothing
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil // it limits nothing any more
	}
	for i, e := range all {
		if e.err == nil {
			e.err = errs[i]
		}
		if err == nil && adds[i] != nil && errs[i] == nil {
			if e.places == nil {
				e.places = map[types.UID]corev1.ResourceList{}
			}
			e.places[q.UID] = adds[i]
		}
	}
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

func (b *Books) edit(ctx context.Context, namespace, name, by string, change func(*corev1.ResourceQuota) error) error {
	t := registry.Target{Type: b.Quotas, Subresource: "status", Namespace: namespace, Name: name}
	_, err := b.Registry.Edit(ctx, t, by, func(o metav1.Object) error { return change(o.(*corev1.ResourceQuota)) })
	return err
}

// Recount counts what a quota is of, and writes it into its status as a field manager,
// with the limits that hold from now on. Next is when that has to be done again although
// nothing changes; zero: never. It is no error when the quota is gone.
func (b *Books) Recount(ctx context.Context, namespace, name, by string) (next time.Time, err error) {
	p := b.open(namespace)
	defer b.close(namespace, p)
	p.turn.Lock()
	defer p.turn.Unlock()
	under := p.look()
	err = b.edit(ctx, namespace, name, by, func(q *corev1.ResourceQuota) error {
		s := b.state()
		var used corev1.ResourceList
		var err error
		if used, next, err = Used(s, q, b.now()); err != nil {
			return err
		}
		for _, e := range under {
			if !e.isIn(s) {
				for name, amount := range e.places[q.UID] {
					if _, counts := used[name]; counts {
						addTo(used, name, amount)
					}
				}
			}
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

// look returns what is under way, and remembers that it was counted.
func (p *page) look() []*entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*entry
	for e := range p.underWay {
		e.recounted = true
		all = append(all, e)
	}
	return all
}

// isIn reports whether what was charged is stored for certain.
func (e *entry) isIn(s *store.State) bool {
	o := s.Get(e.at.collection, e.at.key)
	if o == nil || o.Modified <= e.at.before {
		return false
	}
	return string(registry.MetadataOf(o).UID) == string(e.uid)
}
