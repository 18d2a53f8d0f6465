package integration_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

var (
	impersonationPeer  = flag.String("impersonation-peer", "", "kubeconfig of a kube-apiserver, whose responses TestImpersonationRandom compares with Tidemark's")
	impersonationCases = flag.Int("impersonation-cases", 60, "how many service accounts with random rights TestImpersonationRandom makes")
)

// This test gives service accounts random rights to impersonate, and lets them impersonate random
// users. A model of the rules decides whether a request has to be allowed. With a peer, whole
// responses are compared.

// impersonationWorld is a server of the test.
type impersonationWorld struct {
	t         *testing.T
	admin     *rest.Config
	client    *http.Client
	namespace string
}

func (w *impersonationWorld) do(method, path, token string, header http.Header, body any) (int, []byte) {
	w.t.Helper()
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			w.t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.admin.Host+path, bytes.NewReader(b))
	if err != nil {
		w.t.Fatal(err)
	}
	if header != nil {
		r.Header = header.Clone()
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	b, err = io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response.StatusCode, b
}

// must sends a request of the administrator that has to succeed.
func (w *impersonationWorld) must(method, path string, body any) []byte {
	w.t.Helper()
	code, b := w.do(method, path, w.admin.BearerToken, nil, body)
	if code >= 300 {
		w.t.Fatalf("%s %s: %d %s", method, path, code, b)
	}
	return b
}

func newImpersonationWorld(t *testing.T, c *rest.Config, namespace string) *impersonationWorld {
	anonymous := rest.AnonymousClientConfig(c)
	w := &impersonationWorld{t: t, admin: c, client: servertest.Client(t, anonymous), namespace: namespace}
	named := func(name string) any { return map[string]any{"metadata": map[string]string{"name": name}} }
	w.must("POST", "/api/v1/namespaces", named(namespace))
	w.must("POST", "/api/v1/nodes", named(namespace))
	t.Cleanup(func() {
		for _, path := range []string{"/api/v1/namespaces/", "/api/v1/nodes/"} {
			r, _ := http.NewRequest("DELETE", c.Host+path+namespace, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+c.BearerToken)
			if response, err := w.client.Do(r); err == nil {
				response.Body.Close()
			}
		}
	})
	return w
}

// account makes a service account with rights, and returns a token that is bound to the node.
func (w *impersonationWorld) account(name string, rules []rbacv1.PolicyRule) string {
	w.t.Helper()
	accounts := "/api/v1/namespaces/" + w.namespace + "/serviceaccounts"
	w.must("POST", accounts, map[string]any{"metadata": map[string]string{"name": name}})
	full := w.namespace + "-" + name
	marker := "/marker/" + full
	rules = append(slices.Clone(rules), rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{marker}})
	const roles, bindings = rbacPath + "/clusterroles", rbacPath + "/clusterrolebindings"
	w.must("POST", roles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: full}, Rules: rules})
	w.must("POST", bindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: full}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: full},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.namespace, Name: name}},
	})
	w.t.Cleanup(func() {
		for _, path := range []string{bindings, roles} {
			r, _ := http.NewRequest("DELETE", w.admin.Host+path+"/"+full, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+w.admin.BearerToken)
			if response, err := w.client.Do(r); err == nil {
				response.Body.Close()
			}
		}
	})
	ask := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  "system:serviceaccount:" + w.namespace + ":" + name,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: marker},
	}}
	await.True(w.t, "a right", func() bool { // the peer takes a moment
		var review authorizationv1.SubjectAccessReview
		if err := json.Unmarshal(w.must("POST", accessReviews, ask), &review); err != nil {
			w.t.Fatal(err)
		}
		if !review.Status.Allowed && *impersonationPeer == "" {
			w.t.Fatal("a right is not in effect at once")
		}
		return review.Status.Allowed
	})
	var token authenticationv1.TokenRequest
	b := w.must("POST", accounts+"/"+name+"/token", map[string]any{"spec": map[string]any{"audiences": []string{}, "boundObjectRef": map[string]string{"kind": "Node", "apiVersion": "v1", "name": w.namespace}}})
	if err := json.Unmarshal(b, &token); err != nil {
		w.t.Fatal(err)
	}
	return token.Status.Token
}

