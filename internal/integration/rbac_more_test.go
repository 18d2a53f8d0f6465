package integration_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestRBACBootstrap checks that a start restores deleted default bindings and missing rules. It
// keeps added rules, and objects with the annotation autoupdate "false".
func TestRBACBootstrap(t *testing.T) {
	dir := t.TempDir()
	s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	admin := rbacClient{t, s.RESTConfig()}
	const (
		roles    = rbacPath + "/clusterroles/"
		bindings = rbacPath + "/clusterrolebindings/"
		added    = `{"apiGroups":["ex.io"],"resources":["added"],"verbs":["get"]}`
	)
	admin.want(http.StatusOK, "", "DELETE", bindings+"system:basic-user", "")
	admin.want(http.StatusOK, "", "DELETE", roles+"system:kube-scheduler", "")
	admin.want(http.StatusOK, "", "MERGE", roles+"system:basic-user", `{"rules":[`+added+`]}`)
	admin.want(http.StatusOK, "", "MERGE", roles+"system:discovery", `{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}},"rules":[`+added+`]}`)
	admin.want(http.StatusOK, "", "MERGE", bindings+"system:public-info-viewer", `{"subjects":null}`)

	bob := rbacClient{t, rbacAs(s.RESTConfig(), "bob")}
	const review, asked = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"path":"/api","verb":"get"}}}`
	bob.want(http.StatusForbidden, "", "POST", review, asked)
	bob.want(http.StatusForbidden, "", "GET", "/version", "")
	bob.want(http.StatusForbidden, "", "GET", "/api", "")
	servertest.Stop(t, s)

	s = servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	admin, bob = rbacClient{t, s.RESTConfig()}, rbacClient{t, rbacAs(s.RESTConfig(), "bob")}
	bob.want(http.StatusCreated, `"allowed":false`, "POST", review, asked)
	bob.want(http.StatusOK, "", "GET", "/version", "")
	bob.want(http.StatusForbidden, "", "GET", "/api", "")
	admin.want(http.StatusOK, `"added"`, "GET", roles+"system:basic-user", "")
	admin.want(http.StatusOK, "selfsubjectaccessreviews", "GET", roles+"system:basic-user", "")
	admin.want(http.StatusOK, `"rules":[`+strings.ReplaceAll(`{"verbs":["get"],"apiGroups":["ex.io"],"resources":["added"]}`, " ", "")+`]}`, "GET", roles+"system:discovery", "")
	scheduler := rbacClient{t, rbacAs(s.RESTConfig(), "system:kube-scheduler")}
	scheduler.want(http.StatusOK, "", "GET", "/api/v1/nodes", "")
}

// TestRBACHides checks that responses do not reveal objects that the user may not read.
func TestRBACHides(t *testing.T) { synctest.Test(t, testRBACHides) }

func testRBACHides(t *testing.T) {
	admin, user := startRBAC(t, &tidemark.Server{InProcess: true})
	const configMaps = "/api/v1" + inShop + "/configmaps"
	for _, name := range []string{"a", "b", "c"} {
		admin.want(http.StatusCreated, "", "POST", configMaps, `{"metadata":{"name":"`+name+`"}}`)
	}
	admin.want(http.StatusCreated, "", "POST", rbacPath+inShop+"/roles", roleBody("r", `{"apiGroups":[""],"resources":["configmaps"],"resourceNames":["a","new"],"verbs":["get","list","watch","update","patch","delete","deletecollection"]}`))
	admin.want(http.StatusCreated, "", "POST", rbacPath+inShop+"/rolebindings", bindingBody("r", "Role", "r", rbacBob))

	refusal := func(verb, name string) string {
		if name != "" {
			name = ` \"` + name + `\"`
		}
		return `"configmaps` + name + ` is forbidden: User \"bob\" cannot ` + verb + ` resource \"configmaps\" in API group \"\" in the namespace \"shop\""`
	}
	// A name that exists and one that does not have the same response.
	for _, name := range []string{"b", "none"} {
		user.want(http.StatusForbidden, refusal("get", name), "GET", configMaps+"/"+name, "")
		user.want(http.StatusForbidden, refusal("patch", name), "MERGE", configMaps+"/"+name, `{}`)
		user.want(http.StatusForbidden, refusal("update", name), "PUT", configMaps+"/"+name, `not even JSON`)
		user.want(http.StatusForbidden, refusal("delete", name), "DELETE", configMaps+"/"+name, "")
		user.want(http.StatusForbidden, refusal("create", ""), "POST", configMaps, `{"metadata":{"name":"`+name+`"}}`)
		user.want(http.StatusForbidden, `in the namespace \"`+name+`\"`, "GET", "/api/v1/namespaces/"+name+"/configmaps", "")
		user.want(http.StatusForbidden, `resource \"`+name+`\"`, "GET", "/apis/ex.io/v1/"+name, "")
	}
	// A rule for names allows lists and watches of one of them.
	user.want(http.StatusForbidden, refusal("list", ""), "GET", configMaps, "")
	user.want(http.StatusForbidden, refusal("list", "b"), "GET", configMaps+"?fieldSelector=metadata.name%3Db", "")
	user.want(http.StatusForbidden, refusal("list", ""), "GET", configMaps+"?fieldSelector=metadata.name%21%3Da", "")
	user.want(http.StatusForbidden, refusal("list", ""), "GET", configMaps+"?limit=1", "")
	user.want(http.StatusForbidden, refusal("deletecollection", ""), "DELETE", configMaps, "")
	user.want(http.StatusForbidden, refusal("watch", ""), "GET", configMaps+"?watch=1", "")
	user.want(http.StatusOK, `"name":"a"`, "GET", configMaps+"?fieldSelector=metadata.name%3Da", "")
	user.want(http.StatusOK, `"name":"a"`, "GET", configMaps+"?fieldSelector=metadata.name%3Da&watch=1&timeoutSeconds=1", "")
	_, _, b := exchange(t, user.c, "GET", configMaps+"?fieldSelector=metadata.name%3Da&limit=1", "")
	if text := string(b); strings.Contains(text, "remainingItemCount") || strings.Contains(text, `"name":"b"`) {
		t.Errorf("a list of one name reveals others: %s", b)
	}
	// A PUT or apply that would create needs that right, too.
	user.want(http.StatusNotFound, `configmaps \"new\" not found`, "PUT", configMaps+"/new", `{"metadata":{"name":"new"}}`)
	user.want(http.StatusForbidden, refusal("create", "new"), "APPLY", configMaps+"/new?fieldManager=t", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}`)
	user.want(http.StatusOK, "", "APPLY", configMaps+"/a?fieldManager=t", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`)

	admin.want(http.StatusCreated, "", "POST", rbacPath+inShop+"/roles", roleBody("l", `{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["update"]}`))
	admin.want(http.StatusCreated, "", "POST", rbacPath+inShop+"/rolebindings", bindingBody("l", "Role", "l", rbacBob))
	const lease = "/apis/coordination.k8s.io/v1" + inShop + "/leases/x"
	user.want(http.StatusForbidden, `"leases.coordination.k8s.io \"x\" is forbidden: User \"bob\" cannot create resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"shop\""`, "PUT", lease, `{"metadata":{"name":"x"}}`)
}

