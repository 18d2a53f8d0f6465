package httpapi_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

const (
	lowHalf  = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	highHalf = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
)

// shardedList is a list or a table.
type shardedList struct {
	Metadata struct {
		Continue           string
		RemainingItemCount *int64
		ShardInfo          *metav1.ShardInfo
	}
	Items []struct{ Metadata metav1.ObjectMeta }
	Rows  []struct {
		Object struct{ Metadata metav1.ObjectMeta }
	}
}

func (l *shardedList) names() (all []string) {
	for _, i := range l.Items {
		all = append(all, i.Metadata.Name)
	}
	for _, r := range l.Rows {
		all = append(all, r.Object.Metadata.Name)
	}
	return all
}

func (s *server) sharded(t *testing.T, path, selector string, headers ...string) *shardedList {
	t.Helper()
	a := s.do(t, "GET", path+"&shardSelector="+url.QueryEscape(selector), "", headers...)
	l := &shardedList{}
	if err := json.Unmarshal([]byte(a.body), l); err != nil || a.code != 200 {
		t.Fatalf("%d %s: %v", a.code, a.body, err)
	}
	return l
}

// halves stores objects and returns the names of those in each half.
func (s *server) halves(t *testing.T) (low, high []string) {
	t.Helper()
	for i := 0; len(low) < 3 || len(high) < 3; i++ {
		name := fmt.Sprintf("c%02d", i)
		a := s.do(t, "POST", maps, fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"app":"x"}}}`, name))
		var made struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal([]byte(a.body), &made); err != nil || a.code != 201 {
			t.Fatalf("%d %s: %v", a.code, a.body, err)
		}
		h := fnv.New64a()
		h.Write([]byte(made.Metadata.UID))
		if h.Sum64() < 1<<63 {
			low = append(low, name)
		} else {
			high = append(high, name)
		}
	}
	return low, high
}

func withShards(c *httpapi.Config) { c.ShardedLists = true }

// TestShardedLists: lists in every form, and their pages, have the objects of the shard, and say which it is.
func TestShardedLists(t *testing.T) {
	s := start(t, wiring{config: withShards})
	low, high := s.halves(t)
	const nothing = "shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000001')"
	for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"} {
		for _, row := range []struct {
			selector, canonical string
			want                []string
		}{
			{lowHalf, lowHalf, low},
			{"(" + highHalf + ")", highHalf, high},
			{lowHalf + "||" + highHalf, lowHalf + " || " + highHalf, slices.Sorted(slices.Values(slices.Concat(low, high)))},
			{nothing, nothing, nil},
		} {
			l := s.sharded(t, maps+"?labelSelector=app%3Dx", row.selector, "Accept: "+accept)
			if got := l.names(); !slices.Equal(got, row.want) {
				t.Errorf("%s as %s: got %q, want %q", row.selector, accept, got, row.want)
			}
			if info := l.Metadata.ShardInfo; info == nil || info.Selector != row.canonical {
				t.Errorf("%s as %s: shardInfo %v", row.selector, accept, info)
			}
		}
	}
	var got []string
	for page, path := 0, maps+"?limit=1"; path != ""; page++ {
		l := s.sharded(t, path, highHalf)
		got = append(got, l.names()...)
		if l.Metadata.ShardInfo == nil || l.Metadata.RemainingItemCount != nil || len(l.Items) != 1 {
			t.Errorf("page %d: %+v", page, l)
		}
		if path = ""; l.Metadata.Continue != "" {
			path = maps + "?limit=1&continue=" + l.Metadata.Continue
		}
	}
	if !slices.Equal(got, high) {
		t.Errorf("pages: got %q, want %q", got, high)
	}
	namespaces := "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')" // FNV-1a of default is above
	if got := s.sharded(t, maps+"?", namespaces).names(); got != nil {
		t.Errorf("by namespace: %q", got)
	}
	a := s.do(t, "GET", maps+"?shardSelector="+url.QueryEscape(lowHalf), "", "Accept: application/yaml")
	if !strings.Contains(a.body, "shardInfo:\n    selector: shardRange(object.metadata.uid, ") {
		t.Errorf("no shardInfo: %s", a.body)
	}
	a = s.do(t, "GET", maps+"?shardSelector="+url.QueryEscape(lowHalf), "", "Accept: application/vnd.kubernetes.protobuf")
	if !strings.Contains(a.body, lowHalf) {
		t.Error("no shardInfo in protobuf")
	}
}

// TestShardedWatch: a watch has the events of the shard alone.
func TestShardedWatch(t *testing.T) {
	s := start(t, wiring{config: withShards})
	low, high := s.halves(t)
	w := s.watch(t, maps+"?watch=1&shardSelector="+url.QueryEscape(lowHalf))
	for _, name := range low {
		w.want(t, "ADDED "+name)
	}
	for _, name := range slices.Concat(high, low) {
		if a := s.do(t, "PATCH", maps+"/"+name, `{"data":{"a":"b"}}`, "Content-Type: application/merge-patch+json"); a.code != 200 {
			t.Fatalf("%d %s", a.code, a.body)
		}
	}
	for _, name := range low {
		w.want(t, "MODIFIED "+name)
	}
	for _, name := range slices.Concat(high, low) {
		s.do(t, "DELETE", maps+"/"+name, "")
	}
	for _, name := range low {
		w.want(t, "DELETED "+name)
	}
}

// TestShardedDeletion: a deletecollection deletes the objects of the shard alone.
func TestShardedDeletion(t *testing.T) {
	s := start(t, wiring{config: withShards})
	_, high := s.halves(t)
	if a := s.do(t, "DELETE", maps+"?shardSelector="+url.QueryEscape(lowHalf), ""); a.code != 200 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	if got := s.sharded(t, maps+"?", lowHalf+"||"+highHalf).names(); !slices.Equal(got, high) {
		t.Errorf("left: %q, want %q", got, high)
	}
}

// TestShardSelectors: invalid selectors are 400, long ones too. If the feature is off, the parameter is ignored.
func TestShardSelectors(t *testing.T) {
	on, off := start(t, wiring{config: withShards}), start(t, wiring{})
	for _, row := range []struct{ selector, want string }{
		{"x", "invalid shard selector: unexpected end"},
		{" ", "invalid shard selector: empty shard selector is not allowed; omit the parameter for unfiltered lists"},
		{strings.Repeat(lowHalf+"||", 5000) + lowHalf, "the shardSelector has more than 5000 terms and values"},
	} {
		for _, more := range []string{"", "&watch=1"} {
			path := maps + "?timeoutSeconds=1&shardSelector=" + url.QueryEscape(row.selector) + more
			if code, _, message := on.do(t, "GET", path, "").status(t); code != 400 || !strings.HasPrefix(message, row.want) {
				t.Errorf("%.60s%s: %d %s", row.selector, more, code, message)
			}
		}
		if a := off.do(t, "GET", maps+"?shardSelector="+url.QueryEscape(row.selector), ""); a.code != 200 || strings.Contains(a.body, "shardInfo") {
			t.Errorf("%.60s with the feature off: %d %s", row.selector, a.code, a.body)
		}
	}
	if a := on.do(t, "GET", maps+"?shardSelector=", ""); a.code != 200 || strings.Contains(a.body, "shardInfo") {
		t.Errorf("without a selector: %d %s", a.code, a.body)
	}
}
