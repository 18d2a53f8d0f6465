package access_test

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var flowRequests = flag.Int("flow-requests", 4000, "how many requests are compared by their flow schemas")

// TestFlowsLikePeer sends random requests of random users to both servers, which have the same
// random flow schemas. The headers of the responses name the schema and the level. Without a
// kube-apiserver it only checks that each response names a schema and its level.
func TestFlowsLikePeer(t *testing.T) {
	tier.Full(t)
	t.Run("tidemark", func(t *testing.T) {
		newFlowWorld(t, "t", servers.Quick(servers.Start(t).RESTConfig())).run(500)
	})
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		newFlowWorld(t, s.Namespace, servers.Quick(servers.Start(t).RESTConfig()), servers.Quick(s.Config)).run(*flowRequests)
	})
}

// flowWorld is a set of flow schemas on some servers, Tidemark first.
type flowWorld struct {
	*testing.T
	chance  *rand.Rand
	prefix  string
	servers []*flowServer
	schemas []string
}

// flowServer is a server that classifies.
type flowServer struct {
	kubernetes.Interface
	config *rest.Config
	client *http.Client
	// names has the names of schemas and levels by UID.
	names map[string]string
}

func newFlowWorld(t *testing.T, prefix string, configs ...*rest.Config) *flowWorld {
	w := &flowWorld{T: t, chance: testrand.New(t), prefix: prefix + "-"}
	for _, c := range configs {
		w.servers = append(w.servers, &flowServer{Interface: kubernetes.NewForConfigOrDie(c), config: c, client: &http.Client{
			Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: workers}, //nolint:gosec // a server of the test
			Timeout:   time.Minute,
		}})
	}
	t.Cleanup(w.clean)
	return w
}

// run compares n requests, with several sets of schemas.
func (w *flowWorld) run(n int) {
	const sets = 5
	seen := map[string]int{}
	for set := range sets {
		w.change(set)
		requests := make([]flowRequest, n/sets)
		for i := range requests {
			requests[i] = w.request()
		}
		for _, schema := range w.compare(requests) {
			seen[schema]++
		}
	}
	w.Logf("%d requests on %d servers, in %d flow schemas", n, len(w.servers), len(seen))
	for _, schema := range []string{"exempt", "global-default", "system-nodes", "probes", "service-accounts"} {
		if seen[schema] == 0 {
			w.Errorf("no request is %s: %v", schema, seen)
		}
	}
}

// flowRequest is a request of a user.
type flowRequest struct {
	method, path string
	user         string // empty: anonymous
	groups       []string
}

// request returns a random request. Those of users who may have rights change nothing.
func (w *flowWorld) request() flowRequest {
	q := flowRequest{method: pick(w.chance, []string{"GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"})}
	switch w.chance.IntN(8) {
	case 0:
		q.method, q.path = "GET", pick(w.chance, []string{"/healthz", "/livez", "/readyz/ping", "/version", "/api/v1/pods", "/nope"})
		return q
	case 1:
		q.method, q.user = "GET", pick(w.chance, []string{"system:kube-scheduler", "system:kube-controller-manager", "system:serviceaccount:kube-system:generic-garbage-collector", "system:node:" + w.prefix + "n"})
		if strings.HasPrefix(q.user, "system:node:") {
			q.groups = []string{"system:nodes"}
		}
	case 2:
		q.user = "system:serviceaccount:" + w.prefix + pick(w.chance, []string{"a", "b"}) + ":" + pick(w.chance, []string{"x", "y"})
	case 3:
		q.method, q.user, q.groups = "GET", w.prefix+"root", []string{"system:masters"}
	default:
		q.user = w.prefix + pick(w.chance, []string{"ann", "bob", "eve"})
		for range w.chance.IntN(3) {
			q.groups = append(q.groups, w.prefix+pick(w.chance, []string{"dev", "ops"}))
		}
	}
	if strings.HasPrefix(q.user, "system:serviceaccount:") {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(q.user, "system:serviceaccount:"), ":")
		q.groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	}
	if q.groups = append(q.groups, "system:authenticated"); q.user != "" {
		q.path = w.path()
	}
	return q
}

