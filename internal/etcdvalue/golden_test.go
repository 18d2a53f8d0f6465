package etcdvalue_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// golden is a value in etcd and the response of kube-apiserver v1.37.2 for it. The tool that
// records them is in test/etcdvalue.
type golden struct {
	// Case is "written" for a value that kube-apiserver wrote, "sparse" for a value that lacks
	// fields, "version" for a value with another apiVersion.
	Case, Collection, Key, Path string
	Value                       []byte
	Version                     string
	Code                        int
	Get                         json.RawMessage
}

func (g golden) String() string {
	return strings.TrimSpace(fmt.Sprint(g.Case, " ", g.Collection, " ", g.Key, " ", g.Version))
}

func goldens(t testing.TB) []golden {
	t.Helper()
	return goldensOf(t, "testdata/golden.jsonl.gz")
}

func goldensOf(t testing.TB, file string) (all []golden) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var g golden
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestGolden checks that a value that kube-apiserver wrote is decoded to its response, and encoded
// to the same bytes. Its key is found in both directions.
func TestGolden(t *testing.T) {
	var c etcdvalue.Codec
	seen := map[string]bool{}
	for _, g := range goldens(t) {
		if at := c.Keys.Of(g.Collection, g.Key); at != g.Path {
			t.Errorf("%s: got the key %s, want %s", g, at, g.Path)
		}
		if p := c.Keys.Find(g.Path); p.Class != etcdvalue.Object || p.Collection != g.Collection || p.Key != g.Key {
			t.Errorf("%s: %s is found as %+v", g, g.Path, p)
		}
		if g.Case != "written" {
			continue
		}
		seen[g.Collection] = true
		d, err := c.Decode(g.Collection, g.Value)
		if err != nil {
			t.Errorf("%s: %v", g, err)
			continue
		}
		if d.Outdated {
			t.Errorf("%s: it is outdated", g)
		}
		compareGet(t, g, d)
		if again, err := c.Encode(g.Collection, d.JSON, d.RevisionAt); err != nil || !bytes.Equal(again, g.Value) {
			t.Errorf("%s, encoded again, %v:\n got %q\nwant %q", g, err, again, g.Value)
		}
	}
	for _, s := range etcdvalue.Builtins() {
		if !seen[s.Collection] {
			t.Errorf("there is no golden value of %s", s.Collection)
		}
	}
}

// compareGet compares a decoded object with the response to a GET: byte for byte, apart from the
// order of the members of a custom resource.
func compareGet(t *testing.T, g golden, d etcdvalue.Decoded) {
	t.Helper()
	var head struct {
		Metadata struct {
			ResourceVersion uint64 `json:",string"`
		}
	}
	if err := json.Unmarshal(g.Get, &head); err != nil {
		t.Fatalf("%s: %v", g, err)
	}
	got := d.Object(g.Key, 1, store.Revision(head.Metadata.ResourceVersion)).Bytes()
	if bytes.Equal(got, g.Get) {
		return
	}
	builtin := storedCollections()[g.Collection]
	if builtin || !reflect.DeepEqual(tree(t, got), tree(t, g.Get)) {
		t.Errorf("%s:\n got %s\nwant %s", g, got, g.Get)
	}
}

// TestGoldenCBOR: custom resources of a kube-apiserver that stores CBOR are read, and outdated.
func TestGoldenCBOR(t *testing.T) {
	var c etcdvalue.Codec
	for _, g := range goldensOf(t, "testdata/cbor.jsonl.gz") {
		d, err := c.Decode(g.Collection, g.Value)
		if err != nil {
			t.Errorf("%s: %v", g, err)
			continue
		}
		if custom := !storedCollections()[g.Collection]; d.Outdated != custom {
			t.Errorf("%s: outdated is %t", g, d.Outdated)
		}
		compareGet(t, g, d)
		value, err := c.Encode(g.Collection, d.JSON, d.RevisionAt)
		if err != nil {
			t.Fatal(err)
		}
		if d, err = c.Decode(g.Collection, value); err != nil || d.Outdated {
			t.Errorf("%s, as JSON: outdated %t, %v", g, d.Outdated, err)
		}
		compareGet(t, g, d)
	}
}

