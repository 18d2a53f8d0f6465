package test

import (
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth/oidc" // kubectl has it
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// provider is an OpenID Connect provider with a login page and a user.
type provider struct {
	url, ca string
	client  *http.Client
}

const (
	clientID     = "kubectl"
	clientSecret = "kubectl-secret"
	redirectURI  = "http://localhost:9999/auth/callback"
)

// users is the user store of a provider.
type users struct{}

func (users) ann() *storage.User {
	return &storage.User{ID: "ann", Username: "ann@example.com", Password: "hush", Email: "ann@example.com", EmailVerified: true}
}
func (users) ExampleClientID() string { return "service" }
func (u users) GetUserByID(id string) *storage.User {
	if id == "ann" {
		return u.ann()
	}
	return nil
}
func (u users) GetUserByUsername(name string) *storage.User {
	if name == "ann@example.com" {
		return u.ann()
	}
	return nil
}

func startProvider(t *testing.T) *provider {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	issuer := "https://" + s.Listener.Addr().String()
	storage.RegisterClients(storage.WebClient(clientID, clientSecret, redirectURI))
	s.Config.Handler = exampleop.SetupServer(issuer, storage.NewStorage(users{}), slog.New(slog.DiscardHandler), false)
	s.StartTLS()
	t.Cleanup(s.Close)
	p := &provider{url: issuer, client: s.Client()}
	p.ca = filepath.Join(t.TempDir(), "issuer.crt")
	if err := os.WriteFile(p.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	p.client.Jar, _ = cookiejar.New(nil)
	p.client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), redirectURI) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return p
}

// tokens are the tokens of the provider for a client.
type tokens struct {
	ID      string `json:"id_token"`
	Refresh string `json:"refresh_token"`
}

// login logs the user in as a browser does, and exchanges the code for tokens.
func (p *provider) login(t *testing.T) tokens {
	t.Helper()
	query := url.Values{"client_id": {clientID}, "redirect_uri": {redirectURI}, "response_type": {"code"}, "scope": {"openid offline_access"}, "state": {"s"}}
	page := p.do(t, "GET", "/auth?"+query.Encode(), nil)
	form := url.Values{"username": {"ann@example.com"}, "password": {"hush"}, "id": {page.Request.URL.Query().Get("authRequestID")}}
	back := p.do(t, "POST", "/login/username", form)
	location, err := back.Location()
	if err != nil || location.Query().Get("code") == "" {
		t.Fatalf("no code: %v, %v, %s", location, err, back.Status)
	}
	form = url.Values{"grant_type": {"authorization_code"}, "code": {location.Query().Get("code")}, "redirect_uri": {redirectURI}}
	response := p.do(t, "POST", "/oauth/token", form)
	var all tokens
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil || all.ID == "" || all.Refresh == "" {
		t.Fatalf("no tokens: %s, %v", response.Status, err)
	}
	return all
}

func (p *provider) do(t *testing.T, method, path string, form url.Values) *http.Response {
	t.Helper()
	r, err := http.NewRequest(method, p.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth(clientID, clientSecret)
	}
	response, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// TestOIDC: a user logs in at a provider; kubectl is then that user, by an ID token, and by a
// refresh token for which it gets one.
func TestOIDC(t *testing.T) {
	tier.Full(t)
	p := startProvider(t)
	s := &tidemark.Server{}
	s.Authentication.OIDC = tidemark.OIDC{IssuerURL: p.url, ClientID: clientID, CAFile: p.ca, UsernamePrefix: "oidc:"}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	got := p.login(t)
	authority, err := os.ReadFile(p.ca)
	if err != nil {
		t.Fatal(err)
	}

	for name, settings := range map[string]map[string]string{
		"ID token":      {"id-token": got.ID},
		"refresh token": {"refresh-token": got.Refresh},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKubectl(t, s)
			settings["idp-issuer-url"], settings["client-id"], settings["client-secret"] = p.url, clientID, clientSecret
			settings["idp-certificate-authority-data"] = b64(authority)
			setUser(t, k.kubeconfig, &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc", Config: settings}})
			await.True(t, "a response to whoami as ann", func() bool {
				_, err := k.run("", "auth", "whoami")
				return err == nil
			})
			if out := k.want("", []string{"auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}"}); out != `oidc:ann ["system:authenticated"]` {
				t.Errorf("whoami: %s", out)
			}
		})
	}

	k := newKubectl(t, s)
	setUser(t, k.kubeconfig, &clientcmdapi.AuthInfo{Token: got.ID})
	k.wantError("", []string{"get", "configmaps"}, `User "oidc:ann" cannot list resource "configmaps"`)
	admin, err := kubernetes.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ann"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "oidc:ann"}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.want("", []string{"get", "configmaps", "-n", "default"}, "kube-root-ca.crt")

	parts := strings.Split(got.ID, ".")
	setUser(t, k.kubeconfig, &clientcmdapi.AuthInfo{Token: parts[0] + "." + parts[1] + "." + parts[2][:len(parts[2])-8] + "AAAAAAAA"})
	k.wantError("", []string{"get", "configmaps"}, "You must be logged in to the server")
}

// setUser replaces the user of a kubeconfig.
func setUser(t *testing.T, path string, u *clientcmdapi.AuthInfo) {
	t.Helper()
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c.AuthInfos = map[string]*clientcmdapi.AuthInfo{c.Contexts[c.CurrentContext].AuthInfo: u}
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
}

func b64(b []byte) string {
	text, _ := json.Marshal(b)
	return strings.Trim(string(text), `"`)
}
