package flowschema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// world is a store with schemas and levels.
type world struct {
	tb    testing.TB
	store *store.Store
	at    map[string]store.Revision
}

func newWorld(tb testing.TB) *world {
	return &world{tb, storetest.Open(tb, store.Options{Log: memlog.New()}), map[string]store.Revision{}}
}

// put stores an object. A level or schema gets the UID uid-NAME.
func (w *world) put(o metav1.Object) {
	w.tb.Helper()
	collection := Schemas
	if _, ok := o.(*flowcontrolv1.PriorityLevelConfiguration); ok {
		collection = Levels
	}
	o.SetUID(types.UID("uid-" + o.GetName()))
	o.SetResourceVersion("")
	b, err := json.Marshal(o)
	if err != nil {
		w.tb.Fatal(err)
	}
	key := collection + "/" + o.GetName()
	at := strings.Index(string(b), `"metadata":{`) + len(`"metadata":{`)
	b = slices.Insert(b, at, []byte(`"resourceVersion":"",`)...)
	made, err := w.store.Commit(w.tb.Context(), store.Write{
		Collection: collection, Key: o.GetName(), Value: b, RevisionAt: at + len(`"resourceVersion":"`), If: w.at[key],
	})
	if err != nil {
		w.tb.Fatal(err)
	}
	w.at[key] = made.Modified
}

func (w *world) remove(collection, name string) {
	w.tb.Helper()
	key := collection + "/" + name
	if _, err := w.store.Commit(w.tb.Context(), store.Write{Collection: collection, Key: name, If: w.at[key]}); err != nil {
		w.tb.Fatal(err)
	}
	delete(w.at, key)
}

func level(name string, shares int32, queues int32) *flowcontrolv1.PriorityLevelConfiguration {
	l := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	l.Spec.Type = flowcontrolv1.PriorityLevelEnablementLimited
	l.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares}
	l.Spec.Limited.LimitResponse.Type = flowcontrolv1.LimitResponseTypeReject
	if queues > 0 {
		l.Spec.Limited.LimitResponse.Type = flowcontrolv1.LimitResponseTypeQueue
		l.Spec.Limited.LimitResponse.Queuing = &flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: min(queues, 6), QueueLengthLimit: 50}
	}
	return l
}

func schema(name, level string, precedence int32, by flowcontrolv1.FlowDistinguisherMethodType, rules ...flowcontrolv1.PolicyRulesWithSubjects) *flowcontrolv1.FlowSchema {
	f := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}}
	f.Spec.PriorityLevelConfiguration.Name, f.Spec.MatchingPrecedence, f.Spec.Rules = level, precedence, rules
	if by != "" {
		f.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: by}
	}
	return f
}

func group(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
}

func user(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
}

func account(namespace, name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: name}}
}

// everything matches all requests of the subjects.
func everything(subjects ...flowcontrolv1.Subject) flowcontrolv1.PolicyRulesWithSubjects {
	all := []string{"*"}
	return flowcontrolv1.PolicyRulesWithSubjects{
		Subjects:         subjects,
		ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
	}
}

func get(name string, groups ...string) *authz.Attributes {
	return &authz.Attributes{User: &authn.User{Name: name, Groups: groups}, Verb: "get", IsResource: true, Version: "v1", Resource: "pods", Namespace: "shop", Name: "a"}
}

// TestWithoutObjects: an empty store has the mandatory schemas and levels.
func TestWithoutObjects(t *testing.T) {
	w := newWorld(t)
	c := New(Config{Store: w.store, Seats: 600})
	for _, row := range []struct {
		a             *authz.Attributes
		schema, level string
	}{
		{get("root", "system:masters", "system:authenticated"), "exempt", "exempt"},
		{get("bob", "system:authenticated"), "catch-all", "catch-all"},
		{get("bob"), "catch-all", "catch-all"},
		{&authz.Attributes{User: authn.Anonymous, Verb: "get", Path: "/healthz"}, "catch-all", "catch-all"},
	} {
		f := c.Of(row.a)
		if f.Name != row.schema || f.Level.Name != row.level || f.UID != "" || f.UIDHeader[0] != "" || f.LevelUIDHeader[0] != "" {
			t.Errorf("%v: %+v in %+v", row.a.User, f.Schema, f.Level)
		}
		if f.Level.Exempt != (row.level == "exempt") {
			t.Errorf("%s: exempt: %v", row.level, f.Level.Exempt)
		}
	}
}