// path returns a path of a resource that does not exist, or of another document.
func (w *flowWorld) path() string {
	if w.chance.IntN(4) == 0 {
		return pick(w.chance, []string{"/", "/healthz", "/healthz/ping", "/livez/", "/metrics", "/version", "/openapi/v3", "/openapi/none", "/apis", "/apis/apps", "/api/v1", "/nope/x", "/logs/x"})
	}
	group := pick(w.chance, []string{"/api/v1", "/apis/apps/v1", "/apis/coordination.k8s.io/v1", "/apis/nope.example.com/v1"})
	resource := pick(w.chance, []string{"pods", "nodes", "deployments", "leases", "endpoints", "nopes", "serviceaccounts", "namespaces"})
	scope := pick(w.chance, []string{"", "/namespaces/" + w.prefix + "none", "/namespaces/kube-system", "/namespaces/kube-node-lease"})
	rest := pick(w.chance, []string{"", "", "/" + w.prefix + "x", "/" + w.prefix + "x/status", "/" + w.prefix + "x/scale", "/" + w.prefix + "x/token", "?watch=1&timeoutSeconds=1&resourceVersion=1", "?limit=1", "?fieldSelector=metadata.name%3D" + w.prefix + "x"})
	if w.chance.IntN(12) == 0 {
		return "/api/v1" + scope + "/pods/" + w.prefix + "x/" + pick(w.chance, []string{"log", "exec", "proxy", "portforward", "attach"})
	}
	return group + scope + "/" + resource + rest
}

// compare sends the requests to all servers, and returns the names of their schemas.
func (w *flowWorld) compare(requests []flowRequest) []string {
	all := make([]string, len(requests))
	var wg sync.WaitGroup
	for part := range workers {
		wg.Go(func() {
			for i := part; i < len(requests) && w.Context().Err() == nil; i += workers {
				var responses []string
				for _, s := range w.servers {
					responses = append(responses, w.classify(s, &requests[i]))
				}
				if len(slices.Compact(slices.Clone(responses))) > 1 {
					w.Errorf("%+v: %q", requests[i], responses)
				}
				all[i], _, _ = strings.Cut(responses[0], " ")
			}
		})
	}
	wg.Wait()
	return all
}

// classify sends a request and returns the names of its schema and level.
func (w *flowWorld) classify(s *flowServer, q *flowRequest) string {
	r, err := http.NewRequestWithContext(w.Context(), q.method, s.config.Host+q.path, nil)
	if err != nil {
		w.Error(err)
		return ""
	}
	if q.user != "" {
		r.Header.Set("Authorization", "Bearer "+s.config.BearerToken)
		r.Header.Set("Impersonate-User", q.user)
		r.Header["Impersonate-Group"] = q.groups
	}
	a, err := s.client.Do(r)
	if err != nil {
		w.Errorf("%+v: %v", q, err)
		return ""
	}
	_, _ = io.Copy(io.Discard, a.Body)
	a.Body.Close()
	schema, level := a.Header["X-Kubernetes-Pf-Flowschema-Uid"], a.Header["X-Kubernetes-Pf-Prioritylevel-Uid"]
	if len(schema) != len(level) || len(schema) > 1 {
		w.Errorf("%+v: %d, headers %v", q, a.StatusCode, a.Header)
	}
	if len(schema) == 0 {
		return fmt.Sprint("none ", a.StatusCode >= 400)
	}
	names := s.names[schema[0]] + " " + s.names[level[0]]
	if s.names[schema[0]] == "" || s.names[level[0]] == "" {
		w.Errorf("%+v: %d, unknown UIDs %v %v", q, a.StatusCode, schema, level)
	}
	return names
}

