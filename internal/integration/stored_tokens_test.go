package integration_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// secretWhen returns the Secret once it is as wanted; nil stands for a Secret that is gone.
func secretWhen(t *testing.T, c kubernetes.Interface, name string, want func(*corev1.Secret) bool) *corev1.Secret {
	t.Helper()
	yes := true
	w, err := c.CoreV1().Secrets("default").Watch(t.Context(), metav1.ListOptions{
		FieldSelector:     fields.OneTermEqualSelector("metadata.name", name).String(),
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	found := false
	for e := range w.ResultChan() {
		s, _ := e.Object.(*corev1.Secret)
		switch e.Type {
		case apiwatch.Bookmark:
			s = nil // the Secret came before it, if it exists
			if found {
				continue
			}
		case apiwatch.Deleted:
			s = nil
		case apiwatch.Added, apiwatch.Modified:
			found = true
		default:
			t.Fatalf("%s: %v", e.Type, e.Object)
		}
		if want(s) {
			return s
		}
	}
	t.Fatalf("the watch of %s ended", name)
	return nil
}

// TestStoredTokens: a Secret of the type kubernetes.io/service-account-token gets a token, which
// is valid while the Secret holds it and the ServiceAccount exists.
func TestStoredTokens(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	admin := s.RESTConfig()
	c := kubernetes.NewForConfigOrDie(admin)
	ctx := t.Context()
	if _, err := c.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	make := func(name, account string) {
		t.Helper()
		_, err := c.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
			Type:       corev1.SecretTypeServiceAccountToken,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	filled := func(s *corev1.Secret) bool { return s != nil && len(s.Data[corev1.ServiceAccountTokenKey]) > 0 }
	make("one", "robot")
	one := secretWhen(t, c, "one", filled)
	if string(one.Data["namespace"]) != "default" || !strings.Contains(string(one.Data["ca.crt"]), "BEGIN CERTIFICATE") || one.Annotations[corev1.ServiceAccountUIDKey] == "" {
		t.Errorf("the Secret is %v, %q", one.Annotations, one.Data["namespace"])
	}
	token := string(one.Data[corev1.ServiceAccountTokenKey])
	user := review(t, s, token)
	if !user.Authenticated || user.User.Username != "system:serviceaccount:default:robot" || user.User.UID != one.Annotations[corev1.ServiceAccountUIDKey] {
		t.Errorf("the review says %+v", user)
	}
	servertest.WantCode(t, servertest.WithToken(s, token), "/api", http.StatusOK, "")

	// A changed claim is not signed.
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	forged := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(string(payload), "robot", "default"))) + "." + parts[2]
	servertest.WantCode(t, servertest.WithToken(s, forged), "/api", http.StatusUnauthorized, "")

	refused := func(token, why string) {
		t.Helper()
		servertest.WantCode(t, servertest.WithToken(s, token), "/api", http.StatusUnauthorized, "")
		if got := review(t, s, token); got.Authenticated || !strings.Contains(got.Error, why) {
			t.Errorf("the review says %+v, want the error %q", got, why)
		}
	}
	edit := func(change func(*corev1.Secret)) {
		t.Helper()
		now, err := c.CoreV1().Secrets("default").Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(now)
		if _, err := c.CoreV1().Secrets("default").Update(ctx, now, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const invalid = "kubernetes.io/legacy-token-invalid-since"
	edit(func(s *corev1.Secret) { s.Labels = map[string]string{invalid: "2026-01-01"} })
	refused(token, "has been marked invalid")
	edit(func(s *corev1.Secret) { delete(s.Labels, invalid) })
	servertest.WantCode(t, servertest.WithToken(s, token), "/api", http.StatusOK, "")
	edit(func(s *corev1.Secret) { s.Data[corev1.ServiceAccountTokenKey] = []byte("other") })
	refused(token, "Token does not match server's copy")
	if err := c.CoreV1().Secrets("default").Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused(token, "Token has been invalidated")

	make("two", "robot")
	two := string(secretWhen(t, c, "two", filled).Data[corev1.ServiceAccountTokenKey])
	servertest.WantCode(t, servertest.WithToken(s, two), "/api", http.StatusOK, "")
	if err := c.CoreV1().ServiceAccounts("default").Delete(ctx, "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	servertest.WantCode(t, servertest.WithToken(s, two), "/api", http.StatusUnauthorized, "")
	gone := func(s *corev1.Secret) bool { return s == nil }
	secretWhen(t, c, "two", gone)
	make("three", "absent")
	secretWhen(t, c, "three", gone)
}

// TestStoredTokensWithoutLookup: with --service-account-lookup=false the signature is enough.
func TestStoredTokensWithoutLookup(t *testing.T) {
	server := &tidemark.Server{}
	server.Authentication.ServiceAccounts.NoLookup = true
	s := servertest.Start(t, server)
	c := kubernetes.NewForConfigOrDie(s.RESTConfig())
	body := fmt.Sprintf(`{"metadata":{"name":"one","annotations":{%q:"robot"}},"type":"kubernetes.io/service-account-token"}`, corev1.ServiceAccountNameKey)
	run(t, s.RESTConfig(), []step{
		{"POST /api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`, 201, nil},
		{"POST /api/v1/namespaces/default/secrets", body, 201, nil},
	})
	token := string(secretWhen(t, c, "one", func(s *corev1.Secret) bool { return s != nil && len(s.Data["token"]) > 0 }).Data["token"])
	run(t, s.RESTConfig(), []step{{"DELETE /api/v1/namespaces/default/secrets/one", "", 200, nil}})
	servertest.WantCode(t, servertest.WithToken(s, token), "/api", http.StatusOK, "")
}
