package registry_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// allocated returns the allocation of node ports as a kube-apiserver keeps it, with its revision.
func (b *bed) allocated() (bits *big.Int, at store.Revision) {
	o := b.Store.Any().Get(addresses.Bitmaps, addresses.NodePorts)
	if o == nil {
		return new(big.Int), 0
	}
	a, err := registry.Decode[corev1.RangeAllocation](o)
	if err != nil {
		b.Fatal(err)
	}
	return new(big.Int).SetBytes(a.Data), o.Modified
}

// allocate writes the allocation of node ports unless it has changed.
func (b *bed) allocate(bits *big.Int, at store.Revision) error {
	head := `{"kind":"RangeAllocation","apiVersion":"v1","metadata":{"resourceVersion":"`
	value := fmt.Sprintf(`%s"},"range":%q,"data":%q}`, head, small.Ports, base64.StdEncoding.EncodeToString(bits.Bytes()))
	_, err := b.Store.Commit(b.Context(), store.Write{Collection: addresses.Bitmaps, Key: addresses.NodePorts, If: at, Value: []byte(value), RevisionAt: len(head)})
	return err
}

func (b *bed) wantBit(p int32, want uint) {
	b.Helper()
	if bits, _ := b.allocated(); bits.Bit(int(p-small.Ports.First)) != want {
		b.Errorf("the port %d has the bit %d, want %d", p, 1-want, want)
	}
}

// TestAddressesBitmap checks that Services respect and update the allocation of node ports of a
// kube-apiserver.
func TestAddressesBitmap(t *testing.T) {
	b := newBed(t, small)
	early := service("early", corev1.ServiceTypeNodePort)
	early.Spec.Ports[0].NodePort = 30000
	if err := b.put(early, nil); err != nil {
		t.Fatal(err)
	}
	if _, at := b.allocated(); at != 0 {
		t.Error("there is a bitmap that no kube-apiserver has made")
	}
	// All but the ports 30010 and 30020 are allocated.
	full := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 32), big.NewInt(1))
	for _, p := range []int{10, 20} {
		full.SetBit(full, p, 0)
	}
	if err := b.allocate(full, 0); err != nil {
		t.Fatal(err)
	}
	taken := service("taken", corev1.ServiceTypeNodePort)
	taken.Spec.Ports[0].NodePort = 30011
	if err := b.put(taken, nil); !apierrors.IsInvalid(err) {
		t.Errorf("a Service with a port that is allocated: %v", err)
	}
	var made []*corev1.Service
	for i := range 2 {
		s := service(fmt.Sprint("s", i), corev1.ServiceTypeNodePort)
		if err := b.put(s, nil); err != nil {
			t.Fatal(err)
		}
		b.wantBit(s.Spec.Ports[0].NodePort, 1)
		made = append(made, s)
	}
	if err := b.put(service("more", corev1.ServiceTypeNodePort), nil); !apierrors.IsInternalError(err) {
		t.Errorf("a Service when all ports are allocated: %v", err)
	}
	b.remove(made[0].Name)
	b.wantBit(made[0].Spec.Ports[0].NodePort, 0)
	port := made[1].Spec.Ports[0].NodePort
	made[1].Spec.Type, made[1].Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0
	if err := b.put(made[1], made[1]); err != nil {
		t.Fatal(err)
	}
	b.wantBit(port, 0)
}

