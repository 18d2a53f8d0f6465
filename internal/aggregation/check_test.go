package aggregation_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
)

// TestConditions: the checks run in kube-apiserver's order, and the condition has the words of the first one that fails. Each
// step changes one object, which acts at once.
func TestConditions(t *testing.T) {
	e := startExtension(t, "api")
	const name = "v1.g.example.com"
	host, text, _ := net.SplitHostPort(e.address())
	port, _ := strconv.Atoi(text)
	w := newWorld(t, aggregation.Config{})
	service := func(name string, number int) meta {
		return meta{object{"name": "api"}, object{"type": "ClusterIP", "clusterIP": host, "ports": []object{{"name": name, "port": number}}}}
	}
	slice := func(port string, ready any) any {
		return struct {
			Metadata  object   `json:"metadata"`
			Endpoints []object `json:"endpoints"`
			Ports     []object `json:"ports"`
		}{object{"name": "api-1", "labels": object{"kubernetes.io/service-name": "api"}},
			[]object{{"addresses": []string{host}, "conditions": object{"ready": ready}}}, []object{{"name": port, "port": 1}}}
	}
	const slices = "endpointslices.discovery.k8s.io"
	number := int32(port)
	w.register(name, func(s *apiregistrationv1.APIServiceSpec) { s.Service.Port = &number })
	w.wantCondition(name, `False ServiceNotFound service/api in "ext" is not present`)
	w.put("services", "ext/api", service("https", 1))
	w.wantCondition(name, fmt.Sprintf(`False ServicePortError service/api in "ext" is not listening on port %d`, port))
	w.put("services", "ext/api", service("https", port))
	w.wantCondition(name, `False EndpointsNotFound cannot find endpointslices for service/api in "ext"`)
	w.put(slices, "ext/api-1", slice("other", true))
	w.wantCondition(name, `False MissingEndpoints endpointslices for service/api in "ext" have no addresses with port name "https"`)
	w.put(slices, "ext/api-1", slice("https", false))
	w.wantCondition(name, `False MissingEndpoints endpointslices for service/api in "ext" have no addresses with port name "https"`)
	w.put(slices, "ext/api-1", slice("https", nil)) // unknown is ready
	url := "https://" + e.address() + "/apis/g.example.com/v1"
	w.wantCondition(name, fmt.Sprintf("False FailedDiscoveryCheck failing or missing response from %s: bad status from %s: 404", url, url))
	e.on("/apis/g.example.com/v1", reply{code: 301, body: "{}"}) // a redirect is no success
	w.wantCondition(name, fmt.Sprintf("False FailedDiscoveryCheck failing or missing response from %s: bad status from %s: 301", url, url))
	e.on("/apis/g.example.com/v1", reply{code: 204})
	w.wantCondition(name, "True Passed all checks passed")
	w.put("services", "ext/api", meta{object{"name": "api"}, object{"type": "ClusterIP", "clusterIP": "None", "ports": []object{{"name": "https", "port": port}}}})
	w.wantCondition(name, `False FailedDiscoveryCheck cannot route to service with ClusterIP "None"`)
	w.remove("services", "ext/api")
	w.wantCondition(name, `False ServiceNotFound service/api in "ext" is not present`)
}

// TestUnreachable: what a discovery check says about addresses that it does not, or cannot, call.
func TestUnreachable(t *testing.T) {
	own := startExtension(t, "api")
	notHTTP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { notHTTP.Close() })
	go func() {
		for {
			c, err := notHTTP.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("SSH-2.0-secret\r\n"))
			c.Close()
		}
	}()
	w := newWorld(t, aggregation.Config{Own: func(a netip.AddrPort) bool { return a.String() == own.address() }})
	for name, want := range map[string][2]string{
		"v1.a.example.com": {"169.254.169.254:443", "*dial tcp 169.254.169.254:443: extension servers at link-local addresses are not called"},
		"v1.b.example.com": {"100.100.100.200:443", "*extension servers at addresses of metadata services are not called"},
		"v1.c.example.com": {"0.0.0.0:443", "*extension servers at the unspecified address are not called"},
		"v1.d.example.com": {own.address(), "*extension servers at an address of this server itself are not called"},
		"v1.e.example.com": {"127.0.0.1:1", "*connect: connection refused"},
		"v1.f.example.com": {notHTTP.Addr().String(), "*tls: first record does not look like a TLS handshake"},
	} {
		w.register(name, w.toService("to-"+name[3:4], want[0]))
		w.wantCondition(name, "False FailedDiscoveryCheck failing or missing response from https://"+want[0]+want[1])
	}
}

