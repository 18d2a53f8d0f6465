package controller

import (
	"bytes"
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const secretCollection = "secrets"

// tokens fills Secrets of the type kubernetes.io/service-account-token: with a token, the
// namespace and the certificates of the server. It deletes those whose ServiceAccount does not
// exist. Its items are Secrets.
type tokens struct{ follower }

func newTokens(l *Loops, q *queue) loop {
	t := &tokens{follower{l: l, queue: q, collection: secretCollection, selects: holdsToken}}
	l.tokens = t
	return t
}

// tokenType is in the bytes of each token Secret.
var tokenType = []byte(corev1.SecretTypeServiceAccountToken)

func holdsToken(o *store.Object) bool { return bytes.Contains(o.Bytes(), tokenType) }

func (t *tokens) observe(c *store.CollectionChange) {
	t.follower.observe(c)
	if c.Collection == accountCollection && c.After == nil {
		namespace, _, _ := strings.Cut(c.Key(), "/")
		t.addAll(t.l.store.Any(), namespace+"/")
	}
}

func (t *tokens) sync(ctx context.Context, i item) error {
	s := t.l.store.Any()
	o := s.Get(secretCollection, i.key)
	if o == nil {
		return nil
	}
	secret, err := registry.Decode[corev1.Secret](o)
	if err != nil || secret.Type != corev1.SecretTypeServiceAccountToken || secret.DeletionTimestamp != nil {
		return err
	}
	name, uid := secret.Annotations[corev1.ServiceAccountNameKey], secret.Annotations[corev1.ServiceAccountUIDKey]
	account := string(registry.MetadataOf(s.Get(accountCollection, secret.Namespace+"/"+name)).UID)
	if account == "" || uid != "" && uid != account {
		return t.l.remove(ctx, i.object, o, metav1.DeletePropagationBackground)
	}
	if t.l.c.Token == nil {
		return nil
	}
	return t.l.edit(ctx, i.object, "", func(m metav1.Object) error { return t.fill(m.(*corev1.Secret), name, account) })
}

// fill adds the missing fields of a token Secret. The error is errLeave if none is missing, or if
// it is no longer the Secret of the ServiceAccount.
func (t *tokens) fill(s *corev1.Secret, account, uid string) error {
	if s.DeletionTimestamp != nil || s.Annotations[corev1.ServiceAccountNameKey] != account {
		return errLeave
	}
	changed := false
	set := func(key string, value []byte) {
		if len(value) == 0 || bytes.Equal(s.Data[key], value) {
			return
		}
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key], changed = value, true
	}
	set(corev1.ServiceAccountNamespaceKey, []byte(s.Namespace))
	if t.l.c.RootCA != nil {
		set(corev1.ServiceAccountRootCAKey, t.l.c.RootCA())
	}
	if s.Annotations[corev1.ServiceAccountUIDKey] != uid {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, corev1.ServiceAccountUIDKey, uid)
		changed = true
	}
	if len(s.Data[corev1.ServiceAccountTokenKey]) == 0 {
		made, err := t.l.c.Token(s.Namespace, s.Name, account, uid)
		if err != nil {
			return errors.Join(errors.New("the token of a ServiceAccount cannot be made"), err)
		}
		set(corev1.ServiceAccountTokenKey, []byte(made))
	}
	if !changed {
		return errLeave
	}
	return nil
}
