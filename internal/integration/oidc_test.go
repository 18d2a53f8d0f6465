package integration_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/authn/oidc/oidctest"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const authentication = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

// issuerEntry is the issuer as an entry of an AuthenticationConfiguration, with mappings and rules.
func issuerEntry(i *oidctest.Issuer, rules string) string {
	return fmt.Sprintf("- issuer:\n    url: %s\n    audiences: [tidemark]\n    certificateAuthority: |\n      %s\n  %s\n",
		i.URL, strings.ReplaceAll(i.CA, "\n", "\n      "), strings.ReplaceAll(rules, "\n", "\n  "))
}

// withConfiguration starts a server with an AuthenticationConfiguration, whose file it returns.
func withConfiguration(t *testing.T, text string, s *tidemark.Server) (*tidemark.Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Authentication.ConfigFile = path
	return servertest.Start(t, s), path
}

// replace replaces a file at once. A server that looks at it meanwhile does not find it empty.
func replace(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// review returns the response of a TokenReview.
func review(t *testing.T, s *tidemark.Server, token string) authenticationv1.TokenReviewStatus {
	t.Helper()
	body, _ := json.Marshal(&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	return create[authenticationv1.TokenReview](t, s.RESTConfig(), tokenReviews, string(body)).Status
}

// accepted waits until a token is accepted: an issuer is discovered in the background.
func accepted(t *testing.T, s *tidemark.Server, token string) {
	t.Helper()
	await.True(t, "the issuer of a token", func() bool { return review(t, s, token).Authenticated })
}

// TestIDTokens: rules map claims to users. Only a TokenReview shows why a token is refused.
func TestIDTokens(t *testing.T) {
	issuer := oidctest.Listen(t)
	log := &servertest.Buffer{}
	s, _ := withConfiguration(t, authentication+"jwt:\n"+issuerEntry(issuer, `claimMappings:
  username: {claim: sub, prefix: 'oidc:'}
  groups: {expression: 'dyn(claims.?roles.orValue([])).map(r, "role:" + r.name)'}
  uid: {claim: uid}
  extra: [{key: example.com/team, valueExpression: 'claims.?team.orValue("")'}]
claimValidationRules: [{expression: 'claims.hd == "example.com"', message: 'wrong domain'}]
userValidationRules: [{expression: "!user.username.endsWith('root')", message: 'no root'}]`),
		&tidemark.Server{Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	now := time.Now()
	claims := func(more map[string]any) map[string]any {
		all := map[string]any{"hd": "example.com", "uid": "u1", "jti": "j1", "team": "blue", "roles": []any{map[string]string{"name": "dev"}}}
		for k, v := range more {
			all[k] = v
		}
		return all
	}
	good := issuer.Token(t, now, claims(nil))
	accepted(t, s, good)
	user := create[authenticationv1.SelfSubjectReview](t, servertest.WithToken(s, good), selfReviews, `{}`).Status.UserInfo
	shown, _ := json.Marshal(user)
	if want := `{"username":"oidc:ann","uid":"u1","groups":["role:dev","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["JTI=j1"],"example.com/team":["blue"]}}`; string(shown) != want {
		t.Errorf("got  %s\nwant %s", shown, want)
	}
	for name, row := range map[string]struct{ token, want string }{
		"domain":   {issuer.Token(t, now, claims(map[string]any{"hd": "x"})), `oidc: error evaluating claim validation expression: validation expression 'claims.hd == "example.com"' failed: wrong domain`},
		"root":     {issuer.Token(t, now, claims(map[string]any{"sub": "root"})), `oidc: error evaluating user info validation rule: validation expression '!user.username.endsWith('root')' failed: no root`},
		"audience": {issuer.Token(t, now, claims(map[string]any{"aud": "x"})), `oidc: verify token: oidc: expected audience "tidemark" got ["x"]`},
		"stranger": {oidctest.New(t).Token(t, now, nil), ""},
	} {
		want := "invalid bearer token"
		if row.want != "" {
			want = "[invalid bearer token, " + row.want + "]"
		}
		if got := review(t, s, row.token); got.Authenticated || got.Error != want {
			t.Errorf("%s:\ngot  %+v\nwant %s", name, got, want)
		}
		servertest.WantCode(t, servertest.WithToken(s, row.token), "/version", http.StatusUnauthorized, "Unauthorized")
	}
	if text := log.String(); strings.Contains(text, good[len(good)-40:]) {
		t.Error("the log shows a token")
	}
}

// TestAnonymousPaths: the file limits anonymous requests to exact paths. A wrong token is refused
// there too.
func TestAnonymousPaths(t *testing.T) {
	s, _ := withConfiguration(t, authentication+"anonymous: {enabled: true, conditions: [{path: /livez}]}\n", &tidemark.Server{})
	for path, want := range map[string]int{"/livez": 200, "/livez?verbose": 200, "/livez/ping": 401, "/livez/": 401, "/readyz": 401, "/version": 401, "/api/v1/pods": 401} {
		servertest.WantCode(t, servertest.Anonymous(s), path, want, "")
	}
	servertest.WantCode(t, servertest.WithToken(s, "wrong"), "/livez", http.StatusUnauthorized, "Unauthorized")

	off, _ := withConfiguration(t, authentication+"anonymous: {enabled: false}\n", &tidemark.Server{})
	servertest.WantCode(t, servertest.Anonymous(off), "/livez", http.StatusUnauthorized, "Unauthorized")
}

// TestIssuerReload: a changed file takes effect; an invalid one, and one with another policy for
// anonymous requests, is counted.
func TestIssuerReload(t *testing.T) {
	t.Parallel() // waits until the server looks at the file
	issuer := oidctest.Listen(t)
	entry := func(prefix string) string {
		return authentication + "anonymous: {enabled: true}\njwt:\n" + issuerEntry(issuer, "claimMappings: {username: {claim: sub, prefix: '"+prefix+"'}}")
	}
	s, path := withConfiguration(t, entry("one:"), &tidemark.Server{})
	token := issuer.Token(t, time.Now(), nil)
	accepted(t, s, token)
	change := func(text string) {
		t.Helper()
		replace(t, path, text)
	}
	failed := func(n int) bool {
		_, metrics := servertest.Get(t, s.RESTConfig(), "/metrics")
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "apiserver_authentication_config_controller_automatic_reloads_total{") && strings.Contains(line, `status="failure"`) {
				return strings.HasSuffix(strings.TrimSpace(line), fmt.Sprintf(" %d", n))
			}
		}
		return false
	}
	change("junk")
	await.True(t, "a reload that fails", func() bool { return failed(1) })
	change(strings.Replace(entry("two:"), "enabled: true", "enabled: false", 1))
	await.True(t, "another reload that fails", func() bool { return failed(2) })
	if got := review(t, s, token).User.Username; got != "one:ann" {
		t.Errorf("with an invalid file, the user is %s", got)
	}
	servertest.WantCode(t, servertest.Anonymous(s), "/livez", http.StatusOK, "")
	change(entry("three:"))
	await.True(t, "the changed file", func() bool { return review(t, s, token).User.Username == "three:ann" })
	if !failed(2) {
		t.Error("the last reload counts as failed")
	}
}

// TestSlowIssuer: an issuer that does not respond holds up only the tokens that need it.
func TestSlowIssuer(t *testing.T) {
	slow, dead, fine := oidctest.Listen(t), oidctest.Listen(t), oidctest.Listen(t)
	dead.Hang.Store(true)
	mapping := "claimMappings: {username: {claim: sub, prefix: ''}}"
	s, _ := withConfiguration(t, authentication+"jwt:\n"+issuerEntry(slow, mapping)+issuerEntry(dead, mapping)+issuerEntry(fine, mapping), &tidemark.Server{})
	now := time.Now()
	known := slow.Token(t, now, nil)
	accepted(t, s, known)
	accepted(t, s, fine.Token(t, now, nil))
	slow.Hang.Store(true)
	unknown := oidctest.Sign(t, &jose.JSONWebKey{Key: oidctest.NewKey(t, jose.RS256), KeyID: "x", Algorithm: "RS256"}, slow.Claims(now, nil))

	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			servertest.WantCode(t, servertest.WithToken(s, unknown), "/version", http.StatusUnauthorized, "Unauthorized")
		})
	}
	for n := range 20 {
		servertest.WantCode(t, s.RESTConfig(), "/version", http.StatusOK, "")
		servertest.WantCode(t, servertest.WithToken(s, known), "/version", http.StatusOK, "")
		servertest.WantCode(t, servertest.WithToken(s, fine.Token(t, now, map[string]any{"jti": fmt.Sprint(n)})), "/version", http.StatusOK, "")
		servertest.WantCode(t, servertest.WithToken(s, dead.Token(t, now, nil)), "/version", http.StatusUnauthorized, "Unauthorized")
	}
	slow.Resume()
	all.Wait()
}

