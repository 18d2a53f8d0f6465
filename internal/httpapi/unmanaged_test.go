package httpapi_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

const drop = ";drop=metadata.managedFields"

func withUnmanaged(c *httpapi.Config) {
	c.Media = wire.Served{CBOR: true, Unmanaged: true}
	c.Limits.CompressAbove, c.Limits.WriteBatchBytes = smallList, 3000
	now := time.Now()
	c.Now = func() time.Time { return now } // so that two tables show the same ages
}

// strip returns a response without the managed fields of its objects, and how many objects had some. Text and CBOR become
// plain values, messages their types.
func strip(t testing.TB, accept, body string) (stripped any, had int) {
	t.Helper()
	if strings.HasPrefix(accept, asMessage) {
		return stripMessage(t, body)
	}
	var v any
	if strings.HasPrefix(accept, asCBOR) {
		if err := direct.Unmarshal([]byte(body), &v); err != nil {
			t.Fatal(err)
		}
	} else if err := yaml.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v, stripTree(v)
}

// stripTree removes the managed fields of an object, of its items, and of the objects of its rows.
func stripTree(v any) (had int) {
	o, _ := v.(map[string]any)
	meta, _ := o["metadata"].(map[string]any)
	if _, has := meta["managedFields"]; has {
		had++
		delete(meta, "managedFields")
	}
	for _, list := range []string{"items", "rows"} {
		items, _ := o[list].([]any)
		for _, item := range items {
			had += stripTree(item)
		}
	}
	if o["cells"] != nil {
		had += stripTree(o["object"])
	}
	return had
}

func stripMessage(t testing.TB, body string) (stripped any, had int) {
	t.Helper()
	e, err := wire.OpenEnvelope([]byte(body))
	if err != nil {
		t.Fatalf("%v: %q", err, body)
	}
	clean := func(m *metav1.ObjectMeta) {
		if m.ManagedFields != nil {
			had++
			m.ManagedFields = nil
		}
	}
	switch e.Kind {
	case "Secret":
		var o corev1.Secret
		message(t, body, &o)
		clean(&o.ObjectMeta)
		return o, had
	case "SecretList":
		var l corev1.SecretList
		message(t, body, &l)
		for i := range l.Items {
			clean(&l.Items[i].ObjectMeta)
		}
		return l, had
	case "Scale":
		var o autoscalingv1.Scale
		message(t, body, &o)
		clean(&o.ObjectMeta)
		return o, had
	case "PartialObjectMetadata":
		var o metav1.PartialObjectMetadata
		message(t, body, &o)
		clean(&o.ObjectMeta)
		return o, had
	case "PartialObjectMetadataList":
		var l metav1.PartialObjectMetadataList
		message(t, body, &l)
		for i := range l.Items {
			clean(&l.Items[i].ObjectMeta)
		}
		return l, had
	}
	t.Fatalf("a message of the kind %s", e.Kind)
	return nil, 0
}