// TestChanges: each change is in effect with the next request, and levels are configured before.
func TestChanges(t *testing.T) {
	w := newWorld(t)
	gate := fairness.New(fairness.Config{})
	c := New(Config{Store: w.store, Seats: 600, Gate: gate})
	want := func(schema, level, levels string) {
		t.Helper()
		f := c.Of(get("bob", "system:authenticated"))
		var configured []string
		for _, l := range gate.Snapshot(false).Levels {
			configured = append(configured, fmt.Sprint(l.Name, " ", l.Nominal))
		}
		if f.Name != schema || f.Level.Name != level || strings.Join(configured, ", ") != levels {
			t.Errorf("%s in %s of %v, want %s in %s of %s", f.Name, f.Level.Name, configured, schema, level, levels)
		}
	}
	want("catch-all", "catch-all", "catch-all 600, exempt 0")
	w.put(schema("b", "own", 100, "", everything(user("bob"))))
	want("catch-all", "catch-all", "catch-all 600, exempt 0") // the level does not exist
	w.put(level("own", 15, 64))
	want("b", "own", "catch-all 150, exempt 0, own 450")
	w.put(schema("a", "catch-all", 100, "", everything(group("system:authenticated"))))
	want("b", "own", "catch-all 150, exempt 0, own 450") // catch-all is not stored: the schema names none
	w.put(level("catch-all", 5, 0))
	want("a", "catch-all", "catch-all 150, exempt 0, own 450")
	w.put(schema("a", "catch-all", 101, "", everything(group("system:authenticated"))))
	want("b", "own", "catch-all 150, exempt 0, own 450")
	w.remove(Levels, "own")
	want("a", "catch-all", "catch-all 600, exempt 0")
	w.remove(Schemas, "a")
	want("catch-all", "catch-all", "catch-all 600, exempt 0")
}

// TestDistinguisher: flows of a schema differ by user or namespace where their level has queues.
func TestDistinguisher(t *testing.T) {
	w := newWorld(t)
	w.put(level("queued", 10, 64))
	w.put(level("one", 10, 1))
	w.put(schema("by-user", "queued", 1000, flowcontrolv1.FlowDistinguisherMethodByUserType, everything(group("u"))))
	w.put(schema("by-namespace", "queued", 1000, flowcontrolv1.FlowDistinguisherMethodByNamespaceType, everything(group("n"))))
	w.put(schema("none", "queued", 1000, "", everything(group("x"))))
	w.put(schema("one-queue", "one", 1000, flowcontrolv1.FlowDistinguisherMethodByUserType, everything(group("o"))))
	c := New(Config{Store: w.store, Seats: 600})
	seen := map[uint64]string{}
	for g, want := range map[string]string{"u": "bob", "n": "shop", "x": "", "o": ""} {
		f := c.Of(get("bob", g))
		if f.Distinguisher != want {
			t.Errorf("%s: %q, want %q", f.Name, f.Distinguisher, want)
		}
		if other := seen[f.Hash]; other != "" {
			t.Errorf("%s has the hash of %s", f.Name, other)
		}
		seen[f.Hash] = f.Name
		if again := c.Of(get("bob", g)); again.Hash != f.Hash {
			t.Errorf("%s: another hash the second time", f.Name)
		}
	}
	if a, b := c.Of(get("bob", "u")), c.Of(get("ann", "u")); a.Hash == b.Hash {
		t.Error("two users are one flow")
	}
}

// TestShares: the seats of the levels that every server has, as kube-apiserver shows them in its
// metrics, and the widths of their requests.
func TestShares(t *testing.T) {
	w := newWorld(t)
	for _, l := range []struct {
		name           string
		shares, queues int32
	}{
		{"catch-all", 5, 0}, {"global-default", 20, 128}, {"leader-election", 10, 16}, {"node-high", 40, 64}, {"system", 30, 64}, {"workload-high", 40, 128}, {"workload-low", 100, 128},
	} {
		w.put(level(l.name, l.shares, l.queues))
	}
	var got []string
	for _, l := range New(Config{Store: w.store, Seats: 600}).Levels() {
		got = append(got, fmt.Sprintf("%s %d/%d", l.Name, l.Seats, l.MaxWidth))
	}
	want := "catch-all 13/0, exempt 0/0, global-default 49/8, leader-election 25/4, node-high 98/15, system 74/12, workload-high 98/15, workload-low 245/37"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, ", "), want)
	}
	for _, l := range New(Config{Store: newWorld(t).store}).Levels() {
		if l.Seats != 0 {
			t.Errorf("%s has %d of no seats", l.Name, l.Seats)
		}
	}
}

