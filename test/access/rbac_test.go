package access_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var decisions = flag.Int("decisions", 10_000, "how many decisions of RBAC are compared")

const (
	batches = 10 // between them, roles and bindings change
	workers = 8
)

// TestRBACLikeReference asks for random decisions by random roles and bindings, which change
// meanwhile. Each decision and its reason must be those of the reference. With a kube-apiserver,
// that server has the same roles and bindings, and its decisions must be the same, too.
func TestRBACLikeReference(t *testing.T) {
	tier.Full(t)
	t.Run("tidemark", func(t *testing.T) {
		newWorld(t, "t", target{"tidemark", servers.Quick(servers.Start(t).RESTConfig())}).run()
	})
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		newWorld(t, s.Namespace,
			target{"tidemark", servers.Quick(servers.Start(t).RESTConfig())},
			target{"kube-apiserver", servers.Quick(s.Config)},
		).run()
	})
}

// target is a server that decides.
type target struct {
	name   string
	config *rest.Config
}

// world is a set of roles and bindings on some servers.
type world struct {
	*testing.T
	chance     *rand.Rand
	prefix     string
	namespaces []string
	targets    []target
	clients    []kubernetes.Interface
	marks      int
}

func newWorld(t *testing.T, prefix string, targets ...target) *world {
	w := &world{T: t, chance: testrand.New(t), prefix: prefix + "-", targets: targets}
	for _, one := range targets {
		w.clients = append(w.clients, kubernetes.NewForConfigOrDie(one.config))
	}
	for i := range 3 {
		name := fmt.Sprintf("%sn%d", w.prefix, i)
		w.namespaces = append(w.namespaces, name)
		w.each(func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		})
	}
	t.Cleanup(w.clean)
	return w
}

// each does the same on all servers.
func (w *world) each(do func(context.Context, kubernetes.Interface) error) {
	w.Helper()
	for i, c := range w.clients {
		if err := do(w.Context(), c); err != nil && !apierrors.IsNotFound(err) {
			w.Fatalf("%s: %v", w.targets[i].name, err)
		}
	}
}

// clean deletes cluster-scoped objects of the test.
func (w *world) clean() {
	mine := metav1.ListOptions{LabelSelector: "of=" + w.prefix + "test"}
	for _, c := range w.clients {
		ctx, end := context.WithTimeout(context.Background(), time.Minute)
		defer end()
		for _, err := range []error{
			c.RbacV1().ClusterRoleBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, mine),
			c.RbacV1().ClusterRoles().DeleteCollection(ctx, metav1.DeleteOptions{}, mine),
		} {
			if err != nil {
				w.Error(err)
			}
		}
		for _, name := range w.namespaces { // without controllers, its content stays
			for _, err := range []error{
				c.RbacV1().RoleBindings(name).DeleteCollection(ctx, metav1.DeleteOptions{}, mine),
				c.RbacV1().Roles(name).DeleteCollection(ctx, metav1.DeleteOptions{}, mine),
				c.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}),
			} {
				if err != nil {
					w.Error(err)
				}
			}
		}
	}
}

func (w *world) run() {
	for range 500 {
		w.change()
	}
	allowed, several, missing := 0, 0, 0
	for range batches {
		for range 20 {
			w.change()
		}
		w.settle()
		ref, err := newReference(w.Context(), w.clients[0])
		if err != nil {
			w.Fatal(err)
		}
		requests := make([]authorizationv1.SubjectAccessReviewSpec, *decisions/batches)
		for i := range requests {
			requests[i] = w.request()
		}
		for _, want := range w.compare(ref, requests) {
			switch {
			case want.allowed && len(want.reasons) > 1:
				several++
				fallthrough
			case want.allowed:
				allowed++
			case len(want.reasons) > 0:
				missing++
			}
		}
	}
	w.Logf("%d decisions on %d servers: %d allowed (%d of them by several bindings), %d refused with missing roles", *decisions, len(w.targets), allowed, several, missing)
	if allowed < *decisions/20 || missing == 0 {
		w.Errorf("too few of %d requests are allowed, or meet missing roles", *decisions)
	}
}

// compare compares the decisions of all servers with those of the reference, which it returns.
func (w *world) compare(ref *reference, requests []authorizationv1.SubjectAccessReviewSpec) []verdict {
	all := make([]verdict, len(requests))
	var wg sync.WaitGroup
	for part := range workers {
		wg.Go(func() {
			for i := part; i < len(requests) && w.Context().Err() == nil; i += workers {
				q := requests[i]
				all[i] = ref.decide(&q)
				for k, c := range w.clients {
					got, err := c.AuthorizationV1().SubjectAccessReviews().Create(w.Context(), &authorizationv1.SubjectAccessReview{Spec: q}, metav1.CreateOptions{})
					if err != nil {
						w.Errorf("%s: %v", w.targets[k].name, err)
						return
					}
					if !all[i].accepts(&got.Status) {
						w.Errorf("%s: user %q, groups %q, %+v %+v:\ngot  %+v\nwant %+v", w.targets[k].name, q.User, q.Groups, q.ResourceAttributes, q.NonResourceAttributes, got.Status, all[i])
					}
				}
			}
		})
	}
	wg.Wait()
	return all
}

