package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
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

// TestTokenWebhook: a service authenticates tokens that nothing else knows. While it does not respond,
// only requests with such tokens wait.
func TestTokenWebhook(t *testing.T) {
	asked, release := make(chan string, 10), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		asked <- fmt.Sprint(review.Spec.Token, review.Spec.Audiences)
		<-release
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "ann", Groups: []string{"system:masters"}}}
		if review.Spec.Token == "elsewhere" {
			review.Status.Audiences = []string{"elsewhere"}
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer service.Close()
	dir := t.TempDir()
	file, tokens := filepath.Join(dir, "webhook"), filepath.Join(dir, "tokens")
	for path, text := range map[string]string{
		tokens: "static,bob,1,system:masters\n",
		file: `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"s"}}],
			"clusters":[{"name":"s","cluster":{"server":"` + service.URL + `"}}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := servertest.Start(t, &tidemark.Server{Authentication: tidemark.Authentication{TokenFile: tokens,
		APIAudiences: []string{"api"}, Webhook: tidemark.TokenWebhook{ConfigFile: file, Version: "v1"},
	}})
	var wg sync.WaitGroup
	for token, code := range map[string]int{"remote": http.StatusOK, "elsewhere": http.StatusUnauthorized} {
		wg.Go(func() { servertest.WantCode(t, servertest.WithToken(s, token), "/api", code, "") })
	}
	if got := []string{<-asked, <-asked}; !slices.Contains(got, "remote[api]") || !slices.Contains(got, "elsewhere[api]") {
		t.Errorf("the service is asked about %q", got)
	}
	servertest.WantCode(t, servertest.WithToken(s, "static"), "/api", http.StatusOK, "")
	servertest.WantCode(t, s.RESTConfig(), "/api", http.StatusOK, "")
	servertest.WantCode(t, servertest.Anonymous(s), "/version", http.StatusOK, "")
	close(release)
	wg.Wait()
	servertest.WantCode(t, servertest.WithToken(s, "remote"), "/api", http.StatusOK, "") // from the cache
	if len(asked) > 0 {
		t.Errorf("the service is asked about %q, too", <-asked)
	}
}
