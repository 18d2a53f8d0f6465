package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	ipCollection   = "ipaddresses.networking.k8s.io"
	cidrCollection = "servicecidrs.networking.k8s.io"
)

// newNetwork is a world where Services get addresses.
func newNetwork(t testing.TB) *world {
	w := newWorld(t, "service-cidr", "service-ip-repair")
	w.services = true
	w.restart()
	return w
}

func service(name, ip string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"clusterIP":%q,"ports":[{"port":80}]}}`, name, ip)
}

// wantAddresses compares the IPAddresses there are.
func (w *world) wantAddresses(want ...string) {
	w.Helper()
	w.settle()
	if got := w.keys(ipCollection, ""); !slices.Equal(got, want) {
		w.Errorf("there are the addresses %q, want %q", got, want)
	}
}

// TestIPAddresses checks that IPAddresses are created and deleted with their Services.
func TestIPAddresses(t *testing.T) {
	w := newNetwork(t)
	w.make("services", "n", service("a", "10.0.0.5"))
	var ip networkingv1.IPAddress
	if err := json.Unmarshal(w.get(ipCollection, "10.0.0.5").Bytes(), &ip); err != nil {
		t.Fatal(err)
	}
	want := networkingv1.ParentReference{Resource: "services", Namespace: "n", Name: "a"}
	if *ip.Spec.ParentRef != want || ip.Labels["ipaddress.kubernetes.io/ip-family"] != "IPv4" || ip.Labels["ipaddress.kubernetes.io/managed-by"] != "ipallocator.k8s.io" {
		t.Errorf("the address is %+v", ip)
	}
	if w.get(ipCollection, "10.0.0.5").Created > w.get("services", "n/a").Created {
		t.Error("the address came after the Service")
	}

	// Addresses of a Service, and of an IPAddress that a user created, are taken.
	w.make(ipCollection, "", `{"metadata":{"name":"10.0.0.6"},"spec":{"parentRef":{"resource":"foos","name":"f"}}}`)
	for _, ip := range []string{"10.0.0.5", "10.0.0.6"} {
		err := w.try("services", "n", service("b", ip))
		if text := fmt.Sprintf("failed to allocate IP %s: provided IP is already allocated", ip); err == nil || !strings.HasSuffix(err.Error(), text) {
			t.Errorf("got %v, want %s", err, text)
		}
	}
	w.wantAddresses("10.0.0.5", "10.0.0.6")
	if err := w.try("services", "n", service("a", "10.0.0.7")); err == nil {
		t.Error("a second Service of the name was stored")
	}
	w.wantAddresses("10.0.0.5", "10.0.0.6")

	// Held by a finalizer, the Service keeps it.
	w.change("services", "n/a", "", func(o metav1.Object) { o.SetFinalizers([]string{"example.com/hold"}) })
	w.erase("services", "n/a", "")
	w.wantAddresses("10.0.0.5", "10.0.0.6")
	w.release("services", "n/a")
	if w.get(ipCollection, "10.0.0.5") != nil {
		t.Error("the address outlives the response to the deletion")
	}
	w.wantAddresses("10.0.0.6")

	// A deleted address of a Service is created again, and an unused one is deleted.
	w.make("services", "n", service("c", "10.0.0.8"))
	w.erase(ipCollection, "10.0.0.8", "")
	w.make(ipCollection, "", `{"metadata":{"name":"10.0.0.9","labels":{"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}},"spec":{"parentRef":{"resource":"services","namespace":"n","name":"c"}}}`)
	w.wantAddresses("10.0.0.6", "10.0.0.8")
}

// TestIPAddressesKilled checks that Services and addresses agree after a restart, wherever the
// server was killed.
func TestIPAddressesKilled(t *testing.T) {
	for appends := range int64(6) {
		w := newNetwork(t)
		w.make("services", "n", service("a", "10.0.0.5"))
		w.settle()
		w.log.live(appends)
		_ = w.try("services", "n", service("b", "10.0.0.6"))
		_, _ = w.Delete(t.Context(), w.target("services", "n/a"), nil, nil)
		w.runOrDie()
		w.log.live(-1)
		w.restart()
		var want []string
		if w.settle(); w.get("services", "n/a") != nil {
			want = append(want, "10.0.0.5")
		}
		if w.get("services", "n/b") != nil {
			want = append(want, "10.0.0.6")
		}
		w.wantAddresses(want...)
	}
}

// TestSecondRange checks that Services get addresses of a ServiceCIDR when the server's own range
// is full, and that the ServiceCIDR is kept as long as they have them.
func TestSecondRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		const own = 14 // of 10.0.0.0/28
		for i := range own {
			w.make("services", "n", service(fmt.Sprintf("s%d", i), ""))
		}
		if err := w.try("services", "n", service("more", "")); err == nil || !strings.Contains(err.Error(), "range is full") {
			t.Errorf("got %v, want that the range is full", err)
		}
		if err := w.try("services", "n", service("more", "10.1.0.3")); err == nil || !strings.Contains(err.Error(), "the provided network does not match the current range") {
			t.Errorf("got %v, want that the range is another one", err)
		}
		w.make(cidrCollection, "", `{"metadata":{"name":"two"},"spec":{"cidrs":["10.1.0.0/28"]}}`)
		w.make(cidrCollection, "", `{"metadata":{"name":"three"},"spec":{"cidrs":["10.2.0.0/28"]}}`)
		w.settle()
		cidr := func() (c networkingv1.ServiceCIDR) {
			if err := json.Unmarshal(w.get(cidrCollection, "two").Bytes(), &c); err != nil {
				t.Fatal(err)
			}
			return c
		}
		if c := cidr(); !slices.Equal(c.Finalizers, []string{"networking.k8s.io/service-cidr-finalizer"}) || len(c.Status.Conditions) != 1 || c.Status.Conditions[0].Status != metav1.ConditionTrue {
			t.Errorf("the range is %+v", c)
		}
		w.make("services", "n", service("named", "10.1.0.3"))
		var all sync.WaitGroup
		for i := range own + own - 1 {
			all.Go(func() {
				if err := w.try("services", "n", service(fmt.Sprintf("t%d", i), "")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.settle()
		if n := len(w.keys(ipCollection, "")); n != 3*own {
			t.Errorf("there are %d addresses, want %d", n, 3*own)
		}

		w.erase(cidrCollection, "two", "")
		w.settle()
		if c := cidr(); c.Status.Conditions[0].Reason != "Terminating" {
			t.Errorf("the range is %+v", c)
		}
		for _, key := range w.keys("services", "n/") {
			w.erase("services", key, "")
		}
		w.wantAddresses()
		w.want(cidrCollection, "two", true)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		w.settle()
		w.want(cidrCollection, "two", false)
		w.want(cidrCollection, "three", true)
	})
}

// TestGeneratedNameTaken checks that a Service whose generated name another Service takes first
// gets another name, and that its IPAddress has that name from the start.
func TestGeneratedNameTaken(t *testing.T) {
	w := newWorld(t, "service-cidr", "service-ip-repair")
	w.services = true
	var first string
	w.plugins = []registry.Plugin{{
		Handles: func(_ *store.State, t registry.Target, _ admissionv1.Operation) bool {
			return t.Type.Collection == "services"
		},
		Validate: func(_ context.Context, a *registry.Attributes) error {
			if first == "" {
				first = a.Object.(*corev1.Service).Name
				return w.try("services", "n", service(first, "10.0.0.5"))
			}
			return nil
		},
	}}
	w.restart()
	w.settle()
	changes := w.recorded()
	w.make("services", "n", `{"metadata":{"generateName":"a-"},"spec":{"clusterIP":"10.0.0.6","ports":[{"port":80}]}}`)
	w.wantAddresses("10.0.0.5", "10.0.0.6")
	for _, c := range changes() {
		if c.After == nil {
			t.Errorf("%s %s went", c.Collection, c.Key())
		}
	}
	var ip networkingv1.IPAddress
	if err := json.Unmarshal(w.get(ipCollection, "10.0.0.6").Bytes(), &ip); err != nil {
		t.Fatal(err)
	}
	named := "n/" + ip.Spec.ParentRef.Name
	if names := w.keys("services", "n/"); named == "n/"+first || !slices.Contains(names, named) {
		t.Errorf("the address belongs to %s, want the second of %q, the first is %s", named, names, first)
	}
}
