package integration_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestBootstrapToken: a Secret makes a bootstrap token valid for the next request, and its deletion
// makes it invalid.
func TestBootstrapToken(t *testing.T) {
	const (
		secrets = "/api/v1/namespaces/kube-system/secrets"
		body    = `{"metadata":{"name":"bootstrap-token-abcdef"},"type":"bootstrap.kubernetes.io/token","stringData":{
			"token-id":"abcdef","token-secret":"0123456789abcdef","usage-bootstrap-authentication":"true","auth-extra-groups":"system:bootstrappers:x"}}`
	)
	s := servertest.Start(t, &tidemark.Server{Authentication: tidemark.Authentication{BootstrapTokens: true}})
	off := servertest.Start(t, &tidemark.Server{})
	node, stranger := servertest.WithToken(s, "abcdef.0123456789abcdef"), servertest.WithToken(off, "abcdef.0123456789abcdef")
	servertest.WantCode(t, node, "/version", http.StatusUnauthorized, "Unauthorized")
	post(t, s.RESTConfig(), secrets, body)
	post(t, off.RESTConfig(), secrets, body)
	user := create[authenticationv1.SelfSubjectReview](t, node, selfReviews, `{}`).Status.UserInfo
	if user.Username != "system:bootstrap:abcdef" || !slices.Equal(user.Groups, []string{"system:bootstrappers", "system:bootstrappers:x", "system:authenticated"}) {
		t.Errorf("%+v", user)
	}
	servertest.WantCode(t, stranger, "/version", http.StatusUnauthorized, "Unauthorized")
	remove(t, s.RESTConfig(), secrets+"/bootstrap-token-abcdef")
	servertest.WantCode(t, node, "/version", http.StatusUnauthorized, "Unauthorized")
}

// TestLongToken: the lifetime of a token is cut to the limit, with kube-apiserver's warning.
func TestLongToken(t *testing.T) {
	s := withBot(t, &tidemark.Server{Authentication: tidemark.Authentication{ServiceAccounts: tidemark.ServiceAccounts{MaxTokenExpiration: 2 * time.Hour}}})
	code, header, body := exchange(t, s.RESTConfig(), "POST", botToken, `{"spec":{"expirationSeconds":9000}}`)
	if got := header.Get("Warning"); code != http.StatusCreated || got != `299 - "requested expiration of 9000 seconds shortened to 7200 seconds"` || pick(t, body, "spec.expirationSeconds") != "7200" {
		t.Errorf("%d, warning %q\n%s", code, got, body)
	}
}

// TestTokenReviewAudience: the words for a token of other audiences are those of kube-apiserver.
func TestTokenReviewAudience(t *testing.T) {
	s := withBot(t, &tidemark.Server{Authentication: tidemark.Authentication{APIAudiences: []string{"here", "there"}}})
	admin := s.RESTConfig()
	token := create[authenticationv1.TokenRequest](t, admin, botToken, `{"spec":{"audiences":["vault"]}}`).Status.Token
	got := create[authenticationv1.TokenReview](t, admin, tokenReviews, `{"spec":{"token":"`+token+`"}}`).Status
	if want := `[invalid bearer token, token audiences ["vault"] is invalid for the target audiences ["here" "there"]]`; got.Authenticated || got.Error != want {
		t.Errorf("%+v, want %s", got, want)
	}
	got = create[authenticationv1.TokenReview](t, admin, tokenReviews, `{"spec":{"token":"`+token+`","audiences":["x","vault"]}}`).Status
	if !got.Authenticated || !slices.Equal(got.Audiences, []string{"vault"}) {
		t.Errorf("%+v", got)
	}
	servertest.WantCode(t, servertest.WithToken(s, token), "/version", http.StatusUnauthorized, "Unauthorized")
}
