package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// bed is a registry whose Services get addresses.
type bed struct {
	*testing.T
	*addresses.Allocator
	*registry.Registry
	services *resource.Type
}

func newBed(t *testing.T, c addresses.Config) *bed {
	s, err := stores.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	b := &bed{T: t, Registry: &registry.Registry{Store: s}, services: builtin.Catalog().Lookup("", "v1", "services")}
	b.restart(c)
	namespaces := registry.Target{Type: builtin.Catalog().Lookup("", "v1", "namespaces")}
	if _, err := b.Create(t.Context(), namespaces, registry.Body{Media: wire.JSON, Bytes: []byte(`{"metadata":{"name":"n"}}`)}, registry.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	return b
}

// restart makes an allocator that knows only the stored objects.
func (b *bed) restart(c addresses.Config) {
	c.Store, c.Type = b.Store, builtin.Catalog().Lookup("networking.k8s.io", "v1", "ipaddresses")
	a, err := addresses.New(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(a.Close)
	b.Allocator = a
	b.Registry = &registry.Registry{Store: b.Store, Plugins: a.Plugins()}
}

// put creates or replaces a Service, and sets s to the stored one.
func (b *bed) put(s, old *corev1.Service) error { return b.write(s, old, registry.WriteOptions{}) }

func (b *bed) write(s, old *corev1.Service, o registry.WriteOptions) error {
	value, err := json.Marshal(s)
	if err != nil {
		return err
	}
	t, body := registry.Target{Type: b.services, Namespace: "n"}, registry.Body{Media: wire.JSON, Bytes: value}
	var made registry.Object
	if old == nil {
		made, err = b.Create(b.Context(), t, body, o)
	} else {
		t.Name = s.Name
		made, err = b.Update(b.Context(), t, body, o)
	}
	if err != nil {
		return err
	}
	*s = corev1.Service{}
	return json.Unmarshal(made.Stored.Bytes(), s)
}

func (b *bed) remove(name string) {
	if _, err := b.Delete(b.Context(), registry.Target{Type: b.services, Namespace: "n", Name: name}, nil, nil); err != nil {
		b.Fatal(err)
	}
}

func service(name string, kind corev1.ServiceType) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80}}}}
	s.Name, s.Namespace = name, "n"
	return s
}

var small = addresses.Config{
	Ranges: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/27")},
	Ports:  addresses.PortRange{First: 30000, Last: 30031},
}

// TestAddressesConcurrent gives out all that there is, to many at once, and nothing twice.
func TestAddressesConcurrent(t *testing.T) {
	b := newBed(t, small)
	const all = 30 // of 32: the first and the last are reserved
	errs := make([]error, all+3)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = b.put(service(fmt.Sprint("s", i), corev1.ServiceTypeNodePort), nil) })
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if !apierrors.IsInternalError(err) {
			t.Error(err)
		}
	}
	ips, ports := b.given()
	if made != all || len(ips) != all || len(ports) != all {
		t.Fatalf("%d made, %d addresses, %d ports, want %d of each", made, len(ips), len(ports), all)
	}

	// Released addresses and ports can be allocated again, and a restarted allocator agrees.
	var name string
	for o := range b.Store.Any().Snapshot("services").Scan("", "") {
		_, name, _ = strings.Cut(o.Key, "/")
		break
	}
	b.restart(small)
	if err := b.put(service("more", ""), nil); err == nil {
		t.Error("a restart forgot what is taken")
	}
	b.remove(name)
	if err := b.put(service("more", ""), nil); err != nil {
		t.Error(err)
	}
}

