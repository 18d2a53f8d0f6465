package beside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// balancer passes connections on to the servers that it has, in turn.
type balancer struct {
	net.Listener
	mu       sync.Mutex
	backends []*server // guarded by mu
	next     int       // guarded by mu
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go b.pass(c)
		}
	}()
	return b
}

func (b *balancer) pass(c net.Conn) {
	defer c.Close()
	b.mu.Lock()
	if len(b.backends) == 0 {
		b.mu.Unlock()
		return
	}
	b.next++
	to := strings.TrimPrefix(b.backends[b.next%len(b.backends)].url, "https://")
	b.mu.Unlock()
	s, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		io.Copy(s, c)
		s.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(c, s)
}

func (b *balancer) use(all ...*server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = all
}

// lists counts the requests that read collections anew.
type lists struct {
	*load
	next http.RoundTripper
}

func (l lists) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("watch") == "" || q.Get("sendInitialEvents") == "true" {
		l.lists.Add(1)
		l.Logf("an informer reads %s", r.URL)
	}
	return l.next.RoundTrip(r)
}

// Of each resource, the writers have this many objects, one for each writer.
const writers = 4

// load writes objects through an address, and watches them.
type load struct {
	*cluster
	client    dynamic.Interface
	resources []schema.GroupVersionResource
	informers []cache.SharedIndexInformer
	lists     atomic.Int64
	acked     sync.Map // "RESOURCE NAME" to the number that was acknowledged last, -1: deleted
	made      atomic.Int64
	failed    atomic.Int64 // attempts without a response, and with 5xx or 429
	newest    []atomic.Int64
}

// startLoad starts informers and writers. stop ends the writers.
func startLoad(c *cluster, host string) (l *load, stop func()) {
	l = &load{cluster: c, resources: []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "pods"},
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "beside.example.com", Version: "v1", Resource: "loads"},
	}}
	client, err := dynamic.NewForConfig(config(host))
	c.must(err)
	l.client = client
	watched := config(host)
	watched.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return lists{l, rt} }
	ctx, cancel := context.WithCancel(context.Background())
	l.watch(ctx, watched)
	var writing sync.WaitGroup
	for _, r := range l.resources {
		for i := range writers {
			writing.Go(func() { l.write(ctx, r, fmt.Sprint("load-", i)) })
		}
	}
	stop = sync.OnceFunc(func() {
		cancel()
		writing.Wait()
	})
	c.Cleanup(stop)
	return l, stop
}

// watch starts an informer for each resource. They outlive the context of the writers.
func (l *load) watch(ctx context.Context, c *rest.Config) {
	client, err := dynamic.NewForConfig(c)
	l.must(err)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, "default", nil)
	l.newest = make([]atomic.Int64, len(l.resources))
	for i, r := range l.resources {
		informer := factory.ForResource(r).Informer()
		seen := func(o any) {
			if u, ok := o.(*unstructured.Unstructured); ok {
				at, _ := strconv.ParseInt(u.GetResourceVersion(), 10, 64)
				l.newest[i].Store(max(at, l.newest[i].Load()))
			}
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, DeleteFunc: seen, UpdateFunc: func(old, o any) {
			seen(o)
			was, is := old.(*unstructured.Unstructured), o.(*unstructured.Unstructured)
			if was.GetUID() == is.GetUID() && number(is) < number(was) {
				l.Errorf("%s %s went from %d back to %d", r.Resource, is.GetName(), number(was), number(is))
			}
		}})
		l.must(err)
		l.informers = append(l.informers, informer)
	}
	done := make(chan struct{})
	l.Cleanup(func() { close(done) })
	factory.Start(done)
	for _, i := range l.informers {
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			l.Fatal("an informer has not read its collection")
		}
	}
}

// number returns the number that a writer gave to an object.
func number(o *unstructured.Unstructured) int64 {
	n, _ := strconv.ParseInt(o.GetAnnotations()["n"], 10, 64)
	return n
}

func (l *load) object(r schema.GroupVersionResource, name string, n int64) *unstructured.Unstructured {
	text := map[string]string{
		"configmaps":  `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"b"}}`,
		"services":    `{"apiVersion":"v1","kind":"Service","spec":{"type":"NodePort","ports":[{"port":80}]}}`,
		"pods":        `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","image":"b"}]}}`,
		"deployments": `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}`,
		"loads":       `{"apiVersion":"beside.example.com/v1","kind":"Kindload","spec":{"text":"a"}}`,
	}[r.Resource]
	o := &unstructured.Unstructured{Object: object(text)}
	o.SetName(name)
	o.SetAnnotations(map[string]string{"n": fmt.Sprint(n)})
	return o
}

// pause is between two writes of a writer.
const pause = 50 * time.Millisecond

