package apply

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// shuffledFields is FieldsV1 with n elements of all kinds in a random order, some of them
// twice.
func shuffledFields(r *rand.Rand, n int) []byte {
	var b strings.Builder
	b.WriteString(`{"f:data":{".":{}`)
	for _, i := range r.Perm(n) {
		switch r.IntN(6) {
		case 0:
			fmt.Fprintf(&b, `,"k:{\"name\":\"x%d\"}":{".":{},"f:b":{},"f:a":{}}`, i)
		case 1:
			fmt.Fprintf(&b, `,"v:%d":{}`, i)
		case 2:
			fmt.Fprintf(&b, `,"i:%d":{}`, i)
		case 3:
			fmt.Fprintf(&b, `,"f:k%d":{"f:y":{},"f:x":{}}`, i/2)
		default:
			fmt.Fprintf(&b, `,"f:k%d":{}`, i)
		}
	}
	b.WriteString(`}}`)
	return []byte(b.String())
}

// TestOrdered: elements in any order are read as the library reads them.
func TestOrdered(t *testing.T) {
	r := testrand.New(t)
	for range 20 {
		raw := shuffledFields(r, 3000)
		want, got := &fieldpath.Set{}, &fieldpath.Set{}
		if err := want.FromJSON(bytes.NewReader(raw)); err != nil {
			t.Fatal(err)
		}
		in := ordered(raw)
		if err := got.FromJSON(bytes.NewReader(in)); err != nil || bytes.Equal(in, raw) {
			t.Fatalf("%v, or nothing was ordered", err)
		}
		a, _ := want.ToJSON()
		b, _ := got.ToJSON()
		if !bytes.Equal(a, b) {
			t.Fatalf("got %.300s\nwant %.300s", b, a)
		}
	}
	for _, wrong := range []string{`{"f:a":{},`, `{"f:a":[]}`, `[]`, `{"k:{":{}}`} {
		raw := []byte(wrong + strings.Repeat(" ", orderedAbove))
		_, err := newFields(raw)
		if libraryErr := new(fieldpath.Set).FromJSON(bytes.NewReader(raw)); (libraryErr != nil) != (err != nil) {
			t.Errorf("%s: %v, library: %v", wrong, err, libraryErr)
		}
	}
}

// TestInOrder: the library never inserts an element between others, which takes time in
// proportion to their number.
func TestInOrder(t *testing.T) {
	raw := ordered(shuffledFields(testrand.New(t), 3000))
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
	var last []*fieldpath.PathElement // by depth
	for {
		token, err := d.ReadToken()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		depth := d.StackDepth()
		last = append(last, make([]*fieldpath.PathElement, max(0, depth+1-len(last)))...)
		_, n := d.StackIndex(depth)
		if token.Kind() != '"' || n%2 == 0 { // not a name
			clear(last[depth+1:])
			continue
		}
		path, err := fieldpath.DeserializePathElement(token.String())
		if err != nil {
			continue // "."
		}
		if last[depth] != nil && last[depth].Compare(path) > 0 {
			t.Fatalf("%v stands before %v", last[depth], path)
		}
		last[depth] = &path
	}
}
