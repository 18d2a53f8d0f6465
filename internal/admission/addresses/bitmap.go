package addresses

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// A kube-apiserver on the same etcd allocates node ports in a bitmap, and uses no other record of
// them. If there is one, the transaction of a Service changes it too: it sets the bits of new ports
// and clears those of ports that the Service no longer has. If the bitmap has changed since, the
// transaction fails, and the request allocates again.

const (
	// Bitmaps is the collection of the bitmaps. NodePorts is the key of that of node ports.
	Bitmaps   = "ranges"
	NodePorts = "servicenodeports"
)

// bitmapKind is how a bitmap is stored. No catalog has it: it is not served.
var bitmapKind = &resource.Type{
	Names: resource.Names{Version: "v1", Kind: "RangeAllocation"},
	New:   func() runtime.Object { return new(corev1.RangeAllocation) },
}

// bitmap is the bitmap of node ports.
type bitmap struct {
	object *store.Object
	stored *corev1.RangeAllocation
	ports  PortRange
	bits   *big.Int // bit 0 is the first port
}

// readBitmap returns the bitmap of a state, nil if there is none.
func readBitmap(s *store.State) (*bitmap, error) {
	o := s.Get(Bitmaps, NodePorts)
	if o == nil {
		return nil, nil
	}
	if why := o.Unreadable(); why != "" {
		return nil, fmt.Errorf("the allocation of node ports cannot be read: %s", why)
	}
	stored, err := registry.Decode[corev1.RangeAllocation](o)
	if err != nil {
		return nil, err
	}
	ports, err := ParsePortRange(stored.Range)
	if err != nil {
		return nil, fmt.Errorf("the allocation of node ports: %w", err)
	}
	return &bitmap{o, stored, ports, new(big.Int).SetBytes(stored.Data)}, nil
}

func (b *bitmap) covers(p int32) bool { return p >= b.ports.First && p <= b.ports.Last }

// has reports whether a port is allocated. There are none in a nil bitmap.
func (b *bitmap) has(p int32) bool {
	return b != nil && b.covers(p) && b.bits.Bit(int(p-b.ports.First)) == 1
}

func (b *bitmap) set(p int32, to uint) {
	if b.covers(p) {
		b.bits.SetBit(b.bits, int(p-b.ports.First), to)
	}
}

// all yields the allocated ports. It ignores bits beyond the last port.
func (b *bitmap) all(yield func(int32) bool) {
	for i := range min(b.bits.BitLen(), int(b.ports.Last-b.ports.First)+1) {
		if b.bits.Bit(i) == 1 && !yield(b.ports.First+int32(i)) {
			return
		}
	}
}

// write returns the write of the bitmap as it is now. The condition is that nothing else has changed it.
func (b *bitmap) write() (store.Write, error) {
	b.stored.Data = b.bits.Bytes()
	e, err := wire.Encode(bitmapKind, b.stored)
	return store.Write{Collection: Bitmaps, Key: NodePorts, If: b.object.Modified, Value: e.Bytes, RevisionAt: e.RevisionAt}, err
}

// portBuckets is the number of claims that all node ports share. Each claim is a condition of a transaction, and etcd allows
// 128 conditions; the Service, its addresses and quotas need some of them. If concurrent requests allocate ports of the same
// bucket, one of them succeeds, and the others start again with its ports in the state.
const portBuckets = 96

// recordPorts claims the ports that a Service did not have, and releases those that it does not have any
// more.
func (a *Allocator) recordPorts(ctx context.Context, t *registry.Transaction, had, has []int32) error {
	without := func(all, others []int32) []int32 {
		return slices.DeleteFunc(slices.Clone(all), func(p int32) bool { return slices.Contains(others, p) })
	}
	taken, left := without(has, had), without(had, has)
	claimed := map[int32]bool{}
	for _, p := range taken {
		if bucket := p % portBuckets; !claimed[bucket] {
			claimed[bucket] = true
			t.Claim(fmt.Sprint("nodeports/", bucket))
		}
	}
	if len(taken)+len(left) == 0 {
		return nil
	}
	if a.store.Any().Get(Bitmaps, NodePorts) == nil {
		t.Needs = append(t.Needs, store.Need{Collection: Bitmaps, Key: NodePorts})
		return nil
	}
	// One after the other: all of them write the same object.
	select {
	case a.turn <- struct{}{}:
		t.Hold(func() { <-a.turn })
	case <-ctx.Done():
		return ctx.Err()
	}
	b, err := readBitmap(a.store.Any())
	if err != nil {
		return err
	}
	if b == nil || slices.ContainsFunc(taken, b.has) {
		return store.ErrStale
	}
	for _, p := range taken {
		b.set(p, 1)
	}
	for _, p := range left {
		if !a.shared(p) {
			b.set(p, 0)
		}
	}
	w, err := b.write()
	if err != nil {
		return err
	}
	t.After(w)
	return nil
}

// shared reports whether more than one stored Service has a port.
func (a *Allocator) shared(p int32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used.ports[p] > 1
}

// leakChecks is the number of consecutive checks in which a port has to be without a Service before
// RepairPorts releases it: kube-apiserver allocates a port before it stores the Service.
const leakChecks = 3

// RepairPorts allocates the ports of Services that the bitmap lacks, and releases those that had no Service
// each of the last times. It reports whether there is a bitmap.
func (r *Repair) RepairPorts(ctx context.Context) (found bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state, err := r.Registry.Store.MostRecent(ctx)
	if err != nil {
		return false, err
	}
	b, err := readBitmap(state)
	if b == nil {
		return false, err
	}
	used := map[int32]bool{}
	for o := range state.Snapshot(services).Scan("", "") {
		s, err := registry.Decode[corev1.Service](o)
		if err != nil {
			return true, err
		}
		for _, p := range nodePorts(s) {
			used[p] = true
		}
	}
	if !b.repair(used, &r.leaks) {
		return true, nil
	}
	w, err := b.write()
	if err == nil {
		_, err = r.Registry.Store.Apply(ctx, &store.Txn{Writes: []store.Write{w}})
	}
	return true, err
}

// repair reports whether it has changed the bitmap. It counts in leaks how often a port was not used.
func (b *bitmap) repair(used map[int32]bool, leaks *map[int32]int) (changed bool) {
	counted := map[int32]int{}
	for p := range b.all {
		if !used[p] {
			counted[p] = (*leaks)[p] + 1
		}
	}
	for p, times := range counted {
		if times >= leakChecks {
			b.set(p, 0)
			delete(counted, p)
			changed = true
		}
	}
	*leaks = counted
	for p := range used {
		if b.covers(p) && !b.has(p) {
			b.set(p, 1)
			changed = true
		}
	}
	return changed
}
