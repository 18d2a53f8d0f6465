package kinds_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// TestVersionsLikePeer writes objects of the kinds with several versions in one version, and reads and writes them in
// the other one. Defaults of one version must not be applied in the other.
func TestVersionsLikePeer(t *testing.T) {
	tier.Full(t)
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		both := [2]sender{newSender(t, servers.Quick(s.Config))}
		both[1] = newSender(t, lone(t, both[0]))
		both[1].send(t, "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": s.Namespace}})
		for _, kind := range [][2]string{
			{"horizontalpodautoscalers", "horizontalpodautoscalers.v1"}, {"horizontalpodautoscalers.v1", "horizontalpodautoscalers"},
			{"events", "events.events.k8s.io"}, {"events.events.k8s.io", "events"},
		} {
			t.Run(kind[0], func(t *testing.T) {
				of := func(name string) *differential {
					d := &differential{both: both, g: generator{testrand.New(t)}, file: filepath.Join("testdata/objects", name+".json"), namespace: s.Namespace, grafts: loadGrafts(t)}
					d.resource, _, _ = strings.Cut(name, ".")
					d.collection = d.find(t)
					return d
				}
				d, other := of(kind[0]), of(kind[1])
				for range *objects {
					d.through(t, other)
				}
				t.Logf("%d objects, %d of them taken, %d updates", d.made, d.taken, d.updates)
			})
		}
	})
}

// through creates an object, reads it through another version, writes it back as it was read, and changes it in both.
func (d *differential) through(t *testing.T, other *differential) {
	o := d.load(t)
	delete(o, "status")
	name := o["metadata"].(map[string]any)["name"].(string)
	d.g.prune(o, []float64{0, .3, .6, .9, 1}[d.g.IntN(5)], d.g.IntN(2) == 0)
	for range d.g.IntN(3) {
		d.g.graft(o, d.grafts, func(g graft) bool { return g.At[0] != "status" })
	}
	taken, equal := d.same(t, "create", "POST", d.collection, func(int) map[string]any { return o })
	at, there := d.collection+"/"+name, other.collection+"/"+name
	if !taken || !equal {
		d.remove(t, at)
		return
	}
	d.taken++
	defer d.remove(t, at)
	read := [2]response{d.both[0].send(t, "GET", there, nil), d.both[1].send(t, "GET", there, nil)}
	if found := differences("", d.plain(read[0]), d.plain(read[1]), nil); len(found) > 0 {
		t.Errorf("GET of %s, created by %s:\n%s", there, text(o), strings.Join(found, "\n"))
		return
	}
	back := func(path string) bool {
		seed := d.g.Uint64()
		d.updates++
		_, equal := d.same(t, "update of "+path, "PUT", path, func(i int) map[string]any {
			o := clone(d.both[i].send(t, "GET", path, nil).body)
			// A write that changes nothing leaves the fields of managers that wrote through the other group of Events.
			o["metadata"].(map[string]any)["labels"] = map[string]any{"update": fmt.Sprint(d.updates)}
			g := newGenerator(seed)
			if g.IntN(3) > 0 {
				g.graft(o, d.grafts, func(g graft) bool { return g.At[0] != "status" })
			}
			return o
		})
		return equal
	}
	for _, path := range []string{there, at, there, at} {
		if !back(path) {
			return
		}
	}
}