// settle waits until each server decides by the present roles and bindings. Kube-apiserver follows
// each kind in its own order, so a mark of each kind comes last.
func (w *world) settle() {
	w.marks++
	name := fmt.Sprintf("%smark-%d", w.prefix, w.marks)
	at := metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": w.prefix + "test"}}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"marks"}, Resources: []string{name}, Verbs: []string{"see"}}}
	w.each(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: at, Rules: rules}, metav1.CreateOptions{})
		return err
	})
	w.each(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.RbacV1().Roles(w.namespaces[0]).Create(ctx, &rbacv1.Role{ObjectMeta: at, Rules: rules}, metav1.CreateOptions{})
		return err
	})
	subjects := []rbacv1.Subject{{Kind: "User", Name: name}}
	w.each(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: at, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: name}, Subjects: subjects}, metav1.CreateOptions{})
		return err
	})
	subjects = []rbacv1.Subject{{Kind: "User", Name: name + "-local"}}
	w.each(func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.RbacV1().RoleBindings(w.namespaces[0]).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: at, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: name}, Subjects: subjects}, metav1.CreateOptions{})
		return err
	})
	for k, c := range w.clients {
		for _, user := range []string{name, name + "-local"} {
			q := authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: w.namespaces[0], Group: "marks", Resource: name, Verb: "see"}}
			for seen := false; !seen; {
				got, err := c.AuthorizationV1().SubjectAccessReviews().Create(w.Context(), &authorizationv1.SubjectAccessReview{Spec: q}, metav1.CreateOptions{})
				if err != nil {
					w.Fatalf("%s: %v", w.targets[k].name, err)
				}
				if seen = got.Status.Allowed; !seen && w.targets[k].name == "tidemark" {
					w.Fatalf("a binding of %s is not in effect at once", user)
				}
			}
		}
	}
}

// change creates, changes or deletes a role or a binding.
func (w *world) change() {
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s%d", w.prefix, w.chance.IntN(30)), Labels: map[string]string{"of": w.prefix + "test"}}
	namespace := pick(w.chance, w.namespaces)
	remove := w.chance.IntN(15) == 0
	switch w.chance.IntN(4) {
	case 0:
		o := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: w.rules(true)}
		w.each(func(ctx context.Context, c kubernetes.Interface) error {
			return put(ctx, c.RbacV1().ClusterRoles(), o, o.Name, remove)
		})
	case 1:
		o := &rbacv1.Role{ObjectMeta: meta, Rules: w.rules(false)}
		w.each(func(ctx context.Context, c kubernetes.Interface) error {
			return put(ctx, c.RbacV1().Roles(namespace), o, o.Name, remove)
		})
	case 2:
		o := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: w.ref("ClusterRole"), Subjects: w.subjects("")}
		w.each(func(ctx context.Context, c kubernetes.Interface) error {
			return put(ctx, c.RbacV1().ClusterRoleBindings(), o, o.Name, remove)
		})
	default:
		o := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: w.ref(pick(w.chance, []string{"Role", "ClusterRole"})), Subjects: w.subjects(namespace)}
		w.each(func(ctx context.Context, c kubernetes.Interface) error {
			return put(ctx, c.RbacV1().RoleBindings(namespace), o, o.Name, remove)
		})
	}
}

// writer is a client of one kind.
type writer[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// put deletes an object, or makes it as it should be. A binding of another role is made anew.
func put[T any](ctx context.Context, c writer[T], o T, name string, remove bool) error {
	if remove {
		return c.Delete(ctx, name, metav1.DeleteOptions{})
	}
	_, err := c.Update(ctx, o, metav1.UpdateOptions{})
	if apierrors.IsInvalid(err) {
		if err = c.Delete(ctx, name, metav1.DeleteOptions{}); err == nil {
			_, err = c.Create(ctx, o, metav1.CreateOptions{})
		}
	}
	return err
}

func pick[T any](chance *rand.Rand, all []T) T { return all[chance.IntN(len(all))] }

// some returns up to n of all, at least one.
func some(chance *rand.Rand, all []string, n int) []string {
	var some []string
	for range 1 + chance.IntN(n) {
		some = append(some, pick(chance, all))
	}
	return some
}

var (
	verbs        = []string{"get", "list", "watch", "create", "delete", "deletecollection", "patch", "use", "*"}
	groups       = []string{"", "apps", "ex.io", "*"}
	resources    = []string{"pods", "pods/log", "deployments", "deployments/scale", "*/scale", "*/log", "pods/*", "a/b", "a/b/c", "*"}
	objectNames  = []string{"a", "b", "*", "c"}
	paths        = []string{"/metrics", "/logs/*", "/logs*", "/x/**", "/healthz", "*"}
	groupNames   = []string{"dev", "ops", "qa", "system:authenticated", "system:unauthenticated"}
	defaultUsers = []string{"system:kube-scheduler", "system:kube-controller-manager", "system:anonymous", "system:serviceaccount:kube-system:deployment-controller"}
)

func (w *world) rules(cluster bool) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{}
	for range w.chance.IntN(6) {
		if cluster && w.chance.IntN(4) == 0 {
			rules = append(rules, rbacv1.PolicyRule{NonResourceURLs: some(w.chance, paths[:5], 3), Verbs: some(w.chance, verbs, 2)})
			continue
		}
		r := rbacv1.PolicyRule{APIGroups: some(w.chance, groups, 3), Resources: some(w.chance, resources, 4), Verbs: some(w.chance, verbs, 4)}
		switch w.chance.IntN(8) {
		case 0, 1:
			r.ResourceNames = some(w.chance, objectNames, 3)
		case 2: // so many that they are looked up
			for i := range 20 {
				r.ResourceNames = append(r.ResourceNames, fmt.Sprint("name", i))
				r.Resources = append(r.Resources, fmt.Sprint("many", i), fmt.Sprintf("many%d/status", i))
			}
		}
		rules = append(rules, r)
	}
	return rules
}

