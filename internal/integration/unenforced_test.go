package integration_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// storedOnly are objects that the server stores and does not act on: the path of
// their collection, and a word in the warning.
var storedOnly = []struct{ path, name, body, word string }{
	{"/apis/apiregistration.k8s.io/v1/apiservices", "v1.example.net", `{"spec":{"group":"example.net","version":"v1","groupPriorityMinimum":10,"versionPriority":10,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"s"}}}`, "service"},
}

// TestUnenforced checks that every write of an object without effect gets a warning,
// and that other writes and failed writes do not. In a fork, APIServices have no effect.
func TestUnenforced(t *testing.T) {
	fork := func(s *tidemark.Server) *rest.Config {
		f, err := servertest.Start(t, s).Root().Fork(t.Context(), tidemark.ForkOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return f.RESTConfig()
	}
	c := fork(&tidemark.Server{})
	send := func(method, path, body string, code int, word string) {
		t.Helper()
		got, header, b := exchange(t, c, method, path, body)
		if got != code {
			t.Fatalf("%s %s: %d, want %d\n%s", method, path, got, code, b)
		}
		warning := strings.Join(header.Values("Warning"), "; ")
		if word == "" && warning != "" || !strings.Contains(warning, word) ||
			word != "" && !strings.HasPrefix(warning, `299 - "this server stores the `) {
			t.Errorf("%s %s warns %q, want %q", method, path, warning, word)
		}
	}
	for _, o := range storedOnly {
		group, _, _ := strings.Cut(strings.TrimPrefix(o.path, "/apis/"), "/")
		with := func(meta string) string { return `{"metadata":{` + meta + `},` + o.body[1:] }
		named, at := `"name":"`+o.name+`"`, o.path+"/"+o.name
		send("POST", o.path+"?dryRun=All", with(named), http.StatusCreated, o.word)
		send("POST", o.path, with(named), http.StatusCreated, o.word)
		send("MERGE", at, `{"metadata":{"labels":{"a":"b"}}}`, http.StatusOK, o.word)
		_, _, b := exchange(t, c, "GET", at, "")
		send("PUT", at, string(b), http.StatusOK, o.word)
		kind := strings.Trim(pick(t, b, "kind"), `"`)
		applied := `{"apiVersion":"` + group + `/v1","kind":"` + kind + `","metadata":{"labels":{"c":"d"}}}`
		send("APPLY", at+"?fieldManager=t", applied, http.StatusOK, o.word)
		send("GET", at, "", http.StatusOK, "")
		send("DELETE", at, "", http.StatusOK, "")
	}
	local := `{"metadata":{"name":"v1.example.org"},"spec":{"group":"example.org","version":"v1","groupPriorityMinimum":10,"versionPriority":10}}`
	send("POST", "/apis/apiregistration.k8s.io/v1/apiservices", local, http.StatusCreated, "")
	send("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{}`, http.StatusUnprocessableEntity, "")
	send("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"m"}}`, http.StatusCreated, "")

	c = fork(&tidemark.Server{Admission: tidemark.Admission{NoUnenforcedWarnings: true}})
	o := storedOnly[0]
	send("POST", o.path, `{"metadata":{"name":"`+o.name+`"},`+o.body[1:], http.StatusCreated, "")
}
