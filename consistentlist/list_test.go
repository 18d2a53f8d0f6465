package consistentlist_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidemark-dev/tidemark/consistentlist"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// result is a list as a caller puts it together.
type result struct {
	version      string // of the first page
	state        map[string]int
	pages        int
	begun        int
	inconsistent bool
	last         any // the last page
}

// collect reads a list to its end, as the documentation says: pages before a First
// are forgotten.
func collect[L consistentlist.Collection](ctx context.Context, client consistentlist.Client[L], g consistentlist.Guarantee, o consistentlist.Options) (result, error) {
	var r result
	for page, err := range consistentlist.List(ctx, client, g, o) {
		if err != nil {
			return r, err
		}
		if page.First {
			r = result{version: page.List.GetResourceVersion(), state: map[string]int{}, begun: r.begun + 1}
		}
		r.pages++
		r.inconsistent = r.inconsistent || page.Inconsistent
		r.last = page
		err := meta.EachListItem(page.List, func(object runtime.Object) error {
			m, err := meta.Accessor(object)
			if err == nil {
				r.state[m.GetName()], err = strconv.Atoi(m.GetResourceVersion())
			}
			return err
		})
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func kindOf(err error) consistentlist.Kind {
	if e, ok := errors.AsType[*consistentlist.Error](err); ok {
		return e.Kind
	}
	return ""
}

// TestGuarantees asks servers of each age, by each client, in pages and whole, for
// each guarantee at versions that are there, gone, and not there yet.
func TestGuarantees(t *testing.T) {
	for _, a := range ages {
		for _, limit := range []int64{0, 3, -1} {
			t.Run(fmt.Sprintf("%s/limit=%d", a.name, limit), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(a)
					for i := range 20 {
						m.write(fmt.Sprintf("object-%02d", i%10), i%7 == 6)
					}
					m.compact(110)
					c := serve(t, m)
					o := consistentlist.Options{Limit: limit, Retries: 1}
					guarantees(t, m, c.typed, o)
					guarantees(t, m, c.dynamic, o)
					guarantees(t, m, c.metadata, o)
				})
			})
		}
	}
}

func guarantees[L consistentlist.Collection](t *testing.T, m *model, client consistentlist.Client[L], o consistentlist.Options) {
	now := strconv.Itoa(m.now())
	for _, c := range []struct {
		guarantee consistentlist.Guarantee
		version   string // that must come; empty: an error must
		kind      consistentlist.Kind
	}{
		{consistentlist.MostRecent, now, ""},
		{consistentlist.Any, now, ""},
		{consistentlist.NotOlderThan("105"), now, ""}, // gone
		{consistentlist.NotOlderThan("115"), now, ""},
		{consistentlist.NotOlderThan(now), now, ""},
		{consistentlist.NotOlderThan("999"), "", consistentlist.NotReached},
		{consistentlist.Exact("115"), "115", ""},
		{consistentlist.Exact("110"), "110", ""},
		{consistentlist.Exact(now), now, ""},
		{consistentlist.Exact("105"), "", consistentlist.Expired},
		{consistentlist.Exact("999"), "", consistentlist.NotReached},
		{consistentlist.Exact(""), "", consistentlist.Invalid},
		{consistentlist.Exact("0"), "", consistentlist.Invalid},
		{consistentlist.NotOlderThan(""), "", consistentlist.Invalid},
		{consistentlist.NotOlderThan("0"), "", consistentlist.Invalid},
	} {
		got, err := collect(t.Context(), client, c.guarantee, o)
		if kindOf(err) != c.kind || (err != nil) != (c.version == "") {
			t.Errorf("%v: %v, want %q", c.guarantee, err, c.kind)
			continue
		}
		if err != nil {
			continue
		}
		want, _ := strconv.Atoi(c.version)
		// An old server sends a paged list exactly at the version, which is not older
		// than it.
		if strings.HasPrefix(c.guarantee.String(), "not older") && !m.age.match && o.Limit >= 0 && got.version != now {
			want, _ = strconv.Atoi(got.version)
			if want != 115 {
				t.Errorf("%v: version %s", c.guarantee, got.version)
			}
		}
		if got.version != strconv.Itoa(want) || !maps.Equal(got.state, m.state(want)) {
			t.Errorf("%v: version %s with %v, want %d with %v", c.guarantee, got.version, got.state, want, m.state(want))
		}
		if o.Limit == 3 && c.guarantee != consistentlist.Any && got.pages < 2 {
			t.Errorf("%v: %d pages", c.guarantee, got.pages)
		}
	}
}

