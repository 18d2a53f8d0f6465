package openapi

import (
	"context"
	"fmt"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// changing returns definitions, and a source of them.
func changing(n int) (*catalogs, *Source) {
	var all []*definition
	for i := range n {
		all = append(all, &definition{group: "example.com", version: "v1", kind: fmt.Sprintf("Kind%c", 'A'+i)})
	}
	c := newCatalogs(small, all...)
	return c, c.source()
}

// TestPace changes a definition for each request of a document that has all of them. The bytes of the documents have a
// rate, after a burst.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := changing(5)
		size := get(t, s, "/openapi/v2").ContentLength
		s.pace.done = time.Now()
		s.pace.bytesPerSecond, s.pace.burstBytes = size, 10*size // a document each second, after ten
		began := time.Now()
		for range 30 {
			c.set(c.definitions[0])
			before := time.Since(began)
			get(t, s, "/openapi/v2")
			if paused := time.Since(began) - before; paused > 3*time.Second {
				t.Errorf("a document waited %v", paused)
			}
		}
		// Each has the conversion of a definition, too.
		if took := time.Since(began); took < 18*time.Second || took > 60*time.Second {
			t.Errorf("30 documents took %v, want at least 19 s", took)
		}
		s.pace.bytesPerSecond = 1
		for range 3 {
			c.set(c.definitions[0])
			before := time.Now()
			get(t, s, "/openapi/v2")
			if paused := time.Since(before); paused > s.pace.longest {
				t.Errorf("a document waited %v", paused)
			}
		}
		before := time.Now()
		get(t, s, "/openapi/v2")
		get(t, s, "/openapi/v3")
		if took := time.Since(before); took != 0 {
			t.Errorf("an unchanged document waited %v", took)
		}
	})
}

// TestPaceIsShared has many clients request a document at once that has to wait. They share it, whatever changes
// meanwhile, and those that leave have no part in it.
func TestPaceIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := changing(5)
		get(t, s, "/openapi/v2")
		fork := s.Fork(func() *resource.Catalog { return c.now })
		s.pace.bytesPerSecond, s.pace.burstBytes = 1, 0
		s.pace.done = time.Now().Add(time.Minute)
		c.set(c.definitions[0])
		var clients sync.WaitGroup
		for i := range 20 {
			clients.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				if i%2 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/openapi/v2", nil))
				if want := map[bool]int{true: 504, false: 200}[i%2 == 0]; w.Code != want {
					t.Errorf("client %d: %d, want %d", i, w.Code, want)
				}
			})
		}
		synctest.Wait()
		c.set(c.definitions[0])
		clients.Wait()
		if got := c.conversions(); got != len(c.definitions)+1 {
			t.Errorf("%d conversions, want %d at first and 1 of the newest change", got, len(c.definitions))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		fork.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/openapi/v2", nil))
		if w.Code != 504 {
			t.Errorf("a fork has a pace of its own: %d", w.Code)
		}
	})
}

// TestMemoryOfProtobuf makes a document of many large definitions. The memory to make it does not grow with the
// document.
func TestMemoryOfProtobuf(t *testing.T) {
	tier.Full(t)
	const n, texts = 40, 2000
	var all []*resource.Type
	for i := range n {
		typ := (&definition{group: "example.com", version: "v1", kind: fmt.Sprintf("Kind%02d", i), converted: map[int]int{}}).typ()
		typ.Custom.OpenAPI = func(int) (*spec.Schema, error) {
			s := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
			for j := range texts {
				s.SetProperty(fmt.Sprintf("field%d", j), *spec.StringProperty().WithDescription(fmt.Sprintf("%0500d", j)))
			}
			return s, nil
		}
		all = append(all, typ)
	}
	catalog := resource.NewCatalog([]resource.Group{{Name: "example.com", Versions: []resource.Version{{Name: "v1", Types: all}}}})
	s := New(func() *resource.Catalog { return catalog }, version, false)
	get(t, s, "/openapi/v2", "Accept", protobufV2) // converts them
	var ratios []float64
	for range 3 {
		s.newest.Store(nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		get(t, s, "/openapi/v2", "Accept", protobufV2, "Accept-Encoding", "gzip")
		runtime.ReadMemStats(&after)
		size := s.newest.Load().kept(pageKey{"v2", asProtobuf}).size
		ratios = append(ratios, float64(after.TotalAlloc-before.TotalAlloc)/float64(size))
	}
	t.Logf("bytes for each byte of the document: %.2f", ratios)
	if least := slices.Min(ratios); least > 1 {
		t.Errorf("a document takes %.1f times its size", least)
	}
}
