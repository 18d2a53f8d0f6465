package httpapi_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

// TestRefusedSelectors: a request that is refused by its credentials or its rights parses no long selector. It
// allocates as often as one with a selector of the same length and one term.
func TestRefusedSelectors(t *testing.T) {
	h := httpapi.New(newConfig(newStore(t)))
	var terms []string
	for i := range 4000 {
		terms = append(terms, fmt.Sprintf("k%d!=v", i))
	}
	many := strings.Join(terms, ",")
	one := strings.Repeat("k", len(many))
	for path, token := range func(yield func(path, token string) bool) {
		for _, path := range []string{"/api/v1/namespaces/x/configmaps", "/apis/tidemark.dev/v1/namespaces/x/changes"} {
			for _, token := range []string{"wrong", "", "bob"} {
				if !yield(path, token) {
					return
				}
			}
		}
	} {
		for _, verb := range []string{"", "&watch=1"} {
			for _, query := range []string{"fieldSelector=metadata.name=x&labelSelector=", "fieldSelector=metadata.name=x,", "fieldSelector=metadata.name%3Dx&labelSelector="} {
				allocations := func(selector string) float64 {
					return testing.AllocsPerRun(10, func() {
						r := httptest.NewRequest("GET", path+"?"+query+selector+verb, nil)
						if token != "" {
							r.Header.Set("Authorization", "Bearer "+token)
						}
						w := httptest.NewRecorder()
						h.ServeHTTP(w, r)
						if w.Code != 401 && w.Code != 403 && w.Code != 400 {
							t.Fatalf("%d", w.Code)
						}
					})
				}
				if few, all := allocations(one), allocations(many); all > few+20 {
					t.Errorf("%q, %s%s: %v allocations, but %v for a selector of one term", token, query, verb, all, few)
				}
			}
		}
	}
}