// TestListUnderWrites lists while objects change and versions expire, also between
// pages. Whatever comes whole is the state at its version, and keeps its guarantee.
func TestListUnderWrites(t *testing.T) {
	r, lists := testrand.New(t), 50
	if tier.IsFull(t) {
		lists = 200
	}
	for _, a := range ages {
		t.Run(a.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(a)
				c := serve(t, m)
				for range lists {
					listOnce(t, r, m, c)
				}
			})
		})
	}
}

func listOnce(t *testing.T, r *rand.Rand, m *model, c clients) {
	for range r.IntN(10) {
		m.write(fmt.Sprintf("object-%02d", r.IntN(30)), r.IntN(4) == 0)
	}
	between := r.IntN(3)
	m.tamper = func(*http.Request, *response) { // writes between pages, and sometimes compaction
		for range between {
			m.write(fmt.Sprintf("object-%02d", r.IntN(30)), false)
		}
		if r.IntN(12) == 0 {
			m.compact(m.now() - r.IntN(3))
		}
	}
	asked := max(origin, m.now()-r.IntN(12))
	g := []consistentlist.Guarantee{consistentlist.MostRecent, consistentlist.Any,
		consistentlist.NotOlderThan(strconv.Itoa(asked)), consistentlist.Exact(strconv.Itoa(asked))}[r.IntN(4)]
	atLeast := map[consistentlist.Guarantee]int{consistentlist.MostRecent: m.now(), consistentlist.Any: 0}
	o := consistentlist.Options{Limit: int64(r.IntN(6)) - 1, Inconsistent: r.IntN(3) == 0}
	got, err := collect(t.Context(), c.dynamic, g, o)
	if kind := kindOf(err); kind == consistentlist.Expired {
		return
	}
	if err != nil {
		t.Fatalf("%v: %v", g, err)
	}
	version, _ := strconv.Atoi(got.version)
	least, ok := atLeast[g]
	if !ok {
		least = asked
	}
	exactly := strings.HasPrefix(g.String(), "exactly")
	if version < least || exactly && version != least {
		t.Fatalf("%v: version %d", g, version)
	}
	if !got.inconsistent && !maps.Equal(got.state, m.state(version)) {
		t.Fatalf("%v: at %d came %v, want %v", g, version, got.state, m.state(version))
	}
	if got.inconsistent && (!o.Inconsistent || exactly) {
		t.Fatalf("%v: inconsistent without leave", g)
	}
}

// TestExpiresBetweenPages lets a list's version expire after its second page, once
// or again and again.
func TestExpiresBetweenPages(t *testing.T) {
	for _, c := range []struct {
		name         string
		guarantee    consistentlist.Guarantee
		inconsistent bool
		often        bool
		begun        int
		goesOn       bool
		kind         consistentlist.Kind
	}{
		{"begins again", consistentlist.MostRecent, false, false, 2, false, ""},
		{"not older begins again", consistentlist.NotOlderThan("105"), false, false, 2, false, ""},
		{"goes on", consistentlist.MostRecent, true, false, 1, true, ""},
		{"goes on, not older", consistentlist.NotOlderThan("105"), true, false, 1, true, ""},
		{"exact ends", consistentlist.Exact("120"), false, false, 1, false, consistentlist.Expired},
		{"exact never goes on", consistentlist.Exact("120"), true, false, 1, false, consistentlist.Expired},
		{"too often", consistentlist.MostRecent, false, true, 4, false, consistentlist.Expired},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(ages[3])
				for i := range 20 {
					m.write(fmt.Sprintf("object-%02d", i), false)
				}
				served := 0
				m.tamper = func(*http.Request, *response) {
					if served++; served == 2 || c.often {
						m.compact(m.write("late", false))
					}
				}
				got, err := collect(t.Context(), serve(t, m).typed, c.guarantee, consistentlist.Options{Limit: 4, Inconsistent: c.inconsistent, Retries: 3})
				if kindOf(err) != c.kind || (err != nil) != (c.kind != "") || got.begun != c.begun || got.inconsistent != c.goesOn {
					t.Fatalf("begun %d times, inconsistent %v, %v", got.begun, got.inconsistent, err)
				}
				if err == nil && !c.goesOn && !maps.Equal(got.state, m.state(m.now())) {
					t.Errorf("%v, want %v", got.state, m.state(m.now()))
				}
				if c.goesOn && len(got.state) < 20 {
					t.Errorf("%d objects", len(got.state))
				}
			})
		})
	}
}

