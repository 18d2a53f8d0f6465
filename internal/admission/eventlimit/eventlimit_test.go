package eventlimit

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const head = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"
	for _, row := range []struct{ text, want string }{
		{head + "limits: [{type: Server, qps: 1, burst: 2, cacheSize: -1}, {type: User, qps: 1, burst: 2}]", ""},
		{`{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":[{"type":"Namespace","qps":5,"burst":9,"cacheSize":3}]}`, ""},
		{"", `Object 'Kind' is missing in ''`},
		{head, `limits: Invalid value: null: must not be empty`},
		{head + "limits: [{type: server, qps: 1, burst: 2}]", `limits[0].type: Unsupported value: "server": supported values: "Namespace", "User", "SourceAndObject", "Server"`},
		{head + "limits: [{type: Namespace, cacheSize: -1}]", `[limits[0].burst: Invalid value: 0: must be positive, limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -1: must not be negative]`},
		{head + "limit: []", `limits: Invalid value: null: must not be empty`},
		{head + "limits: [{type: Server, qps: 3000000000, burst: 2}]", `cannot unmarshal`},
		{"kind: Configuration\nlimits: []", `Object 'apiVersion' is missing in 'kind: Configuration`},
		{"[]", `couldn't get version/kind; json parse error`},
	} {
		limits, err := Parse([]byte(row.text))
		switch {
		case row.want == "" && (err != nil || len(limits) == 0):
			t.Errorf("%s: %v, %v", row.text, limits, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: %v, want %s", row.text, err, row.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits: [{type: Server, qps: 1, burst: 2}]")
	f.Add(`{"limits":[{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		limits, err := Parse([]byte(text))
		if err != nil {
			return
		}
		for _, l := range limits {
			if keys[l.Type] == nil || l.QPS <= 0 || l.Burst <= 0 {
				t.Errorf("%q: %+v", text, l)
			}
		}
	})
}

// TestBuckets checks that a bucket has Burst tokens, gets QPS more each second, and is evicted when
// the cache is full.
func TestBuckets(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := newBuckets(Limit{QPS: 2, Burst: 3, CacheSize: 2})
	take := func(key string) bool { return b.take(key, now) }
	want := func(key string, n int) {
		t.Helper()
		got := 0
		for got < 10 && take(key) {
			got++
		}
		if got != n {
			t.Errorf("%s at %v: %d, want %d", key, now.Unix(), got, n)
		}
	}
	want("a", 3)
	now = now.Add(time.Second)
	want("a", 2)
	now = now.Add(250 * time.Millisecond)
	want("a", 0)
	now = now.Add(250 * time.Millisecond)
	want("a", 1)
	now = now.Add(time.Hour)
	want("a", 3)
	now = now.Add(-time.Hour) // the clock was set back
	want("a", 0)
	now = now.Add(time.Second)
	want("a", 2)
	want("b", 3)
	take("a") // a was used after b
	want("c", 3)
	want("a", 0)
	want("b", 3)
	for i := range 100 {
		take(fmt.Sprint(i))
	}
	if len(b.byKey) != 2 || b.order.Len() != 2 {
		t.Errorf("%d buckets, %d in order, want 2", len(b.byKey), b.order.Len())
	}
}

// TestServerCacheSize checks that the type Server ignores the size of the cache, and accepts a
// negative one.
func TestServerCacheSize(t *testing.T) {
	b := newBuckets(Limit{Type: "Server", QPS: 1, Burst: 1, CacheSize: -1})
	now := time.Unix(1e9, 0)
	if !b.take("", now) || b.take("", now) {
		t.Error("want one token")
	}
}
