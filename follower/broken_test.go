package follower_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestBrokenObjects stores, for each kind, an object whose fields are not those of the kind, which only a transaction
// can do. It can be deleted through the API, also if it has a finalizer (which no update could take off), and other requests go on meanwhile. What
// guards requests is the exception: as long as it cannot be read, no request that it may be about is admitted.
func TestBrokenObjects(t *testing.T) {
	t.Parallel()
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}})
	client := servertest.Client(t, p.RESTConfig())
	send := func(method, path, kind, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, p.URL()+path, strings.NewReader(body))
		must(t, err)
		if r.Header.Set("Content-Type", kind); body == "" {
			r.Header.Del("Content-Type")
		}
		resp, err := client.Do(r)
		must(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(b)
	}
	var head struct{ Run string }
	_, text := servertest.Get(t, p.RESTConfig(), "/replication/v1/head")
	must(t, json.Unmarshal([]byte(text), &head))
	put := func(collection, key, value string) {
		t.Helper()
		body := []byte{1}
		for _, s := range []string{collection, key} {
			body = append(binary.AppendUvarint(body, uint64(len(s))), s...)
		}
		body = binary.AppendUvarint(append(body, 1, 0), uint64(strings.Index(value, `""`)+1))
		body = append(binary.AppendUvarint(body, uint64(len(value))), value...)
		if code, answer := send("POST", "/replication/v1/transactions?run="+head.Run, "application/octet-stream", string(body)+"\x00\x00"); code != 200 {
			t.Fatalf("%s: %d %s", collection, code, answer)
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
				if code, answer := send("POST", "/api/v1/namespaces/default/configmaps", "application/json", fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, created)); code != 201 {
					t.Errorf("%s: a create beside it: %d %s", what, code, answer)
				}
			}
			code, answer := send("DELETE", path+"?gracePeriodSeconds=0", "", "")
			if code != 200 && code != 202 {
				t.Errorf("%s: DELETE: %d %s", what, code, answer)
				continue
			}
			await.True(t, what+" is gone", func() bool { code, _ := send("GET", path, "", ""); return code == 404 })
		}
	}
	if created < 100 {
		t.Errorf("%d objects were tried", created)
	}
}
