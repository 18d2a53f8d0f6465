package crds

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var randomSchemas = flag.Int("schemas", 30, "how many random schemas are compared with the libraries, each with several objects")

const randomGroup = "random.tidemark.example.net"

// tried is a definition at random, that a server has.
type tried struct {
	sender
	*library
	r      schemas
	at     string // the definition
	d      tree
	schema tree
	status bool
	things string // its objects
}

// tries is how many schemas made at random randomDefinition sends until one is
// right. About one in eight is: that none of so many is, is not chance.
const tries = 1000

// randomDefinition stores one that is right.
func randomDefinition(t testing.TB, s sender, r schemas, n int) *tried {
	t.Helper()
	for range tries {
		plural := fmt.Sprintf("n%ds", n)
		d := &tried{sender: s, r: r, schema: r.root(), status: !r.one(4), at: definitions + "/" + plural + "." + randomGroup}
		version := tree{"name": "v1", "served": true, "storage": true, "schema": tree{"openAPIV3Schema": d.schema}}
		if d.status {
			version["subresources"] = tree{"status": tree{}}
		}
		d.d = tree{"metadata": tree{"name": plural + "." + randomGroup}, "spec": tree{
			"group": randomGroup, "scope": "Namespaced", "names": tree{"plural": plural, "kind": "Thing" + fmt.Sprint(n)}, "versions": []any{version},
		}}
		switch got := s.send(t, request{"POST", definitions, "", d.d}); got.code {
		case http.StatusCreated:
			d.d = got.body
			d.things = fmt.Sprintf("/apis/%s/v1/namespaces/default/%s", randomGroup, plural)
			d.library = newLibrary(t, d.schema, d.status)
			return d
		case http.StatusUnprocessableEntity:
		default:
			t.Fatalf("a definition: %d %v", got.code, got.body["message"])
		}
	}
	t.Fatalf("%d definitions at random were all wrong", tries)
	return nil
}

// object makes one at random, a little wrong perhaps.
func (d *tried) object(name string) tree {
	m := maker{Rand: d.r.Rand, optional: pick(d.r.Rand, []float64{.3, .6, 1}), depth: 6}
	kind := d.d["spec"].(tree)["names"].(tree)["kind"].(string)
	o := m.object(d.schema, randomGroup+"/v1", kind, name)
	for range pick(d.r.Rand, []int{0, 0, 0, 1, 2}) {
		m.damage(o)
	}
	return o
}

func bytesOf(t testing.TB, o tree) []byte {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// agree compares the result of the server with that of the libraries.
func (d *tried) agree(t testing.TB, what string, sent []byte, got response, want verdict) bool {
	t.Helper()
	if got.verdict().text() == want.text() && got.code < http.StatusInternalServerError {
		return true
	}
	t.Fatalf("%s %s\nsent     %s\nTidemark %d %s\nwant     %s\nsaid     %v\nschema   %s", what, d.things, sent, got.code, got.verdict().text(), want.text(), got.body["message"], bytesOf(t, d.schema))
	return false
}

// likely returns the verdict of the library on the response of the server. The library
// compares two maps in Go's random order of iteration, and an error at one key is another
// message than a difference at another. So it decides again when it does not agree.
func likely(got response, decide func() verdict) verdict {
	want := decide()
	for range 50 {
		if got.verdict().text() == want.text() {
			break
		}
		want = decide()
	}
	return want
}

// life takes an object through writes and compares the outcome of each. It returns the
// number of writes that succeeded.
func (d *tried) life(t testing.TB, name string, first tree) (right int) {
	t.Helper()
	made := d.send(t, request{"POST", d.things, "", first})
	want := likely(made, func() verdict { return d.create(bytesOf(t, first)) })
	if !d.agree(t, "POST", bytesOf(t, first), made, want) || made.code != http.StatusCreated {
		return 0
	}
	right = 1
	at := d.things + "/" + name
	defer d.send(t, request{"DELETE", at, "", nil})
	for range 6 {
		now := d.send(t, request{"GET", at, "", nil})
		if !d.agree(t, "GET", nil, now, want) {
			break
		}
		next := d.next(now.body, name)
		next["metadata"].(tree)["resourceVersion"] = now.body["metadata"].(tree)["resourceVersion"]
		status := d.status && d.r.one(3)
		path := at
		if status {
			path += "/status"
		}
		got := d.send(t, request{"PUT", path, "", next})
		to := likely(got, func() verdict { return d.update(bytesOf(t, next), bytesOf(t, now.body), status) })
		if !d.agree(t, "PUT of "+string(bytesOf(t, now.body)), bytesOf(t, next), got, to) {
			break
		} else if got.code == http.StatusOK {
			want = to
			right++
		}
	}
	return right
}

// next is another state of an object: like it, or anew.
func (d *tried) next(now tree, name string) tree {
	if d.r.one(2) {
		return d.object(name)
	}
	o := clone(now)
	o["metadata"] = tree{"name": name}
	m := maker{Rand: d.r.Rand}
	for range 1 + d.r.IntN(2) {
		m.damage(o)
	}
	return o
}

// redefine gives the definition another schema at random, if it may have it.
func (d *tried) redefine(t testing.TB) {
	t.Helper()
	for range 20 {
		schema := d.r.root()
		next := clone(d.d)
		next["spec"].(tree)["versions"].([]any)[0].(tree)["schema"] = tree{"openAPIV3Schema": schema}
		if got := d.send(t, request{"PUT", d.at, "", next}); got.code == http.StatusOK {
			d.d, d.schema, d.library = got.body, schema, newLibrary(t, schema, d.status)
			return
		}
	}
}

// TestLikeLibraries compares random objects of random definitions with the results of the
// libraries: for creates, updates, reads, and objects that were stored by another schema.
func TestLikeLibraries(t *testing.T) {
	tier.Full(t)
	r := schemas{Rand: random(t), defaults: .15}
	s := newSender(t, servers.Quick(servers.Start(t).RESTConfig()))
	right := 0
	for n := range *randomSchemas {
		d := randomDefinition(t, s, r, n)
		for i := range 12 {
			name := fmt.Sprintf("o%d", i)
			right += d.life(t, name, d.object(name))
		}
		d.outlive(t)
		if d.send(t, request{"DELETE", d.at, "", nil}); t.Failed() {
			break
		}
	}
	if t.Logf("%d writes were right", right); right < *randomSchemas*5 {
		t.Error("too few")
	}
}

// outlive has objects read by another schema than that by which they were stored.
func (d *tried) outlive(t testing.TB) {
	t.Helper()
	stored := map[string]tree{}
	for i := range 4 {
		name := fmt.Sprintf("p%d", i)
		if made := d.send(t, request{"POST", d.things, "", d.object(name)}); made.code == http.StatusCreated {
			stored[name] = made.body
		}
	}
	d.redefine(t)
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		want := verdict{}
		o, err := d.read(bytesOf(t, stored[name]), true)
		if err != nil {
			want.refused = true
		} else {
			want.object = withoutMetadata(o)
		}
		now := d.send(t, request{"GET", d.things + "/" + name, "", nil})
		if !d.agree(t, "GET of "+string(bytesOf(t, stored[name])), nil, now, want) || now.code != http.StatusOK {
			continue
		}
		next := d.next(now.body, name)
		next["metadata"].(tree)["resourceVersion"] = now.body["metadata"].(tree)["resourceVersion"]
		got := d.send(t, request{"PUT", d.things + "/" + name, "", next})
		d.agree(t, "PUT of "+string(bytesOf(t, now.body)), bytesOf(t, next), got, likely(got, func() verdict {
			return d.update(bytesOf(t, next), bytesOf(t, stored[name]), false)
		}))
	}
}