// write creates, updates, patches and deletes one object repeatedly, and records the acknowledged
// versions. It is the only writer of the object.
func (l *load) write(ctx context.Context, r schema.GroupVersionResource, name string) {
	at, key := l.client.Resource(r).Namespace("default"), r.Resource+" "+name
	zero := int64(0)
	for n := int64(1); ctx.Err() == nil; n++ {
		var err error
		want := n
		call, cancel := context.WithTimeout(context.Background(), 20*time.Second) // a write that began is finished
		switch n % 8 {
		case 1:
			_, err = at.Create(call, l.object(r, name, n), metav1.CreateOptions{})
		case 0:
			want = -1
			err = at.Delete(call, name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
		case 3, 6:
			var o *unstructured.Unstructured
			if o, err = at.Get(call, name, metav1.GetOptions{}); err == nil {
				o.SetAnnotations(map[string]string{"n": fmt.Sprint(n)})
				_, err = at.Update(call, o, metav1.UpdateOptions{})
			}
		default:
			_, err = at.Patch(call, name, "application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n), metav1.PatchOptions{})
		}
		cancel()
		switch {
		case err == nil:
			l.made.Add(1)
			l.acked.Store(key, want)
		case l.unresponded(err):
			l.failed.Add(1)
			n = l.resume(ctx, at, name, key, n)
		default:
			l.Errorf("%s %s, write %d: %v", r.Resource, name, n, err)
			return
		}
		time.Sleep(pause)
	}
}

// unresponded reports whether a write may have been made or not, and was not rejected as invalid.
func (l *load) unresponded(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= 500 || code == http.StatusTooManyRequests
}

// resume returns the write at which the writer goes on behind after one without a response.
func (l *load) resume(ctx context.Context, at dynamic.ResourceInterface, name, key string, n int64) int64 {
	for {
		call, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		o, err := at.Get(call, name, metav1.GetOptions{})
		cancel()
		last, _ := l.acked.Load(key)
		switch before, _ := last.(int64); {
		case err == nil && number(o) == n, n%8 == 0 && apierrors.IsNotFound(err):
			l.acked.Store(key, map[bool]int64{true: n, false: -1}[err == nil])
			return n // it was made
		case err == nil && number(o) == before, n%8 == 1 && apierrors.IsNotFound(err):
			return n - 1 // it was not
		case err == nil:
			l.Errorf("%s has the number %d: acknowledged was %d, and %d was on its way", key, number(o), before, n)
			return n
		case apierrors.IsNotFound(err):
			l.Errorf("%s is gone: acknowledged was %d, and %d was on its way", key, before, n)
			return n | 7
		}
		time.Sleep(pause)
	}
}

// caughtUp waits until each informer has seen a change that is newer than the head of etcd now: a
// kube-apiserver knows no older ones than those since its start.
func (l *load) caughtUp() {
	l.Helper()
	got, err := l.db.Get(l.Context(), "none")
	l.must(err)
	head := got.Header.Revision
	l.until("the informers are at the present state", func() bool {
		for i := range l.newest {
			if l.newest[i].Load() <= head {
				return false
			}
		}
		return true
	})
}

// check compares the informers, the servers and the acknowledged versions, after the writers have
// ended.
func (l *load) check(servers ...*server) {
	l.Helper()
	l.acked.Range(func(key, n any) bool {
		resource, name, _ := strings.Cut(key.(string), " ")
		for i, r := range l.resources {
			if r.Resource != resource {
				continue
			}
			path := "/apis/" + r.Group + "/" + r.Version
			if r.Group == "" {
				path = "/api/" + r.Version
			}
			path += "/namespaces/default/" + resource + "/" + name
			if n.(int64) < 0 {
				for _, s := range servers {
					s.want(http.StatusNotFound, "GET", path, nil)
				}
				continue
			}
			same(l.T, servers[0], servers[1], path)
			o := &unstructured.Unstructured{Object: servers[0].want(http.StatusOK, "GET", path, nil)}
			if number(o) != n.(int64) {
				l.Errorf("%s has the number %d, want %d", key, number(o), n)
			}
			l.until(path+" is in the informer", func() bool {
				have, found, _ := l.informers[i].GetStore().GetByKey("default/" + name)
				return found && have.(*unstructured.Unstructured).GetResourceVersion() == o.GetResourceVersion()
			})
		}
		return true
	})
}

// TestExchange exchanges two kube-apiservers for Tidemarks and back, one after the other, behind a load
// balancer and under load. No informer reads its collection again, nothing that was acknowledged is lost, and
// both kinds of servers show the same.
func TestExchange(t *testing.T) {
	tier.Full(t)
	c, b := newCluster(t), newBalancer(t)
	first, second := c.serve(kube, "192.0.2.1"), c.serve(kube, "192.0.2.2")
	b.use(first, second)
	first.want(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object(fmt.Sprintf(definition, "load")))
	for _, s := range []*server{first, second} {
		s.until("the definition is served", func() bool {
			code, _ := s.send("GET", "/apis/beside.example.com/v1/loads", nil)
			return code == http.StatusOK
		})
	}
	l, stop := startLoad(c, "https://"+b.Addr().String())
	synced := l.lists.Load()
	address := 2
	for _, kind := range []string{tidemark, kube} {
		for range 2 {
			l.caughtUp()
			b.use(second) // as its /readyz would report
			first.process.stop()
			l.caughtUp()
			if n := l.lists.Load() - synced; n > 0 {
				t.Errorf("%d collections were read again when a %s ended", n, first.kind)
				synced += n
			}
			t.Logf("%s stopped: %d writes, %d without a response", first.kind, l.made.Load(), l.failed.Load())
			address++
			next := c.serve(kind, fmt.Sprint("192.0.2.", address))
			// A kube-apiserver begins to watch custom resources in etcd when a client asks for them, and knows no
			// changes before.
			next.until("the server has read the custom resources", func() bool {
				code, _ := next.send("GET", "/apis/beside.example.com/v1/loads", nil)
				return code == http.StatusOK
			})
			b.use(second, next)
			first, second = second, next
		}
	}
	third := c.serve(tidemark, "192.0.2.9")
	l.caughtUp()
	stop()
	if n := l.lists.Load() - synced; n > 0 {
		t.Errorf("%d collections were read again", n)
	}
	l.check(first, third)
	if l.made.Load() < 1000 {
		t.Errorf("only %d writes were made", l.made.Load())
	}
	t.Logf("%d writes, %d without a response", l.made.Load(), l.failed.Load())
}
