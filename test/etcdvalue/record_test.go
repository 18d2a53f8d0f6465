// Package etcdvalue_test records the values that kube-apiserver stores in etcd, for the tests of
// internal/etcdvalue. Those check the record without a kube-apiserver.
package etcdvalue_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var (
	record   = flag.String("record", "", "the file to write, internal/etcdvalue/testdata/golden.jsonl.gz; needs -etcd and a kube-apiserver")
	custom   = flag.Bool("custom", false, "record definitions and custom resources alone, for internal/etcdvalue/testdata/cbor.jsonl.gz: kube-apiserver needs --feature-gates=CBORServingAndStorage=true")
	endpoint = flag.String("etcd", "", "the URL of kube-apiserver's etcd")
)

// An entry is a value in etcd, and how kube-apiserver shows it in the version that Tidemark's
// store holds.
type entry struct {
	// Case is "written" for a value that kube-apiserver wrote; "sparse" for a value that lacks
	// fields, written into etcd; "version" for a value with another apiVersion.
	Case       string `json:"case"`
	Collection string `json:"collection"`
	Key        string `json:"key"`  // in the store
	Path       string `json:"path"` // in etcd
	// Value is left out if the version is not read.
	Value []byte `json:"value,omitempty"`
	// Version is that of the value, of the case "version".
	Version string          `json:"version,omitempty"`
	Code    int             `json:"code"` // of the GET
	Get     json.RawMessage `json:"get,omitempty"`
}

// TestRecord writes the record. kube-apiserver's etcd should be empty before.
func TestRecord(t *testing.T) {
	tier.Full(t)
	if *record == "" {
		t.Skip("nothing to record")
	}
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		client, err := rest.HTTPClientFor(servers.Quick(s.Config))
		if err != nil {
			t.Fatal(err)
		}
		db, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		s.Namespace = "default"
		r := &recorder{t: t, db: db, client: client, server: s, types: map[schema.GroupVersionKind]*resource.Type{}, chance: rand.New(rand.NewPCG(36, 3))}
		for typ := range builtin.Catalog().Types() {
			if typ.Collection != "" {
				r.types[typ.GroupVersionKind()] = typ
			}
		}
		if !*custom {
			r.templates()
		}
		for _, o := range r.custom() {
			if why := r.write(o); why != "" {
				t.Error(why)
			}
		}
		if !*custom {
			for _, e := range slices.Clone(r.all) {
				r.variants(e)
			}
		}
		r.save()
	})
}

type recorder struct {
	t      *testing.T
	db     *clientv3.Client
	client *http.Client
	server servers.Server
	types  map[schema.GroupVersionKind]*resource.Type
	chance *rand.Rand
	all    []entry
	keys   etcdvalue.Keys
}

// templates writes an object of each template. Which of its parts that exclude each other it has is
// chosen by chance: the first choice that kube-apiserver accepts is recorded.
func (r *recorder) templates() {
	objects := func(seed uint64) []map[string]any {
		return testkinds.Objects(r.t, "../kinds/testdata/objects", "golden", rand.New(rand.NewPCG(36, seed)))
	}
	for i := range objects(0) {
		why := "never sent"
		for seed := uint64(0); seed < 60 && why != ""; seed++ {
			o := objects(seed)[i]
			repair(o)
			why = r.write(o)
		}
		if why != "" {
			r.t.Error(why)
		}
	}
}

// repair removes fields that kube-apiserver rejects beside the rest of a template.
func repair(o map[string]any) {
	drop := func(part string, names ...string) {
		if v, ok := o[part].(map[string]any); ok {
			for _, name := range names {
				delete(v, name)
			}
		}
	}
	switch o["kind"] {
	case "IPAddress":
		o["metadata"].(map[string]any)["name"] = "10.77.0.7"
	case "Pod":
		drop("spec", "resources")
	case "ResourceQuota":
		drop("spec", "scopeSelector")
	case "CertificateSigningRequest":
		drop("status", "conditions")
	case "Job":
		drop("status", "active", "ready", "uncountedTerminatedPods")
	}
}

// custom returns definitions and custom resources.
func (r *recorder) custom() (all []map[string]any) {
	r.t.Helper()
	text, err := os.ReadFile("testdata/custom.json")
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(bytes.ReplaceAll(text, []byte("{ns}"), []byte(r.server.Namespace))))
		d.UseNumber()
		err = d.Decode(&all)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// at returns the path of the collection of an object in a version.
