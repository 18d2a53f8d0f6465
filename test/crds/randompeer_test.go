package crds

import (
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

var peerSchemas = flag.Int("peerschemas", 12, "how many random definitions are compared with kube-apiserver, each in two versions")

// TestRandomLikePeer: definitions at random, of two versions that differ, and objects of
// them, written and read in either: both servers say the same, and store the same.
func TestRandomLikePeer(t *testing.T) {
	tier.Full(t)
	b := newBoth(t)
	r := schemas{Rand: random(t), defaults: .15}
	for n := range *peerSchemas {
		d := parse(t, randomPair(r, fmt.Sprintf("r%dn%d", time.Now().UnixNano(), n)))
		t.Run(d.name, func(t *testing.T) {
			for range 30 { // until one is right: who says why not is compared as well
				if b.define(t, d) {
					w := writer{both: b, d: d, r: maker{Rand: r.Rand}, noApply: true}
					for i := range 6 {
						w.crossing(t, fmt.Sprintf("o%d", i))
					}
					t.Logf("%d requests", w.requests)
					return
				}
				if t.Failed() {
					return
				}
				name := fmt.Sprintf("r%dn%d", time.Now().UnixNano(), n)
				d = parse(t, randomPair(r, name))
			}
		})
	}
}

// TestRandomAppliesLikePeer: definitions at random of one version, and objects of them, which three managers write by each
// verb, apply too: both servers say the same, and store the same.
func TestRandomAppliesLikePeer(t *testing.T) {
	tier.Full(t)
	b := newBoth(t)
	r := schemas{Rand: random(t), defaults: .15}
	for n := range *peerSchemas {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for range 30 { // until one is right
				d := parse(t, randomOne(r, fmt.Sprintf("s%dn%d", time.Now().UnixNano(), n)))
				if !b.define(t, d) {
					if t.Failed() {
						return
					}
					continue
				}
				w := writer{both: b, d: d, r: maker{Rand: r.Rand}}
				for range 6 {
					w.object(t, 12)
				}
				t.Logf("%d requests", w.requests)
				return
			}
		})
	}
}

// randomOne is a definition of one version.
func randomOne(r schemas, plural string) tree {
	d := randomPair(r, plural)
	spec := d["spec"].(tree)
	version := spec["versions"].([]any)[0].(tree)
	version["storage"] = true
	spec["versions"] = []any{version}
	return d
}

// randomPair is a definition of two versions.
func randomPair(r schemas, plural string) tree {
	var versions []any
	stored := r.IntN(2)
	for i := range 2 {
		v := tree{"name": fmt.Sprintf("v%d", i+1), "served": true, "storage": i == stored, "schema": tree{"openAPIV3Schema": r.root()}}
		if !r.one(4) {
			v["subresources"] = tree{"status": tree{}}
		}
		versions = append(versions, v)
	}
	return tree{"metadata": tree{"name": plural + "." + randomGroup}, "spec": tree{
		"group": randomGroup, "scope": "Namespaced", "names": tree{"plural": plural, "kind": "Kind" + plural}, "versions": versions,
	}}
}

// crossing makes an object in one version, and changes it in either.
func (w *writer) crossing(t *testing.T, name string) {
	v := pick(w.r.Rand, w.d.versions)
	w.r.optional, w.r.depth = pick(w.r.Rand, []float64{.3, .6, 1}), 6
	o := w.r.object(v.schema, w.d.group+"/"+v.name, w.d.kind, name)
	if w.r.IntN(3) == 0 {
		w.r.damage(o)
	}
	at := func(v version) string { return w.d.collection(v, w.namespace) }
	made, alike := w.try(t, request{"POST", at(v) + "?fieldValidation=" + w.mode(), "", o})
	if !alike || made.code != http.StatusCreated {
		return
	}
	for range 6 {
		for _, each := range w.d.versions {
			path := at(each) + "/" + name
			if !same(t, "GET "+path, w.send(t, request{"GET", path, "", nil})) {
				return
			}
		}
		v := pick(w.r.Rand, w.d.versions)
		first := clone(made.body)
		first["apiVersion"] = w.d.group + "/" + v.name
		if !w.update(t, v, at(v)+"/"+name, first) {
			return
		}
	}
	w.send(t, request{"DELETE", at(v) + "/" + name, "", nil})
}