func (w *world) ref(kind string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: fmt.Sprintf("%s%d", w.prefix, w.chance.IntN(31))}
}

func (w *world) user() string { return fmt.Sprintf("%suser%d", w.prefix, w.chance.IntN(12)) }

// group returns a group, most often one of the test alone.
func (w *world) group() string {
	if w.chance.IntN(12) == 0 {
		return pick(w.chance, groupNames[3:])
	}
	return w.prefix + pick(w.chance, groupNames[:3])
}

func (w *world) subjects(namespace string) []rbacv1.Subject {
	all := []rbacv1.Subject{}
	for range w.chance.IntN(4) {
		switch w.chance.IntN(3) {
		case 0:
			all = append(all, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: w.user()})
		case 1:
			all = append(all, rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: w.prefix + pick(w.chance, groupNames[:3])})
		default:
			s := rbacv1.Subject{Kind: "ServiceAccount", Name: pick(w.chance, objectNames[:2]), Namespace: pick(w.chance, w.namespaces)}
			if namespace != "" && w.chance.IntN(2) == 0 {
				s.Namespace = ""
			}
			all = append(all, s)
		}
	}
	return all
}

func (w *world) request() authorizationv1.SubjectAccessReviewSpec {
	q := authorizationv1.SubjectAccessReviewSpec{User: w.user()}
	switch w.chance.IntN(6) {
	case 0:
		q.User = "system:serviceaccount:" + pick(w.chance, w.namespaces) + ":" + pick(w.chance, objectNames[:2])
	case 1:
		q.User = pick(w.chance, defaultUsers)
	}
	for range w.chance.IntN(4) {
		q.Groups = append(q.Groups, w.group())
	}
	if w.chance.IntN(100) == 0 {
		q.Groups = append(q.Groups, "system:masters")
	}
	if w.chance.IntN(6) == 0 {
		q.NonResourceAttributes = &authorizationv1.NonResourceAttributes{
			Path: pick(w.chance, []string{"/metrics", "/logs", "/logs/", "/logs/a", "/logsx", "/x", "/x/", "/x/y", "/healthz", "/version", "/apis/apps/v1", "*", ""}), Verb: pick(w.chance, verbs),
		}
		return q
	}
	a := &authorizationv1.ResourceAttributes{
		Group: pick(w.chance, groups), Version: "v1", Verb: pick(w.chance, verbs), Name: pick(w.chance, append([]string{"", "", "name7"}, objectNames...)),
		Resource: pick(w.chance, []string{"pods", "deployments", "a", "a/b", "*", "pods/log", "many7", "endpoints", "leases", "events"}),
	}
	if w.chance.IntN(3) > 0 {
		a.Namespace = pick(w.chance, append([]string{"kube-system"}, w.namespaces...))
	}
	if w.chance.IntN(3) == 0 {
		a.Subresource = pick(w.chance, []string{"log", "scale", "status", "b", "b/c", "*"})
	}
	q.ResourceAttributes = a
	return q
}

// TestReference checks the reference with requests whose responses are obvious.
func TestReference(t *testing.T) {
	tier.Full(t)
	r := &reference{
		clusterRoles:        []rbacv1.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}},
		clusterRoleBindings: []rbacv1.ClusterRoleBinding{{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "c"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "u"}}}},
	}
	ask := func(verb string) verdict {
		return r.decide(&authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: &authorizationv1.ResourceAttributes{Resource: "pods", Verb: verb}})
	}
	if got, want := ask("get"), (verdict{true, []string{`RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "c" to User "u"`}}); !reflect.DeepEqual(got, want) {
		t.Errorf("get: %v, want %v", got, want)
	}
	if got := ask("list"); got.allowed {
		t.Errorf("list: %v", got)
	}
}
