package projects

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var (
	mutants = flag.Int("mutants", 8, "how many mutants of each object are sent")
	perKind = flag.Int("perkind", 1, "how many objects of each kind of a project are compared; 0: all")
	chosen  = flag.String("project", "", "compare only projects whose module contains this text")
	budget  = flag.Duration("budget", 6*time.Minute, "after this time no other project begins; 0: all projects")
	out     = flag.String("report", "", "write the report to this file")
)

// disturbing are kinds that change the results of other requests. Their objects are sent as
// dry-runs.
var disturbing = []string{
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy",
	"MutatingAdmissionPolicyBinding", "APIService", "Namespace", "Node", "PriorityClass", "FlowSchema", "PriorityLevelConfiguration", "ClusterRole", "ClusterRoleBinding",
	"PersistentVolume", "StorageClass", "IngressClass", "RuntimeClass", "ResourceQuota", "LimitRange", "CSIDriver",
}

// TestProjectsLikePeer installs the definitions of each project of testdata/modules.txt on Tidemark and on kube-apiserver. It
// takes the objects in the project's files, and mutants of them, through create, both applies, diff, replace, tables, explain
// and delete. Whatever differs without a row in docs/compatibility.md fails the test.
func TestProjectsLikePeer(t *testing.T) {
	tier.Full(t)
	text, err := os.ReadFile("testdata/modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(text))
	if *budget > 0 { // each has its turn
		testrand.New(t).Shuffle(len(modules), func(i, j int) { modules[i], modules[j] = modules[j], modules[i] })
	}
	var all []*findings
	begin := time.Now()
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		peer := newSender(t, s.Config)
		c := comparison{namespace: s.Namespace, servers: [2]sender{peer, own(t, peer, s.Namespace)}}
		for _, module := range modules {
			if !strings.Contains(module, *chosen) {
				continue
			}
			t.Run(module, func(t *testing.T) {
				if *budget > 0 && time.Since(begin) > *budget {
					t.Skipf("-budget=%v is used up", *budget)
				}
				c.found = &findings{project: module, documented: map[string]int{}, differences: map[string]*finding{}}
				c.project(t, read(t, module))
				all = append(all, c.found)
				t.Logf("%d requests", c.found.requests)
				if len(c.found.differences) > 0 {
					t.Errorf("differences:\n%s", c.found.examples())
				}
			})
		}
	})
	if len(all) == 0 {
		return
	}
	t.Logf("\n%s", report(all))
	if *out != "" {
		if err := os.WriteFile(*out, []byte(report(all)), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// own starts a Tidemark without controllers, as kube-apiserver is, with a namespace. Its user is that of the peer.
func own(t *testing.T, peer sender, namespace string) sender {
	t.Helper()
	s := &tidemark.Server{Controllers: []string{"-*"}, Admission: tidemark.Admission{NoUnenforcedWarnings: true}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	config := servers.Quick(s.RESTConfig())
	review := peer.send(request{method: "POST", path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: tree{}})
	user := review.body["status"].(tree)["userInfo"].(tree)
	config.Impersonate.UserName, _ = user["username"].(string)
	config.Impersonate.UID, _ = user["uid"].(string)
	config.Impersonate.Groups = []string{"system:masters"}
	made := newSender(t, config)
	made.send(request{method: "POST", path: "/api/v1/namespaces", body: tree{"metadata": tree{"name": namespace}}})
	made.send(request{method: "POST", path: "/api/v1/namespaces/" + namespace + "/serviceaccounts", body: tree{"metadata": tree{"name": "default"}}})
	return made
}

// comparison is between kube-apiserver and Tidemark.
type comparison struct {
	servers   [2]sender
	namespace string
	found     *findings
}

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// project compares the servers on the manifests of one.
func (c *comparison) project(t *testing.T, m manifests) {
	w := walk{servers: c.servers, r: testrand.New(t), found: c.found, mutants: *mutants}
	groups := map[string]bool{}
	for _, d := range m.definitions {
		if c.define(t, &w, d) {
			spec := d["spec"].(tree)
			for _, v := range spec["versions"].([]any) {
				groups[fmt.Sprintf("%v/%v", spec["group"], v.(tree)["name"])] = true
			}
		}
	}
	c.found.definitions = len(m.definitions)
	c.explain(t, slices.Sorted(maps.Keys(groups)))
	served := c.resources(t)
	byKind := map[string][]tree{}
	for _, o := range m.objects {
		if served[kindOf(o)].path != "" {
			byKind[kindOf(o)] = append(byKind[kindOf(o)], o)
		}
	}
	c.found.kinds = len(byKind)
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		objects := byKind[kind]
		w.r.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		if *perKind > 0 {
			objects = objects[:min(len(objects), *perKind)]
		}
		for i, o := range objects {
			at := served[kind]
			hash := fnv.New32a()
			fmt.Fprint(hash, kind, c.found.project)
			w.name = fmt.Sprintf("s%d-%x", i, hash.Sum32())
			namespace := ""
			if w.collection = at.path; at.namespaced {
				namespace = c.namespace
				w.collection = strings.Replace(at.path, "{namespace}", namespace, 1)
			}
			w.at = w.collection + "/" + w.name
			w.dry = slices.Contains(disturbing, fmt.Sprint(o["kind"]))
			c.found.objects++
			w.object(prepare(o, namespace, w.name))
		}
	}
}

// define stores a definition for the length of a test, waits until it is served, and reports whether it is.
func (c *comparison) define(t *testing.T, w *walk, d tree) bool {
	t.Helper()
	name := d["metadata"].(tree)["name"].(string)
	at := definitions + "/" + name
	if c.servers[0].send(request{method: "GET", path: at}).code == http.StatusOK {
		t.Logf("kube-apiserver has %s already", name)
		return false
	}
	t.Cleanup(func() { w.both([2]request{{method: "DELETE", path: at}, {method: "DELETE", path: at}}) })
	r := request{verb: "define", method: "POST", path: definitions, body: d}
	got := w.both([2]request{r, r})
	c.found.requests++
	for i := range got { // controllers write them
		delete(got[i].body, "metadata")
		if got[i].code == http.StatusCreated {
			delete(got[i].body, "status")
		}
	}
	if differ := compare(got[0], got[1], false); len(differ) > 0 {
		c.found.add("none", r, "", differ)
	}
	if got[0].code != http.StatusCreated || got[1].code != http.StatusCreated {
		return false
	}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		spec := d["spec"].(tree)
		for _, each := range spec["versions"].([]any) {
			v := each.(tree)
			path := fmt.Sprintf("/apis/%v/%v/%v?limit=1", spec["group"], v["name"], spec["names"].(tree)["plural"])
			if v["served"] == true && c.servers[0].send(request{method: "GET", path: path}).code != http.StatusOK {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("kube-apiserver does not serve %s: %v", name, err)
	}
	return true
}

// resource is where the objects of a kind are.
type resource struct {
	path       string
	namespaced bool
}

// resources returns those that both servers serve, by version and kind.
func (c *comparison) resources(t *testing.T) map[string]resource {
	t.Helper()
	var lists [2]map[string]resource
	for i, s := range c.servers {
		lists[i] = map[string]resource{}
		paths := []string{"/api/v1"}
		for _, g := range s.send(request{method: "GET", path: "/apis"}).body["groups"].([]any) {
			for _, v := range g.(tree)["versions"].([]any) {
				paths = append(paths, "/apis/"+v.(tree)["groupVersion"].(string))
			}
		}
		for _, path := range paths {
			list, _ := s.send(request{method: "GET", path: path}).body["resources"].([]any)
			for _, each := range list {
				r := each.(tree)
				verbs, _ := r["verbs"].([]any)
				name := r["name"].(string)
				if strings.Contains(name, "/") || !slices.Contains(verbs, any("patch")) {
					continue
				}
				_, version, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
				made := resource{path + "/" + name, r["namespaced"] == true}
				if made.namespaced {
					made.path = path + "/namespaces/{namespace}/" + name
				}
				lists[i][version+" "+r["kind"].(string)] = made
			}
		}
	}
	maps.DeleteFunc(lists[1], func(kind string, r resource) bool { return lists[0][kind] != r })
	return lists[1]
}

// explain compares the schemas that kubectl explain reads.
func (c *comparison) explain(t *testing.T, groups []string) {
	t.Helper()
	for _, group := range groups {
		r := request{verb: "explain", method: "GET", path: "/openapi/v3/apis/" + group}
		var got [2]response
		var missing string
		// kube-apiserver publishes a definition some time after it serves it.
		_ = wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
			for i := range got {
				got[i] = c.servers[i].send(r)
				got[i].body = schemas(got[i].body)
			}
			missing = ""
			for name := range got[1].body {
				if got[0].body[name] == nil {
					missing = name
				}
			}
			return missing == "" && got[0].code == got[1].code, nil
		})
		c.found.requests++
		if differ := compare(got[0], got[1], false); len(differ) > 0 {
			c.found.add("none", r, "", differ)
		}
	}
}

// schemas returns the schemas of kinds in an OpenAPI document.
func schemas(document tree) tree {
	made := tree{}
	components, _ := document["components"].(tree)
	all, _ := components["schemas"].(tree)
	for name, s := range all {
		if strings.HasPrefix(name, "io.k8s.") || s.(tree)["x-kubernetes-group-version-kind"] == nil {
			continue
		}
		made[name] = s
	}
	return made
}
