package integration_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// oddSteps is the number of writes of TestOddWrites; zero: 150, in the full tier 600.
var oddSteps = flag.Int("odd-steps", 0, "writes of TestOddWrites")

// stand is the placeholder for an odd value in a body. It occurs nowhere else.
const stand = "q7zq9k"

// odds are odd values for names, keys and fields.
var odds = []string{
	"", "\x00", "a\x00b", "\x00\x00\x00", "a\x01", "\x7f", "\n", "a\r\nb", "\t", "\u0085", "\u2028", "\ufeff", "\ufffd",
	"\xff", "a\xffb", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "é", "日本", "\U0001f600", "e\u0301",
	".", "..", "/", "a/b", "%", "%00", "%2e%2e", "a%b", "?a=b", "#a", "a b", "+", ";", ":", "system:a:b", "*", "\\", `"`, "<&>", "'",
	"A", "a_b", "-a", "a-", "a..b", "null", "true", "0", "1e3", "watch", "namespaces", "a,b=c", "{}", "[]", "${a}", "0x1", "~",
	strings.Repeat("a", 63), strings.Repeat("b", 253), strings.Repeat("c", 254), strings.Repeat("d.", 200) + "d",
	strings.Repeat("e", 1025), strings.Repeat("f", 70_000), strings.Repeat("g", 1<<20), strings.Repeat("é", 600), strings.Repeat("\x00", 300), strings.Repeat("\xff", 300),
}

// oddWriter sends odd writes and records the acknowledged objects.
type oddWriter struct {
	t      *testing.T
	chance *rand.Rand
	http   *http.Client
	host   string

	objects   []map[string]any
	stored    map[string]string // path -> last acknowledged body
	responses map[int]int
	n         int
}

// TestOddWrites writes odd names, keys, values and sizes in every kind and every
// encoding, with every verb, while another client writes plain objects. The plain
// writes must succeed, a dry-run must return what the write returns, and after a
// restart all acknowledged objects must be there, byte for byte. Objects in lists
// must be readable and deletable by their names.
func TestOddWrites(t *testing.T) {
	chance := testrand.New(t)
	server := func(dir string) *tidemark.Server {
		return servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Controllers: []string{"-*"}, FeatureGates: map[string]bool{"CBORServingAndStorage": true}})
	}
	dir := filepath.Join(t.TempDir(), "data")
	s := server(dir)
	c := s.RESTConfig()
	w := &oddWriter{t: t, chance: chance, http: servertest.Client(t, c), host: c.Host, stored: map[string]string{}, responses: map[int]int{}}
	for i := range 3 {
		w.objects = append(w.objects, testkinds.Objects(t, "../../test/kinds/testdata/objects", fmt.Sprintf("%s%d", stand, i), chance)...)
	}
	code, response := w.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", asJSON, []byte(oddDefinition))
	if code != 201 {
		t.Fatalf("the definition: %d %s", code, response)
	}
	for range 20 {
		w.objects = append(w.objects, map[string]any{"apiVersion": "example.com/v1", "kind": "Odd", "metadata": map[string]any{"name": stand}, "spec": map[string]any{stand: stand, "list": []any{map[string]any{"k": stand}}}})
	}
	stopNeighbour := w.neighbour(c.Host, servertest.Client(t, c))
	steps := *oddSteps
	if steps == 0 {
		if steps = 60; tier.IsFull(t) {
			steps = 600
		}
	}
	for range steps {
		w.step()
		if t.Failed() && w.n > 50 {
			break
		}
	}
	stopNeighbour()
	select {
	case <-s.Done():
		t.Fatalf("the server ended: %v", s.Err())
	default:
	}
	servertest.Stop(t, s)
	t.Logf("responds: %v; %d objects", w.responses, len(w.stored))
	if w.responses[201] < steps/20 || w.responses[422] == 0 || w.responses[400] == 0 {
		t.Errorf("the writes were not odd, or too odd: %v", w.responses)
	}

	s = server(dir)
	c = s.RESTConfig()
	w.http, w.host = servertest.Client(t, c), c.Host
	w.compare()
	w.deleteAll()
}

const oddDefinition = `{"metadata":{"name":"odds.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"kind":"Odd","plural":"odds"},
"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
"properties":{"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}}}}}}}}]}}`

