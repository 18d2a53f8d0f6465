package aggregation_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

type object = map[string]any

// world is a store with an aggregator.
type world struct {
	t     testing.TB
	store *store.Store
	*aggregation.Aggregator

	mu     sync.Mutex   // held while an APIService is read and written, so that no write is lost
	writes int          // of conditions
	now    atomic.Int64 // the seconds of the wall clock
}

// newWorld starts an aggregator on an empty store.
func newWorld(t testing.TB, c aggregation.Config) *world {
	w := &world{t: t, store: storetest.Open(t, store.Options{Log: memlog.New()})}
	w.now.Store(1_800_000_000)
	c.Store, c.EditStatus = w.store, w.editStatus
	if c.Identity == "" {
		c.Identity = "this-server"
	}
	if c.Now == nil {
		c.Now = w.time
	}
	w.Aggregator = aggregation.New(c)
	t.Cleanup(w.Close)
	return w
}

func (w *world) time() time.Time { return time.Unix(w.now.Load(), 0) }

func (w *world) advance(d time.Duration) { w.now.Add(int64(d / time.Second)) }

// put stores an object.
func (w *world) put(collection, key string, o any) {
	w.t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	text, ok := strings.CutPrefix(string(body), `{"metadata":{`)
	if !ok {
		w.t.Fatalf("an object without metadata in front: %s", body)
	}
	const head = `{"metadata":{"resourceVersion":"`
	at := store.Revision(0)
	if o := w.store.Any().Get(collection, key); o != nil {
		at = o.Modified
	}
	if strings.HasPrefix(text, "}") {
		text = `"` + text
	} else {
		text = `",` + text
	}
	if _, err := w.store.Commit(context.Background(), store.Write{Collection: collection, Key: key, Value: []byte(head + text), RevisionAt: len(head), If: at}); err != nil {
		w.t.Error(err)
	}
}

func (w *world) remove(collection, key string) {
	w.t.Helper()
	o := w.store.Any().Get(collection, key)
	if _, err := w.store.Commit(context.Background(), store.Write{Collection: collection, Key: key, If: o.Modified}); err != nil {
		w.t.Error(err)
	}
}

// stored is an APIService in the order of put.
type stored struct {
	Metadata object                             `json:"metadata"`
	Spec     apiregistrationv1.APIServiceSpec   `json:"spec"`
	Status   apiregistrationv1.APIServiceStatus `json:"status"`
}

func (w *world) editStatus(_ context.Context, name string, edit func(*apiregistrationv1.APIService) bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.service(name)
	if s == nil || !edit(s) {
		return nil
	}
	w.writes++
	w.put(aggregation.Collection, name, stored{object{"name": name}, s.Spec, s.Status})
	return nil
}

func (w *world) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

func (w *world) service(name string) *apiregistrationv1.APIService {
	o := w.store.Any().Get(aggregation.Collection, name)
	if o == nil {
		return nil
	}
	s := new(apiregistrationv1.APIService)
	if err := json.Unmarshal(o.Bytes(), s); err != nil {
		w.t.Error(err)
	}
	return s
}

