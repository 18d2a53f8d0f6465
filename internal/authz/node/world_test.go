package node

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// world is a store with Pods and volumes, and the authorizer over it.
type world struct {
	testing.TB
	*store.Store
	node *Authorizer
	at   map[string]store.Revision // by collection and key
}

func newWorld(t testing.TB) *world {
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	return &world{t, s, New(s), map[string]store.Revision{}}
}

// put stores an object; nil removes it.
func (w *world) put(collection, key string, object any) {
	w.Helper()
	write := store.Write{Collection: collection, Key: key, If: w.at[collection+" "+key]}
	if object != nil {
		text, err := json.Marshal(object)
		if err != nil {
			w.Fatal(err)
		}
		write.Value = fmt.Appendf(nil, `{"resourceVersion":"",%s`, text[1:])
		write.RevisionAt = len(`{"resourceVersion":"`)
	} else if write.If == 0 {
		return
	}
	o, err := w.Commit(w.Context(), write)
	if err != nil {
		w.Fatal(err)
	}
	if w.at[collection+" "+key] = o.Modified; object == nil {
		delete(w.at, collection+" "+key)
	}
}

func (w *world) pod(p *corev1.Pod) { w.Helper(); w.put("pods", p.Namespace+"/"+p.Name, p) }

func user(node string) *authn.User {
	return &authn.User{Name: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
}

// ask returns the decision on a request of a node for an object, and the reason.
func (w *world) ask(node, verb, resource, namespace, name string) (bool, string) {
	w.Helper()
	d, reason, err := w.node.Authorize(w.Context(), &authz.Attributes{
		User: user(node), IsResource: true, Verb: verb, Resource: resource, Namespace: namespace, Name: name,
	})
	if err != nil || d == authz.Deny {
		w.Errorf("%s %s: %v, %v", verb, resource, d, err)
	}
	return d == authz.Allow, reason
}

func (w *world) want(allowed bool, node, verb, resource, namespace, name string) {
	w.Helper()
	if got, reason := w.ask(node, verb, resource, namespace, name); got != allowed {
		w.Errorf("%s may %s %s %s/%s: %v (%s), want %v", node, verb, resource, namespace, name, got, reason, allowed)
	}
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
