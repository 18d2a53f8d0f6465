// Package peers makes the servers on one log known to each other: each shows that it is alive, the
// digests of the files that must agree, and the address at which clients reach it.
//
//	leases kube-system/tidemark-ID   one for each server, renewed every 10 s, with the facts that must agree
//	masterleases IP                  the address of a server for the Service `kubernetes`, for 15 s;
//	                                 kube-apiserver has the same keys
//
// All servers write the endpoints of the Service, from the addresses that are valid. They agree on
// these, so none reverts the write of another one.
package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Config configures a server among others.
type Config struct {
	// Startup has the registry, the catalog and the address at which clients reach the server.
	Startup startup.Config
	// Identity is the name of this process among the servers.
	Identity string
	// Facts are the settings that all servers must share, with the remedy for a difference.
	Facts []Fact
	// Fail ends the server: it must not run beside one that was not seen when it joined.
	Fail func(error)
	// Now is the wall clock; nil: time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Fact is something that all servers must have in common.
type Fact struct {
	// Name is that of the annotation, below tidemark.dev/.
	Name string
	// Value identifies it. It is not secret.
	Value string
	// Current returns the value at present, if that changes while the server runs; nil: it is always Value.
	Current func() string
	// Agree is Agrees; nil: the values must be the same.
	Agree func(theirs string) bool
	// Show returns a value as an error has it; nil: the value itself.
	Show func(value string) string
	// What is the name of the setting in an error, and Remedy the advice for a difference.
	What, Remedy string
	// Advisory: servers may differ for a while, and a difference is logged. Otherwise the server does not start.
	Advisory bool
}

const (
	// renewal is the pause between two renewals.
	renewal = 10 * time.Second
	// LongestRenewal is how long a renewal takes on a slow etcd, with the pause before it. It holds for
	// a kube-apiserver too.
	LongestRenewal = 15 * time.Second
	// lifetime is how long a server lives without a renewal, and longestGone how long the Lease of
	// a dead one stays.
	lifetime    = 40 * time.Second
	longestGone = time.Hour

	// Leases is the collection of the Leases of servers, and LeasePrefix the prefix of their keys.
	// Other Leases have it too.
	Leases      = "leases.coordination.k8s.io"
	LeasePrefix = metav1.NamespaceSystem + "/"

	leaseName   = "tidemark-"
	factPrefix  = "tidemark.dev/"
	addressFact = factPrefix + "address" // of the server, IP:port
	label       = "apiserver.kubernetes.io/identity"
	labelValue  = "tidemark" // kube-apiserver sends requests to servers with its own name here
)

// Peers is a server among others.
type Peers struct {
	c     Config
	ended map[string]store.Revision // Leases that were not renewed, by key
	gone  map[string]sighting       // at the last call of forget, by key
	shows bool                      // the Lease may exist
	// advised are the warnings about advisory facts that held at the last Check, by the keys of Leases.
	advised map[[2]string]bool
	blind   bool // it joined while etcd was full, and has to be compared with the others
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// New returns a server that has not joined the others.
func New(c Config) *Peers {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Fail == nil {
		c.Fail = func(error) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Peers{c: c, ended: map[string]store.Revision{}}
}

// Check returns an error if a live server differs from this one in a fact. A Lease that is not
// current by the clock of this server can be that of a server with another clock: Check waits for a
// renewal if that one differs. It deletes the Lease if there is none, unless etcd is full.
func (p *Peers) Check(ctx context.Context) error {
	state, err := p.c.Startup.Registry.Store.MostRecent(ctx)
	if err != nil {
		return err
	}
	var old []difference
	advised := p.advised
	p.advised = map[[2]string]bool{}
	for _, d := range p.differences(state) {
		switch {
		case d.advisory && d.age.Abs() >= lifetime:
		case d.advisory:
			warning := [2]string{d.key, d.err.Error()}
			if p.advised[warning] = true; !advised[warning] {
				p.c.Log.Warn(d.err.Error())
			}
		case d.age.Abs() < lifetime:
			return d.err
		case p.ended[d.key] != d.modified:
			old = append(old, d)
		}
	}
	return p.awaitRenewal(ctx, old)
}

// differsError means that another server has other settings than this one.
type differsError struct{ text string }

func (e *differsError) Error() string { return e.text }

// A difference is a server whose Lease has other facts than this one.
type difference struct {
	key      string // of the Lease
	modified store.Revision
	age      time.Duration // since the renewal, by the clock of this server
	advisory bool          // of an advisory fact
	err      error
}

// differences returns the differences of each server, alive or not: one for each advisory fact, and one for all others.
func (p *Peers) differences(s *store.State) (all []difference) {
	kube := p.kubeFacts(s)
	for o := range s.Snapshot(Leases).Scan(LeasePrefix, "") {
		lease, err := registry.Decode[coordinationv1.Lease](o)
		if err != nil || lease.Name == p.ownLease() {
			continue
		}
		who, theirs := "the server", map[string]string{}
		switch lease.Labels[label] {
		case labelValue:
			for at, value := range lease.Annotations {
				theirs[strings.TrimPrefix(at, factPrefix)] = value
			}
		case kubeLabelValue:
			who, theirs = "the kube-apiserver", kube
		}
		var texts []string
		for _, f := range p.c.Facts {
			value, ok := theirs[f.Name]
			switch text := fmt.Sprintf("%s %s on the same etcd has %s", who, of(lease), f.Difference(value)); {
			case !ok || f.Agrees(value):
			case f.Advisory:
				all = append(all, difference{o.Key, o.Modified, p.age(lease), true, &differsError{text}})
			default:
				texts = append(texts, text)
			}
		}
		if len(texts) > 0 {
			all = append(all, difference{o.Key, o.Modified, p.age(lease), false, &differsError{strings.Join(texts, "; ")}})
		}
	}
	return all
}

// awaitRenewal waits for as long as a server takes to renew its Lease, and returns an error if one of these
// is renewed.
func (p *Peers) awaitRenewal(ctx context.Context, old []difference) error {
	if len(old) == 0 {
		return nil
	}
	p.c.Log.Info("the Lease of a server with other settings has expired; waiting in case the clocks differ", "lease", old[0].key, "for", LongestRenewal)
	end := time.NewTimer(LongestRenewal)
	defer end.Stop()
	tick := time.NewTicker(renewal / 20)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			state := p.c.Startup.Registry.Store.Any()
			for _, d := range old {
				if o := state.Get(Leases, d.key); o != nil && o.Modified != d.modified {
					return d.err
				}
			}
		case <-end.C:
			for _, d := range old {
				p.ended[d.key] = d.modified
				if p.c.Startup.Registry.Store.Stats().Log.Full { // a server that lives cannot renew it
					continue
				}
				if err := p.remove(ctx, d.key, d.modified); err != nil {
					p.c.Log.Warn("the Lease of a server that has ended could not be deleted", "lease", d.key, "err", err)
				}
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Values returns the values of facts by their names.
func Values(facts []Fact) map[string]string {
	all := map[string]string{}
	for _, f := range facts {
		all[f.Name] = f.value()
	}
	return all
}

func (f *Fact) value() string {
	if f.Current != nil {
		return f.Current()
	}
	return f.Value
}

// Difference describes the difference between a value of another server and that of this server,
// with the remedy.
func (f *Fact) Difference(theirs string) string {
	own := f.value()
	if f.Show != nil {
		own, theirs = f.Show(own), f.Show(theirs)
	}
	return fmt.Sprintf("%s: %s there, and %s here; %s", f.What, theirs, own, f.Remedy)
}

// Agrees reports whether the value of another server fits to this one.
func (f *Fact) Agrees(theirs string) bool {
	if f.Agree != nil {
		return f.Agree(theirs)
	}
	return theirs == f.value()
}

// ServerOf returns the name of the server of a Lease, with its program and address. It is empty if
// the Lease is not that of a server, or that of one that ended long ago.
func ServerOf(o *store.Object, now time.Time) string {
	lease, err := registry.Decode[coordinationv1.Lease](o)
	if err != nil || lease.Spec.RenewTime == nil || now.Sub(lease.Spec.RenewTime.Time).Abs() >= longestGone {
		return ""
	}
	switch lease.Labels[label] {
	case labelValue:
		return "the server " + of(lease)
	case kubeLabelValue:
		return "the kube-apiserver " + of(lease)
	}
	return ""
}

// of returns the name of the server of a Lease, with its address if the Lease has it.
func of(lease *coordinationv1.Lease) string {
	name := lease.Name
	if h := lease.Spec.HolderIdentity; h != nil && *h != "" {
		name = *h
	}
	if address := lease.Annotations[addressFact]; address != "" {
		name += " (" + address + ")"
	}
	return name
}

// age returns for how long a Lease has not been renewed.
func (p *Peers) age(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.RenewTime == nil {
		return longestGone
	}
	return p.c.Now().Sub(lease.Spec.RenewTime.Time)
}

// Join shows this server to the others, and returns an error if it must not run beside them. Leave
// reverts it, also after an error.
func (p *Peers) Join(ctx context.Context) error {
	ctx = registry.WithLoop(ctx, "peers")
	p.shows = true
	if err := p.unlessFull(p.renew(ctx)); err != nil {
		return fmt.Errorf("the lease of this server: %w", err)
	}
	if err := p.Check(ctx); err != nil { // one that joined at the same time
		return err
	}
	if err := p.unlessFull(p.publish(ctx)); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	p.done.Go(func() { p.run(running) })
	return nil
}

// unlessFull returns the error of a write, unless it is that etcd is full: a server that cannot be
// shown to the others serves reads and deletions, which free space in etcd. It is shown as soon as
// there is space, and compared then.
func (p *Peers) unlessFull(err error) error {
	if !isFull(err) {
		return err
	}
	p.blind = true
	p.c.Log.Warn("this server is not shown to the others", "err", err)
	return nil
}

func isFull(err error) bool {
	return errors.Is(err, store.ErrNoSpace) || apierrors.ReasonForError(err) == "InsufficientStorage"
}

// look compares the server with the others, after it joined while they could not renew their Leases. First it waits
// until those that live have done so. It repeats a comparison that fails.
func (p *Peers) look(ctx context.Context) {
	for {
		select {
		case <-time.After(LongestRenewal):
		case <-ctx.Done():
			return
		}
		err := p.Check(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case errors.As(err, new(*differsError)):
			p.c.Fail(err)
			return
		}
		p.c.Log.Warn("this server could not be compared with the others, and will be", "err", err)
	}
}

func (p *Peers) run(ctx context.Context) {
	ticker := time.NewTicker(renewal)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		round, cancel := context.WithTimeout(ctx, renewal)
		renewed := p.renew(round)
		err := errors.Join(renewed, p.publish(round), p.forget(round))
		cancel()
		if renewed == nil && p.blind {
			p.blind = false
			p.done.Go(func() { p.look(ctx) })
		}
		if err != nil && ctx.Err() == nil && !isFull(err) { // the log of the storage has a line about that
			p.c.Log.Warn("this server is not shown to the others", "err", err)
		}
	}
}

// Leave withdraws this server, within a second. The others take its address off the endpoints.
func (p *Peers) Leave() {
	if p.stop != nil {
		p.stop()
		p.done.Wait()
	}
	if !p.shows {
		return
	}
	ctx, cancel := context.WithTimeout(registry.WithLoop(context.Background(), "peers"), time.Second)
	defer cancel()
	var address, lease error
	var both sync.WaitGroup
	both.Go(func() { address = p.withdraw(ctx) })
	both.Go(func() {
		if _, err := p.c.Startup.Registry.Delete(ctx, p.lease(), nil, nil); err != nil && !apierrors.IsNotFound(err) {
			lease = err
		}
	})
	both.Wait()
	if err := errors.Join(address, lease); err != nil {
		p.c.Log.Warn("this server could not withdraw from the others, which find out when its Lease expires", "lease", p.ownLease(), "err", err)
	}
}

func (p *Peers) ownLease() string { return leaseName + p.c.Identity }

func (p *Peers) lease() registry.Target {
	return registry.Target{Type: p.kind("coordination.k8s.io", "leases"), Namespace: metav1.NamespaceSystem, Name: p.ownLease()}
}

func (p *Peers) kind(group, name string) *resource.Type {
	return p.c.Startup.Catalog.Lookup(group, "v1", name)
}

// renew writes the Lease of this server.
func (p *Peers) renew(ctx context.Context) error {
	fill := func(lease *coordinationv1.Lease) {
		now, seconds := metav1.NewMicroTime(p.c.Now()), int32(lifetime/time.Second)
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &p.c.Identity, LeaseDurationSeconds: &seconds, RenewTime: &now}
		lease.Labels = map[string]string{label: labelValue}
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		for name, value := range Values(p.c.Facts) {
			lease.Annotations[factPrefix+name] = value
		}
		if a := p.c.Startup.Address; a.IsValid() {
			lease.Annotations[addressFact] = a.String()
		}
	}
	made := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: p.ownLease(), Namespace: metav1.NamespaceSystem}}
	fill(made)
	return p.c.Startup.Put(ctx, p.lease(), made, func(m metav1.Object) error {
		fill(m.(*coordinationv1.Lease))
		return nil
	})
}

// A sighting is a Lease that seemed to be of a dead server, and since when it has not changed.
type sighting struct {
	modified store.Revision
	since    time.Time
}

// forget deletes the Leases of servers that died long ago. The clocks of servers may differ by hours, so it deletes only
// those that it has not seen renewed for as long as a renewal takes.
func (p *Peers) forget(ctx context.Context) error {
	var all error
	gone := map[string]sighting{}
	defer func() { p.gone = gone }()
	for o := range p.c.Startup.Registry.Store.Any().Snapshot(Leases).Scan(LeasePrefix+leaseName, "") {
		lease, err := registry.Decode[coordinationv1.Lease](o)
		if err != nil || p.age(lease) < longestGone {
			continue
		}
		was, known := p.gone[o.Key]
		if !known || was.modified != o.Modified {
			was = sighting{o.Modified, time.Now()}
		}
		gone[o.Key] = was
		if time.Since(was.since) >= LongestRenewal {
			all = errors.Join(all, p.remove(ctx, o.Key, o.Modified))
		}
	}
	return all
}

// remove deletes the Lease of a dead server of this program, unless it was modified.
func (p *Peers) remove(ctx context.Context, key string, modified store.Revision) error {
	o := p.c.Startup.Registry.Store.Any().Get(Leases, key)
	if o == nil || o.Modified != modified {
		return nil
	}
	lease, err := registry.Decode[coordinationv1.Lease](o)
	if err != nil || lease.Labels[label] != labelValue {
		return err
	}
	t := p.lease()
	t.Name = lease.Name
	version := lease.ResourceVersion
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}
	_, err = p.c.Startup.Registry.Delete(ctx, t, options, nil)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// addresses returns the addresses of servers, in order, without those that are invalid in the
// endpoints of a Service.
func addresses(s *store.State) (all []string) {
	for o := range s.Snapshot(Addresses).Scan("", "") {
		ip, err := netip.ParseAddr(o.Key)
		if err == nil && ip.String() == o.Key && ip.IsGlobalUnicast() && !ip.Is4In6() && ip.Zone() == "" {
			all = append(all, o.Key)
		}
	}
	return all
}