func (r *recorder) at(group, version, plural string, namespaced bool) string {
	path := "/apis/" + group + "/" + version
	if group == "" {
		path = "/api/" + version
	}
	if namespaced {
		path += "/namespaces/" + r.server.Namespace
	}
	return path + "/" + plural
}

// write creates an object, sets its status, and records it. It returns why it cannot.
func (r *recorder) write(o map[string]any) (why string) {
	gv, err := schema.ParseGroupVersion(o["apiVersion"].(string))
	if err != nil {
		r.t.Fatal(err)
	}
	metadata := o["metadata"].(map[string]any)
	name, status := metadata["name"].(string), o["status"]
	collection, path, show := r.place(gv.WithKind(o["kind"].(string)), metadata)
	code, body := r.send("POST", path, o)
	for n := 2; code == http.StatusConflict && n < 5; n++ { // the kind has several templates
		metadata["name"] = fmt.Sprint(name, "-", n)
		code, body = r.send("POST", path, o)
	}
	name = metadata["name"].(string)
	if code != http.StatusCreated {
		return fmt.Sprintf("%s: %d %s", path, code, body)
	}
	for n := 0; status != nil; n++ {
		var current map[string]any
		if code, body := r.send("GET", path+"/"+name, nil); code != http.StatusOK || json.Unmarshal(body, &current) != nil {
			r.t.Fatalf("%d %s", code, body)
		}
		current["status"] = status
		code, body := r.send("PUT", path+"/"+name+"/status", current)
		if code == http.StatusConflict && n < 20 {
			continue
		}
		if code != http.StatusOK {
			r.t.Logf("the status of %s/%s is not set: %d %s", path, name, code, body)
		}
		break
	}
	if strings.HasPrefix(collection, "customresourcedefinitions.") {
		time.Sleep(5 * time.Second) // until it is served
	}
	key := name
	if strings.Contains(path, "/namespaces/") {
		key = r.server.Namespace + "/" + name
	}
	e := entry{Case: "written", Collection: collection, Key: key, Path: r.keys.Of(collection, key)}
	r.get(&e, show+"/"+name)
	if strings.HasSuffix(collection, ".admissionregistration.k8s.io") || collection == "limitranges" || collection == "resourcequotas" {
		r.send("DELETE", path+"/"+name, nil) // it would affect the next requests
	}
	return ""
}

// place returns the collection of a kind, its path in the version of the object, and its path in
// the version that the store holds.
func (r *recorder) place(kind schema.GroupVersionKind, metadata map[string]any) (collection, path, show string) {
	typ := r.types[kind]
	if typ == nil { // custom
		plural := strings.ToLower(kind.Kind) + "s"
		path = r.at(kind.Group, kind.Version, plural, metadata["namespace"] != nil)
		return plural + "." + kind.Group, path, path
	}
	held := typ.StoredVersion()
	return typ.Collection, r.at(typ.Group, typ.Version, typ.Resource, typ.Namespaced), r.at(held.Group, held.Version, held.Resource, held.Namespaced)
}

// get records the value in etcd and the response to a GET. Both have to be of one revision.
func (r *recorder) get(e *entry, path string) {
	for range 20 {
		before := r.value(e.Path)
		code, body := r.send("GET", path, nil)
		after := r.value(e.Path)
		if before == nil || after == nil {
			r.t.Errorf("%s is not in etcd", e.Path)
			return
		}
		if before.rev != after.rev {
			continue
		}
		e.Value, e.Code = after.bytes, code
		if e.Get = bytes.TrimSpace(body); code != http.StatusOK {
			e.Get = nil
		}
		r.all = append(r.all, *e)
		return
	}
	r.t.Errorf("%s changes all the time", e.Path)
}

type versioned struct {
	rev   int64
	bytes []byte
}

func (r *recorder) value(path string) *versioned {
	got, err := r.db.Get(r.t.Context(), path)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		return nil
	}
	return &versioned{got.Kvs[0].ModRevision, got.Kvs[0].Value}
}

func (r *recorder) send(method, path string, o any) (int, []byte) {
	var body io.Reader
	if o != nil {
		text, err := json.Marshal(o)
		if err != nil {
			r.t.Fatal(err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, strings.TrimSuffix(r.server.Config.Host, "/")+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, text
}

// save writes the record.
func (r *recorder) save() {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		r.t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range r.all {
		count[fmt.Sprint(e.Case, " ", e.Code)]++
		if err := json.NewEncoder(w).Encode(e); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(*record, out.Bytes(), 0o644)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("%d entries, %d bytes: %v", len(r.all), out.Len(), count)
}
