package integration_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestDefaultClassOfList: the table of a list shows one StorageClass as the default, and that of a single class none.
func TestDefaultClassOfList(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const classes = "/apis/storage.k8s.io/v1/storageclasses"
	for _, name := range []string{"b", "a", "c"} {
		marked := `{"storageclass.kubernetes.io/is-default-class":"true"}`
		if name == "c" {
			marked = "{}"
		}
		body := `{"metadata":{"name":"` + name + `","annotations":` + marked + `},"provisioner":"p"}`
		if code, _, b := exchange(t, c, http.MethodPost, classes, body); code != http.StatusCreated {
			t.Fatal(code, string(b))
		}
	}
	names := func(path string) (shown []string, marked int) {
		t.Helper()
		_, _, b := exchange(t, c, "TABLE", path, "")
		var table struct{ Rows []struct{ Cells []any } }
		if err := json.Unmarshal(b, &table); err != nil {
			t.Fatal(err)
		}
		for _, r := range table.Rows {
			name := r.Cells[0].(string)
			if shown = append(shown, name); name == "a (default)" || name == "b (default)" {
				marked++
			}
		}
		return shown, marked
	}
	if shown, marked := names(classes); len(shown) != 3 || marked != 1 {
		t.Errorf("the list has %q", shown)
	}
	if shown, marked := names(classes + "/a"); len(shown) != 1 || marked != 0 {
		t.Errorf("one class is %q", shown)
	}
}