// TestCertificates: the certificate must be that of the name of the Service, by the caBundle, wherever the Service leads to.
func TestCertificates(t *testing.T) {
	e := startExtension(t, "api")
	e.on("/apis/g.example.com/v1", reply{body: "{}"})
	pair, other := certificate(t, "front-proxy-client")
	current := atomic.Pointer[tls.Certificate]{}
	current.Store(&pair)
	w := newWorld(t, aggregation.Config{Certificate: current.Load})
	const name = "v1.g.example.com"
	to := w.toService("api", e.address())
	with := func(ca []byte) func(*apiregistrationv1.APIServiceSpec) {
		return func(s *apiregistrationv1.APIServiceSpec) {
			to(s)
			s.InsecureSkipTLSVerify, s.CABundle = false, ca
		}
	}
	w.register(name, with(other))
	w.wantCondition(name, "False FailedDiscoveryCheck *: tls: failed to verify certificate: x509: *")
	w.register(name, with([]byte("no certificate")))
	w.wantCondition(name, "False FailedDiscoveryCheck the caBundle of the APIService v1.g.example.com has no certificate")
	w.register(name, with(e.ca))
	w.wantCondition(name, "True Passed all checks passed")
	checks := 0
	for _, r := range e.seen("/apis/g.example.com/v1") {
		if r.Header.Get("X-Remote-User") != "system:kube-aggregator" || len(r.TLS.PeerCertificates) != 1 || r.TLS.PeerCertificates[0].Subject.CommonName != "front-proxy-client" {
			t.Errorf("a check has the headers %v and the certificates %v", r.Header, r.TLS.PeerCertificates)
		}
		if r.Header.Get("X-Remote-Group") == "system:masters" { // not for the discovery document
			checks++
		}
	}
	if checks == 0 {
		t.Error("no check is that of a member of system:masters")
	}
	moved := w.toService("moved", e.address())
	w.register(name, func(s *apiregistrationv1.APIServiceSpec) {
		with(e.ca)(s)
		moved(s)
	})
	w.wantCondition(name, "*certificate is valid for api.ext.svc, not moved.ext.svc")
}

// TestTransitions: the time of the condition changes with its status alone, and nothing is written that is stored already.
func TestTransitions(t *testing.T) {
	w := newWorld(t, aggregation.Config{})
	const name = "v1.g.example.com"
	w.register(name, nil)
	w.wantCondition(name, "False ServiceNotFound *")
	began := w.service(name).Status.Conditions[0].LastTransitionTime
	w.advance(time.Hour)
	w.put("services", "ext/api", meta{object{"name": "api"}, object{"type": "ClusterIP", "clusterIP": "127.0.0.1", "ports": []object{{"name": "x", "port": 1}}}})
	w.wantCondition(name, "False ServicePortError *")
	if at := w.service(name).Status.Conditions[0].LastTransitionTime; !at.Equal(&began) {
		t.Errorf("the condition changed from %v to %v with its reason", began, at)
	}
	if n := w.written(); n != 2 {
		t.Errorf("%d writes, want 2", n)
	}
	e := startExtension(t, "api")
	e.on("/apis/g.example.com/v1", reply{body: "{}"})
	w.register(name, w.toService("api", e.address()))
	w.wantCondition(name, "True Passed *")
	if at := w.service(name).Status.Conditions[0].LastTransitionTime; at.Equal(&began) || !at.Time.Equal(w.time()) {
		t.Errorf("the condition changed at %v, want %v", at, w.time())
	}
}

// TestSchedule: a failed discovery check is repeated after 5 ms, and then after twice as long each time up to 30 s; a failed
// check of objects every 30 s.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		w := newWorld(t, aggregation.Config{Own: func(netip.AddrPort) bool { dials.Add(1); return true }}) // so that nothing is dialled
		to := w.toService("api", "127.0.0.1:443")
		synctest.Wait() // the Service is known before there is a backend to check
		w.register("v1.g.example.com", to)
		for _, step := range []struct {
			until  time.Duration // since the registration
			checks int64
		}{{0, 1}, {5 * time.Millisecond, 2}, {15 * time.Millisecond, 3}, {35 * time.Millisecond, 4}, {10 * time.Second, 11}, {41 * time.Second, 14}, {72 * time.Second, 15}, {102 * time.Second, 16}} {
			w.sleep(step.until)
			if got := dials.Load(); got != 5*step.checks {
				t.Errorf("after %v: %d requests, want 5 for each of %d checks", step.until, got, step.checks)
			}
		}
		if n := w.written(); n != 1 {
			t.Errorf("%d writes of one condition", n)
		}
	})
}