// TestUnmanaged compares responses without managed fields with the same responses as they are, in each form, and again when
// both are in the cache.
func TestUnmanaged(t *testing.T) {
	s := start(t, wiring{config: withUnmanaged})
	for i := range 60 {
		s.secret(t, fmt.Sprintf("s%d", i), i)
	}
	const apps = "/apis/apps/v1/namespaces/default/deployments"
	s.do(t, "POST", apps, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	s.do(t, "PUT", apps+"/d/scale", `{"metadata":{"name":"d","namespace":"default"},"spec":{"replicas":2}}`)
	const (
		yamlForm = "Accept: application/yaml"
		jsonForm = "Accept: application/json"
		list     = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		partial  = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	)
	for _, c := range []struct {
		path    string
		accepts []string
		objects int
	}{
		{secrets, append([]string{yamlForm, yamlForm + list}, lists...), 60},
		{secrets + "?limit=2", lists, 2},
		{secrets + "?includeObject=Object", []string{asTable}, 60},
		{secrets + "?includeObject=None", []string{asTable}, 0},
		{secrets + "?pretty=true", []string{jsonForm, asTable, asList}, 60},
		{secrets + "/s7", []string{jsonForm, yamlForm, asMessage, asCBOR, asTable, asPartial, yamlForm + partial, asMessage + partial, asCBOR + partial}, 1},
		{secrets + "/s7?pretty=true", []string{jsonForm, asTable, asPartial}, 1},
		{apps + "/d/scale", []string{jsonForm, yamlForm, asMessage, asCBOR, asPartial}, 0}, // it has none
	} {
		for _, accept := range c.accepts {
			for range 2 {
				for _, encoding := range []string{"identity", "gzip"} {
					a := s.do(t, "GET", c.path, "", accept, "Accept-Encoding: "+encoding)
					b := s.do(t, "GET", c.path, "", accept+drop, "Accept-Encoding: "+encoding)
					if a.header.Get("Content-Type") != b.header.Get("Content-Type") || a.code != 200 || b.code != 200 {
						t.Errorf("%s %q: %d %q, %d %q", c.path, accept, a.code, a.header.Get("Content-Type"), b.code, b.header.Get("Content-Type"))
						continue
					}
					want, had := strip(t, accept, unzip(t, a))
					got, left := strip(t, accept, unzip(t, b))
					if had != c.objects || left != 0 || !reflect.DeepEqual(got, want) {
						t.Errorf("%s %q %s: %d objects have managed fields, then %d\n got %v\nwant %v", c.path, accept, encoding, had, left, got, want)
					}
				}
			}
		}
	}
}

// TestUnmanagedWrites checks that the responses of writes have no managed fields either, and that an object that was read
// without them keeps those that are stored.
func TestUnmanagedWrites(t *testing.T) {
	s := start(t, wiring{config: withUnmanaged})
	const accept, pods = "Accept: application/json" + drop, "/api/v1/namespaces/default/pods"
	const body = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	var last string
	for _, c := range []struct{ method, path, body, contentType string }{
		{"POST", pods + "?dryRun=All", body, ""},
		{"POST", pods, body, ""},
		{"PATCH", pods + "/p", `{"metadata":{"labels":{"a":"b"}}}`, "application/merge-patch+json"},
		{"PATCH", pods + "/p?fieldManager=m", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"c":"d"}}}`, "application/apply-patch+yaml"},
		{"PUT", pods + "/p", "", ""},
		{"PUT", pods + "/p/status", "", ""},
		{"DELETE", pods + "/p?gracePeriodSeconds=0&dryRun=All", "", ""},
		{"DELETE", pods + "?dryRun=All", "", ""},
	} {
		if c.method == "PUT" {
			c.body = last
		}
		headers := []string{accept}
		if c.contentType != "" {
			headers = append(headers, "Content-Type: "+c.contentType)
		}
		a := s.do(t, c.method, c.path, c.body, headers...)
		if a.code > 201 || strings.Contains(a.body, "managedFields") || !strings.Contains(a.body, `"uid"`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.code, a.body)
		}
		last = a.body
	}
	kept := parse[corev1.Pod](t, s.do(t, "GET", pods+"/p", "").body)
	var managers []string
	for _, m := range kept.ManagedFields {
		managers = append(managers, m.Manager+" "+string(m.Operation))
	}
	if want := []string{"m Apply", "test Update"}; !reflect.DeepEqual(managers, want) {
		t.Errorf("managed by %q", managers)
	}
	a := s.do(t, "DELETE", pods+"/p?gracePeriodSeconds=0", "", accept)
	if a.code != 200 || strings.Contains(a.body, "managedFields") {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// TestUnmanagedWatch reads the events of two watches of one resource, with managed fields and without them, in each medium.
func TestUnmanagedWatch(t *testing.T) {
	s := start(t, wiring{config: withUnmanaged})
	s.secret(t, "a", 1)
	s.secret(t, "large", 100_000) // its events are written apart
	type reader func() (kind string, object any, had int)
	lines := func(accept string) reader {
		w := s.watch(t, secrets+"?watch=1", accept)
		return func() (string, any, int) {
			line, err := w.lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var e struct {
				Type   string
				Object json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			o, had := strip(t, "Accept: application/json", string(e.Object))
			return e.Type, o, had
		}
	}
	messages := func(accept string) reader {
		w := s.watch(t, secrets+"?watch=1", accept)
		return func() (string, any, int) {
			kind, raw := frame(t, w.lines)
			o, had := stripMessage(t, string(raw))
			return kind, o, had
		}
	}
	open := map[string]func(string) reader{
		"Accept: application/json": lines, asTable: lines, asPartial: lines,
		asMessage: messages, asMessage + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1": messages,
	}
	type pair struct{ whole, bare reader }
	all := map[string]pair{}
	for accept, read := range open {
		all[accept] = pair{read(accept), read(accept + drop)}
	}
	check := func(events int) {
		t.Helper()
		for accept, p := range all {
			for range events {
				kind, want, had := p.whole()
				bare, got, left := p.bare()
				if kind != bare || had != 1 || left != 0 || !reflect.DeepEqual(got, want) {
					t.Errorf("%q: %s with %d, %s with %d\n got %v\nwant %v", accept, kind, had, bare, left, got, want)
				}
			}
		}
	}
	check(2)
	s.secret(t, "b", 1)
	s.do(t, "PATCH", secrets+"/large", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type: application/merge-patch+json")
	s.do(t, "DELETE", secrets+"/a", "")
	check(3)
}
