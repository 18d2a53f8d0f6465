package crds

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// sample is an object that a project shows.
type sample struct {
	Module string
	Object tree
}

// samples are the objects that the projects of the corpus have as samples.
func samples(t *testing.T) []sample {
	t.Helper()
	return gathered[sample](t, "samples")
}

// refusals are the samples that kube-apiserver rejects, on purpose for some, by their index among
// all, with the error.
const refusals = "testdata/refused.json"

var record = flag.Bool("record", false, "write down which samples kube-apiserver refuses")

// bySample goes through the definitions that have samples, and through those.
func bySample(t *testing.T, test func(t *testing.T, d *definition, each func(func(n int, path string, o tree)))) {
	all := samples(t)
	for _, d := range corpus(t) {
		at := map[string]version{}
		for _, v := range d.versions {
			at[fmt.Sprintf("%s/%s %s", d.group, v.name, d.kind)] = v
		}
		each := func(f func(n int, path string, o tree)) {
			for n, s := range all {
				v, ok := at[fmt.Sprintf("%v %v", s.Object["apiVersion"], s.Object["kind"])]
				if !ok {
					continue
				}
				o := clone(s.Object)
				metadata, _ := o["metadata"].(tree)
				o["metadata"] = tree{"name": fmt.Sprintf("sample-%d", n)}
				for _, name := range []string{"labels", "annotations"} {
					if metadata[name] != nil {
						o["metadata"].(tree)[name] = metadata[name]
					}
				}
				f(n, d.collection(v, "default")+"?fieldValidation=Strict", o)
			}
		}
		has := false
		if each(func(int, string, tree) { has = true }); has {
			test(t, d, each)
		}
	}
}

// said returns the error for a sample, empty for one that is stored.
func (a response) said() string {
	switch {
	case a.code == http.StatusCreated:
		return ""
	case a.code == http.StatusUnprocessableEntity:
		return a.verdict().text()
	}
	return fmt.Sprint(a.code, " ", a.body["message"])
}

// TestSamplesAreStored checks that the samples of projects are stored as they were written, except
// for those that kube-apiserver rejects, too, with the same message.
func TestSamplesAreStored(t *testing.T) {
	tier.Full(t)
	text, err := os.ReadFile(refusals)
	if err != nil {
		t.Fatal(err)
	}
	refused := map[int]string{}
	if err := json.Unmarshal(text, &refused); err != nil {
		t.Fatal(err)
	}
	s := newSender(t, servers.Quick(servers.Start(t).RESTConfig()))
	stored := 0
	bySample(t, func(t *testing.T, d *definition, each func(func(n int, path string, o tree))) {
		if got := s.send(t, request{"POST", definitions, "", d.body}); got.code != http.StatusCreated {
			t.Fatalf("%s: %d %v", d.name, got.code, got.body["message"])
		}
		each(func(n int, path string, o tree) {
			got := s.send(t, request{"POST", path, "", o})
			if said := got.said(); said != refused[n] {
				t.Errorf("%s %d: %s\nwant %s", d.name, n, said, refused[n])
			} else if said == "" {
				stored++
				if lost := missing(o, got.body, ""); lost != "" && o["status"] == nil {
					t.Errorf("%s %d is stored without %s", d.name, n, lost)
				}
			}
		})
	})
	t.Logf("%d samples are stored, %d are refused", stored, len(refused))
}

// missing is a path in one value that is not in another as it is there, empty when all
// is.
func missing(v, in any, path string) string {
	switch v := v.(type) {
	case tree:
		other, ok := in.(tree)
		if !ok {
			return path
		}
		for _, name := range sorted(v) {
			if v[name] == nil { // null is dropped, or stands for a default
				continue
			}
			if lost := missing(v[name], other[name], path+"."+name); lost != "" {
				return lost
			}
		}
		return ""
	case []any:
		other, ok := in.([]any)
		if !ok || len(other) != len(v) {
			return path
		}
		for i := range v {
			if lost := missing(v[i], other[i], fmt.Sprintf("%s[%d]", path, i)); lost != "" {
				return lost
			}
		}
		return ""
	}
	if v != in {
		return path
	}
	return ""
}

// TestSamplesLikePeer: kube-apiserver makes the same of them.
func TestSamplesLikePeer(t *testing.T) {
	tier.Full(t)
	b := newBoth(t)
	var lock sync.Mutex
	refused := map[int]string{}
	t.Run("definitions", func(t *testing.T) { // ends when its parallel tests have
		bySample(t, func(t *testing.T, d *definition, each func(func(n int, path string, o tree))) {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				if !b.define(t, d) {
					return
				}
				each(func(n int, path string, o tree) {
					if d.namespaced {
						path = strings.Replace(path, "/namespaces/default/", "/namespaces/"+b.namespace+"/", 1)
					}
					responses := b.send(t, request{"POST", path, "", o})
					same(t, fmt.Sprint(d.name, " ", n), responses)
					if said := responses[0].said(); said != "" {
						lock.Lock()
						refused[n] = said
						lock.Unlock()
					}
				})
			})
		})
	})
	if !*record {
		return
	}
	text, err := json.MarshalIndent(refused, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(refusals, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
