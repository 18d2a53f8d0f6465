package crds

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestOthersLikePeer creates the definitions of other projects on Tidemark and on kube-apiserver,
// and sends both the same objects: minimal, full and invalid ones. Both must have the same errors
// and store the same.
func TestOthersLikePeer(t *testing.T) {
	tier.Full(t)
	b, r := newBoth(t), random(t)
	for _, d := range corpus(t) {
		own, r := *b, rand.New(rand.NewPCG(r.Uint64(), 0))
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // most of the time, the test waits until kube-apiserver serves the definition
			if own.define(t, d) {
				w := writer{both: &own, d: d, r: maker{Rand: r}}
				for range *rounds {
					w.object(t, 2)
				}
			}
		})
	}
}

// TestRichLikePeer does the same with a definition that has something of everything,
// and with more writes.
func TestRichLikePeer(t *testing.T) {
	tier.Full(t)
	text, err := os.ReadFile("testdata/rich.json")
	if err != nil {
		t.Fatal(err)
	}
	var body tree
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatal(err)
	}
	b, d := newBoth(t), parse(t, body)
	if !b.define(t, d) {
		t.FailNow()
	}
	w := writer{both: b, d: d, r: maker{Rand: random(t)}}
	for range *rich {
		w.object(t, 12)
	}
	t.Logf("%d requests", w.requests)
}

// writer sends random writes of objects of a definition.
type writer struct {
	*both
	d    *definition
	r    maker
	made int
	// noApply leaves out server-side apply, which has errors of its own in a version that reads the
	// values of another one as another type.
	noApply bool
}

func (w *writer) object(t *testing.T, updates int) {
	for _, v := range w.d.versions {
		w.made++
		name := fmt.Sprintf("o%d", w.made)
		w.r.optional, w.r.depth = pick(w.r.Rand, []float64{0, .3, .6, 1}), pick(w.r.Rand, []int{2, 3, 5, 8})
		o := w.r.object(v.schema, w.d.group+"/"+v.name, w.d.kind, name)
		if !w.d.namespaced {
			o["metadata"].(tree)["labels"] = tree{"test": "tidemark"}
		}
		for range pick(w.r.Rand, []int{0, 0, 0, 1, 2}) {
			w.r.damage(o)
		}
		at := w.d.collection(v, w.namespace)
		made, alike := w.try(t, request{"POST", at + "?fieldValidation=" + w.mode(), "", o})
		if !alike || made.code != http.StatusCreated {
			continue
		}
		for i := 0; i < updates && w.update(t, v, at+"/"+name, made.body); i++ {
		}
		w.send(t, request{"DELETE", at + "/" + name, "", nil})
	}
}

func (w *writer) mode() string { return pick(w.r.Rand, []string{"Strict", "Warn", "Ignore"}) }

// update sends one write of an existing object, and reports whether both servers still have
// the same state.
func (w *writer) update(t *testing.T, v version, at string, first tree) bool {
	now := w.send(t, request{"GET", at, "", nil})
	if now[0].text() != now[1].text() || now[0].code != http.StatusOK {
		return same(t, "GET "+at, now) && false
	}
	if metadata, ok := now[0].body["metadata"].(tree); ok {
		w.owners = marshal(metadata["managedFields"])
		defer func() { w.owners = "" }()
	}
	alike := true
	try := func(r request) {
		if whole, ok := r.body.(tree); ok && strings.HasSuffix(at, "/status") {
			delete(whole, "extra") // a write of the status that leaves a field out does not own it: docs/compatibility.md#g7
			delete(whole, "unknown")
			delete(whole, "free")
		}
		_, alike = w.try(t, r)
	}
	o := clone(now[1].body)
	metadata := o["metadata"].(tree)
	for _, own := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		delete(metadata, own)
	}
	if v.status && w.r.IntN(4) == 0 {
		at += "/status"
	}
	fresh := w.r.object(v.schema, w.d.group+"/"+v.name, w.d.kind, metadata["name"].(string))
	query := "?fieldValidation=" + w.mode()
	kind := w.r.IntN(6)
	if kind == 4 && w.noApply {
		kind = 0
	}
	switch kind {
	case 0: // all of it anew
		try(request{"PUT", at + query, "", fresh})
	case 1:
		for range 1 + w.r.IntN(2) {
			w.r.damage(o)
		}
		try(request{"PUT", at + query, "", o})
	case 2:
		delete(fresh, "metadata")
		w.r.damage(fresh)
		try(request{"PATCH", at + query, "application/merge-patch+json", fresh})
	case 3:
		try(request{"PATCH", at + query, "application/json-patch+json", w.operations(o, fresh)})
	case 4:
		if w.r.IntN(3) == 0 {
			w.r.damage(fresh)
		}
		query += "&fieldManager=" + pick(w.r.Rand, []string{"one", "two", "three"}) + pick(w.r.Rand, []string{"", "&force=true"})
		try(request{"PATCH", at + query, applied, fresh})
	case 5: // the first version, perhaps through another API version
		back := clone(first)
		for _, own := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
			delete(back["metadata"].(tree), own)
		}
		w.r.damage(back)
		try(request{"PUT", at + query, "", back})
	}
	return alike
}

// operations returns a JSON patch that replaces some members by those in next.
func (w *writer) operations(o, next tree) []any {
	var all []any
	for _, member := range []string{"spec", "status"} {
		from, _ := o[member].(tree)
		to, ok := next[member].(tree)
		if !ok || from == nil {
			continue
		}
		for _, name := range sorted(to) {
			if w.r.IntN(3) == 0 {
				all = append(all, tree{"op": "add", "path": "/" + member + "/" + escape(name), "value": to[name]})
			}
		}
		for _, name := range sorted(from) {
			if w.r.IntN(8) == 0 && !slices.Contains(sorted(to), name) {
				all = append(all, tree{"op": "remove", "path": "/" + member + "/" + escape(name)})
			}
		}
	}
	if all == nil {
		all = []any{tree{"op": "test", "path": "/kind", "value": w.d.kind}}
	}
	return all
}