// TestAddressesSmallCIDRs checks that exactly the usable addresses of a ServiceCIDR of any size are
// allocated, once the server's own range is full.
func TestAddressesSmallCIDRs(t *testing.T) {
	for cidr, want := range map[string]int{
		"10.9.0.8/29": 6, "10.9.0.8/30": 2, "10.9.0.8/31": 0, "10.9.0.8/32": 0,
		"fd09::8/126": 3, "fd09::8/127": 1, "fd09::8/128": 0,
	} {
		t.Run(cidr, func(t *testing.T) {
			own, full := "10.1.2.0/29", 6
			prefix := netip.MustParsePrefix(cidr)
			if prefix.Addr().Is6() {
				own, full = "fd00::/125", 7
			}
			b := newBed(t, addresses.Config{Ranges: []netip.Prefix{netip.MustParsePrefix(own)}})
			const revision = `{"metadata":{"resourceVersion":"`
			more := fmt.Sprintf(revision+`","name":"more"},"spec":{"cidrs":[%q]}}`, cidr)
			w := store.Write{Collection: "servicecidrs.networking.k8s.io", Key: "more", Value: []byte(more), RevisionAt: len(revision)}
			if _, err := b.Store.Commit(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			for i := range full + want + 1 {
				s := service(fmt.Sprint("s", i), "")
				err := b.put(s, nil)
				if made := err == nil; made != (i < full+want) {
					t.Fatalf("Service %d got %q: %v", i, s.Spec.ClusterIP, err)
				}
				if ip, _ := netip.ParseAddr(s.Spec.ClusterIP); err == nil && !prefix.Contains(ip) && !netip.MustParsePrefix(own).Contains(ip) {
					t.Errorf("%s is of no range", ip)
				}
			}
			if ips, _ := b.given(); len(ips) != full+want {
				t.Errorf("%d addresses were given, want %d: %v", len(ips), full+want, ips)
			}
			asked := service("asked", "")
			asked.Spec.ClusterIP = prefix.Addr().String()
			if err := b.put(asked, nil); !apierrors.IsInvalid(err) {
				t.Errorf("the address of the range itself: %v", err)
			}
		})
	}
}

// given returns the allocated addresses and node ports of the stored Services, and checks that they
// are unique.
func (b *bed) given() (ips, ports []string) {
	for o := range b.Store.Any().Snapshot("services").Scan("", "") {
		var s corev1.Service
		if err := json.Unmarshal(o.Bytes(), &s); err != nil {
			b.Fatal(err)
		}
		ips = append(ips, s.Spec.ClusterIP)
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				ports = append(ports, fmt.Sprint(p.NodePort))
			}
		}
	}
	slices.Sort(ips)
	slices.Sort(ports)
	return slices.Compact(ips), slices.Compact(ports)
}

// TestAddressesNothingIsHeld checks that neither a dry-run nor a failed write keeps an address.
func TestAddressesNothingIsHeld(t *testing.T) {
	b := newBed(t, small)
	want := func() *corev1.Service {
		s := service("s", corev1.ServiceTypeNodePort)
		s.Spec.ClusterIP, s.Spec.Ports[0].NodePort = "10.1.2.7", 30007
		return s
	}
	dry := registry.WriteOptions{DryRun: []string{"All"}}
	for range 2 {
		if err := b.write(want(), nil, dry); err != nil {
			t.Fatalf("a dry-run: %v", err)
		}
	}
	fails := true
	b.Registry.Plugins = append(b.Registry.Plugins, registry.Plugin{Validate: func(context.Context, *registry.Attributes) error {
		if fails {
			return errors.New("refused")
		}
		return nil
	}})
	if err := b.put(want(), nil); err == nil {
		t.Fatal("a plugin refuses the Service, and it is stored")
	}
	fails = false
	if err := b.put(want(), nil); err != nil {
		t.Errorf("a write that failed keeps its address: %v", err)
	}
	other := want()
	other.Name = "other"
	if err := b.write(other, nil, dry); !apierrors.IsInvalid(err) {
		t.Errorf("a dry-run was given what is taken: %v", err)
	}
}

