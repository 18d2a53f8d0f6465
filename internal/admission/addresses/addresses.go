// Package addresses allocates the cluster IPs and node ports of Services.
//
// The stored Services, and the IPAddresses that users created, determine the taken addresses and
// ports. The allocator chooses by them (Mutate). The transaction of a Service creates its
// IPAddresses, which only one Service can do, and claims its node ports (Record). If another
// Service was faster, the request starts again with the newer state. So nothing has to be released,
// and nothing is lost when a server is killed.
package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// services is the collection of Services.
const services = "services"

// Config has the ranges of addresses and ports.
type Config struct {
	// Ranges are the ranges of cluster IPs: one, or one of each IP family. Services that name no
	// family use the first one. None: DefaultRange.
	Ranges []netip.Prefix
	// Ports are the node ports; the zero value: DefaultPorts.
	Ports PortRange
	Store *store.Store
	// Type is the type of IPAddresses.
	Type *resource.Type
	// Random fills a slice with random bytes, from which addresses and ports are chosen. It is safe for
	// concurrent use. Nil: math/rand.
	Random func([]byte)
}

// DefaultRange is the range of most clusters. It has room for a million Services.
var DefaultRange = netip.MustParsePrefix("10.96.0.0/12")

// Allocator chooses addresses and node ports. It is safe for concurrent use.
type Allocator struct {
	ranges map[corev1.IPFamily]*ipRange
	first  corev1.IPFamily // the family of Services that name none
	ports  PortRange
	store  *store.Store
	kind   *resource.Type // IPAddress
	random func([]byte)   // nil: math/rand
	turn   chan struct{}  // has a value while a transaction changes the bitmap of node ports

	mu     sync.Mutex // guards the fields below
	cursor *store.Cursor
	used   taken // by stored Services, as far as cursor has read
	buf    [64]*store.Change
}

// taken counts how many Services have an address or a port: other servers may have stored two
// with the same.
type taken struct {
	ips   map[netip.Addr]int
	ports map[int32]int
}

// New makes an allocator. It reads the store when it allocates first.
func New(c Config) (*Allocator, error) {
	if len(c.Ranges) == 0 {
		c.Ranges = []netip.Prefix{DefaultRange}
	}
	if err := Check(c.Ranges, c.Ports); err != nil {
		return nil, err
	}
	if c.Ports == (PortRange{}) {
		c.Ports = DefaultPorts
	}
	a := &Allocator{ranges: map[corev1.IPFamily]*ipRange{}, first: familyOf(c.Ranges[0].Addr()), ports: c.Ports, store: c.Store, kind: c.Type, random: c.Random, turn: make(chan struct{}, 1)}
	for _, r := range c.Ranges {
		a.ranges[familyOf(r.Addr())] = newRange(r)
	}
	return a, nil
}

// Parse parses flags: ranges of cluster IPs, separated by commas, and a range of node ports.
// Empty: the default.
func Parse(ranges, ports string) (c Config, err error) {
	for text := range strings.SplitSeq(ranges, ",") {
		if ranges == "" {
			break
		}
		r, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return c, fmt.Errorf("the range of cluster IPs, %q, is not one: want one as %v, or one of IPv4 and one of IPv6 with a comma between", text, DefaultRange)
		}
		c.Ranges = append(c.Ranges, r)
	}
	if ports != "" {
		if c.Ports, err = ParsePortRange(ports); err != nil {
			return c, err
		}
	}
	return c, Check(c.Ranges, c.Ports)
}

// Check validates ranges for New.
func Check(ranges []netip.Prefix, ports PortRange) error {
	if len(ranges) > 2 || len(ranges) == 2 && familyOf(ranges[0].Addr()) == familyOf(ranges[1].Addr()) {
		return fmt.Errorf("the ranges of cluster IPs, %v: want one, or one of IPv4 and one of IPv6", ranges)
	}
	for _, r := range ranges {
		switch {
		case !r.IsValid() || r.Addr().Zone() != "" || r.Addr().Is4In6():
			return fmt.Errorf("the range of cluster IPs, %v, is not one: want one as 10.96.0.0/12", r)
		case r.Masked() != r:
			return fmt.Errorf("the range of cluster IPs, %v, has bits behind its prefix: did you mean %v?", r, r.Masked())
		case r.Addr().BitLen()-r.Bits() < 3:
			return fmt.Errorf("the range of cluster IPs, %v, is too small: want at least 8 addresses", r)
		}
	}
	return ports.check()
}

// First returns the first address of the first range: the cluster IP of the server itself.
func (a *Allocator) First() netip.Addr { return a.ranges[a.first].at(1) }

// First returns the first address of each range, by which clients inside a cluster reach the
// server; without ranges, the first address of DefaultRange. The ranges must be valid.
func First(ranges []netip.Prefix) []netip.Addr {
	if len(ranges) == 0 {
		ranges = []netip.Prefix{DefaultRange}
	}
	all := make([]netip.Addr, len(ranges))
	for i, r := range ranges {
		all[i] = newRange(r).at(1)
	}
	return all
}

