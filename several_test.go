package tidemark_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// several starts servers on one log, whose ways take some time.
func several(t *testing.T, n int) (*sharedmem.Log, []*tidemark.Server) {
	t.Helper()
	log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{Delay: 20 * time.Millisecond, Foreign: 0.1})
	dir := t.TempDir()
	var all []*tidemark.Server
	for range n {
		all = append(all, servertest.Start(t, &tidemark.Server{InProcess: true, Storage: &servertest.OnLog{Log: log, Dir: dir}}))
	}
	return log, all
}

// call sends a request, and returns the code and the body of the response.
func call(t *testing.T, s *tidemark.Server, method, path, body string) (int, string) {
	t.Helper()
	c := s.RESTConfig()
	r, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/json-patch+json")
	}
	resp, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(response)
}

// want fails unless a request has a code.
func want(t *testing.T, s *tidemark.Server, code int, method, path, body string) string {
	t.Helper()
	got, response := call(t, s, method, path, body)
	if got != code {
		t.Errorf("%s %s: got %d %s, want %d", method, path, got, response, code)
	}
	return response
}

// leaders returns the servers whose controllers work.
func leaders(t *testing.T, all []*tidemark.Server) (leading []*tidemark.Server) {
	t.Helper()
	for _, s := range all {
		if _, text := call(t, s, http.MethodGet, "/readyz?verbose", ""); !strings.Contains(text, "server leads") {
			leading = append(leading, s)
		}
	}
	return leading
}

// TestSeveralServers: a write that one server has acknowledged is visible at the others at once.
func TestSeveralServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := several(t, 3)
		a, b, c := all[0], all[1], all[2]
		const definition = `{"metadata":{"name":"%[1]ss.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
			"names":{"plural":"%[1]ss","kind":"Kind%[1]s"},"versions":[{"name":"v1","served":true,"storage":true,
			"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
		for i := range 10 {
			ns, kind := fmt.Sprint("n", i), fmt.Sprint("k", i)
			in := "/api/v1/namespaces/" + ns
			want(t, a, 201, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, ns))
			want(t, b, 201, "POST", in+"/configmaps", `{"metadata":{"name":"m"}}`)
			want(t, c, 409, "POST", in+"/configmaps", `{"metadata":{"name":"m"}}`)
			want(t, a, 200, "PATCH", in+"/configmaps/m", `[{"op":"add","path":"/data","value":{"x":"1"}}]`)
			want(t, c, 200, "DELETE", in+"/configmaps/m", ``)
			want(t, a, 404, "DELETE", in+"/configmaps/m", ``)
			want(t, b, 201, "POST", in+"/configmaps", `{"metadata":{"name":"m"}}`)
			want(t, a, 201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(definition, kind))
			want(t, b, 201, "POST", "/apis/example.com/v1/namespaces/"+ns+"/"+kind+"s", fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Kind%s","metadata":{"name":"x"}}`, kind))
			want(t, c, 200, "GET", "/apis/example.com/v1/namespaces/"+ns+"/"+kind+"s/x", "")
			want(t, c, 201, "POST", in+"/configmaps?dryRun=All", `{"metadata":{"name":"d"}}`)
			want(t, b, 201, "POST", in+"/configmaps", `{"metadata":{"name":"d"}}`)
			want(t, a, 409, "POST", in+"/configmaps?dryRun=All", `{"metadata":{"name":"d"}}`)
			if t.Failed() {
				return
			}
		}
	})
}