// TestManyQueues: a level has a bounded number of queues.
func TestManyQueues(t *testing.T) {
	w := newWorld(t)
	l := level("wide", 1, 10_000_000)
	l.Spec.Limited.LimitResponse.Queuing.HandSize = 2
	w.put(l)
	for _, l := range New(Config{Store: w.store, Seats: 600}).Levels() {
		if l.Name == "wide" && (l.Queues != mostQueues || l.HandSize != 2) {
			t.Errorf("%+v", l)
		}
	}
}

func TestWork(t *testing.T) {
	wide, narrow := &Level{}, &Level{MaxWidth: 4}
	for _, row := range []struct {
		what string
		got  Work
		want Work
	}{
		{"an empty list", wide.List(0, true), Work{Seats: 1}},
		{"a small list", wide.List(32<<10-1, true), Work{Seats: 1}},
		{"a large list of one seat", wide.List(100_000, true), Work{Seats: 1, Large: true}},
		{"two seats", wide.List(100_001, true), Work{Seats: 2, Large: true}},
		{"streamed", wide.List(1<<40, true), Work{Seats: 10, Large: true}},
		{"of an old state", wide.List(1<<62, false), Work{Seats: 100, Large: true}},
		{"within the level", narrow.List(1<<40, false), Work{Seats: 4, Large: true}},
		{"a small object", wide.Write(128<<10-1, 0), Work{Seats: 1}},
		{"a large object", wide.Write(128<<10, 0), Work{Seats: 1, Large: true}},
		{"a large object that many watch", wide.Write(1<<20, 1000), Work{Seats: 1, FinalSeats: 10, Extra: 50 * time.Millisecond, Large: true}},
		{"few watches", wide.Write(0, 9), Work{Seats: 1}},
		{"ten watches", wide.Write(0, 10), Work{Seats: 1, FinalSeats: 1, Extra: 5 * time.Millisecond}},
		{"more watches", wide.Write(0, 95), Work{Seats: 1, FinalSeats: 10, Extra: 5 * time.Millisecond}},
		{"many watches", wide.Write(0, 1000), Work{Seats: 1, FinalSeats: 10, Extra: 50 * time.Millisecond}},
		{"within the level", narrow.Write(0, 100), Work{Seats: 1, FinalSeats: 4, Extra: 12500 * time.Microsecond}},
	} {
		if row.got != row.want {
			t.Errorf("%s: %+v, want %+v", row.what, row.got, row.want)
		}
	}
}

// Words that random rules and requests are made of.
var (
	verbs      = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post"}
	groups     = []string{"", "apps", "batch"}
	resources  = []string{"pods", "nodes", "pods/status", "pods/log", "deployments", "status"}
	namespaces = []string{"shop", "kube-system", "a"}
	paths      = []string{"/", "/healthz", "/healthz/*", "/healthz/etcd", "/metrics", "/openapi/*", "/apis", "/open"}
	users      = []string{"ann", "bob", "system:anonymous", "system:serviceaccount:shop:a", "system:serviceaccount:shop:b", "system:serviceaccount:kube-system:a", "system:serviceaccount:sho:p", "system:serviceaccount:shop"}
	userGroups = []string{"g", "h", "system:masters", "system:authenticated", "system:unauthenticated"}
)

// some returns one to three words, or "*".
func some(r *rand.Rand, words []string) []string {
	if r.IntN(4) == 0 {
		return []string{"*"}
	}
	var list []string
	for range 1 + r.IntN(3) {
		list = append(list, words[r.IntN(len(words))])
	}
	return list
}

func one(r *rand.Rand, words []string) string {
	if r.IntN(6) == 0 {
		return "*"
	}
	return words[r.IntN(len(words))]
}