func storedCollections() map[string]bool {
	all := map[string]bool{}
	for _, t := range storedTypes() {
		all[t.Collection] = true
	}
	return all
}

// TestGoldenSparse: values that lack fields get the defaults that kube-apiserver gives them.
func TestGoldenSparse(t *testing.T) {
	var c etcdvalue.Codec
	for _, g := range goldens(t) {
		if g.Case != "sparse" || g.Code != http.StatusOK {
			continue
		}
		d, err := c.Decode(g.Collection, g.Value)
		if err != nil {
			t.Errorf("%s: %v", g, err)
			continue
		}
		if sparseDiffers[g.Collection+" "+g.Key] == "" {
			compareGet(t, g, d)
		}
	}
}

// sparseDiffers are values without some fields that are not shown as by kube-apiserver, and why.
var sparseDiffers = map[string]string{
	"services default/golden-2-sparse1": "the families of a Service without an address depend on the ranges of the server",
}

// unread are the versions of earlier releases that kube-apiserver reads and this package does not.
var unread = map[string]bool{
	"certificatesigningrequests.certificates.k8s.io v1beta1": true,
}

// differs are versions that are not shown as by kube-apiserver, and why.
var differs = map[string]string{
	"ingressclasses.networking.k8s.io v1beta1": "parameters without a scope get the default of v1; kube-apiserver shows null",
}

// TestGoldenVersions: a value in the version of an earlier release is shown as by kube-apiserver,
// and is outdated. A version that kube-apiserver does not know is refused.
func TestGoldenVersions(t *testing.T) {
	var c etcdvalue.Codec
	all := goldens(t)
	versions := map[string]string{} // that are stored now
	for _, s := range etcdvalue.Builtins() {
		versions[s.Collection] = s.Kind.Version
	}
	current := map[string]golden{}
	for _, g := range all {
		if g.Case == "written" {
			current[g.Collection] = g
		}
	}
	for _, g := range all {
		if g.Case != "version" {
			continue
		}
		stale := g.Version != versions[g.Collection]
		refused := g.Code != http.StatusOK
		if refused {
			g.Value = claim(t, current[g.Collection].Value, g.Version)
		}
		d, err := c.Decode(g.Collection, g.Value)
		switch version := new(etcdvalue.VersionError); {
		case refused:
			if err == nil {
				t.Errorf("%s, which kube-apiserver does not read, is %s", g, d.JSON)
			}
		case unread[g.Collection+" "+g.Version]:
			if !errors.As(err, &version) || version.Kind.Version != g.Version {
				t.Errorf("%s: got the error %v", g, err)
			}
		case err != nil:
			t.Errorf("%s, which kube-apiserver reads: %v", g, err)
		default:
			if d.Outdated != stale {
				t.Errorf("%s: outdated is %t", g, d.Outdated)
			}
			if differs[g.Collection+" "+g.Version] == "" {
				compareGet(t, g, d)
			}
		}
	}
}

// claim returns a value that claims to be of another version.
func claim(t *testing.T, value []byte, version string) []byte {
	t.Helper()
	if value[0] == '{' {
		o := tree(t, value)
		group, _, _ := strings.Cut(o["apiVersion"].(string), "/")
		o["apiVersion"] = group + "/" + version
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	envelope, err := wire.OpenEnvelope(value)
	if err != nil {
		t.Fatal(err)
	}
	head := metav1.TypeMeta{Kind: envelope.Kind, APIVersion: version}
	if group, _, found := strings.Cut(envelope.APIVersion, "/"); found {
		head.APIVersion = group + "/" + version
	}
	return wire.AppendEnvelope(nil, head, envelope.Raw)
}