// TestBrokenServers asks servers that keep no promise, and wants an error rather
// than a wrong list.
func TestBrokenServers(t *testing.T) {
	exactly, notOlder := consistentlist.Exact("110"), consistentlist.NotOlderThan("110")
	for _, c := range []struct {
		name      string
		guarantee consistentlist.Guarantee
		limit     int64
		spoil     func(m *model)
		kind      consistentlist.Kind
	}{
		{"exact ignored", exactly, 0, ignoresVersions, consistentlist.NotHonoured},
		{"exact ignored without limit", exactly, -1, ignoresVersions, consistentlist.NotHonoured},
		{"goes back in time", notOlder, 0, goesBack, consistentlist.NotHonoured},
		{"lists without a version, not older", notOlder, 0, forgetsVersions, consistentlist.Incomparable},
		{"lists without a version, exact", exactly, 0, forgetsVersions, consistentlist.NotHonoured},
		{"opaque, not older", consistentlist.NotOlderThan("rev-64"), 0, opaque, consistentlist.Incomparable},
		{"opaque, exact", consistentlist.Exact("rev-64"), 0, opaque, consistentlist.NotHonoured},
		{"pages of different versions", consistentlist.MostRecent, 2, func(m *model) {
			m.tamper = func(r *http.Request, page *response) {
				if r.URL.Query().Has("continue") {
					page.version = "119"
				}
			}
		}, consistentlist.NotHonoured},
		{"a page that continues with itself", consistentlist.MostRecent, 2, func(m *model) {
			m.tamper = func(_ *http.Request, page *response) { page.token = "120:a" }
		}, consistentlist.NotHonoured},
		{"always expired", notOlder, 0, func(m *model) {
			m.before = func(w http.ResponseWriter, _ *http.Request) bool {
				fail(w, 410, metav1.StatusReasonExpired, "too old", "", 0)
				return true
			}
		}, consistentlist.Expired},
		{"a rest that is older", consistentlist.MostRecent, 2, func(m *model) {
			m.tamper = func(r *http.Request, page *response) {
				if strings.HasPrefix(r.URL.Query().Get("continue"), "-1:") {
					page.version = "50"
				} else {
					m.compact(m.write("late", false))
				}
			}
		}, consistentlist.NotHonoured},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(ages[3])
				for i := range 20 {
					m.write(fmt.Sprintf("object-%02d", i), false)
				}
				c.spoil(m)
				got, err := collect(t.Context(), serve(t, m).metadata, c.guarantee, consistentlist.Options{Limit: c.limit, Inconsistent: true})
				if kindOf(err) != c.kind {
					t.Errorf("%+v, %v, want %s", got, err, c.kind)
				}
				if n := len(m.requests()); n > 20 {
					t.Errorf("asked %d times", n)
				}
			})
		})
	}
}

func ignoresVersions(m *model) {
	m.tamper = func(_ *http.Request, page *response) { page.version = "120" }
}

func goesBack(m *model) {
	m.tamper = func(_ *http.Request, page *response) { page.version = "99" }
}

func forgetsVersions(m *model) {
	m.tamper = func(_ *http.Request, page *response) { page.version = "" }
}

func opaque(m *model) { m.opaque = true }

