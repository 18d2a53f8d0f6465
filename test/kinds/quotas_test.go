package kinds_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// TestQuotasLikePeer creates an object of each namespaced kind beside a quota that counts the kind: one without a status,
// with limits of unknown use, with a use below the limit, and at it. Both servers run without the controller that counts.
func TestQuotasLikePeer(t *testing.T) {
	tier.Full(t)
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		both := [2]sender{newSender(t, servers.Quick(s.Config))}
		both[1] = newSender(t, lone(t, both[0]))
		both[1].send(t, "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": s.Namespace}})
		files, err := filepath.Glob("testdata/objects/*.json")
		if err != nil || len(files) == 0 {
			t.Fatalf("no objects: %v", err)
		}
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
				d := differential{both: both, g: generator{testrand.New(t)}, file: file, namespace: s.Namespace}
				d.resource, _, _ = strings.Cut(filepath.Base(file), ".")
				if d.collection = d.find(t); !strings.Contains(d.collection, "/namespaces/") {
					return // a quota counts kinds in namespaces only
				}
				group, _, found := strings.Cut(d.load(t)["apiVersion"].(string), "/")
				names := []string{d.resource, "count/" + d.resource}
				if found {
					names = append(names, "count/"+d.resource+"."+group, "count/"+d.resource+".other.example.com")
				}
				for _, name := range names {
					d.quota(t, name)
				}
			})
		}
	})
}

// quota creates objects beside a quota of a resource. kube-apiserver sees a new status a moment later, so a difference
// counts if it comes twenty times.
func (d *differential) quota(t *testing.T, name string) {
	limits := func(n string) map[string]any { return map[string]any{name: n} }
	for _, status := range []map[string]any{
		nil,
		{"hard": limits("3")},
		{"hard": limits("3"), "used": limits("1")},
		{"hard": limits("3"), "used": limits("2")},
		{"hard": limits("3"), "used": limits("3")},
	} {
		var found []string
		for range 20 {
			if found = d.beside(t, map[string]any{"hard": limits("3")}, status); len(found) == 0 {
				break
			}
		}
		if len(found) > 0 {
			t.Errorf("create beside a quota with the status %s:\n%s", text(status), strings.Join(found, "\n"))
		}
	}
}

// beside creates a quota and an object, and returns how the responses and the status of the quota differ.
func (d *differential) beside(t *testing.T, spec, status map[string]any) []string {
	quotas := "/api/v1/namespaces/" + d.namespace + "/resourcequotas"
	o := d.load(t)
	delete(o, "status")
	at := d.collection + "/" + o["metadata"].(map[string]any)["name"].(string)
	var got [2]map[string]any
	for i, s := range d.both {
		s.send(t, "POST", quotas, map[string]any{"metadata": map[string]any{"name": "q"}, "spec": spec})
		if status != nil {
			s.send(t, "PATCH", quotas+"/q/status", map[string]any{"status": status})
		}
		made := s.send(t, "POST", d.collection, o)
		got[i] = map[string]any{"code": made.code, "message": made.body["message"], "quota": s.send(t, "GET", quotas+"/q", nil).body["status"]}
		if made.code < 300 { // another test compares the response
			delete(got[i], "message")
		}
		s.send(t, "DELETE", quotas+"/q", nil)
	}
	d.remove(t, at)
	return differences("", got[0], got[1], nil)
}