// TestOneLeader: the controllers of one server work, and those of another one after it stops. Idle
// servers write nothing but their leases.
func TestOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, all := several(t, 3)
		time.Sleep(5 * time.Second)
		first := leaders(t, all)
		if len(first) != 1 {
			t.Fatalf("%d servers lead", len(first))
		}
		leaderIsNotNamed(t, all)
		before := len(objects(t, all[0], "/api/v1/configmaps"))
		began := log.Changes()
		time.Sleep(5 * time.Minute)
		// A renewal of the leader every 2 s, and one of each server every 10 s.
		if made, most := log.Changes()-began, 150+3*30+10; made > most {
			t.Errorf("idle servers made %d changes in 5 minutes, want at most %d", made, most)
		}
		if now := len(objects(t, all[0], "/api/v1/configmaps")); now != before {
			t.Errorf("there were %d ConfigMaps, and are %d", before, now)
		}
		if err := first[0].Close(); err != nil {
			t.Error(err)
		}
		all = slices.DeleteFunc(all, func(s *tidemark.Server) bool { return s == first[0] })
		time.Sleep(300 * time.Millisecond) // less than the pause between two tries
		if next := leaders(t, all); len(next) != 1 {
			t.Errorf("%d servers lead 300 ms after the leader has stopped", len(next))
		}
		if n := len(shown(t, all[0])); n != 2 {
			t.Errorf("%d servers have Leases after one of three has stopped", n)
		}
		want(t, all[0], 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
		time.Sleep(time.Second)
		for _, s := range all {
			want(t, s, 200, "GET", "/api/v1/namespaces/n/configmaps/kube-root-ca.crt", "")
		}
	})
}