// TestAddressesBitmapShared: a kube-apiserver that allocates at the same time gets no port that a Service has.
func TestAddressesBitmapShared(t *testing.T) {
	b, chance := newBed(t, small), testrand.New(t)
	if err := b.allocate(new(big.Int), 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	const each = 14
	theirs := map[int32]bool{}
	wg.Go(func() {
		for len(theirs) < each {
			bits, at := b.allocated()
			i := chance.IntN(32)
			if bits.Bit(i) == 1 {
				continue
			}
			if err := b.allocate(bits.SetBit(bits, i, 1), at); err == nil {
				theirs[small.Ports.First+int32(i)] = true
			} else if !errors.Is(err, store.ErrConflict) {
				t.Error(err)
				return
			}
		}
	})
	ours := make([]*corev1.Service, each)
	for i := range ours {
		wg.Go(func() {
			ours[i] = service(fmt.Sprint("s", i), corev1.ServiceTypeNodePort)
			if err := b.put(ours[i], nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, s := range ours {
		p := s.Spec.Ports[0].NodePort
		if theirs[p] {
			t.Errorf("the port %d was given twice", p)
		}
		b.wantBit(p, 1)
	}
}

// TestRepairPorts: a bitmap that is made while Services are written gets their ports, and a port without a
// Service is released when it had none three times.
func TestRepairPorts(t *testing.T) {
	b := newBed(t, small)
	r := &addresses.Repair{Registry: b.Registry, Type: builtin.Catalog().Lookup("networking.k8s.io", "v1", "ipaddresses")}
	repair := func(want bool) {
		t.Helper()
		if found, err := r.RepairPorts(t.Context()); err != nil || found != want {
			t.Errorf("there is a bitmap: %v, %v", found, err)
		}
	}
	repair(false)
	s := service("s", corev1.ServiceTypeNodePort)
	if err := b.put(s, nil); err != nil {
		t.Fatal(err)
	}
	chance := testrand.New(t)
	leaked := small.Ports.First + int32(chance.IntN(32))
	for leaked == s.Spec.Ports[0].NodePort {
		leaked = small.Ports.First + int32(chance.IntN(32))
	}
	bits := new(big.Int).SetBit(new(big.Int), int(leaked-small.Ports.First), 1)
	if err := b.allocate(bits.SetBit(bits, 1000, 1), 0); err != nil { // there is no such port
		t.Fatal(err)
	}
	for range 2 {
		repair(true)
		b.wantBit(s.Spec.Ports[0].NodePort, 1)
		b.wantBit(leaked, 1)
	}
	_, before := b.allocated()
	repair(true)
	b.wantBit(s.Spec.Ports[0].NodePort, 1)
	b.wantBit(leaked, 0)
	_, after := b.allocated()
	for range 4 {
		repair(true)
	}
	if _, now := b.allocated(); after == before || now != after {
		t.Errorf("the bitmap was written at the revisions %d, %d and %d", before, after, now)
	}
}

// TestUnusedAddress: on a shared log, an IPAddress without a Service stays for a minute, because a kube-apiserver may be
// about to create the Service.
func TestUnusedAddress(t *testing.T) {
	kind := builtin.Catalog().Lookup("networking.k8s.io", "v1", "ipaddresses")
	for _, shared := range []bool{true, false} {
		o := store.Options{Log: memlog.New()}
		if shared {
			o = store.Options{Shared: sharedmem.New(testrand.New(t), 95, sharedmem.Faults{}).Open()}
		}
		s, err := stores.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		r := &addresses.Repair{Registry: &registry.Registry{Store: s}, Type: kind}
		body := `{"metadata":{"name":"10.0.0.5","labels":{"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io","ipaddress.kubernetes.io/ip-family":"IPv4"}},"spec":{"parentRef":{"resource":"services","namespace":"n","name":"s"}}}`
		if _, err := r.Registry.Create(t.Context(), registry.Target{Type: kind}, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		again, err := r.Check(t.Context(), "10.0.0.5", now)
		if stays := s.Any().Get("ipaddresses.networking.k8s.io", "10.0.0.5") != nil; err != nil || stays != shared || again.IsZero() == shared {
			t.Errorf("shared: %v: a new address stays: %v, to be checked at %v, %v", shared, stays, again, err)
		}
		if again, err = r.Check(t.Context(), "10.0.0.5", now.Add(2*time.Minute)); err != nil || !again.IsZero() || s.Any().Get("ipaddresses.networking.k8s.io", "10.0.0.5") != nil {
			t.Errorf("shared: %v: the address stays after a minute, to be checked at %v, %v", shared, again, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
