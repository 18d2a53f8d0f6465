package crds

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

var (
	seed   = flag.Uint64("seed", 0, "seed of the randomized tests; 0 picks one")
	rounds = flag.Int("rounds", 3, "how many objects of each version of each definition the tests generate")
	rich   = flag.Int("rich", 40, "how many objects of the definition that has everything are generated, each with several writes")
)

// random returns a source whose seed the test prints.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with -seed %d)", n, n)
	return rand.New(rand.NewPCG(n, 0))
}

// definition is one of a custom resource.
type definition struct {
	name, group, kind, plural string
	namespaced                bool
	versions                  []version
	body                      tree
}

// version is a served one.
type version struct {
	name   string
	schema tree
	status bool // a subresource
}

func parse(t *testing.T, body tree) *definition {
	t.Helper()
	spec := body["spec"].(tree)
	names := spec["names"].(tree)
	if c, ok := spec["conversion"].(tree); ok && c["strategy"] == "Webhook" { // there is no webhook to call
		delete(spec, "conversion")
	}
	d := &definition{
		name: body["metadata"].(tree)["name"].(string), group: spec["group"].(string),
		kind: names["kind"].(string), plural: names["plural"].(string),
		namespaced: spec["scope"] == "Namespaced", body: body,
	}
	for _, each := range spec["versions"].([]any) {
		v := each.(tree)
		if served, _ := v["served"].(bool); !served {
			continue
		}
		made := version{name: v["name"].(string)}
		if s, ok := v["schema"].(tree); ok {
			made.schema, _ = s["openAPIV3Schema"].(tree)
		}
		if sub, ok := v["subresources"].(tree); ok {
			_, made.status = sub["status"]
		}
		d.versions = append(d.versions, made)
	}
	return d
}

// collection is the path of the objects.
func (d *definition) collection(v version, namespace string) string {
	path := "/apis/" + d.group + "/" + v.name
	if d.namespaced {
		path += "/namespaces/" + namespace
	}
	return path + "/" + d.plural
}

// corpus are the definitions of others.
func corpus(t *testing.T) (all []*definition) {
	t.Helper()
	for _, line := range gathered[struct{ Definition tree }](t, "definitions") {
		all = append(all, parse(t, line.Definition))
	}
	return all
}

// gathered are the lines of a file that gather has made.
func gathered[T any](t *testing.T, name string) (all []T) {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var line T
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	if lines.Err() != nil || len(all) == 0 {
		t.Fatalf("%d %s: %v", len(all), name, lines.Err())
	}
	return all
}
