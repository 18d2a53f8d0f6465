package follower_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
)

// link is the way to a server. While it is held, changes do not arrive, and all other requests do.
type link struct {
	mu   sync.Mutex
	held chan struct{} // nil: it is not held; closed when it is released
	// asked gets the path of a request that a follower makes for a request of a client.
	asked chan string
}

// to returns the configuration for clients of the server on the link.
func (l *link) to(t *testing.T, p *tidemark.Server) *rest.Config {
	return proxy(t, p, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/changes"):
			w = slowWriter{w, l}
		case strings.HasSuffix(r.URL.Path, "/head"), strings.HasSuffix(r.URL.Path, "/transactions"):
			select {
			case l.asked <- r.URL.Path:
			default:
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (l *link) hold(t *testing.T) (release func()) {
	held := make(chan struct{})
	l.mu.Lock()
	l.held = held
	l.mu.Unlock()
	select {
	case <-l.asked:
	default:
	}
	release = sync.OnceFunc(func() {
		l.mu.Lock()
		l.held = nil
		l.mu.Unlock()
		close(held)
	})
	t.Cleanup(release)
	return release
}

// slowWriter is a stream on a link.
type slowWriter struct {
	http.ResponseWriter
	link *link
}

func (w slowWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w slowWriter) Write(b []byte) (int, error) {
	w.link.mu.Lock()
	held := w.link.held
	w.link.mu.Unlock()
	if held != nil {
		<-held
	}
	return w.ResponseWriter.Write(b)
}

// TestRightsTaken removes rights at the server while its follower gets no changes. The follower
// must decide later requests by the state that the server has acknowledged.
func TestRightsTaken(t *testing.T) {
	t.Parallel()
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}})
	onServer := clients(p)
	_, err := onServer.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "maps"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}}}, metav1.CreateOptions{})
	must(t, err)
	for i, s := range []rbacv1.Subject{{Kind: "User", Name: "alice"}, {Kind: "User", Name: "bob"}, {Kind: "User", Name: "carol"}, {Kind: "ServiceAccount", Name: "robot", Namespace: "default"}} {
		_, err = onServer.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("maps-", i)},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "maps"}, Subjects: []rbacv1.Subject{s}}, metav1.CreateOptions{})
		must(t, err)
	}
	_, err = onServer.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(t, err)
	token, err := onServer.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)

	line := &link{asked: make(chan string, 1)}
	f := start(t, following(line.to(t, p), t.TempDir()))
	as := func(user string) *kubernetes.Clientset {
		c, err := f.Root().RESTConfigFor(user)
		must(t, err)
		return kubernetes.NewForConfigOrDie(c)
	}
	withToken := rest.AnonymousClientConfig(f.RESTConfig())
	withToken.BearerToken = token.Status.Token
	create := func(c *kubernetes.Clientset) func() error {
		return func() error {
			_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}, metav1.CreateOptions{})
			return err
		}
	}
	for _, c := range []struct {
		what    string
		request func() error
		take    func() error
		refused func(error) bool
	}{
		{"the binding of a create", create(as("alice")), func() error {
			return onServer.RbacV1().RoleBindings("default").Delete(t.Context(), "maps-0", metav1.DeleteOptions{})
		}, apierrors.IsForbidden},
		{"the binding of a list", func() error {
			_, err := as("bob").CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			return err
		}, func() error {
			return onServer.RbacV1().RoleBindings("default").Delete(t.Context(), "maps-1", metav1.DeleteOptions{})
		}, apierrors.IsForbidden},
		{"the account of a token", create(kubernetes.NewForConfigOrDie(withToken)), func() error {
			return onServer.CoreV1().ServiceAccounts("default").Delete(t.Context(), "robot", metav1.DeleteOptions{})
		}, apierrors.IsUnauthorized},
		{"what a policy denies", create(as("carol")), func() error {
			all := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}}}
			_, err := onServer.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "none"},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: all},
					Validations: []admissionregistrationv1.Validation{{Expression: "false"}}}}, metav1.CreateOptions{})
			_, err2 := onServer.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "none"},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "none", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}, metav1.CreateOptions{})
			return errors.Join(err, err2)
		}, apierrors.IsInvalid},
	} {
		if err := c.request(); err != nil {
			t.Fatalf("%s is there: %v", c.what, err)
		}
		release := line.hold(t)
		must(t, c.take())
		result := make(chan error, 1)
		go func() { result <- c.request() }()
		await.Value(t, "a request of the follower", line.asked)
		release()
		if err := await.Value(t, "the response", result); !c.refused(err) {
			t.Errorf("without %s: %v", c.what, err)
		}
	}
}