// TestLeaderCut cuts the leader off the log. It stops its controllers before those of another server begin, and leaves
// the lead to that one when the log can be reached again.
func TestLeaderCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := several(t, 3)
		time.Sleep(5 * time.Second)
		first := leaders(t, all)
		if len(first) != 1 {
			t.Fatalf("%d servers lead", len(first))
		}
		cut := first[0].Storage.(*servertest.OnLog).Member
		cut.Cut(true)
		var next []*tidemark.Server
		other := all[0]
		if other == first[0] {
			other = all[1]
		}
		between := false // a namespace is there that no controller saw being created
		began := time.Now()
		for len(next) == 0 || next[0] == first[0] {
			time.Sleep(500 * time.Millisecond)
			if next = leaders(t, all); len(next) > 1 {
				t.Fatalf("%d servers lead", len(next))
			}
			if len(next) == 0 && !between {
				between = true
				want(t, other, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"between"}}`)
			}
			if time.Since(began) > 20*time.Second {
				t.Fatal("no other server leads after 20 s")
			}
		}
		want(t, next[0], 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
		time.Sleep(time.Second)
		want(t, next[0], 200, "GET", "/api/v1/namespaces/n/configmaps/kube-root-ca.crt", "")
		if !between {
			t.Error("there was a leader all the time")
		}
		want(t, next[0], 200, "GET", "/api/v1/namespaces/between/configmaps/kube-root-ca.crt", "")
		cut.Cut(false)
		for range 20 {
			time.Sleep(time.Second)
			if now := leaders(t, all); len(now) != 1 || now[0] != next[0] {
				t.Fatalf("%d servers lead, the first of them %v", len(now), now)
			}
		}
	})
}

// shown returns the names of the servers that have Leases.
func shown(t *testing.T, s *tidemark.Server) (names []string) {
	t.Helper()
	for _, lease := range objects(t, s, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=apiserver.kubernetes.io/identity") {
		names = append(names, lease.(map[string]any)["metadata"].(map[string]any)["name"].(string))
	}
	return names
}

// TestForgotten: the Lease of a server that died long ago is deleted, and those of others stay.
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := several(t, 2)
		lease := func(name string, age time.Duration) {
			want(t, all[0], 201, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", fmt.Sprintf(
				`{"metadata":{"name":%q,"labels":{"apiserver.kubernetes.io/identity":"tidemark"}},"spec":{"holderIdentity":"x","renewTime":%q}}`,
				name, time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z")))
		}
		lease("tidemark-dead", 2*time.Hour)
		lease("tidemark-late", 30*time.Minute)
		time.Sleep(30 * time.Second)
		if names := shown(t, all[0]); len(names) != 3 || slices.Contains(names, "tidemark-dead") || !slices.Contains(names, "tidemark-late") {
			t.Errorf("the Leases are %v", names)
		}
	})
}

// TestLeaseTaken: a leader whose Lease another server has taken stops its controllers.
func TestLeaseTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := several(t, 2)
		time.Sleep(5 * time.Second)
		want(t, all[0], 200, "PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tidemark", `[{"op":"replace","path":"/spec/holderIdentity","value":"another"}]`)
		time.Sleep(3 * time.Second)
		if now := leaders(t, all); len(now) != 0 {
			t.Errorf("%d servers lead without the Lease", len(now))
		}
		time.Sleep(20 * time.Second)
		if now := leaders(t, all); len(now) != 1 {
			t.Errorf("%d servers lead after the other one has not renewed the Lease", len(now))
		}
	})
}

// objects lists a collection.
func objects(t *testing.T, s *tidemark.Server, path string) []any {
	t.Helper()
	var list struct{ Items []any }
	if err := json.Unmarshal([]byte(want(t, s, 200, "GET", path, "")), &list); err != nil {
		t.Error(err)
	}
	return list.Items
}

// TestSeveralAllocate: servers that allocate at the same time give nothing twice, and keep to quotas.
func TestSeveralAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := several(t, 3)
		const in = "/api/v1/namespaces/default"
		want(t, all[0], 201, "POST", in+"/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"count/secrets":"7"}}}`)
		time.Sleep(5 * time.Second) // the controller counts
		codes := make([]map[int]int, 3)
		var wg sync.WaitGroup
		const each = 6
		var mu sync.Mutex
		post := func(what int, s *tidemark.Server, path, body string) {
			wg.Go(func() {
				code, response := call(t, s, "POST", path, body)
				mu.Lock()
				defer mu.Unlock()
				if codes[what] == nil {
					codes[what] = map[int]int{}
				}
				if codes[what][code]++; code != 201 && code != 403 && code != 422 {
					t.Errorf("POST %s: %d %s", path, code, response)
				}
			})
		}
		for i, s := range all {
			for j := range each {
				post(0, s, in+"/secrets", fmt.Sprintf(`{"metadata":{"name":"s-%d-%d"}}`, i, j))
				post(1, s, in+"/services", fmt.Sprintf(`{"metadata":{"name":"a-%d-%d"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, i, j))
			}
			post(2, s, in+"/services", fmt.Sprintf(`{"metadata":{"name":"b-%d"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30005}]}}`, i))
		}
		wg.Wait()
		if codes[0][201] != 7 || codes[1][201] != 3*each || codes[2][201] != 1 {
			t.Errorf("secrets with a quota of 7: %v, services: %v, services with one port: %v", codes[0], codes[1], codes[2])
		}
		ips, ports := map[string]bool{}, map[string]bool{}
		var list struct {
			Items []struct {
				Spec struct {
					ClusterIP string
					Ports     []struct{ NodePort int }
				}
			}
		}
		if err := json.Unmarshal([]byte(want(t, all[1], 200, "GET", in+"/services", "")), &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Items {
			ip, port := s.Spec.ClusterIP, fmt.Sprint(s.Spec.Ports[0].NodePort)
			if ips[ip] || port != "0" && ports[port] {
				t.Errorf("%s or %s was given twice", ip, port)
			}
			ips[ip], ports[port] = true, true
		}
	})
}

// TestChargedApart: creates that wait for the same quota are no transaction on a shared log. Their objects
// would have one revision, and a watch that was cut within it would lose the rest.
func TestChargedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := several(t, 2)
		const in = "/api/v1/namespaces/default"
		want(t, all[0], 201, "POST", in+"/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"count/secrets":"20"}}}`)
		time.Sleep(5 * time.Second) // the controller counts
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				want(t, all[0], 201, "POST", in+"/secrets", fmt.Sprintf(`{"metadata":{"name":"s-%d"}}`, i))
			})
		}
		wg.Wait()
		seen := map[string]string{}
		var list struct {
			Items []struct {
				Metadata struct{ Name, ResourceVersion string }
			}
		}
		if err := json.Unmarshal([]byte(want(t, all[1], 200, "GET", in+"/secrets", "")), &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if other := seen[o.Metadata.ResourceVersion]; other != "" {
				t.Errorf("%s and %s have the same version %s", other, o.Metadata.Name, o.Metadata.ResourceVersion)
			}
			seen[o.Metadata.ResourceVersion] = o.Metadata.Name
		}
		if len(seen) != 12 {
			t.Errorf("%d versions of %d secrets", len(seen), len(list.Items))
		}
	})
}

