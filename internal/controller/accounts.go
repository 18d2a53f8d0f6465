package controller

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	namespaceCollection = "namespaces"
	accountCollection   = "serviceaccounts"
	configMapCollection = "configmaps"
)

// perNamespace keeps one object in each namespace that is not terminating. Its items are
// namespaces.
type perNamespace struct {
	follower
	kept   string // the collection of the object
	name   string
	ensure func(ctx context.Context, namespace string, s *store.State) error
}

func (p *perNamespace) observe(c *store.CollectionChange) {
	p.follower.observe(c)
	if c.Collection == p.kept && c.Before != nil {
		if namespace, name, _ := strings.Cut(c.Key(), "/"); name == p.name {
			p.add(namespace)
		}
	}
}

func (p *perNamespace) sync(ctx context.Context, i item) error {
	s := p.l.store.Any()
	o := s.Get(namespaceCollection, i.key)
	if o == nil {
		return nil
	}
	n, err := registry.Decode[corev1.Namespace](o)
	if err != nil || n.DeletionTimestamp != nil || n.Status.Phase == corev1.NamespaceTerminating {
		return err
	}
	err = p.ensure(ctx, i.key, s)
	// The namespace is gone or terminating, or another writer was faster.
	if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// newAccounts creates the ServiceAccount "default" in each namespace.
func newAccounts(l *Loops, q *queue) loop {
	const name = "default"
	return &perNamespace{follower: follower{l: l, queue: q, collection: namespaceCollection}, kept: accountCollection, name: name,
		ensure: func(ctx context.Context, namespace string, s *store.State) error {
			if s.Get(accountCollection, namespace+"/"+name) != nil {
				return nil
			}
			return l.create(ctx, accountCollection, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
		}}
}

const (
	rootCAName     = "kube-root-ca.crt"
	rootCAMember   = "ca.crt"
	rootCANote     = "kubernetes.io/description"
	rootCANoteText = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)

// newRootCA creates the ConfigMap with the certificates by which pods verify the server.
func newRootCA(l *Loops, q *queue) loop {
	p := &perNamespace{follower: follower{l: l, queue: q, collection: namespaceCollection}, kept: configMapCollection, name: rootCAName,
		ensure: func(ctx context.Context, namespace string, s *store.State) error {
			if l.c.RootCA == nil {
				return nil
			}
			pem := l.c.RootCA()
			if len(pem) == 0 {
				return nil
			}
			want := map[string]string{rootCAMember: string(pem)}
			place := object{configMapCollection, namespace + "/" + rootCAName}
			if s.Get(place.collection, place.key) == nil {
				return l.create(ctx, configMapCollection, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: rootCAName, Namespace: namespace, Annotations: map[string]string{rootCANote: rootCANoteText}},
					Data:       want,
				})
			}
			return l.edit(ctx, place, "", func(o metav1.Object) error {
				m := o.(*corev1.ConfigMap)
				if m.DeletionTimestamp != nil || maps.Equal(m.Data, want) && m.Annotations[rootCANote] != "" {
					return errLeave
				}
				m.Data = want
				metav1.SetMetaDataAnnotation(&m.ObjectMeta, rootCANote, rootCANoteText)
				return nil
			})
		}}
	l.rootCA = p
	return p
}

// RootCAChanged publishes the result of Config.RootCA again, in all namespaces and in the Secrets
// with tokens. It returns at once.
func (l *Loops) RootCAChanged() {
	if l.rootCA != nil {
		l.rootCA.begin(l.store.Any())
	}
	if l.tokens != nil {
		l.tokens.begin(l.store.Any())
	}
}