// TestAddressesTakenMeanwhile checks that of Services with the same address or node port, one is
// stored, however many are decided by the same state.
func TestAddressesTakenMeanwhile(t *testing.T) {
	for what, set := range map[string]func(s *corev1.Service){
		"address":   func(s *corev1.Service) { s.Spec.ClusterIP = "10.1.2.7" },
		"node port": func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30007 },
	} {
		b := newBed(t, small)
		const writers = 8
		var all, ready sync.WaitGroup
		ready.Add(writers)
		var asked sync.Map
		b.Registry.Plugins = append(b.Registry.Plugins, registry.Plugin{Validate: func(_ context.Context, a *registry.Attributes) error {
			if _, again := asked.LoadOrStore(a.Name, true); !again {
				ready.Done()
				ready.Wait() // each has chosen before any is stored
			}
			return nil
		}})
		made := make(chan string, writers)
		for i := range writers {
			all.Go(func() {
				s := service(fmt.Sprint("s", i), corev1.ServiceTypeNodePort)
				set(s)
				err := b.put(s, nil)
				switch {
				case err == nil:
					made <- s.Name
				case !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "already allocated"):
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		all.Wait()
		if ips, ports := b.given(); len(made) != 1 || len(ips) != 1 || len(ports) != 1 {
			t.Errorf("%s: %d Services have it; addresses %v, node ports %v", what, len(made), ips, ports)
		}
		if n := b.Store.Any().Snapshot("ipaddresses.networking.k8s.io").Count("", ""); n != 1 {
			t.Errorf("%s: there are %d IPAddresses", what, n)
		}
	}
}

// TestAddressesGeneratedNameTaken checks that an IPAddress names the stored Service when another
// Service takes the generated name first.
func TestAddressesGeneratedNameTaken(t *testing.T) {
	b := newBed(t, small)
	names := []string{"taken", "late", "late", "free"} // the first one is stored, the second one meanwhile
	b.GenerateName = func(string) string {
		name := names[0]
		names = names[1:]
		return name
	}
	if err := b.put(service("taken", ""), nil); err != nil {
		t.Fatal(err)
	}
	b.Registry.Plugins = append(b.Registry.Plugins, registry.Plugin{Validate: func(_ context.Context, a *registry.Attributes) error {
		if a.Name == "late" && a.Object.(*corev1.Service).GenerateName != "" {
			return b.put(service("late", ""), nil)
		}
		return nil
	}})
	s := service("", "")
	s.GenerateName = "x"
	if err := b.put(s, nil); err != nil || s.Name != "free" {
		t.Fatalf("%q: %v", s.Name, err)
	}
	parents := map[string]string{}
	for o := range b.Store.Any().Snapshot("ipaddresses.networking.k8s.io").Scan("", "") {
		parents[addresses.ParentOf(o)] = o.Key
	}
	if len(parents) != 3 || parents["n/free"] != s.Spec.ClusterIP || parents["n/late"] == "" || parents["n/taken"] == "" {
		t.Errorf("the IPAddresses are %v", parents)
	}
}

// TestAddressesUpdate checks that an update keeps omitted addresses and releases removed ones.
func TestAddressesUpdate(t *testing.T) {
	b := newBed(t, small)
	old := service("s", corev1.ServiceTypeLoadBalancer)
	old.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	if err := b.put(old, nil); err != nil {
		t.Fatal(err)
	}
	if old.Spec.HealthCheckNodePort == 0 || old.Spec.Ports[0].NodePort == 0 || old.Spec.ClusterIPs[0] != old.Spec.ClusterIP {
		t.Fatalf("%+v", old.Spec)
	}
	same := service("s", corev1.ServiceTypeLoadBalancer)
	same.Spec.ExternalTrafficPolicy = old.Spec.ExternalTrafficPolicy
	if err := b.put(same, old); err != nil {
		t.Fatal(err)
	}
	if same.Spec.ClusterIP != old.Spec.ClusterIP || same.Spec.Ports[0].NodePort != old.Spec.Ports[0].NodePort || same.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		t.Errorf("%+v became %+v", old.Spec, same.Spec)
	}
	external := service("s", corev1.ServiceTypeExternalName)
	external.Spec.ExternalName = "example.com"
	if err := b.put(external, same); err != nil || external.Spec.ClusterIP != "" {
		t.Fatalf("%v %+v", err, external.Spec)
	}
	other := service("other", corev1.ServiceTypeNodePort)
	other.Spec.ClusterIP, other.Spec.Ports[0].NodePort = same.Spec.ClusterIP, same.Spec.HealthCheckNodePort
	if err := b.put(other, nil); err != nil {
		t.Errorf("what is not used any more: %v", err)
	}
	if back := service("s", ""); b.put(back, external) != nil || back.Spec.ClusterIP == "" {
		t.Errorf("%+v", back.Spec)
	}
}

// TestAddressesFamilies goes by the policy.
func TestAddressesFamilies(t *testing.T) {
	b := newBed(t, addresses.Config{Ranges: []netip.Prefix{netip.MustParsePrefix("fd00::/112"), netip.MustParsePrefix("10.1.2.0/24")}})
	if got := b.First().String(); got != "fd00::1" {
		t.Errorf("the server's own address is %s", got)
	}
	for policy, want := range map[corev1.IPFamilyPolicy][]corev1.IPFamily{
		corev1.IPFamilyPolicySingleStack:      {corev1.IPv6Protocol},
		corev1.IPFamilyPolicyPreferDualStack:  {corev1.IPv6Protocol, corev1.IPv4Protocol},
		corev1.IPFamilyPolicyRequireDualStack: {corev1.IPv6Protocol, corev1.IPv4Protocol},
	} {
		s := service("s", "")
		s.Spec.IPFamilyPolicy = &policy
		if err := b.write(s, nil, registry.WriteOptions{DryRun: []string{"All"}}); err != nil || !slices.Equal(s.Spec.IPFamilies, want) || len(s.Spec.ClusterIPs) != len(want) {
			t.Errorf("%s: %v %+v", policy, err, s.Spec)
		}
	}
	two, one := corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack
	old := service("s", "")
	old.Spec.IPFamilyPolicy = &two
	if err := b.put(old, nil); err != nil {
		t.Fatal(err)
	}
	next := old.DeepCopy()
	next.Spec.IPFamilyPolicy = &one
	if err := b.put(next, old); err != nil || len(next.Spec.ClusterIPs) != 1 || len(next.Spec.IPFamilies) != 1 {
		t.Errorf("%v %+v", err, next.Spec)
	}
	again := next.DeepCopy()
	again.Spec.IPFamilyPolicy = &two
	if err := b.put(again, next); err != nil || len(again.Spec.ClusterIPs) != 2 || again.Spec.ClusterIP != old.Spec.ClusterIP {
		t.Errorf("%v %+v", err, again.Spec)
	}
}

func TestAddressesConfig(t *testing.T) {
	for text, want := range map[string]addresses.PortRange{
		"30000-32767": {First: 30000, Last: 32767}, "20000+10": {First: 20000, Last: 20010},
	} {
		if got, err := addresses.ParsePortRange(text); err != nil || got != want {
			t.Errorf("%s is %v: %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "a-b", "2-1", "0-5", "1-70000", "0-0", "-"} {
		if got, err := addresses.ParsePortRange(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
	for _, all := range [][]string{{"10.0.0.1/24"}, {"10.0.0.0/31"}, {"10.0.0.0/24", "10.1.0.0/24"}, {"10.0.0.0/24", "fd00::/64", "fd01::/64"}, {"::ffff:10.0.0.0/120"}} {
		var ranges []netip.Prefix
		for _, text := range all {
			ranges = append(ranges, netip.MustParsePrefix(text))
		}
		if err := addresses.Check(ranges, addresses.PortRange{}); err == nil {
			t.Errorf("%v is taken", all)
		}
	}
}

// TestAddressesFinalizer checks that a Service keeps its IPAddress until it is removed, by an
// update of any subresource.
func TestAddressesFinalizer(t *testing.T) {
	for _, subresource := range []string{"", "status"} {
		b := newBed(t, small)
		s := service("s", "")
		s.Finalizers = []string{"example.com/hold"}
		if err := b.put(s, nil); err != nil {
			t.Fatal(err)
		}
		addresses := func() int { return b.Store.Any().Snapshot("ipaddresses.networking.k8s.io").Count("", "") }
		b.remove("s")
		if n := addresses(); n != 1 {
			t.Errorf("%d IPAddresses when the deletion has begun", n)
		}
		at := registry.Target{Type: b.services, Namespace: "n", Name: "s", Subresource: subresource}
		if _, err := b.Patch(t.Context(), at, registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"metadata":{"finalizers":null}}`)}, registry.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := addresses(); n != 0 || b.Store.Any().Get("services", "n/s") != nil {
			t.Errorf("%q: %d IPAddresses when the Service is gone", subresource, n)
		}
	}
}