// TestDifferentServers: a server that would not understand the tokens of the others does not start.
func TestDifferentServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, all := several(t, 1)
		for what, s := range map[string]*tidemark.Server{
			"another certificate authority":  {Storage: &servertest.OnLog{Log: log, Dir: t.TempDir()}},
			"another range of cluster IPs":   {Storage: &servertest.OnLog{Log: log, Dir: all[0].Storage.(*servertest.OnLog).Dir}, Services: tidemark.Services{ClusterIPRange: "10.1.0.0/16"}},
			"another range of node ports":    {Storage: &servertest.OnLog{Log: log, Dir: all[0].Storage.(*servertest.OnLog).Dir}, Services: tidemark.Services{NodePortRange: "20000-21000"}},
			"another issuer of service acco": {Storage: &servertest.OnLog{Log: log, Dir: all[0].Storage.(*servertest.OnLog).Dir}, Authentication: tidemark.Authentication{ServiceAccounts: tidemark.ServiceAccounts{Issuers: []string{"https://a"}}}},
		} {
			s.InProcess = true
			if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
				s.Close()
			}
		}
	})
}

// TestDifferentEncryption: a server starts beside one whose values it may not be able to read, as while keys are
// changed, and its log has that once.
func TestDifferentEncryption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, all := several(t, 1)
		dir := all[0].Storage.(*servertest.OnLog).Dir
		file := filepath.Join(t.TempDir(), "encryption.yaml")
		config := `{"kind":"EncryptionConfiguration","apiVersion":"apiserver.config.k8s.io/v1","resources":[{"resources":["secrets"],"providers":[{"identity":{}}]}]}`
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		for path, times := range map[string]int{"": 0, file: 1} {
			var text strings.Builder
			s := &tidemark.Server{InProcess: true, Storage: &servertest.OnLog{Log: log, Dir: dir}, Logger: slog.New(slog.NewTextHandler(&text, nil)),
				Encryption: tidemark.Encryption{ProviderConfigFile: path}}
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(text.String(), "another configuration of encryption at rest"); got != times {
				t.Errorf("configuration %q: the log has the difference %d times, want %d\n%s", path, got, times, text.String())
			}
		}
	})
}

// TestDifferentClocks: a server finds that another one differs also if their clocks do. The Lease of one that has
// died does not keep others from starting.
func TestDifferentClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, all := several(t, 1)
		dir := all[0].Storage.(*servertest.OnLog).Dir
		other := func() *tidemark.Server {
			s := &tidemark.Server{InProcess: true, Storage: &servertest.OnLog{Log: log, Dir: dir}, Services: tidemark.Services{NodePortRange: "20000-21000"}, Clock: &tidemark.Clock{}}
			s.Clock.Advance(10 * time.Minute)
			return s
		}
		s := other()
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "another range of node ports") {
			t.Errorf("a clock that is ten minutes ahead: %v", err)
			s.Close()
		}
		lease := fmt.Sprintf(`{"metadata":{"name":"tidemark-dead","labels":{"apiserver.kubernetes.io/identity":"tidemark"},"annotations":{"tidemark.dev/service-node-port-range":"30000-32767"}},"spec":{"holderIdentity":"dead","renewTime":%q}}`,
			time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
		want(t, all[0], 201, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease)
		if err := all[0].Close(); err != nil {
			t.Fatal(err)
		}
		servertest.Start(t, other())
	})
}

// TestBesideKube: a server does not start beside a kube-apiserver that allocates from other ranges.
func TestBesideKube(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, all := several(t, 1)
		lease := fmt.Sprintf(`{"metadata":{"name":"apiserver-x","labels":{"apiserver.kubernetes.io/identity":"kube-apiserver"}},"spec":{"holderIdentity":"apiserver-x_1","leaseDurationSeconds":3600,"renewTime":%q}}`,
			time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
		want(t, all[0], 201, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease)
		dir := all[0].Storage.(*servertest.OnLog).Dir
		if err := all[0].Close(); err != nil {
			t.Fatal(err)
		}
		other := func() *tidemark.Server {
			return &tidemark.Server{InProcess: true, Storage: &servertest.OnLog{Log: log, Dir: dir}, Services: tidemark.Services{ClusterIPRange: "10.1.0.0/16"}}
		}
		s := other()
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "the kube-apiserver apiserver-x_1 on the same etcd has another range of cluster IPs: [10.96.0.0/12] there, and [10.1.0.0/16] here") {
			t.Errorf("beside a kube-apiserver: %v", err)
			s.Close()
		}
		time.Sleep(time.Minute)
		servertest.Start(t, other()) // it has ended
	})
}