var began = map[*world]time.Time{}

// sleep waits until a time after the first call.
func (w *world) sleep(until time.Duration) {
	if began[w].IsZero() {
		began[w] = time.Now()
	}
	<-time.After(time.Until(began[w].Add(until)))
	synctest.Wait()
}

// TestStandby: a server that does not write conditions routes by its own checks.
func TestStandby(t *testing.T) {
	e := startExtension(t, "api")
	e.on("/apis/g.example.com/v1", reply{body: "{}"})
	e.on("/apis/g.example.com/v1/things", reply{body: "things"})
	w := newWorld(t, aggregation.Config{Writes: func() bool { return false }})
	w.register("v1.g.example.com", w.toService("api", e.address()))
	front := w.front("g.example.com", "v1")
	awaitText(t, front.URL+"/apis/g.example.com/v1/things", "200 text/plain; charset=utf-8 things")
	if got := w.condition("v1.g.example.com"); got != "" || w.written() != 0 {
		t.Errorf("the condition is %q", got)
	}
}

// TestEndpointRouting: requests go to ready endpoints, at the port of their EndpointSlice.
func TestEndpointRouting(t *testing.T) {
	e := startExtension(t, "api")
	e.on("/apis/g.example.com/v1", reply{body: "{}"})
	w := newWorld(t, aggregation.Config{Endpoints: true})
	const name = "v1.g.example.com"
	w.register(name, w.toService("api", "localhost:443"))
	w.wantCondition(name, `False FailedDiscoveryCheck unsupported service type "ExternalName"`)
	host, port, _ := net.SplitHostPort(e.address())
	number, _ := strconv.Atoi(port)
	w.put("services", "ext/api", meta{object{"name": "api"}, object{"type": "NodePort", "clusterIP": "10.0.0.1", "ports": []object{{"name": "https", "port": 443}}}})
	w.wantCondition(name, `False FailedDiscoveryCheck no endpoints available for service "api"`)
	w.put("endpointslices.discovery.k8s.io", "ext/api-1", struct {
		Metadata    object   `json:"metadata"`
		AddressType string   `json:"addressType"`
		Endpoints   []object `json:"endpoints"`
		Ports       []object `json:"ports"`
	}{object{"name": "api-1", "labels": object{"kubernetes.io/service-name": "api"}}, "IPv4",
		[]object{{"addresses": []string{"127.0.0.9"}, "conditions": object{"ready": false}}, {"addresses": []string{host}}}, []object{{"name": "https", "port": number}}})
	w.wantCondition(name, "True Passed all checks passed")
}

// TestManyChecks: extension servers that cannot be reached do not use up the server with their checks.
func TestManyChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const checks, more = 32, 8
		var dials atomic.Int64
		release := make(chan struct{})
		w := newWorld(t, aggregation.Config{Own: func(netip.AddrPort) bool { // a dial that takes long
			dials.Add(1)
			<-release
			return true
		}})
		to := w.toService("api", "127.0.0.1:443")
		synctest.Wait()
		for i := range checks + more {
			w.register(fmt.Sprintf("v1.g%d.example.com", i), to)
		}
		synctest.Wait()
		if n := dials.Load(); n != 5*checks {
			t.Errorf("%d dials at a time, want 5 for each of %d checks", n, checks)
		}
		close(release)
		synctest.Wait()
		if n := dials.Load(); n < 5*(checks+more) {
			t.Errorf("%d dials, want 5 for each of %d APIServices", n, checks+more)
		}
	})
}

// TestHangingChecks: extension servers whose checks hang do not delay the check of another one.
func TestHangingChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hanging, other = 443, 444
		var hangs atomic.Bool
		var begun, others atomic.Int64
		release := make(chan struct{})
		w := newWorld(t, aggregation.Config{Own: func(at netip.AddrPort) bool {
			switch {
			case at.Port() == other:
				others.Add(1)
			case hangs.Load():
				begun.Add(1)
				<-release
			}
			return true
		}})
		to := w.toService("api", fmt.Sprint("127.0.0.1:", hanging))
		synctest.Wait()
		for i := range 100 {
			w.register(fmt.Sprintf("v1.g%d.example.com", i), to)
		}
		synctest.Wait()
		hangs.Store(true)
		w.sleep(2 * time.Minute)
		if begun.Load() == 0 {
			t.Error("no check hangs")
		}
		w.register("v1.other.example.com", w.toService("other", fmt.Sprint("127.0.0.1:", other)))
		synctest.Wait()
		if n := others.Load(); n < 5 {
			t.Errorf("%d requests of the check of the other one", n)
		}
		close(release)
	})
}