// change replaces the schemas of the test by random ones, and waits until they are in effect.
func (w *flowWorld) change(set int) {
	w.clean()
	w.schemas = nil
	mark := fmt.Sprintf("%smark-%d", w.prefix, set)
	var made []*flowcontrolv1.FlowSchema
	for i := range 12 {
		made = append(made, w.schema(fmt.Sprintf("%s%d-%d", w.prefix, set, i)))
	}
	made = append(made, &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: mark}, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "exempt"}, MatchingPrecedence: 2,
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects:         []flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: mark}}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
		}},
	}})
	for _, s := range w.servers {
		for _, f := range made {
			w.create(s, f)
		}
		s.read(w.T)
		for {
			got := w.classify(s, &flowRequest{method: "GET", path: "/version", user: mark, groups: []string{"system:authenticated"}})
			if got == mark+" exempt" {
				break
			}
			if s == w.servers[0] {
				w.Fatalf("the schema is not in effect at once: %s", got)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	for _, f := range made {
		w.schemas = append(w.schemas, f.Name)
	}
}

// create creates a schema. Tidemark has it in effect with the next request.
func (w *flowWorld) create(s *flowServer, f *flowcontrolv1.FlowSchema) {
	w.Helper()
	if _, err := s.FlowcontrolV1().FlowSchemas().Create(w.Context(), f, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.schemas = append(w.schemas, f.Name)
}

// read reads the names of all schemas and levels.
func (s *flowServer) read(t *testing.T) {
	t.Helper()
	s.names = map[string]string{}
	schemas, err := s.FlowcontrolV1().FlowSchemas().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	levels, err := s.FlowcontrolV1().PriorityLevelConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range schemas.Items {
		s.names[string(o.UID)] = o.Name
	}
	for _, o := range levels.Items {
		s.names[string(o.UID)] = o.Name
	}
}

// clean deletes the schemas of the test.
func (w *flowWorld) clean() {
	ctx, end := context.WithTimeout(context.Background(), time.Minute)
	defer end()
	for _, s := range w.servers {
		for _, name := range w.schemas {
			if err := s.FlowcontrolV1().FlowSchemas().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				w.Error(err)
			}
		}
	}
}

// schema returns a random schema for users of the test.
func (w *flowWorld) schema(name string) *flowcontrolv1.FlowSchema {
	f := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}}
	f.Spec.PriorityLevelConfiguration.Name = pick(w.chance, []string{"workload-low", "workload-high", "system", "catch-all", "exempt", w.prefix + "none"})
	f.Spec.MatchingPrecedence = int32(pick(w.chance, []int{2, 50, 300, 500, 1000, 9000, 9950}))
	if w.chance.IntN(2) == 0 {
		f.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: pick(w.chance, []flowcontrolv1.FlowDistinguisherMethodType{"ByUser", "ByNamespace"})}
	}
	for range 1 + w.chance.IntN(2) {
		f.Spec.Rules = append(f.Spec.Rules, w.rule())
	}
	return f
}

// rule returns a random rule.
func (w *flowWorld) rule() (p flowcontrolv1.PolicyRulesWithSubjects) {
	star := func(some []string) []string {
		if w.chance.IntN(3) == 0 {
			return []string{"*"}
		}
		slices.Sort(some)
		return slices.Compact(some)
	}
	for range 1 + w.chance.IntN(2) {
		switch w.chance.IntN(3) {
		case 0:
			p.Subjects = append(p.Subjects, flowcontrolv1.Subject{Kind: "User", User: &flowcontrolv1.UserSubject{Name: w.prefix + pick(w.chance, []string{"ann", "bob", "eve"})}})
		case 1:
			p.Subjects = append(p.Subjects, flowcontrolv1.Subject{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: w.prefix + pick(w.chance, []string{"dev", "ops"})}})
		default:
			p.Subjects = append(p.Subjects, flowcontrolv1.Subject{Kind: "ServiceAccount", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: w.prefix + pick(w.chance, []string{"a", "b"}), Name: pick(w.chance, []string{"x", "y", "*"})}})
		}
	}
	for range 1 + w.chance.IntN(2) {
		r := flowcontrolv1.ResourcePolicyRule{
			Verbs:     star(some(w.chance, []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}, 4)),
			APIGroups: star(some(w.chance, []string{"", "apps", "coordination.k8s.io", "nope.example.com"}, 2)),
			Resources: star(some(w.chance, []string{"pods", "nodes", "pods/status", "deployments/scale", "leases", "serviceaccounts/token", "namespaces", "nopes"}, 4)),
		}
		if r.ClusterScope = w.chance.IntN(2) == 0; !r.ClusterScope || w.chance.IntN(2) == 0 {
			r.Namespaces = star(some(w.chance, []string{w.prefix + "none", "kube-system"}, 2))
		}
		p.ResourceRules = append(p.ResourceRules, r)
	}
	if w.chance.IntN(2) == 0 {
		p.NonResourceRules = []flowcontrolv1.NonResourcePolicyRule{{
			Verbs:           star(some(w.chance, []string{"get", "delete", "patch", "list"}, 3)),
			NonResourceURLs: star(some(w.chance, []string{"/", "/healthz", "/metrics", "/openapi/*", "/apis", "/apis/*", "/nope/*", "/version"}, 3)),
		}}
	}
	return p
}
