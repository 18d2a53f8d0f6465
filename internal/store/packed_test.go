package store_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// TestPacked: large objects of a packed collection take less memory, and every read returns
// them as they were written.
func TestPacked(t *testing.T) {
	log := &memlog.Log{Start: 90} // the digits of revisions grow
	options := store.Options{Log: durable{log}, Packed: map[string]bool{"definitions": true}}
	s := storetest.Open(t, options)
	text := func(i int) (before, behind string) {
		return fmt.Sprintf(`{"name":"n%02d","version":"`, i), `","text":"` + strings.Repeat("some words that repeat ", 400) + `"}`
	}
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			before, behind := text(i)
			w := store.Write{Collection: "definitions", Key: fmt.Sprint(i), Value: []byte(before + behind), RevisionAt: len(before)}
			next := store.Write{Collection: "definitions", Key: w.Key, Value: []byte(before + behind + "\n"), RevisionAt: len(before), Next: true}
			made, err := s.Apply(t.Context(), &store.Txn{Writes: []store.Write{w, next}})
			if err != nil {
				t.Error(err)
			} else if want := fmt.Sprint(before, made[0].Modified, behind); string(made[0].Bytes()) != want {
				t.Errorf("wrote %.60s, got %.60s", want, made[0].Bytes())
			}
		})
	}
	all.Wait()
	check := func() {
		t.Helper()
		for i := range 60 {
			before, behind := text(i)
			o := s.Any().Get("definitions", fmt.Sprint(i))
			want := fmt.Sprint(before, o.Modified, behind, "\n")
			if got := o.Bytes(); string(got) != want || o.Len() != len(want) || cap(got) != len(got) {
				t.Errorf("%d bytes of %d: %.60s, want %.60s", o.Len(), len(want), got, want)
			}
			o.SetMark(len(before))
			if o.Mark() != len(before) || !bytes.HasPrefix(o.Bytes()[o.Mark():], fmt.Append(nil, o.Modified)) {
				t.Errorf("the mark is at %d, want %d", o.Mark(), len(before))
			}
			if len(o.Held) > len(want)/10 {
				t.Errorf("%d bytes are held as %d", len(want), len(o.Held))
			}
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storetest.Open(t, options)
	check()
}

// TestPackedBubbles: stores of several bubbles in one process pack and unpack, whichever of them is the first to do so. A
// failure ends the process, and other tests may have packed before, so the bubbles are in a process of their own.
func TestPackedBubbles(t *testing.T) {
	const inChild = "TIDEMARK_TEST_PACKED_BUBBLES"
	if os.Getenv(inChild) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestPackedBubbles$")
		child.Env = append(os.Environ(), inChild+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%.4000s", err, out)
		}
		return
	}
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			s := storetest.Open(t, store.Options{Log: &memlog.Log{}, Packed: map[string]bool{"definitions": true}})
			value := strings.Repeat("some words that repeat ", 400)
			for i := range 20 { // more than are held uncompressed
				w := store.Write{Collection: "definitions", Key: fmt.Sprint(i), Value: []byte(value)}
				if _, err := s.Apply(t.Context(), &store.Txn{Writes: []store.Write{w}}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 20 {
				if o := s.Any().Get("definitions", fmt.Sprint(i)); !strings.Contains(string(o.Bytes()), value) {
					t.Errorf("object %d is %.60s", i, o.Bytes())
				}
			}
		})
	}
}
