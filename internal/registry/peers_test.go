//lint:file-ignore SA1019 Endpoints are deprecated, and served.

package registry_test

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/peers"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// peer returns a server on a log, its log output, and its store.
func peer(t *testing.T, log *sharedmem.Log, name, address string, facts map[string]string) (*peers.Peers, *strings.Builder, *store.Store) {
	t.Helper()
	return peerAhead(t, log, 0, name, address, facts)
}

// peerAhead is peer, with a clock that is ahead of that of the bubble.
func peerAhead(t *testing.T, log *sharedmem.Log, ahead time.Duration, name, address string, facts map[string]string) (*peers.Peers, *strings.Builder, *store.Store) {
	t.Helper()
	return peerWith(t, log, func() time.Time { return time.Now().Add(ahead) }, name, address, facts)
}

// peerWith is peer, with a clock.
func peerWith(t *testing.T, log *sharedmem.Log, now func() time.Time, name, address string, facts map[string]string) (*peers.Peers, *strings.Builder, *store.Store) {
	t.Helper()
	s, err := stores.Open(t.Context(), store.Options{Shared: log.Open()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c := peers.Config{Identity: name, Now: now, Startup: startup.Config{
		Registry: &registry.Registry{Store: s, Namespaces: registry.NamespaceRules{Unchecked: true}}, Catalog: builtin.Catalog(),
		Address: netip.MustParseAddrPort(address), First: netip.MustParseAddr("10.0.0.1"), Shared: true,
	}}
	for name, value := range facts {
		c.Facts = append(c.Facts, peers.Fact{Name: name, Value: value, What: "another " + name, Remedy: "wait", Advisory: true})
	}
	text := new(strings.Builder)
	c.Log = slog.New(slog.NewTextHandler(text, nil))
	p := peers.New(c)
	t.Cleanup(p.Leave)
	return p, text, s
}

// TestPeersAdvisory: a server warns once of each advisory fact in which another one differs, also when a restart of that one
// changes another fact under the same Lease.
func TestPeersAdvisory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		a, text, _ := peer(t, log, "a", "192.0.2.1:6443", map[string]string{"color": "red", "shape": "round"})
		want := func(what string, colors, shapes int) {
			t.Helper()
			if err := a.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c, s := strings.Count(text.String(), "another color"), strings.Count(text.String(), "another shape"); c != colors || s != shapes {
				t.Errorf("%s: %d warnings of the color and %d of the shape, want %d and %d", what, c, s, colors, shapes)
			}
		}
		for i, facts := range []map[string]string{{"color": "blue", "shape": "round"}, {"color": "blue", "shape": "square"}} {
			b, _, _ := peer(t, log, "b", "192.0.2.2:6443", facts)
			if err := b.Join(t.Context()); err != nil {
				t.Fatal(err)
			}
			want("first", 1, i)
			want("again", 1, i)
		}
	})
}

// TestPeersClocks: a server whose clock is hours ahead keeps the Leases of those that renew them, so that others see them, and
// deletes those of dead ones.
func TestPeersClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		a, _, own := peer(t, log, "a", "192.0.2.1:6443", nil)
		b, _, objects := peerAhead(t, log, 2*time.Hour, "b", "192.0.2.2:6443", nil)
		for _, p := range []*peers.Peers{a, b} {
			if err := p.Join(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		lease := func() *store.Object { return objects.Any().Get(peers.Leases, peers.LeasePrefix+"tidemark-a") }
		var first store.Revision
		for second := range 120 {
			time.Sleep(time.Second)
			synctest.Wait()
			o := lease()
			if o == nil {
				t.Fatalf("the Lease of a server that renews it is gone after %d seconds", second)
			}
			if first == 0 {
				first = o.Created
			}
			if o.Created != first {
				t.Fatalf("the Lease of a server that renews it was deleted after %d seconds", second)
			}
		}
		own.Close() // a can neither renew its Lease nor withdraw
		time.Sleep(time.Minute)
		synctest.Wait()
		if lease() != nil {
			t.Error("the Lease of a dead server is still there")
		}
	})
}

// TestPeersClockJumpsBack: a server whose clock jumps back by hours goes on to show itself, keeps the Leases of servers that
// renew them, and they keep its own one. The endpoints keep both.
func TestPeersClockJumpsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		var jump atomic.Int64
		a, _, objects := peerWith(t, log, func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }, "a", "192.0.2.1:6443", nil)
		b, _, _ := peer(t, log, "b", "192.0.2.2:6443", nil)
		for _, p := range []*peers.Peers{a, b} {
			if err := p.Join(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		jump.Store(int64(-2 * time.Hour))
		created := map[string]store.Revision{}
		for second := range 180 {
			time.Sleep(time.Second)
			synctest.Wait()
			for _, name := range []string{"a", "b"} {
				o := objects.Any().Get(peers.Leases, peers.LeasePrefix+"tidemark-"+name)
				if o == nil || created[name] != 0 && created[name] != o.Created {
					t.Fatalf("the Lease of %s was deleted after %d seconds", name, second)
				}
				created[name] = o.Created
			}
			for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
				if o := objects.Any().Get("endpoints", "default/kubernetes"); o == nil || !strings.Contains(string(o.Bytes()), ip) {
					t.Fatalf("the endpoints lost %s after %d seconds", ip, second)
				}
			}
		}
	})
}

// TestPeersEndpoints: the endpoints of the Service kubernetes have all servers, also if they join at the same time.
func TestPeersEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		want := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}
		var last *store.Store
		for _, ip := range want {
			p, _, s := peer(t, log, ip, ip+":6443", nil)
			last = s
			go func() {
				if err := p.Join(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		o := last.Any().Get("endpoints", "default/kubernetes")
		if o == nil {
			t.Fatal("there are no endpoints")
		}
		e, err := registry.Decode[corev1.Endpoints](o)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range e.Subsets[0].Addresses {
			got = append(got, a.IP)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the endpoints are %v, want %v", got, want)
		}
	})
}