// TestIssuerOptions: options that contradict each other stop the start.
func TestIssuerOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(file, []byte(authentication+"anonymous: {enabled: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := tidemark.OIDC{IssuerURL: "https://issuer.test", ClientID: "tidemark"}
	with := func(change func(*tidemark.OIDC)) tidemark.Authentication {
		o := one
		change(&o)
		return tidemark.Authentication{OIDC: o}
	}
	for want, s := range map[string]*tidemark.Server{
		"authentication-config file and oidc-* flags are mutually exclusive":                          {Authentication: tidemark.Authentication{ConfigFile: file, OIDC: one}},
		"oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set": {Authentication: with(func(o *tidemark.OIDC) { o.ClientID = "" })},
		`oidc: unsupported signing alg: "HS256"`:                                                      {Authentication: with(func(o *tidemark.OIDC) { o.SigningAlgs = []string{"HS256"} })},
		`jwt[0].issuer.url: Invalid value: "http://issuer.test": URL scheme must be https`:            {Authentication: with(func(o *tidemark.OIDC) { o.IssuerURL = "http://issuer.test" })},
		"no such file":                        {Authentication: with(func(o *tidemark.OIDC) { o.CAFile = file + "x" })},
		"data does not contain any valid RSA": {Authentication: with(func(o *tidemark.OIDC) { o.CAFile = file })},
		"URL must not overlap with disallowed issuers: [https://issuer.test]": {Authentication: tidemark.Authentication{
			OIDC: one, ServiceAccounts: tidemark.ServiceAccounts{Issuers: []string{one.IssuerURL}}}},
		"failed to load authentication configuration from file": {Authentication: tidemark.Authentication{ConfigFile: file + "x"}},
		"--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file": {
			Authentication: tidemark.Authentication{DisableAnonymous: true, ConfigFile: file}},
	} {
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
			s.Close()
		}
	}
}