func randomRule(r *rand.Rand) (p flowcontrolv1.PolicyRulesWithSubjects) {
	for range 1 + r.IntN(2) {
		switch r.IntN(3) {
		case 0:
			p.Subjects = append(p.Subjects, user(one(r, users)))
		case 1:
			p.Subjects = append(p.Subjects, group(one(r, userGroups)))
		case 2:
			p.Subjects = append(p.Subjects, account(namespaces[r.IntN(len(namespaces))], one(r, []string{"a", "b"})))
		}
	}
	for range r.IntN(3) {
		p.ResourceRules = append(p.ResourceRules, flowcontrolv1.ResourcePolicyRule{
			Verbs: some(r, verbs), APIGroups: some(r, groups), Resources: some(r, resources), Namespaces: some(r, namespaces), ClusterScope: r.IntN(2) == 0,
		})
	}
	for range r.IntN(3) {
		p.NonResourceRules = append(p.NonResourceRules, flowcontrolv1.NonResourcePolicyRule{Verbs: some(r, verbs), NonResourceURLs: some(r, paths)})
	}
	return p
}

func randomRequest(r *rand.Rand) *authz.Attributes {
	a := &authz.Attributes{User: &authn.User{Name: users[r.IntN(len(users))]}, Verb: verbs[r.IntN(len(verbs))]}
	for range r.IntN(4) {
		a.User.Groups = append(a.User.Groups, userGroups[r.IntN(len(userGroups))])
	}
	if a.IsResource = r.IntN(3) > 0; !a.IsResource {
		a.Path = strings.ReplaceAll(paths[r.IntN(len(paths))], "*", "x")
		return a
	}
	a.Group = groups[r.IntN(len(groups))]
	a.Resource, a.Subresource, _ = strings.Cut(resources[r.IntN(len(resources))], "/")
	if r.IntN(2) == 0 {
		a.Namespace = namespaces[r.IntN(len(namespaces))]
	}
	return a
}

// TestRandom compares decisions with those of a search through all schemas, subjects and rules.
func TestRandom(t *testing.T) {
	r := testrand.New(t)
	for range 300 {
		w := newWorld(t)
		for _, name := range []string{"exempt", "catch-all", "own"} {
			if r.IntN(4) == 0 {
				continue
			}
			l := level(name, 10, 64)
			if name == "exempt" {
				l.Spec = fixedLevels[0].Spec
			}
			w.put(l)
		}
		var all []*flowcontrolv1.FlowSchema
		for i := range r.IntN(6) {
			f := schema(fmt.Sprint("s", i), []string{"catch-all", "exempt", "own", "none"}[r.IntN(4)], int32(2+r.IntN(4)), "")
			for range r.IntN(4) {
				f.Spec.Rules = append(f.Spec.Rules, randomRule(r))
			}
			w.put(f)
			if w.at[Levels+"/"+f.Spec.PriorityLevelConfiguration.Name] != 0 {
				all = append(all, f)
			}
		}
		slices.SortFunc(all, func(a, b *flowcontrolv1.FlowSchema) int {
			return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
		})
		all = append(append([]*flowcontrolv1.FlowSchema{exempt}, all...), catchAll)
		c := New(Config{Store: w.store, Seats: 100})
		for range 100 {
			a := randomRequest(r)
			i := slices.IndexFunc(all, func(f *flowcontrolv1.FlowSchema) bool { return naive(f, a) })
			if i < 0 {
				i = len(all) - 1
			}
			if got, want := c.Of(a), all[i]; got.Name != want.Name || got.Level.Name != want.Spec.PriorityLevelConfiguration.Name {
				t.Fatalf("%+v of %+v: %s, want %s of %s", a, a.User, got.Name, want.Name, jsonOf(all))
			}
		}
	}
}