// FuzzLikeLibraries does the same with bytes as they come.
func FuzzLikeLibraries(f *testing.F) {
	const kinds = 24
	s := newSender(f, servers.Quick(servers.Start(f).RESTConfig()))
	made := map[uint8]*tried{}
	kind := func(t testing.TB, n uint8) *tried {
		if n %= kinds; made[n] == nil {
			made[n] = randomDefinition(t, s, schemas{Rand: rand.New(rand.NewPCG(uint64(n), 1)), defaults: .15}, int(n))
		}
		return made[n]
	}
	for n := range uint8(kinds) {
		d := kind(f, n)
		for range 3 {
			f.Add(n, bytesOf(f, d.object("o")), bytesOf(f, d.object("o")))
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, first, second []byte) {
		kind(t, n).raw(t, first, second)
	})
}

// plain reports whether bytes are an object whose metadata has only a name. The library
// does not check other metadata.
func (d *tried) plain(text []byte) bool {
	var o tree
	if !utf8.Valid(text) || kjson.UnmarshalCaseSensitivePreserveInts(text, &o) != nil {
		return false
	}
	metadata, _ := o["metadata"].(tree)
	return o["kind"] == d.d["spec"].(tree)["names"].(tree)["kind"] && o["apiVersion"] == randomGroup+"/v1" && len(metadata) == 1 && metadata["name"] == "o"
}

// raw sends bytes as a new object, and others as the next state of it.
func (d *tried) raw(t testing.TB, first, second []byte) {
	t.Helper()
	got := d.send(t, request{"POST", d.things, "", first})
	if got.code >= http.StatusInternalServerError {
		t.Fatalf("%s: %d %v", first, got.code, got.body["message"])
	}
	metadata, _ := got.body["metadata"].(tree)
	if got.code == http.StatusCreated {
		defer d.send(t, request{"DELETE", d.things + "/" + url.PathEscape(fmt.Sprint(metadata["name"])), "", nil})
	}
	if !d.plain(first) || !d.agree(t, "POST", first, got, likely(got, func() verdict { return d.create(first) })) || got.code != http.StatusCreated || !d.plain(second) {
		return
	}
	named := []byte(`"metadata":{"name":"o"`)
	next := bytes.Replace(second, named, fmt.Appendf(nil, `%s,"resourceVersion":%q`, named, metadata["resourceVersion"]), 1)
	if bytes.Equal(next, second) {
		return
	}
	now := d.send(t, request{"PUT", d.things + "/o", "", next})
	d.agree(t, "PUT of "+string(bytesOf(t, got.body)), next, now, likely(now, func() verdict { return d.update(next, bytesOf(t, got.body), false) }))
}
