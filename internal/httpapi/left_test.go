package httpapi_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestLeftSelection: if an object stops matching a watch's selector, the watch gets its old
// state with the revision of the change. Other readers get the new state. This holds in every
// representation, in either order of the reads.
func TestLeftSelection(t *testing.T) {
	forms := map[string]string{
		"JSON":                 "application/json",
		"protobuf":             "application/vnd.kubernetes.protobuf",
		"Table":                "application/json;as=Table;g=meta.k8s.io;v=v1",
		"metadata":             "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		"metadata as protobuf": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	}
	const item = "/api/v1/namespaces/default/configmaps/"
	for name, accept := range forms {
		for _, first := range []string{"the watch", "the reader"} {
			t.Run(name+", first "+first, func(t *testing.T) {
				s := start(t, wiring{})
				watched := accept
				if strings.HasPrefix(accept, "application/vnd") {
					watched += ";stream=watch"
				}
				s.do(t, "POST", maps, `{"metadata":{"name":"m","labels":{"app":"a","v":"was-so"}},"data":{"k":"1"}}`)
				from := s.store.Any().Revision()
				watch := func(query string) func() string {
					resp := s.open(t, t.Context(), "GET", fmt.Sprintf("%s?watch=1&resourceVersion=%d&%s", maps, from, query), nil, "Accept: "+watched)
					t.Cleanup(func() { resp.Body.Close() })
					return func() string { // up to the end of the first event
						buf, got := make([]byte, 8<<10), ""
						for !strings.Contains(got, "was-so") && !strings.Contains(got, "is-so") {
							n, err := resp.Body.Read(buf)
							if got += string(buf[:n]); err == io.EOF {
								break
							}
						}
						return got
					}
				}
				want := func(what, got, text, not string) {
					t.Helper()
					if !strings.Contains(got, text) || strings.Contains(got, not) {
						t.Errorf("%s: want %s and not %s: %q", what, text, not, got)
					}
				}
				leaves := func() {
					got := watch("labelSelector=app%3Da")()
					want("the object that left", got, "was-so", "is-so")
					want("the object that left", got, "DELETED", "MODIFIED")
				}
				if first == "the watch" {
					read := watch("labelSelector=app%3Da")
					s.do(t, "PATCH", item+"m", `{"metadata":{"labels":{"app":"b","v":"is-so"}},"data":{"l":"2"}}`, "Content-Type: application/merge-patch+json")
					want("the object that left", read(), "was-so", "is-so")
				} else {
					s.do(t, "PATCH", item+"m", `{"metadata":{"labels":{"app":"b","v":"is-so"}},"data":{"l":"2"}}`, "Content-Type: application/merge-patch+json")
				}
				get := s.do(t, "GET", item+"m", "", "Accept: "+accept).body
				want("GET", get, "is-so", "was-so")
				list := accept
				if strings.Contains(accept, "as=PartialObjectMetadata") {
					list = strings.Replace(accept, "as=PartialObjectMetadata", "as=PartialObjectMetadataList", 1)
				}
				want("LIST", s.do(t, "GET", maps, "", "Accept: "+list).body, "is-so", "was-so")
				if name == "Table" {
					want("GET", get, `["m",2,`, `["m",1,`)
				}
				want("a watch of all", watch("")(), "is-so", "was-so")
				leaves()
				leaves()
			})
		}
	}
}

// TestLeftSelectionPut: an object that was read as protobuf, after a watch sent DELETED because the
// object left its selection, puts nothing old back.
func TestLeftSelectionPut(t *testing.T) {
	const proto = "application/vnd.kubernetes.protobuf"
	s := start(t, wiring{})
	s.do(t, "POST", maps, `{"metadata":{"name":"m","labels":{"app":"a"}},"data":{"k":"was-so"}}`)
	resp := s.open(t, t.Context(), "GET", maps+"?watch=1&labelSelector=app%3Da", nil, "Accept: "+proto+";stream=watch")
	defer resp.Body.Close()
	s.do(t, "PATCH", maps+"/m", `{"metadata":{"labels":{"app":"b"}},"data":{"k":"is-so"}}`, "Content-Type: application/merge-patch+json")
	for buf, got := make([]byte, 1000), ""; !strings.Contains(got, "DELETED"); {
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	read := s.do(t, "GET", maps+"/m", "", "Accept: "+proto)
	if a := s.do(t, "PUT", maps+"/m", read.body, "Content-Type: "+proto); a.code != 200 {
		t.Fatal(a.code, a.body)
	}
	if a := s.do(t, "GET", maps+"/m", ""); !strings.Contains(a.body, "is-so") {
		t.Errorf("a write was lost: %s", a.body)
	}
}