// TestSharedHealth: the checks etcd and etcd-readiness ask the log.
func TestSharedHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := several(t, 1)
		want(t, all[0], 200, "GET", "/readyz", "")
		want(t, all[0], 200, "GET", "/livez", "")
		time.Sleep(2 * time.Second)
		member := all[0].Storage.(*servertest.OnLog).Member
		member.Cut(true)
		for _, path := range []string{"/readyz/etcd", "/readyz/etcd-readiness", "/livez", "/healthz"} {
			want(t, all[0], 500, "GET", path, "")
		}
		want(t, all[0], 200, "GET", "/api/v1/namespaces/default?resourceVersion=0", "")
		want(t, all[0], 504, "GET", "/api/v1/namespaces/default", "")
		member.Cut(false)
		time.Sleep(2 * time.Second)
		want(t, all[0], 200, "GET", "/readyz", "")
	})
}

// behind sends a request to a server that has not yet received a write of another one. The server
// decides the request by its old state, and gets the new one two seconds later.
func behind(t *testing.T, s *tidemark.Server, write func(), requests ...func()) {
	t.Helper()
	member := s.Storage.(*servertest.OnLog).Member
	time.Sleep(time.Second) // so that it has all that is older
	member.Pause()
	write()
	time.Sleep(time.Second) // the controllers set the limits of quotas
	var wg sync.WaitGroup
	for _, request := range requests {
		wg.Go(request)
	}
	time.Sleep(2 * time.Second)
	member.Resume()
	began := time.Now()
	wg.Wait()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the requests took %v more after the server had the newest state", took)
	}
}

// TestChargedStale: a create that a quota counts, and that was decided by a state which lacks the write of another server, is
// decided again by the newest state.
func TestChargedStale(t *testing.T) {
	type request struct {
		code               int
		resource, body, in string // in: what the response contains
	}
	secrets := func(n, code int, in string) (all []request) {
		for i := range n {
			all = append(all, request{code, "secrets", fmt.Sprintf(`{"metadata":{"name":"s-%d"}}`, i), in})
		}
		return all
	}
	const in = "/api/v1/namespaces/n"
	const service = `{"metadata":{"name":"%s"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30005}]}}`
	limit := func(t *testing.T, s *tidemark.Server, hard string) {
		want(t, s, 200, "PATCH", in+"/resourcequotas/q", fmt.Sprintf(`[{"op":"replace","path":"/spec/hard/count~1secrets","value":%q}]`, hard))
	}
	for _, c := range []struct {
		name     string
		write    func(t *testing.T, s *tidemark.Server)
		requests []request
		used     string // of Secrets; empty: the namespace is gone
	}{
		{"the namespace is deleted", func(t *testing.T, s *tidemark.Server) { want(t, s, 200, "DELETE", in, "") },
			secrets(40, 403, "because it is being terminated"), ""},
		{"the node port is given", func(t *testing.T, s *tidemark.Server) {
			want(t, s, 201, "POST", in+"/services", fmt.Sprintf(service, "a"))
		},
			[]request{{422, "services", fmt.Sprintf(service, "b"), "provided port is already allocated"}}, "0"},
		{"the namespace has another label", func(t *testing.T, s *tidemark.Server) {
			want(t, s, 200, "PATCH", in, `[{"op":"add","path":"/metadata/labels/a","value":"b"}]`)
		}, secrets(3, 201, ""), "3"},
		{"the limit is lower", func(t *testing.T, s *tidemark.Server) { limit(t, s, "0") }, secrets(3, 403, "exceeded quota"), "0"},
		{"the limit is higher", func(t *testing.T, s *tidemark.Server) { limit(t, s, "50") }, secrets(3, 201, ""), "3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, all := several(t, 2)
				time.Sleep(5 * time.Second)
				first, other := all[0], all[1]
				if leaders(t, all)[0] == other { // whose controllers work while the other one is behind
					first, other = other, first
				}
				want(t, first, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"n","finalizers":["example.com/stay"]}}`)
				want(t, first, 201, "POST", in+"/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"count/secrets":"40","services":"10"}}}`)
				time.Sleep(5 * time.Second) // the controller counts
				var requests []func()
				for _, r := range c.requests {
					requests = append(requests, func() {
						if response := want(t, other, r.code, "POST", in+"/"+r.resource, r.body); !strings.Contains(response, r.in) {
							t.Errorf("%s: %s, want %q", r.body, response, r.in)
						}
					})
				}
				behind(t, other, func() { c.write(t, first) }, requests...)
				if c.used == "" {
					return
				}
				var quota struct {
					Status struct{ Used map[string]string }
				}
				if err := json.Unmarshal([]byte(want(t, other, 200, "GET", in+"/resourcequotas/q", "")), &quota); err != nil {
					t.Fatal(err)
				}
				if got := quota.Status.Used["count/secrets"]; got != c.used {
					t.Errorf("the quota has %s used Secrets, want %s", got, c.used)
				}
			})
		})
	}
}

