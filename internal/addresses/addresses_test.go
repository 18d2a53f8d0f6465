package addresses_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/addresses"
	"github.com/tidemark-dev/tidemark/internal/builtin/core"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
)

// bed is an allocator over a store.
type bed struct {
	*testing.T
	*addresses.Allocator
	store *store.Store
}

func newBed(t *testing.T, c addresses.Config) *bed {
	s, err := store.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c.Store = s
	b := &bed{T: t, store: s}
	b.restart(c)
	return b
}

// restart begins with what is stored alone.
func (b *bed) restart(c addresses.Config) {
	c.Store = b.store
	a, err := addresses.New(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(a.Close)
	b.Allocator = a
}

// put reserves, stores and releases, as the verbs do.
func (b *bed) put(s, old *corev1.Service) error {
	core.DefaultService(s)
	var before store.Revision
	var stored runtime.Object // nil, and not a pointer that is
	if old != nil {
		before, stored = b.store.Any().Get("services", old.Name).Modified, old
	}
	release, err := b.Reserve(s, stored, false)
	if err != nil {
		return err
	}
	defer release()
	value, err := json.Marshal(s)
	if err != nil {
		return err
	}
	const revision = `{"revision":"`
	value = append([]byte(revision+`",`), value[1:]...)
	_, err = b.store.Commit(b.Context(), store.Write{Collection: "services", Key: s.Name, Value: value, RevisionAt: len(revision), If: before})
	return err
}

func (b *bed) remove(name string) {
	o := b.store.Any().Get("services", name)
	if _, err := b.store.Commit(b.Context(), store.Write{Collection: "services", Key: name, If: o.Modified}); err != nil {
		b.Fatal(err)
	}
}

func service(name string, kind corev1.ServiceType) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80}}}}
	s.Name = name
	return s
}

var small = addresses.Config{
	Ranges: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/27")},
	Ports:  addresses.PortRange{First: 30000, Last: 30031},
}

// TestConcurrent gives out all that there is, to many at once, and nothing twice.
func TestConcurrent(t *testing.T) {
	b := newBed(t, small)
	const all = 30 // of 32 addresses two are for everybody
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

	// What is removed can be had again, and a restart knows no more and no less.
	var name string
	for o := range b.store.Any().Snapshot("services").Scan("", "") {
		name = o.Key
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

// TestSmallCIDRs: of a ServiceCIDR of any size, what it holds is given out and nothing
// else, once the server's own range is full.
func TestSmallCIDRs(t *testing.T) {
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
			if _, err := b.store.Commit(t.Context(), w); err != nil {
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

// given are the addresses and node ports of what is stored, each once.
func (b *bed) given() (ips, ports []string) {
	for o := range b.store.Any().Snapshot("services").Scan("", "") {
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

// TestNothingIsHeld: neither a dry-run nor a write that failed keeps anything, and a
// write under way does.
func TestNothingIsHeld(t *testing.T) {
	b := newBed(t, small)
	want := func() *corev1.Service {
		s := service("s", corev1.ServiceTypeNodePort)
		s.Spec.ClusterIP, s.Spec.Ports[0].NodePort = "10.1.2.7", 30007
		return s
	}
	for range 2 {
		if _, err := b.Reserve(want(), nil, true); err != nil {
			t.Fatalf("a dry-run: %v", err)
		}
	}
	release, err := b.Reserve(want(), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(want(), nil, false); !apierrors.IsInvalid(err) {
		t.Errorf("what a write under way has was given again: %v", err)
	}
	release() // the write failed
	if err := b.put(want(), nil); err != nil {
		t.Errorf("a write that failed keeps its address: %v", err)
	}
	if _, err := b.Reserve(want(), nil, true); !apierrors.IsInvalid(err) {
		t.Errorf("a dry-run was given what is taken: %v", err)
	}
}

// TestUpdate keeps what an update leaves out, and lets go of what it does not want.
func TestUpdate(t *testing.T) {
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
	core.PrepareServiceUpdate(external, same)
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

// TestFamilies goes by the policy.
func TestFamilies(t *testing.T) {
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
		if _, err := b.Reserve(s, nil, true); err != nil || !slices.Equal(s.Spec.IPFamilies, want) || len(s.Spec.ClusterIPs) != len(want) {
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

func TestConfig(t *testing.T) {
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
