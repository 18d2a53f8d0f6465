package consistentlist_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/consistentlist"
)

// waiting makes a server wait for a version of the future as kube-apiserver does:
// 3 s, then 504 with a Retry-After.
func waiting(m *model) {
	m.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("resourceVersion") != "999" {
			return false
		}
		select {
		case <-time.After(waitsFor):
			tooLargeVersion(w)
		case <-r.Context().Done(): // the client has gone
		}
		return true
	}
}

// waitsFor is how long that server waits.
const waitsFor = 3 * time.Second

// TestNeverReached asks for a version that no server will get to: client-go's own
// patience of ten repeats is cut once the server says that it is behind.
func TestNeverReached(t *testing.T) {
	const most = 10 * time.Second
	for _, a := range ages {
		for _, g := range []consistentlist.Guarantee{consistentlist.NotOlderThan("999"), consistentlist.Exact("999")} {
			t.Run(a.name+"/"+g.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(a)
					waiting(m)
					c := serve(t, m)
					began := time.Now()
					_, err := collect(t.Context(), c.typed, g, consistentlist.Options{})
					wantBehind(t, err)
					_, err = collect(t.Context(), c.dynamic, g, consistentlist.Options{LabelSelector: "a=b", Limit: -1})
					wantBehind(t, err)
					if took := time.Since(began); took > 2*most {
						t.Errorf("two lists took %v", took)
					}
					began = time.Now()
					for _, err = range consistentlist.Follow(t.Context(), c.typed, g, consistentlist.Options{}) {
					}
					wantBehind(t, err)
					if took := time.Since(began); took > 2*most { // a streaming list may come before a list
						t.Errorf("to follow took %v", took)
					}
					time.Sleep(waitsFor) // abandoned requests have ended, too
				})
			})
		}
	}
}

func wantBehind(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*consistentlist.Error](err)
	if !ok || e.Kind != consistentlist.NotReached || e.Got != "100" {
		t.Errorf("%v, want that the server is at 100", err)
	}
}

// TestReachedLate asks a server that lags behind its store: the version comes in the
// end, and patience is worth it.
func TestReachedLate(t *testing.T) {
	for _, times := range []int{1, 2, 3, 6} {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(ages[3])
			late := 0
			m.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Get("resourceVersion") == "" || late == times {
					return false
				}
				late++
				tooLargeVersion(w)
				return true
			}
			if got, err := collect(t.Context(), serve(t, m).typed, consistentlist.NotOlderThan("100"), consistentlist.Options{}); err != nil || got.version != "100" {
				t.Errorf("after %d refusals: %v, %v", times, got, err)
			}
		})
	}
}

// TestNeverReachedWithoutNetwork counts how often a client is asked that repeats
// nothing by itself.
func TestNeverReachedWithoutNetwork(t *testing.T) {
	for _, c := range []struct {
		retries, asked int
		got            string
	}{{0, 3, "100"}, {1, 3, "100"}, {-1, 1, ""}} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			client := listClient{func(o metav1.ListOptions) (*corev1.ConfigMapList, error) {
				asked++
				if o.ResourceVersion == "" {
					return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}, nil
				}
				return nil, apierrors.NewTimeoutError("Too large resource version: 999, current: 100", 1)
			}}
			_, err := collect(t.Context(), client, consistentlist.NotOlderThan("999"), consistentlist.Options{Retries: c.retries})
			if e, ok := errors.AsType[*consistentlist.Error](err); !ok || e.Kind != consistentlist.NotReached || e.Got != c.got || asked != c.asked {
				t.Errorf("retries %d: asked %d times, want %d: %v", c.retries, asked, c.asked, err)
			}
		})
	}
}