// TestOpaqueVersions lists with versions that are not integers: guarantees that need no order work.
func TestOpaqueVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(ages[3])
		m.opaque = true
		c := serve(t, m)
		for _, g := range []consistentlist.Guarantee{consistentlist.MostRecent, consistentlist.Any, consistentlist.NotOlderThan("rev-64"), consistentlist.Exact("rev-64")} {
			for page, err := range consistentlist.List(t.Context(), c.typed, g, consistentlist.Options{}) {
				if err != nil || page.List.ResourceVersion != "rev-64" || len(page.List.Items) != 1 {
					t.Errorf("%v: %+v, %v", g, page.List, err)
				}
			}
		}
	})
}

// listClient is a client without a network.
type listClient struct {
	page func(metav1.ListOptions) (*corev1.ConfigMapList, error)
}

func (p listClient) List(_ context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	return p.page(o)
}

func (p listClient) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.ErrUnsupported
}

func TestPagesWithoutEnd(t *testing.T) {
	pages := 0
	client := listClient{func(metav1.ListOptions) (*corev1.ConfigMapList, error) {
		pages++
		return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: strconv.Itoa(pages)}}, nil
	}}
	_, err := collect(t.Context(), client, consistentlist.MostRecent, consistentlist.Options{})
	if kindOf(err) != consistentlist.NotHonoured || pages != consistentlist.MaxPages {
		t.Errorf("%v after %d pages", err, pages)
	}
}

// TestRetryAfter lets a server refuse some requests, and looks at how often it is
// asked, and how long that takes.
func TestRetryAfter(t *testing.T) {
	plain := func(seconds int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			w.WriteHeader(429)
			_, _ = io.WriteString(w, "Too many requests, please try again later.\n")
		}
	}
	for _, c := range []struct {
		name     string
		refuse   func(http.ResponseWriter)
		times    int
		least    time.Duration
		most     time.Duration
		succeeds bool
	}{
		{"429 twice", plain(3), 2, 6 * time.Second, 7 * time.Second, true},
		{"503 without a time", func(w http.ResponseWriter) { w.WriteHeader(503) }, 3, time.Second, 10 * time.Second, true},
		{"504 not there yet", tooLargeVersion, 2, 2 * time.Second, 3 * time.Second, true},
		{"always 503", func(w http.ResponseWriter) { w.WriteHeader(503) }, 1 << 30, 10 * time.Second, 2 * time.Minute, false},
		{"always 429", plain(1), 1 << 30, 10 * time.Second, 2 * time.Minute, false},
		{"429 for a year", plain(365 * 86400), 1 << 30, time.Second, 2 * time.Minute, false},
		{"always 504", tooLargeVersion, 1 << 30, 10 * time.Second, 2 * time.Minute, false},
		{"403", func(w http.ResponseWriter) {
			fail(w, 403, metav1.StatusReasonForbidden, "no", "", 0)
		}, 1 << 30, 0, time.Second, false},
		{"501", func(w http.ResponseWriter) { w.WriteHeader(501) }, 1 << 30, 0, time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(ages[3])
				refused := 0
				m.before = func(w http.ResponseWriter, _ *http.Request) bool {
					if refused == c.times {
						return false
					}
					refused++
					c.refuse(w)
					return true
				}
				began := time.Now()
				_, err := collect(t.Context(), serve(t, m).typed, consistentlist.MostRecent, consistentlist.Options{})
				if took := time.Since(began); (err == nil) != c.succeeds || took < c.least || took > c.most {
					t.Errorf("after %v and %d refusals: %v", took, refused, err)
				}
				if kind := kindOf(err); (kind == consistentlist.NotReached) != (c.name == "always 504") {
					t.Errorf("kind %q: %v", kind, err)
				}
			})
		})
	}
}

