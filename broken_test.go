package tidemark_test

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestBrokenObjects stores, for each kind, an object whose fields are not those of the kind, which
// only another program on the same log can do. It can be deleted through the API, also if it has a
// finalizer (which no update could remove), and other requests succeed meanwhile. Objects that
// guard requests, such as policies, are the exception: as long as one cannot be read, no request to
// which it may apply is admitted.
func TestBrokenObjects(t *testing.T) {
	t.Parallel()
	log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
	p := servertest.Start(t, &tidemark.Server{Storage: &servertest.OnLog{Log: log, Dir: t.TempDir()}})
	other, err := stores.Open(t.Context(), store.Options{Shared: log.Open()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	client := servertest.Client(t, p.RESTConfig())
	send := func(method, path, kind, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, p.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Set("Content-Type", kind); body == "" {
			r.Header.Del("Content-Type")
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	put := func(collection, key, value string) {
		t.Helper()
		w := store.Write{Collection: collection, Key: key, Value: []byte(value), RevisionAt: strings.Index(value, `""`) + 1}
		if _, err := other.Apply(t.Context(), &store.Txn{Writes: []store.Write{w}}); err != nil {
			t.Fatalf("%s: %v", collection, err)
		}
	}
	guards := regexp.MustCompile("webhookconfigurations|admissionpolicybindings|resourcequotas")
	created := 0
	stored := map[string]bool{}
	for typ := range builtin.Catalog().Types() {
		if typ.Collection == "" || stored[typ.Collection] || !typ.Allows("delete") {
			continue
		}
		stored[typ.Collection] = true
		list := "/apis/" + typ.Group + "/" + typ.Version
		if typ.Group == "" {
			list = "/api/" + typ.Version
		}
		key, namespace := "bad", ""
		if typ.Namespaced {
			key, namespace, list = "default/bad", `"namespace":"default",`, list+"/namespaces/default"
		}
		path := list + "/" + typ.Resource + "/bad"
		for _, metadata := range []string{"", `"finalizers":["example.com/hold"],`, `"labels":7,`} {
			var broken strings.Builder
			for f := range reflect.TypeOf(typ.StoredVersion().New()).Elem().Fields() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" || name == "metadata" || name == "kind" || name == "apiVersion" {
					continue
				}
				wrong := "7"
				switch f.Type.Kind() {
				case reflect.Int32, reflect.Int64:
					wrong = `"x"`
				case reflect.Pointer:
					if f.Type.Elem().Kind() != reflect.Struct {
						wrong = "[{}]"
					}
				}
				fmt.Fprintf(&broken, `,%q:%s`, name, wrong)
			}
			put(typ.Collection, key, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"name":"bad",%s%s"uid":"u","resourceVersion":""}%s}`,
				typ.Kind, strings.TrimPrefix(typ.Group+"/"+typ.StoredVersion().Version, "/"), namespace, metadata, &broken))
			what := path + " " + metadata
			if created++; !guards.MatchString(typ.Resource) {
				if code, response := send("POST", "/api/v1/namespaces/default/configmaps", "application/json", fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, created)); code != 201 {
					t.Errorf("%s: a create beside it: %d %s", what, code, response)
				}
			}
			code, response := send("DELETE", path+"?gracePeriodSeconds=0", "", "")
			if code != 200 && code != 202 {
				t.Errorf("%s: DELETE: %d %s", what, code, response)
				continue
			}
			await.True(t, what+" is gone", func() bool { code, _ := send("GET", path, "", ""); return code == 404 })
		}
	}
	if created < 100 {
		t.Errorf("%d objects were tried", created)
	}
}