// leaderIsNotNamed checks that health checks, which clients without credentials may read, do not name the leader.
func leaderIsNotNamed(t *testing.T, all []*tidemark.Server) {
	t.Helper()
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	if err := json.Unmarshal([]byte(want(t, all[0], 200, "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tidemark", "")), &lease); err != nil || lease.Spec.HolderIdentity == "" {
		t.Fatalf("the Lease of the leader: %+v, %v", lease, err)
	}
	for _, s := range all {
		if text := want(t, s, 200, "GET", "/readyz?verbose", ""); strings.Contains(text, lease.Spec.HolderIdentity) {
			t.Errorf("/readyz names the leader: %s", text)
		}
	}
}

// TestVirtualStale: a create at a virtual resource is decided by all writes that another server has
// acknowledged before.
func TestVirtualStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := several(t, 2)
		time.Sleep(5 * time.Second)
		first, other := all[0], all[1]
		if leaders(t, all)[0] == other { // whose controllers work while the other one is behind
			first, other = other, first
		}
		const reviews, in = "/apis/authorization.k8s.io/v1/subjectaccessreviews", "/api/v1/namespaces/n"
		want(t, first, 201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"reader"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`)
		granted := func(user string) func() {
			return func() {
				body := fmt.Sprintf(`{"spec":{"user":%q,"resourceAttributes":{"resource":"pods","verb":"get"}}}`, user)
				allowed := user == "new"
				if got := want(t, other, 201, "POST", reviews, body); strings.Contains(got, `"allowed":true`) != allowed {
					t.Errorf("a review of the user %s: %s, want allowed: %v", user, got, allowed)
				}
			}
		}
		binding := func(user string) string {
			return fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"reader"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%[1]q}]}`, user)
		}
		const bindings, spec = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `"spec":{"containers":[{"name":"c","image":"i"}]}`
		want(t, first, 201, "POST", bindings, binding("old"))
		behind(t, other, func() {
			want(t, first, 201, "POST", bindings, binding("new"))
			want(t, first, 200, "DELETE", bindings+"/old", "")
			want(t, first, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
			want(t, first, 201, "POST", in+"/serviceaccounts", `{"metadata":{"name":"s"}}`)
			for _, pod := range []string{"bound", "evicted"} {
				want(t, first, 201, "POST", in+"/pods", fmt.Sprintf(`{"metadata":{"name":%q},%s}`, pod, spec))
			}
		},
			granted("new"), granted("old"),
			func() { want(t, other, 201, "POST", in+"/serviceaccounts/s/token", `{"spec":{"audiences":["a"]}}`) },
			func() {
				want(t, other, 201, "POST", in+"/pods/bound/binding", `{"metadata":{"name":"bound"},"target":{"kind":"Node","name":"node"}}`)
			},
			func() { want(t, other, 201, "POST", in+"/pods/evicted/eviction", `{"metadata":{"name":"evicted"}}`) })
	})
}