// condition returns the condition of an APIService, as "STATUS REASON MESSAGE".
func (w *world) condition(name string) string {
	s := w.service(name)
	if s == nil || len(s.Status.Conditions) == 0 {
		return ""
	}
	c := s.Status.Conditions[0]
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

// wantCondition waits for a condition. A * stands for any text.
func (w *world) wantCondition(name, want string) {
	w.t.Helper()
	await.Nil(w.t, "the condition of "+name, func() error {
		if got := w.condition(name); !matches(got, want) {
			return fmt.Errorf("it is %q, want %q", got, want)
		}
		return nil
	})
}

func matches(got, want string) bool {
	parts := strings.Split(want, "*")
	if len(parts) == 1 {
		return got == want
	}
	if !strings.HasPrefix(got, parts[0]) {
		return false
	}
	for _, p := range parts[1:] {
		_, after, ok := strings.Cut(got, p)
		if !ok {
			return false
		}
		got = after
	}
	return parts[len(parts)-1] == "" || got == ""
}

// register stores an APIService that names the Service ext/api.
func (w *world) register(name string, change func(*apiregistrationv1.APIServiceSpec)) {
	w.t.Helper()
	version, group, _ := strings.Cut(name, ".")
	port := int32(443)
	spec := apiregistrationv1.APIServiceSpec{
		Group: group, Version: version, GroupPriorityMinimum: 2000, VersionPriority: 15, InsecureSkipTLSVerify: true,
		Service: &apiregistrationv1.ServiceReference{Namespace: "ext", Name: "api", Port: &port},
	}
	if change != nil {
		change(&spec)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := stored{object{"name": name}, spec, apiregistrationv1.APIServiceStatus{}}
	if old := w.service(name); old != nil {
		s.Status = old.Status
	}
	w.put(aggregation.Collection, name, s)
}

// toService stores a Service of type ExternalName that leads to an address, and returns a change of an APIService that names
// it.
func (w *world) toService(name, address string) func(*apiregistrationv1.APIServiceSpec) {
	w.t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		w.t.Fatal(err)
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		w.t.Fatal(err)
	}
	port := int32(number)
	w.put("services", "ext/"+name, meta{object{"name": name, "namespace": "ext"}, object{"type": "ExternalName", "externalName": host}})
	return func(s *apiregistrationv1.APIServiceSpec) { s.Service.Name, s.Service.Port = name, &port }
}

// meta is an object with its metadata in front.
type meta struct {
	Metadata object `json:"metadata"`
	Spec     object `json:"spec"`
}

// extension is an extension server of a test.
type extension struct {
	*httptest.Server
	ca []byte // PEM of its authority

	mu       sync.Mutex
	handler  http.HandlerFunc // of all paths that documents do not have; nil: 404
	docs     map[string]reply
	requests []*http.Request
}

// reply is a document of an extension server.
type reply struct {
	code        int // zero: 200
	contentType string
	body        string
}

// startExtension starts an extension server whose certificate is for a Service of the namespace ext.
func startExtension(t testing.TB, service string) *extension {
	t.Helper()
	e := &extension{docs: map[string]reply{}}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.EnableHTTP2 = true
	var pair tls.Certificate
	pair, e.ca = certificate(t, service+".ext.svc")
	e.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	e.StartTLS()
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// certificate returns a certificate that is its own authority.
func certificate(t testing.TB, name string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (e *extension) address() string { return e.Listener.Addr().String() }

func (e *extension) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.requests = append(e.requests, r.Clone(context.Background()))
	doc, ok := e.docs[r.URL.Path]
	h := e.handler
	e.mu.Unlock()
	switch {
	case ok:
		if doc.contentType != "" {
			w.Header().Set("Content-Type", doc.contentType)
		}
		if doc.code != 0 {
			w.WriteHeader(doc.code)
		}
		w.Write([]byte(doc.body))
	case h != nil:
		h(w, r)
	default:
		http.NotFound(w, r)
	}
}

// on sets a document.
func (e *extension) on(path string, d reply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.docs[path] = d
}

// handle sets the handler of all other paths.
func (e *extension) handle(h http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handler = h
}

// seen returns the requests for a path so far.
func (e *extension) seen(path string) (all []*http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.requests {
		if r.URL.Path == path {
			all = append(all, r)
		}
	}
	return all
}

var alice = &authn.User{Name: "alice", UID: "u1", Groups: []string{"dev", "system:authenticated"}, Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"X509SHA256=1"}}}

// front starts a server that forwards all requests to a group and version as alice.
func (w *world) front(group, version string) *httptest.Server {
	return w.frontOf(group, version, func(r *http.Request, c *aggregation.Caller) *http.Request { return r })
}

// frontOf is front with a change of each request.
func (w *world) frontOf(group, version string, change func(*http.Request, *aggregation.Caller) *http.Request) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b := w.Backend(group, version)
		if b == nil {
			http.Error(rw, "no backend", http.StatusTeapot)
			return
		}
		c := aggregation.Caller{User: alice, AuditID: "audit-1"}
		r = change(r, &c)
		if err := b.Serve(rw, r, c); err != nil {
			http.Error(rw, "returned: "+err.Error(), http.StatusGatewayTimeout)
		}
	}))
	w.t.Cleanup(s.Close)
	return s
}

// text returns a response as "CODE CONTENT-TYPE BODY".
func text(t testing.TB, r *http.Response, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		return fmt.Sprintf("%d %s: %v", r.StatusCode, b.String(), err)
	}
	return fmt.Sprintf("%d %s %s", r.StatusCode, r.Header.Get("Content-Type"), strings.TrimSpace(b.String()))
}

// available registers an extension server as v1.g.example.com, and waits until it is available.
func (w *world) available(e *extension) {
	w.t.Helper()
	e.on("/apis/g.example.com/v1", reply{body: `{"kind":"APIResourceList","groupVersion":"g.example.com/v1","resources":[]}`})
	to := w.toService("api", e.address())
	w.register("v1.g.example.com", func(s *apiregistrationv1.APIServiceSpec) { to(s) })
	w.wantCondition("v1.g.example.com", "True Passed all checks passed")
	await.True(w.t, "the table has the backend", func() bool { return w.Backend("g.example.com", "v1") != nil })
}
