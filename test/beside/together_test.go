package beside

import (
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

const definition = `{"metadata":{"name":"%[1]ss.beside.example.com"},"spec":{"group":"beside.example.com","scope":"Namespaced",
	"names":{"plural":"%[1]ss","singular":"%[1]s","kind":"Kind%[1]s","listKind":"Kind%[1]sList"},"versions":[
	{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","properties":{"n":{"type":"integer","default":7},"text":{"type":"string"}},"x-kubernetes-preserve-unknown-fields":true},
		"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}`

// TestCustom: custom resources that one server defines, and the other one keeps.
func TestCustom(t *testing.T) {
	tier.Full(t)
	c := newCluster(t)
	k, td := c.serve(kube, "192.0.2.1"), c.serve(tidemark, "192.0.2.2")
	for _, pair := range [][2]*server{{k, td}, {td, k}} {
		a, b, one := pair[0], pair[1], strings.ReplaceAll(pair[0].kind, "-", "")
		definitions, at := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/beside.example.com/v1/namespaces/default/"+one+"s"
		a.want(http.StatusCreated, "POST", definitions, object(fmt.Sprintf(definition, one)))
		for _, s := range pair {
			s.until("the definition is served", func() bool { code, _ := s.send("GET", at, nil); return code == http.StatusOK })
		}
		same(t, a, b, definitions+"/"+one+"s.beside.example.com")
		for i, s := range pair {
			name := fmt.Sprint("x-", i)
			made := object(fmt.Sprintf(`{"apiVersion":"beside.example.com/v1","kind":"Kind%s","metadata":{"name":%q,"labels":{"z":"1","a":"2"},"annotations":{"a":"<&>"}},"spec":{"text":"<&>\u2028","more":{"z":1.5,"a":[1,null,"x"]}}}`, one, name))
			s.until("the server takes objects", func() bool {
				code, _ := s.send("POST", at, made)
				return code == http.StatusCreated || code == http.StatusConflict
			})
			s.want(http.StatusOK, "PATCH", at+"/"+name+"/status", object(`{"status":{"b":1,"a":2}}`))
			key := "/registry/beside.example.com/" + one + "s/default/" + name
			same(t, a, b, at+"/"+name)
			for _, s := range pair {
				unchanged(t, s, at+"/"+name, key)
				s.want(http.StatusOK, "PATCH", at+"/"+name, object(`{"metadata":{"annotations":{"by":"`+s.kind+`"}}}`))
				same(t, a, b, at+"/"+name)
			}
			unchanged(t, a, at+"/"+name, key)
		}
		remove(t, a, b, at+"/x-0")
		remove(t, b, a, at+"/x-1")
		unchanged(t, a, definitions+"/"+one+"s.beside.example.com", "/registry/apiextensions.k8s.io/customresourcedefinitions/"+one+"s.beside.example.com")
		remove(t, a, b, definitions+"/"+one+"s.beside.example.com")
	}
}

// TestNamespaces: a namespace that one server deletes is empty and gone at both.
func TestNamespaces(t *testing.T) {
	tier.Full(t)
	c := newCluster(t)
	k, td := c.serve(kube, "192.0.2.1"), c.serve(tidemark, "192.0.2.2")
	for i, pair := range [][2]*server{{k, td}, {td, k}} {
		a, b, ns := pair[0], pair[1], fmt.Sprint("n", i)
		a.want(http.StatusCreated, "POST", "/api/v1/namespaces", object(`{"metadata":{"name":"`+ns+`"}}`))
		in := "/api/v1/namespaces/" + ns
		b.until("the other server has the namespace", func() bool { code, _ := b.send("GET", in, nil); return code == http.StatusOK })
		for j, s := range pair {
			for _, kind := range []string{"configmaps", "secrets", "serviceaccounts"} {
				s.until("the server makes objects in it", func() bool {
					code, _ := s.send("POST", in+"/"+kind, object(fmt.Sprintf(`{"metadata":{"name":"o-%d"}}`, j)))
					return code == http.StatusCreated || code == http.StatusConflict
				})
			}
		}
		b.want(http.StatusOK, "DELETE", in, nil)
		for _, s := range pair {
			s.until("the namespace is gone", func() bool { code, _ := s.send("GET", in, nil); return code == http.StatusNotFound })
		}
		got, err := c.db.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		c.must(err)
		for _, kv := range got.Kvs {
			if strings.Contains(string(kv.Key), "/"+ns+"/") {
				t.Errorf("%s is left", kv.Key)
			}
		}
	}
}

// TestAllocations: both servers allocate cluster IPs and node ports at the same time, and give nothing twice.
func TestAllocations(t *testing.T) {
	tier.Full(t)
	c := newCluster(t)
	k, td := c.serve(kube, "192.0.2.1"), c.serve(tidemark, "192.0.2.2")
	const in, each = "/api/v1/namespaces/default/services", 60
	made := make([][]map[string]any, 2)
	var wg sync.WaitGroup
	for i, s := range []*server{k, td} {
		made[i] = make([]map[string]any, each)
		for j := range each {
			wg.Go(func() {
				kind := []string{"NodePort", "LoadBalancer"}[j%2]
				made[i][j] = s.want(http.StatusCreated, "POST", in, object(fmt.Sprintf(
					`{"metadata":{"name":"s-%d-%d"},"spec":{"type":%q,"externalTrafficPolicy":"Local","ports":[{"name":"a","port":80},{"name":"b","port":81}]}}`, i, j, kind)))
			})
		}
	}
	wg.Wait()
	given, ports := map[string]string{}, map[int]bool{}
	for _, o := range slices.Concat(made...) {
		name := fmt.Sprint(member(o, "metadata.name"))
		all := []string{fmt.Sprint(member(o, "spec.clusterIP"))}
		numbers := []any{member(o, "spec.healthCheckNodePort")}
		list, _ := member(o, "spec.ports").([]any)
		for _, p := range list {
			numbers = append(numbers, member(p, "nodePort"))
		}
		for _, n := range numbers {
			if n != nil {
				all, ports[int(n.(float64))] = append(all, fmt.Sprint(n)), true
			}
		}
		for _, one := range all {
			if other := given[one]; other != "" {
				t.Errorf("%s was given to %s and %s", one, other, name)
			}
			given[one] = name
		}
	}
	c.wantAllocated(ports)
	for port := range ports { // a port that one has allocated, the other one rejects
		for _, s := range []*server{k, td} {
			s.want(http.StatusUnprocessableEntity, "POST", in, object(fmt.Sprintf(`{"metadata":{"name":"again"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":%d}]}}`, port)))
		}
		break
	}
	for i, s := range []*server{td, k} { // each deletes the objects that the other one has created
		for j := range each {
			wg.Go(func() { s.want(http.StatusOK, "DELETE", fmt.Sprintf("%s/s-%d-%d", in, i, j), nil) })
		}
	}
	wg.Wait()
	c.until("all is released", func() bool { return len(c.allocated()) == 0 })
	got, err := c.db.Get(t.Context(), "/registry/ipaddresses/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	c.must(err)
	if len(got.Kvs) != 1 {
		t.Errorf("there are %d IPAddresses, want that of the Service kubernetes", len(got.Kvs))
	}
}

// allocated returns the node ports that are allocated in etcd.
func (c *cluster) allocated() map[int]bool {
	c.Helper()
	value, _ := c.value("/registry/ranges/servicenodeports")
	var envelope runtime.Unknown
	c.must(envelope.Unmarshal(value[4:]))
	var a corev1.RangeAllocation
	c.must(a.Unmarshal(envelope.Raw))
	bits, all := new(big.Int).SetBytes(a.Data), map[int]bool{}
	for i := range bits.BitLen() {
		if bits.Bit(i) == 1 {
			all[30000+i] = true
		}
	}
	return all
}

func (c *cluster) wantAllocated(want map[int]bool) {
	c.Helper()
	if got := c.allocated(); !maps.Equal(got, want) {
		c.Errorf("%d ports are allocated in etcd, want %d", len(got), len(want))
	}
}

// TestIdle checks that servers without clients write only their leases, and serve the union of
// their roles.
func TestIdle(t *testing.T) {
	tier.Full(t)
	c := newCluster(t)
	k, td := c.serve(kube, "192.0.2.1"), c.serve(tidemark, "192.0.2.2")
	quiet := func(key string) bool {
		return strings.HasPrefix(key, "/registry/leases/kube-system/") || strings.HasPrefix(key, "/registry/masterleases/") || key == "compact_rev_key" || strings.HasPrefix(key, "/registry/peerserverleases/")
	}
	watching := c.db.Watch(clientv3.WithRequireLeader(t.Context()), "\x00", clientv3.WithFromKey())
	idle := func(wanted time.Duration) (since time.Duration) {
		began := time.Now()
		last := began
		for {
			select {
			case w := <-watching:
				c.must(w.Err())
				for _, e := range w.Events {
					if !quiet(string(e.Kv.Key)) {
						last = time.Now()
						t.Logf("after %.1f s: %s %s", time.Since(began).Seconds(), e.Type, e.Kv.Key)
					}
				}
			case <-time.After(time.Second):
			}
			if now := time.Now(); now.Sub(last) > wanted {
				return now.Sub(began)
			} else if now.Sub(began) > 3*wanted {
				t.Fatalf("the servers go on writing")
			}
		}
	}
	if took := idle(time.Minute); took > 90*time.Second {
		t.Errorf("the servers wrote for %v after their start", took-time.Minute)
	}
	for _, at := range []string{"/api/v1/namespaces/default/endpoints/kubernetes", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"} {
		same(t, k, td, at)
		_, text := k.send("GET", at, nil)
		for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
			if !strings.Contains(string(text), ip) {
				t.Errorf("%s has no %s: %s", at, ip, text)
			}
		}
	}
	same(t, k, td, "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
	td.process.stop()
	c.serve(tidemark, "192.0.2.2") // existing objects are not written again
	if took := idle(30 * time.Second); took > 45*time.Second {
		t.Errorf("the servers wrote for %v after one has started again", took-30*time.Second)
	}
}