// naive reports whether a schema matches.
func naive(f *flowcontrolv1.FlowSchema, a *authz.Attributes) bool {
	in := func(x string, list []string) bool {
		return slices.Contains(list, x) || slices.Equal(list, []string{"*"})
	}
	return slices.ContainsFunc(f.Spec.Rules, func(p flowcontrolv1.PolicyRulesWithSubjects) bool {
		if !slices.ContainsFunc(p.Subjects, func(s flowcontrolv1.Subject) bool {
			switch s.Kind {
			case flowcontrolv1.SubjectKindUser:
				return s.User.Name == "*" || s.User.Name == a.User.Name
			case flowcontrolv1.SubjectKindGroup:
				return s.Group.Name == "*" || slices.Contains(a.User.Groups, s.Group.Name)
			}
			prefix := "system:serviceaccount:" + s.ServiceAccount.Namespace + ":"
			return strings.HasPrefix(a.User.Name, prefix) && (s.ServiceAccount.Name == "*" || a.User.Name == prefix+s.ServiceAccount.Name)
		}) {
			return false
		}
		if !a.IsResource {
			return slices.ContainsFunc(p.NonResourceRules, func(r flowcontrolv1.NonResourcePolicyRule) bool {
				return in(a.Verb, r.Verbs) && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool {
					return url == "*" || url == a.Path || strings.HasPrefix(a.Path, strings.TrimSuffix(strings.TrimSuffix(url, "*"), "/")+"/")
				})
			})
		}
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		return slices.ContainsFunc(p.ResourceRules, func(r flowcontrolv1.ResourcePolicyRule) bool {
			return in(a.Verb, r.Verbs) && in(a.Group, r.APIGroups) && in(resource, r.Resources) && (a.Namespace == "" && r.ClusterScope || a.Namespace != "" && in(a.Namespace, r.Namespaces))
		})
	})
}

// FuzzRead: no stored object makes the classifier fail.
func FuzzRead(f *testing.F) {
	for _, o := range []any{schema("a", "own", 2, "ByUser", everything(user("*"))), level("own", 1, 4), level("own", -1, -4), map[string]any{"spec": map[string]any{"rules": []any{map[string]any{"subjects": []any{map[string]any{"kind": "User"}}}}}}} {
		b, err := json.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t)
		value := append([]byte(`{"metadata":{"name":"own","resourceVersion":""},"x":`), append(b, '}')...)
		for _, collection := range []string{Schemas, Levels} {
			for key, v := range map[string][]byte{"a": value, "b": append(slices.Clone(b), '"', '"')} {
				at := len(v) - 1
				if _, err := w.store.Commit(t.Context(), store.Write{Collection: collection, Key: key, Value: v, RevisionAt: at}); err != nil {
					t.Skip(err)
				}
			}
		}
		c := New(Config{Store: w.store, Seats: 600})
		for _, a := range []*authz.Attributes{get("bob", "g"), {User: authn.Anonymous, Verb: "get", Path: "/x"}} {
			if f := c.Of(a); f.Schema == nil || f.Level == nil {
				t.Errorf("%+v", f)
			}
		}
	})
}

// BenchmarkOf classifies requests by the schemas that every server has, and by 1000 more.
func BenchmarkOf(b *testing.B) {
	for _, more := range []int{0, 1000} {
		w := newWorld(b)
		for _, name := range []string{"catch-all", "global-default", "leader-election", "node-high", "system", "workload-high", "workload-low"} {
			w.put(level(name, 10, 64))
		}
		all := group("system:authenticated")
		leases := flowcontrolv1.PolicyRulesWithSubjects{
			Subjects:      []flowcontrolv1.Subject{user("system:kube-controller-manager"), user("system:kube-scheduler"), account("kube-system", "*")},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"get", "create", "update"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Namespaces: []string{"*"}}},
		}
		w.put(schema("system-leader-election", "leader-election", 100, "ByUser", leases))
		w.put(schema("system-nodes", "system", 500, "ByUser", everything(group("system:nodes"))))
		w.put(schema("kube-controller-manager", "workload-high", 800, "ByNamespace", everything(user("system:kube-controller-manager"))))
		w.put(schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", everything(account("kube-system", "*"))))
		w.put(schema("service-accounts", "workload-low", 9000, "ByUser", everything(group("system:serviceaccounts"))))
		w.put(schema("global-default", "global-default", 9900, "ByUser", everything(all)))
		for i := range more {
			w.put(schema(fmt.Sprint("own-", i), "system", 1000, "ByUser", everything(user(fmt.Sprint("u", i)))))
		}
		c := New(Config{Store: w.store, Seats: 600})
		for _, a := range []*authz.Attributes{
			get("bob", "dev", "ops", "system:authenticated"),
			get("system:serviceaccount:shop:web", "system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"),
			get("system:node:n1", "system:nodes", "system:authenticated"),
			get("admin", "system:masters", "system:authenticated"),
		} {
			b.Run(fmt.Sprintf("more=%d/%s", more, strings.ReplaceAll(a.User.Name, ":", "-")), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.Of(a)
				}
			})
		}
	}
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