// impersonate returns the response to a request with headers.
func (w *impersonationWorld) impersonate(token string, h http.Header) (int, string, authenticationv1.UserInfo) {
	code, b := w.do("POST", selfReviews, token, h, map[string]any{})
	var response struct {
		Message string
		Status  json.RawMessage
	}
	if err := json.Unmarshal(b, &response); err != nil {
		w.t.Fatalf("%d %s", code, b)
	}
	var who authenticationv1.SelfSubjectReviewStatus
	if code == http.StatusCreated {
		if err := json.Unmarshal(response.Status, &who); err != nil {
			w.t.Fatal(err)
		}
	}
	return code, response.Message, who.UserInfo
}

const authenticationGroup = "authentication.k8s.io"

var (
	impersonationGroups = []string{"g1", "g2", "g3", "g4", "g5", "system:masters", "system:authenticated", "system:unauthenticated", ""}
	impersonationExtra  = []string{"k1", "example.com/k2", "example.com/k2", "bad_key/x", "K3"}
)

// randomRules returns a random part of all rights.
func randomRules(r *rand.Rand, node string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	some := func(p float64, verb, group, resource string, names ...string) {
		if r.Float64() < p {
			if len(names) > 0 && r.IntN(3) == 0 {
				names = nil
			}
			rules = append(rules, rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names})
		}
	}
	for _, mode := range []string{"user-info", "serviceaccount", "arbitrary-node", "associated-node"} {
		some(0.6, "impersonate-on:"+mode+":create", authenticationGroup, "selfsubjectreviews")
	}
	some(0.7, "impersonate:serviceaccount", authenticationGroup, "serviceaccounts", "sa1")
	some(0.6, "impersonate:arbitrary-node", authenticationGroup, "nodes", node)
	some(0.6, "impersonate:associated-node", authenticationGroup, "nodes", "*")
	for _, verb := range []string{"impersonate:user-info", "impersonate"} {
		group := authenticationGroup
		if verb == "impersonate" {
			group = ""
			some(0.4, verb, "", "serviceaccounts", "sa1", "sa2")
		}
		some(0.6, verb, group, "users", "u1", "system:anonymous", "system:node:"+node)
		some(0.5, verb, group, "groups", "g1", "g2", "g3", "system:masters", "system:unauthenticated")
		some(0.2, verb, group, "groups", "*")
		some(0.5, verb, authenticationGroup, "uids", "7")
		some(0.5, verb, authenticationGroup, "userextras/k1", "v1", "v2")
		some(0.3, verb, authenticationGroup, "userextras/*", "*")
		some(0.3, verb, authenticationGroup, "userextras/example.com/k2")
	}
	return rules
}

// randomHeaders returns headers of impersonation, with one extra key at most: kube-apiserver checks
// several keys in a random order.
func randomHeaders(r *rand.Rand, node string) http.Header {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	h := http.Header{"Impersonate-User": {pick("u1", "u1", "u1", "u2", "system:anonymous", "system:serviceaccount:x:sa1", "system:serviceaccount:x:sa2",
		"system:serviceaccount:x", "system:node:"+node, "system:node:"+node, "system:node:other", "system:node:BAD", "system:node:")}}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(5) {
			h.Add("Impersonate-Group", pick(impersonationGroups...))
		}
	}
	if r.IntN(5) == 0 {
		h.Set("Impersonate-Uid", pick("7", "8"))
	}
	if r.IntN(4) == 0 {
		key := strings.ReplaceAll(pick(impersonationExtra...), "/", "%2f")
		for range 1 + r.IntN(4) {
			h.Add("Impersonate-Extra-"+key, pick("v1", "v1", "v2", "v3", ""))
		}
	}
	return h
}

