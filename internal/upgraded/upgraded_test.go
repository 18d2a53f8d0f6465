package upgraded_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	appsv1 "k8s.io/api/apps/v1"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/upgraded"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
		log := memlog.New()
		return func(testing.TB) store.Log { return upgraded.Wrap(log) }
	})
}

// medium is a log on a file system in memory. It is opened several times, and each time checks its checksums.
type medium struct{ fs vfs.FS }

func (m medium) open(t *testing.T, wrapped bool) (*store.Store, *registry.Registry) {
	t.Helper()
	p, err := pebblelog.Open(t.Context(), pebblelog.Options{Dir: "/log", FS: m.fs})
	if err != nil {
		t.Fatal(err)
	}
	log := store.Log(p)
	if wrapped {
		log = upgraded.Wrap(log)
	}
	s, err := stores.Open(t.Context(), store.Options{Log: log, MaxMemory: 1, OnFatal: func(err error) { t.Errorf("the log failed: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	return s, &registry.Registry{Store: s}
}

const (
	statefulSet = `{"metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"a":"b"}},"serviceName":"s","template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	driver      = `{"metadata":{"name":"example.com"},"spec":{}}`
	collection  = "statefulsets.apps"
	drivers     = "csidrivers.storage.k8s.io"
)

func target(resource, namespace, name string) registry.Target {
	group := map[string]string{"namespaces": "", "statefulsets": "apps", "csidrivers": "storage.k8s.io"}[resource]
	return registry.Target{Type: builtin.Catalog().Lookup(group, "v1", resource), Namespace: namespace, Name: name}
}

// fill stores objects as 1.36 has stored them. It returns the revision after them.
func fill(t *testing.T, m medium) store.Revision {
	t.Helper()
	s, r := m.open(t, false)
	defer storetest.Close(t, s)
	create := func(resource, namespace, body string) {
		t.Helper()
		if _, err := r.Create(t.Context(), target(resource, namespace, ""), registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{FieldManager: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	create("namespaces", "", `{"metadata":{"name":"n"}}`)
	create("statefulsets", "n", strings.Replace(statefulSet, "NAME", "a", 1))
	create("statefulsets", "n", strings.Replace(statefulSet, "NAME", "b", 1))
	create("csidrivers", "", driver)
	for key, member := range map[string]string{"n/a": `,"maxUnavailable":1`, "n/b": `,"maxUnavailable":1`, "example.com": `,"preventPodSchedulingIfMissing":false`} {
		in := collection
		if key == "example.com" {
			in = drivers
		}
		o := s.Any().Get(in, key)
		text := bytes.Replace(o.Bytes(), []byte(member), nil, 1)
		if len(text) == o.Len() {
			t.Fatalf("there is no %s in %s", member, text)
		}
		at := int(o.RevisionAt)
		digits := bytes.IndexByte(text[at:], '"')
		text = append(text[:at:at], text[at+digits:]...)
		if _, err := s.Commit(t.Context(), store.Write{Collection: in, Key: key, If: o.Modified, Value: text, RevisionAt: at}); err != nil {
			t.Fatal(err)
		}
	}
	return s.Any().Revision()
}

// TestOldObjects: objects of 1.36 are read with the defaults of 1.37, at their revisions. A write that changes nothing is none,
// and a log whose objects were replaced stays consistent.
func TestOldObjects(t *testing.T) {
	m := medium{vfs.NewMem()}
	before := fill(t, m)
	for round := range 2 {
		s, r := m.open(t, true)
		for _, key := range []string{"n/a", "n/b"} {
			o := s.Any().Get(collection, key)
			var set appsv1.StatefulSet
			if err := json.Unmarshal(o.Bytes(), &set); err != nil {
				t.Fatal(err)
			}
			if v := set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable; v == nil || v.IntValue() != 1 {
				t.Errorf("%s: maxUnavailable is %v: %s", key, v, o.Bytes())
			}
			changed := round == 1 && key == "n/a"
			if (o.Modified > before) != changed || set.ResourceVersion != string(o.Bytes()[o.RevisionAt:int(o.RevisionAt)+len(set.ResourceVersion)]) {
				t.Errorf("%s: revision %d, resourceVersion %s", key, o.Modified, set.ResourceVersion)
			}
		}
		if text := string(s.Any().Get(drivers, "example.com").Bytes()); !strings.Contains(text, `"preventPodSchedulingIfMissing":false`) {
			t.Errorf("the CSIDriver is %s", text)
		}
		put := func(name string, change func(*appsv1.StatefulSet)) *store.Object {
			t.Helper()
			set := &appsv1.StatefulSet{}
			if err := json.Unmarshal(s.Any().Get(collection, "n/"+name).Bytes(), set); err != nil {
				t.Fatal(err)
			}
			change(set)
			body, err := json.Marshal(set)
			if err != nil {
				t.Fatal(err)
			}
			o, err := r.Update(t.Context(), target("statefulsets", "n", name), registry.Body{Media: wire.JSON, Bytes: body}, registry.WriteOptions{FieldManager: "m"})
			if err != nil {
				t.Fatal(err)
			}
			return o.Stored
		}
		b := s.Any().Get(collection, "n/b").Modified
		if o := put("b", func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = nil }); o.Modified != b {
			t.Errorf("a write that changes nothing made revision %d of %d: %s", o.Modified, b, o.Bytes())
		}
		at := s.Any().Revision()
		if o := put("a", func(set *appsv1.StatefulSet) { set.Labels = map[string]string{"round": string(rune('0' + round))} }); o.Modified <= at || !strings.Contains(string(o.Bytes()), `"generation":1,`) {
			t.Errorf("a change of a label: %s", o.Bytes())
		}
		// Old states are read back from the log.
		l, err := r.List(t.Context(), target("statefulsets", "n", ""), &metainternal.ListOptions{ResourceVersion: version(before), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		if err != nil {
			t.Fatal(err)
		}
		for o, err := range l.Items {
			if err != nil || !strings.Contains(string(o.Bytes()), `"maxUnavailable":1`) || strings.Contains(string(o.Bytes()), "round") {
				t.Errorf("at revision %d: %s, %v", before, o.Bytes(), err)
			}
		}
		l.Close()
		storetest.Close(t, s)
	}
}

func version(r store.Revision) string {
	text, _ := json.Marshal(r)
	return string(text)
}

// TestOtherStrategy: a StatefulSet that is not updated by the server has no default.
func TestOtherStrategy(t *testing.T) {
	m := medium{vfs.NewMem()}
	s, r := m.open(t, true)
	for resource, body := range map[string]string{"namespaces": `{"metadata":{"name":"n"}}`} {
		if _, err := r.Create(t.Context(), target(resource, "", ""), registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	body := strings.Replace(strings.Replace(statefulSet, "NAME", "a", 1), `"spec":{"selector"`, `"spec":{"updateStrategy":{"type":"OnDelete"},"selector"`, 1)
	if _, err := r.Create(t.Context(), target("statefulsets", "n", ""), registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := s.Any().Get(collection, "n/a").Bytes()
	storetest.Close(t, s)
	s, _ = m.open(t, true)
	defer storetest.Close(t, s)
	if got := s.Any().Get(collection, "n/a").Bytes(); !bytes.Equal(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