// Ranges returns the ranges of cluster IPs. Services that name no family use the first one.
func (a *Allocator) Ranges() []netip.Prefix {
	all := []netip.Prefix{a.ranges[a.first].prefix}
	if second := a.ranges[other(a.first)]; second != nil {
		all = append(all, second.prefix)
	}
	return all
}

// Close stops following the store.
func (a *Allocator) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cursor != nil {
		a.cursor.Close()
		a.cursor = nil
	}
}

// Plugins returns the admission plugins of Services: one chooses, the other records.
func (a *Allocator) Plugins() []registry.Plugin {
	return []registry.Plugin{
		{
			Handles: func(_ *store.State, t registry.Target, _ admissionv1.Operation) bool {
				return t.Type.Collection == services && t.Subresource == ""
			},
			Complete: func(_ context.Context, at *registry.Attributes) error { return a.Complete(at.Object, at.Old) },
		},
		{
			// An update of the status can remove the last finalizer, and so the Service.
			Handles: func(_ *store.State, t registry.Target, _ admissionv1.Operation) bool {
				return t.Type.Collection == services
			},
			Record: a.record,
		},
	}
}

// choice is the addresses and ports chosen for one Service.
type choice struct {
	*Allocator
	ips    []netip.Addr
	ports  map[int32]bool
	bitmap *bitmap // of kube-apiserver; nil: there is none
}

// Complete sets the addresses, families and node ports of a Service. Old is the stored Service,
// nil for a new one. It keeps no record of its choice.
func (a *Allocator) Complete(next, old runtime.Object) error {
	s, ok := next.(*corev1.Service)
	if !ok {
		return nil // a deletion
	}
	before, _ := old.(*corev1.Service)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.readOn(); err != nil {
		return err
	}
	c := &choice{Allocator: a, ports: map[int32]bool{}}
	if hasNodePorts(s) {
		var err error
		if c.bitmap, err = readBitmap(a.store.Any()); err != nil {
			return err
		}
	}
	if before == nil {
		return c.create(s)
	}
	return c.update(s, before)
}

// record claims the node ports that a Service did not have, creates the IPAddresses of its new
// addresses, and removes those of addresses that it does not have any more.
func (a *Allocator) record(ctx context.Context, t *registry.Transaction) error {
	old, _ := t.Old.(*corev1.Service)
	next, _ := t.Object.(*corev1.Service)
	if t.Own().Value == nil {
		next = nil
	}
	had, has := addressesOf(old), addressesOf(next)
	for _, ip := range has {
		if slices.Contains(had, ip) {
			continue
		}
		w, err := t.Create(ctx, registry.Target{Type: a.kind}, ipAddress(ip, next))
		if err != nil {
			return err
		}
		t.Before(w)
	}
	for _, ip := range had {
		if o := t.State.Get(ipAddresses, ip); o != nil && !slices.Contains(has, ip) && isOf(o, old) {
			t.After(store.Write{Collection: ipAddresses, Key: o.Key, If: o.Modified})
		}
	}
	return a.recordPorts(ctx, t, nodePorts(old), nodePorts(next))
}

func (t *taken) count(ips []netip.Addr, ports []int32, by int) {
	for _, ip := range ips {
		if t.ips[ip] += by; t.ips[ip] <= 0 {
			delete(t.ips, ip)
		}
	}
	for _, p := range ports {
		if t.ports[p] += by; t.ports[p] <= 0 {
			delete(t.ports, p)
		}
	}
}

// readOn reads the changes of Services since the last call. The caller has the lock.
func (a *Allocator) readOn() error {
	for a.cursor != nil {
		n, err := a.cursor.TryNext(context.Background(), a.buf[:])
		var expired *store.ExpiredError
		switch {
		case errors.As(err, &expired): // no Service was written for a long time
			a.cursor.Close()
			a.cursor = nil
		case err != nil:
			return err
		case n == 0:
			return nil
		}
		for i, c := range a.buf[:n] {
			a.buf[i] = nil
			if err := errors.Join(a.note(c.Before, -1), a.note(c.After, 1)); err != nil {
				a.cursor.Close()
				a.cursor = nil // some of the changes are counted
				return err
			}
		}
	}
	return a.readAll()
}

// readAll reads all Services.
func (a *Allocator) readAll() error {
	state := a.store.Any()
	cursor, err := a.store.Watch(services, "", state.Revision())
	if err != nil {
		return err
	}
	a.used = taken{map[netip.Addr]int{}, map[int32]int{}}
	for o := range state.Snapshot(services).Scan("", "") {
		if err := a.note(o, 1); err != nil {
			cursor.Close()
			return err
		}
	}
	a.cursor = cursor
	return nil
}

// note counts the addresses and ports of a stored Service.
func (a *Allocator) note(o *store.Object, by int) error {
	if o == nil {
		return nil
	}
	s, err := registry.Decode[corev1.Service](o)
	if err != nil {
		return fmt.Errorf("%s: %w", services, err)
	}
	var ips []netip.Addr
	for _, text := range s.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip)
		}
	}
	a.used.count(ips, nodePorts(s), by)
	return nil
}