// neighbour writes plain objects until it is stopped. Each write must succeed.
func (w *oddWriter) neighbour(host string, h *http.Client) (stop func()) {
	var stopped atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; !stopped.Load() && !w.t.Failed(); i++ {
			resp, err := h.Post(host+configMaps, asJSON, strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"plain-%d"}}`, i)))
			if err != nil {
				w.t.Errorf("a plain write: %v", err)
				return
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 201 {
				w.t.Errorf("a plain write: %d %.300s", resp.StatusCode, text)
			}
		}
	}()
	return func() { stopped.Store(true); <-done }
}

// do sends a request to an unescaped path, and returns the response, which is JSON.
func (w *oddWriter) do(method, path, media string, body []byte) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequest(method, w.host+path, bytes.NewReader(body))
	if err != nil {
		w.t.Fatalf("%s %.100q: %v", method, path, err)
	}
	req.Header.Set("Content-Type", media)
	req.Header.Set("Accept", "application/json")
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatalf("%s %.100q: %v", method, path, err)
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %.100q: %v", method, path, err)
	}
	if resp.StatusCode >= 500 && resp.StatusCode != 504 || !utf8.Valid(response) || resp.StatusCode != 404 && !json.Valid(response) {
		w.t.Errorf("%s %.100q %s: %d %.600s\nbody %.600q", method, path, media, resp.StatusCode, response, body)
	}
	return resp.StatusCode, response
}

// typeOf returns the type of an object, or nil for the custom resource.
func typeOf(o map[string]any) *resource.Type {
	for typ := range builtin.Catalog().Types() {
		if typ.GroupVersion().String() == o["apiVersion"] && typ.Kind == o["kind"] && typ.Collection != "" {
			return typ
		}
	}
	return nil
}

// collection returns the path of a collection.
func collection(typ *resource.Type) string {
	switch {
	case typ == nil:
		return "/apis/example.com/v1/odds"
	case typ.Group == "" && typ.Namespaced:
		return "/api/v1/namespaces/default/" + typ.Resource
	case typ.Group == "":
		return "/api/v1/" + typ.Resource
	case typ.Namespaced:
		return "/apis/" + typ.GroupVersion().String() + "/namespaces/default/" + typ.Resource
	}
	return "/apis/" + typ.GroupVersion().String() + "/" + typ.Resource
}

// step sends one odd write.
func (w *oddWriter) step() {
	w.n++
	var o map[string]any
	text, err := json.Marshal(w.objects[w.chance.IntN(len(w.objects))])
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		w.t.Fatal(err)
	}
	typ := typeOf(o)
	meta := o["metadata"].(map[string]any)
	odd := odds[w.chance.IntN(len(odds))]
	if name, _ := meta["name"].(string); w.chance.IntN(4) > 0 && strings.Contains(name, stand) {
		// The oddity is elsewhere than in the name.
		meta["name"] = strings.ReplaceAll(name, stand, fmt.Sprintf("n%d", w.n))
		w.place(o)
	} else if w.chance.IntN(4) == 0 {
		delete(meta, "name")
		meta["generateName"] = stand
	}
	name := strings.ReplaceAll(fmt.Sprint(meta["name"]), stand, odd)
	url := w.some(collection(typ) + "/" + url.PathEscape(name))
	switch w.chance.IntN(6) {
	case 0, 1, 2:
		media, body := w.encode(typ, o, odd)
		w.write("POST", collection(typ), media, body)
	case 3:
		media, body := w.encode(typ, o, odd)
		w.write("PUT", url, media, body)
	case 4:
		media := []string{asMerge, asStrategic, asJSONPatch}[w.chance.IntN(3)]
		w.write("PATCH", w.known(url), media, w.patch(media, o, odd))
	default:
		delete(meta, "generateName")
		body := odden(mustJSON(o), odd, w.chance.IntN(2) == 0)
		w.write("PATCH", w.known(url)+"?fieldManager=m&force=true", asApply, body)
	}
	if w.chance.IntN(4) == 0 { // names in the URL of a read
		w.do("GET", url, asJSON, nil)
		w.do("GET", url+"/status", asJSON, nil)
		if at := collection(typ) + "/" + urlOf(odd); odd != "" { // or else it is the collection that goes
			w.do("DELETE", at, asJSON, nil)
			w.remember(at)
		}
		w.do("GET", collection(typ)+"?fieldSelector="+urlOf("metadata.name="+odd)+"&labelSelector="+urlOf(odd), asJSON, nil)
	}
}

// remember records the state of an object after a deletion.
func (w *oddWriter) remember(at string) {
	if w.stored[at] == "" {
		return
	}
	code, text := w.do("GET", at, asJSON, nil)
	if code == 200 {
		w.stored[at] = string(text)
	} else {
		delete(w.stored, at)
	}
}

func urlOf(s string) string {
	if len(s) > 100_000 { // a server takes no longer head of a request
		s = s[:100_000]
	}
	return url.PathEscape(s)
}

// known returns the path of an object that most likely exists.
func (w *oddWriter) known(otherwise string) string {
	if len(w.stored) == 0 || w.chance.IntN(3) == 0 {
		return otherwise
	}
	paths := slices.Sorted(maps.Keys(w.stored))
	return paths[w.chance.IntN(len(paths))]
}

// some returns the path if it fits into a request line.
func (w *oddWriter) some(path string) string {
	if len(path) > 100_000 {
		return path[:100_000]
	}
	return path
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// place puts the placeholder somewhere into an object.
func (w *oddWriter) place(o map[string]any) {
	meta := o["metadata"].(map[string]any)
	switch w.chance.IntN(8) {
	case 0:
		meta["labels"] = map[string]any{stand: "v"}
	case 1:
		meta["labels"] = map[string]any{"k": stand}
	case 2:
		meta["annotations"] = map[string]any{"k": stand, "l": stand + stand}
	case 3:
		meta["annotations"] = map[string]any{stand: "v", stand + "a": "w"}
	case 4:
		meta["finalizers"] = []any{"example.com/" + stand}
	case 5:
		meta["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": stand, "name": stand, "uid": stand}}
	case 6:
		meta["managedFields"] = []any{map[string]any{"manager": stand, "operation": "Update", "apiVersion": o["apiVersion"], "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:" + stand: map[string]any{}, `k:{"a":"` + stand + `"}`: map[string]any{}}}}
	default:
		w.placeIn(o, 0)
	}
}

// placeIn replaces a string below a value.
func (w *oddWriter) placeIn(v any, depth int) {
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		if depth == 0 {
			names = slices.DeleteFunc(names, func(n string) bool { return n == "kind" || n == "apiVersion" || n == "metadata" })
		}
		if len(names) == 0 {
			return
		}
		name := names[w.chance.IntN(len(names))]
		if _, isText := v[name].(string); isText {
			if v[name] = stand; w.chance.IntN(3) == 0 {
				v[stand] = stand
			}
			return
		}
		w.placeIn(v[name], depth+1)
	case []any:
		if len(v) == 0 {
			return
		}
		i := w.chance.IntN(len(v))
		if _, isText := v[i].(string); isText {
			v[i] = stand
			return
		}
		w.placeIn(v[i], depth+1)
	}
}

// odden replaces the placeholder in JSON by the odd value, raw or escaped.
func odden(text []byte, odd string, raw bool) []byte {
	into := []byte(odd)
	if !raw {
		into = mustJSON(odd)
		into = into[1 : len(into)-1]
	}
	return bytes.ReplaceAll(text, []byte(stand), into)
}

// encode encodes an object with the odd value in it.
func (w *oddWriter) encode(typ *resource.Type, o map[string]any, odd string) (media string, body []byte) {
	text := mustJSON(o)
	which := w.chance.IntN(5)
	if typ == nil && which == 2 { // has no protobuf form
		which = 0
	}
	if which < 2 {
		return []string{asJSON, "application/yaml"}[which], odden(text, odd, w.chance.IntN(3) == 0)
	}
	if which == 4 {
		y, err := wire.ToYAML(text)
		if err != nil {
			w.t.Fatal(err)
		}
		return "application/yaml", odden(y, odd, true)
	}
	// A body in a binary form has the lengths of its strings in it: as many bytes stand in
	// the place of others.
	for len(odd) > 0 && len(odd) < len(stand) {
		odd += odd
	}
	odd += "......"
	odd = odd[:len(stand)]
	if which == 2 {
		d, err := wire.Decode(typ, wire.JSON, text)
		if err != nil {
			return asJSON, text
		}
		raw, err := wire.Message(d.Object)
		if err != nil {
			return asJSON, text // it has no such form
		}
		raw = wire.AppendEnvelope(nil, metav1.TypeMeta{Kind: typ.Kind, APIVersion: typ.GroupVersion().String()}, raw)
		return string(wire.Protobuf), bytes.ReplaceAll(raw, []byte(stand), []byte(odd))
	}
	out := wire.Output{Media: wire.CBOR}
	raw, err := out.Binary().Append(nil, text)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(wire.CBOR), bytes.ReplaceAll(raw, []byte(stand), []byte(odd))
}

func (w *oddWriter) patch(media string, o map[string]any, odd string) []byte {
	raw := w.chance.IntN(3) == 0
	if media == asJSONPatch {
		ops := []any{
			map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{"k": stand}},
			map[string]any{"op": "add", "path": "/metadata/annotations/" + stand, "value": stand},
			map[string]any{"op": "replace", "path": "/metadata/name", "value": stand},
			map[string]any{"op": "add", "path": "/" + stand, "value": stand},
		}
		return odden(mustJSON(ops[w.chance.IntN(len(ops)):][:1]), odd, raw)
	}
	w.place(o)
	meta := o["metadata"].(map[string]any)
	if w.chance.IntN(2) == 0 {
		delete(meta, "name")
	}
	if w.chance.IntN(2) == 0 {
		o = map[string]any{"metadata": meta}
	}
	return odden(mustJSON(o), odd, raw)
}

// write sends a write, first as a dry-run, whose response has to be that of the write, and records
// the stored object.
func (w *oddWriter) write(method, path, media string, body []byte) {
	w.t.Helper()
	and := "?"
	if strings.Contains(path, "?") {
		and = "&"
	}
	dryCode, dry := w.do(method, path+and+"dryRun=All", media, body)
	code, response := w.do(method, path, media, body)
	w.responses[code]++
	if code != dryCode {
		w.t.Errorf("%s %.200q %s: %d, but %d as a dry-run\n%.500s\n%.500s\n%.1000q", method, path, media, code, dryCode, response, dry, body)
	}
	if code == 404 && string(response) == "404 page not found\n" { // not a path of the API: the response is plain text
		return
	}
	if code >= 300 {
		var status metav1.Status
		if err := json.Unmarshal(response, &status); err != nil || status.Message == "" || int(status.Code) != code {
			w.t.Errorf("%s %.200q %s: %d without a Status: %.300s", method, path, media, code, response)
		}
		return
	}
	var made struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal(response, &made); err != nil {
		w.t.Fatal(err)
	}
	if strings.Contains(path, "/flowschemas") { // the server writes the status of new ones
		return
	}
	place, _, _ := strings.Cut(path, "?")
	if method != "POST" {
		place = place[:strings.LastIndexByte(place, '/')]
	}
	place += "/" + url.PathEscape(made.Metadata.Name)
	got, text := w.do("GET", place, asJSON, nil)
	if got != 200 || !bytes.Equal(text, response) {
		w.t.Errorf("%s %.200q %s was %.300s\nread at %.200q: %d %.300s", method, path, media, response, place, got, text)
		return
	}
	w.stored[place] = string(text)
}

// compare reads all acknowledged objects.
func (w *oddWriter) compare() {
	for _, path := range slices.Sorted(maps.Keys(w.stored)) {
		code, got := w.do("GET", path, asJSON, nil)
		if code != 200 || string(got) != w.stored[path] {
			w.t.Errorf("%.200q was %.500s\nand is after a restart %d %.500s", path, w.stored[path], code, got)
		}
	}
}

// deleteAll deletes all objects in lists by their names.
func (w *oddWriter) deleteAll() {
	types := []*resource.Type{nil}
	for typ := range builtin.Catalog().Types() {
		if typ.Collection != "" && typ.Allows("create") && typ.Allows("delete") && typ.Resource != "customresourcedefinitions" {
			types = append(types, typ)
		}
	}
	for _, typ := range types {
		path := collection(typ)
		for _, name := range w.names(path) {
			at := path + "/" + url.PathEscape(name)
			if code, text := w.do("GET", at, asJSON, nil); code != 200 {
				w.t.Errorf("a list shows %.200q, but: %d %.300s", at, code, text)
			}
			if code, text := w.do("DELETE", at+"?gracePeriodSeconds=0", asJSON, nil); code >= 300 && code != 403 && code != 409 {
				w.t.Errorf("deleting %.200q: %d %.300s", at, code, text)
			}
			w.do("PATCH", at, asMerge, []byte(`{"metadata":{"finalizers":null}}`))
		}
		left := w.names(path)
		left = slices.DeleteFunc(left, func(name string) bool { return !strings.Contains(path, "roles") })
		for _, name := range left {
			w.t.Errorf("%.200q is still there", path+"/"+name)
		}
	}
}

func (w *oddWriter) names(path string) []string {
	_, text := w.do("GET", path, asJSON, nil)
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.Metadata.Name)
	}
	return names
}