// TestRBACInformer: an informer of a user with rights in one namespace follows it, and one of the
// whole cluster gets nothing.
func TestRBACInformer(t *testing.T) {
	admin, user := startRBAC(t, &tidemark.Server{Controllers: []string{"*", "-root-ca-certificate-publisher"}})
	admin.want(http.StatusCreated, "", "POST", rbacPath+inShop+"/roles", roleBody("r", `{"apiGroups":[""],"resources":["configmaps"],"verbs":["list","watch"]}`))
	admin.want(http.StatusCreated, "", "POST", rbacPath+inShop+"/rolebindings", bindingBody("r", "Role", "r", rbacBob))
	c := kubernetes.NewForConfigOrDie(user.c)
	refused := make(chan error, 100)
	start := func(namespace string) (cache.SharedIndexInformer, <-chan string) {
		i := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "configmaps", namespace, fields.Everything()), &corev1.ConfigMap{}, 0, nil)
		seen := make(chan string, 100)
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
			m := o.(*corev1.ConfigMap)
			seen <- m.Namespace + "/" + m.Name
		}})
		if err == nil {
			err = i.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
				select {
				case refused <- err:
				default:
				}
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { i.RunWithContext(t.Context()) })
		t.Cleanup(running.Wait)
		return i, seen
	}
	inside, seen := start("shop")
	if !cache.WaitForCacheSync(t.Context().Done(), inside.HasSynced) {
		t.Fatal("the informer of the namespace has no list")
	}
	outside, all := start(metav1.NamespaceAll)
	if err := <-refused; !strings.Contains(err.Error(), "at the cluster scope") {
		t.Errorf("the informer of the cluster: %v", err)
	}
	admin.want(http.StatusCreated, "", "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"hidden"}}`)
	admin.want(http.StatusCreated, "", "POST", "/api/v1"+inShop+"/configmaps", `{"metadata":{"name":"seen"}}`)
	if name := await.Value(t, "an object of the informer", seen); name != "shop/seen" {
		t.Errorf("the informer sees %s", name)
	}
	if outside.HasSynced() || len(all) > 0 {
		t.Error("the informer of the cluster sees objects")
	}
}