// impersonationAllowed is the model: some mode has all of its rights.
func impersonationAllowed(rules []rbacv1.PolicyRule, h http.Header, node string) bool {
	user, uid, groups := h.Get("Impersonate-User"), h.Get("Impersonate-Uid"), h["Impersonate-Group"]
	var key string
	var values []string
	for name, all := range h {
		if rest, ok := strings.CutPrefix(name, "Impersonate-Extra-"); ok {
			key, values = strings.ReplaceAll(strings.ToLower(rest), "%2f", "/"), all
		}
	}
	may := func(verb, group, resource, name string) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			_, below, sub := strings.Cut(resource, "/")
			there := r.Resources[0] == resource || sub && r.Resources[0] == "*/"+below
			return r.Verbs[0] == verb && r.APIGroups[0] == group && there && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
		})
	}
	all := func(verb, group string) bool {
		constrained := verb != "impersonate"
		if uid != "" && !may(verb, authenticationGroup, "uids", uid) {
			return false
		}
		every := func(resource, group string, names []string, whole string) bool {
			if constrained && len(names) >= 4 && may(verb, group, whole, "*") {
				return true
			}
			return !slices.ContainsFunc(names, func(name string) bool { return !may(verb, group, resource, name) })
		}
		if constrained && (slices.Contains(groups, "") || slices.Contains(groups, "system:masters") || slices.Contains(values, "") || key != "" && !strings.HasPrefix(key, "example.com/")) {
			return false
		}
		return every("groups", group, groups, "groups") && every("userextras/"+key, authenticationGroup, values, "userextras/*")
	}
	account := strings.Count(user, ":") == 3 && strings.HasPrefix(user, "system:serviceaccount:")
	of, isNode := strings.CutPrefix(user, "system:node:")
	isNode = isNode && of != "" && of == strings.ToLower(of)
	plain := uid == "" && len(groups) == 0 && key == ""
	on := func(mode string) bool {
		return may("impersonate-on:"+mode+":create", authenticationGroup, "selfsubjectreviews", "")
	}
	name := user[strings.LastIndex(user, ":")+1:]
	switch {
	case account && plain && on("serviceaccount") && may("impersonate:serviceaccount", authenticationGroup, "serviceaccounts", name),
		isNode && plain && on("arbitrary-node") && may("impersonate:arbitrary-node", authenticationGroup, "nodes", of),
		isNode && plain && of == node && on("associated-node") && may("impersonate:associated-node", authenticationGroup, "nodes", "*"),
		!isNode && !account && on("user-info") && may("impersonate:user-info", authenticationGroup, "users", user) && all("impersonate:user-info", authenticationGroup):
		return true
	case account:
		return may("impersonate", "", "serviceaccounts", name) && all("impersonate", "")
	}
	return may("impersonate", "", "users", user) && all("impersonate", "")
}

func TestImpersonationRandom(t *testing.T) {
	r := testrand.New(t)
	namespace := fmt.Sprintf("modes-%08x", r.Uint32())
	ours := newImpersonationWorld(t, servertest.Start(t, &tidemark.Server{}).RESTConfig(), namespace)
	var theirs *impersonationWorld
	if *impersonationPeer != "" {
		c, err := clientcmd.BuildConfigFromFlags("", *impersonationPeer)
		if err != nil {
			t.Fatal(err)
		}
		theirs = newImpersonationWorld(t, c, namespace)
	}
	allowed, refused := 0, 0
	for i := range *impersonationCases {
		rules, name := randomRules(r, namespace), fmt.Sprint("account-", i)
		token, their := ours.account(name, rules), ""
		if theirs != nil {
			their = theirs.account(name, rules)
		}
		for range 25 {
			h := randomHeaders(r, namespace)
			code, message, who := ours.impersonate(token, h)
			// The user may then be one that cannot ask who it is.
			granted := code == http.StatusCreated || strings.Contains(message, " cannot create resource ")
			if want := impersonationAllowed(rules, h, namespace); granted != want {
				t.Errorf("%v\nwith %+v\n%d %s, want allowed: %t", h, rules, code, message, want)
			}
			if granted {
				allowed++
			} else {
				refused++
			}
			if theirs == nil {
				continue
			}
			theirCode, theirMessage, theirWho := theirs.impersonate(their, h)
			if code != theirCode || message != theirMessage || !reflect.DeepEqual(who, theirWho) {
				t.Errorf("%v\nwith %+v\nhere  %d %s %+v\nthere %d %s %+v", h, rules, code, message, who, theirCode, theirMessage, theirWho)
			}
		}
	}
	t.Logf("%d allowed, %d refused", allowed, refused)
	if allowed == 0 || refused == 0 {
		t.Error("nothing is compared")
	}
}