// TestOneIssuer: the options of one issuer have kube-apiserver's defaults.
func TestOneIssuer(t *testing.T) {
	issuer := oidctest.Listen(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, []byte(issuer.CA), 0o600); err != nil {
		t.Fatal(err)
	}
	base := tidemark.OIDC{IssuerURL: issuer.URL, ClientID: "tidemark", CAFile: ca}
	for name, row := range map[string]struct {
		change func(*tidemark.OIDC)
		want   string
	}{
		"defaults":  {func(*tidemark.OIDC) {}, issuer.URL + "#ann [system:authenticated]"},
		"no prefix": {func(o *tidemark.OIDC) { o.UsernamePrefix = "-" }, "ann [system:authenticated]"},
		"email":     {func(o *tidemark.OIDC) { o.UsernameClaim = "email" }, "ann@example.com [system:authenticated]"},
		"groups": {func(o *tidemark.OIDC) {
			o.UsernamePrefix, o.GroupsClaim, o.GroupsPrefix, o.RequiredClaims = "x:", "groups", "g:", map[string]string{"hd": "example.com"}
		}, "x:ann [g:dev system:authenticated]"},
		"required claim": {func(o *tidemark.OIDC) { o.RequiredClaims = map[string]string{"hd": "other"} },
			"[invalid bearer token, oidc: required claim hd value does not match. Got = example.com, want = other]"},
		"algorithm": {func(o *tidemark.OIDC) { o.SigningAlgs = []string{"ES256"} },
			`[invalid bearer token, oidc: verify token: oidc: id token signed with unsupported algorithm, expected ["ES256"] got "RS256"]`},
	} {
		o := base
		row.change(&o)
		s := servertest.Start(t, &tidemark.Server{Authentication: tidemark.Authentication{OIDC: o}})
		token := issuer.Token(t, time.Now(), map[string]any{"email": "ann@example.com", "groups": "dev", "hd": "example.com"})
		var got authenticationv1.TokenReviewStatus
		await.True(t, "the issuer", func() bool {
			got = review(t, s, token)
			return !strings.Contains(got.Error, "not initialized")
		})
		text := got.Error
		if got.Authenticated {
			text = fmt.Sprint(got.User.Username, " ", got.User.Groups)
		}
		if text != row.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, text, row.want)
		}
	}
}