// TestRetries counts how often a server is asked that never gives in, without
// client-go's own patience.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		options consistentlist.Options
		asked   int
	}{
		{"429", apierrors.NewTooManyRequests("later", 1), consistentlist.Options{}, 11},
		{"429, twice", apierrors.NewTooManyRequests("later", 1), consistentlist.Options{Retries: 2}, 3},
		{"429, never", apierrors.NewTooManyRequests("later", 1), consistentlist.Options{Retries: -1}, 1},
		{"503", apierrors.NewServiceUnavailable("down"), consistentlist.Options{Retries: 4}, 5},
		{"429 for a minute", apierrors.NewTooManyRequests("later", 60), consistentlist.Options{}, 1},
		{"429 for a minute, patiently", apierrors.NewTooManyRequests("later", 60), consistentlist.Options{MaxRetryAfter: time.Minute, Timeout: time.Hour}, 11},
		{"429 for a year", apierrors.NewTooManyRequests("later", 365*86400), consistentlist.Options{}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				client := listClient{func(metav1.ListOptions) (*corev1.ConfigMapList, error) {
					asked++
					return nil, c.err
				}}
				_, err := collect(t.Context(), client, consistentlist.MostRecent, c.options)
				if err != c.err || asked != c.asked {
					t.Errorf("asked %d times, want %d: %v", asked, c.asked, err)
				}
			})
		})
	}
}

func TestListEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(ages[3])
		m.before = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true }
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.ErrClosedPipe)
		defer cancel()
		began := time.Now()
		_, err := collect(ctx, serve(t, m).typed, consistentlist.MostRecent, consistentlist.Options{})
		if err != io.ErrClosedPipe || time.Since(began) != time.Second {
			t.Errorf("after %v: %v, want the context's cause after 1 s", time.Since(began), err)
		}
	})
}

// TestListStops leaves the iteration after the first page: no further request.
func TestListStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(ages[3])
		m.write("second", false)
		for page, err := range consistentlist.List(t.Context(), serve(t, m).typed, consistentlist.MostRecent, consistentlist.Options{Limit: 1}) {
			if err != nil || !page.First {
				t.Fatal(page, err)
			}
			break
		}
		if got := m.requests(); len(got) != 1 {
			t.Errorf("requests %q", got)
		}
	})
}

// TestSent checks the requests.
func TestSent(t *testing.T) {
	for _, c := range []struct {
		guarantee consistentlist.Guarantee
		options   consistentlist.Options
		want      []string
	}{
		{consistentlist.MostRecent, consistentlist.Options{}, []string{"limit=500"}},
		{consistentlist.MostRecent, consistentlist.Options{Limit: -1}, []string{""}},
		{consistentlist.Any, consistentlist.Options{}, []string{"limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan"}},
		{consistentlist.NotOlderThan("100"), consistentlist.Options{Limit: -1, LabelSelector: "a=b", FieldSelector: "metadata.name=x"},
			[]string{"fieldSelector=metadata.name%3Dx&labelSelector=a%3Db&resourceVersion=100&resourceVersionMatch=NotOlderThan"}},
		{consistentlist.Exact("101"), consistentlist.Options{Limit: 1},
			[]string{"limit=1&resourceVersion=101&resourceVersionMatch=Exact", "continue=101%3Asecond&limit=1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(ages[3])
			m.write("second", false)
			if _, err := collect(t.Context(), serve(t, m).dynamic, c.guarantee, c.options); err != nil {
				t.Error(err)
			}
			if got := m.requests(); !slices.Equal(got, c.want) {
				t.Errorf("%v: sent %q, want %q", c.guarantee, got, c.want)
			}
		})
	}
}

// TestAllocations lists a hundred pages of few and of many objects: the cost of a page does not
// depend on the number of its objects.
func TestAllocations(t *testing.T) {
	perPage := func(objects int) float64 {
		const pages = 100
		lists := make([]*corev1.ConfigMapList, pages)
		for i := range lists {
			lists[i] = &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: make([]corev1.ConfigMap, objects)}
			if i < pages-1 {
				lists[i].Continue = strconv.Itoa(i + 1)
			}
		}
		client := listClient{func(o metav1.ListOptions) (*corev1.ConfigMapList, error) {
			i, _ := strconv.Atoi(o.Continue)
			return lists[i], nil
		}}
		return testing.AllocsPerRun(20, func() {
			for _, err := range consistentlist.List(context.Background(), client, consistentlist.MostRecent, consistentlist.Options{}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}) / pages
	}
	few, many := perPage(1), perPage(1000)
	t.Logf("%.2f allocations for a page of 1 object, %.2f for one of 1,000", few, many)
	if many > few || many > 20 {
		t.Errorf("%.2f allocations for a page of 1 object, %.2f for one of 1,000", few, many)
	}
}
