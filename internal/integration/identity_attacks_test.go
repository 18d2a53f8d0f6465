package integration_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// signer is a certificate authority of a test's.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "tidemark-ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	s := &signer{template, key}
	s.cert = s.sign(t, template, key)
	return s
}

// sign returns the signed certificate of a template for a key.
func (s *signer) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, key.Public(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (s *signer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})
}

// client returns a configuration with a certificate that edit has changed.
func (s *signer) client(t *testing.T, server *tidemark.Server, subject pkix.Name, edit func(*x509.Certificate)) *rest.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	if edit != nil {
		edit(template)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := servertest.Anonymous(server)
	c.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.sign(t, template, key).Raw})
	c.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
	return c
}

// TestForgedCertificates: a certificate that the server's authorities did not sign for a client
// is no credential for any user. The authority of the attacker has the name of the
// server's own.
func TestForgedCertificates(t *testing.T) {
	trusted, foreign := newSigner(t), newSigner(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, trusted.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, &tidemark.Server{Authentication: tidemark.Authentication{ClientCAFile: file}})
	root := pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}
	const path = "/api/v1/namespaces/default/secrets"
	servertest.WantCode(t, trusted.client(t, s, root, nil), path, http.StatusOK, "")
	for name, row := range map[string]struct {
		by      *signer
		subject pkix.Name
		edit    func(*x509.Certificate)
	}{
		"another authority": {foreign, root, nil},
		"expired":           {trusted, root, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }},
		"not yet valid":     {trusted, root, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }},
		"for a server":      {trusted, root, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }},
		"an unknown demand": {trusted, root, func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
		}},
		"a name in its SANs": {foreign, pkix.Name{}, func(c *x509.Certificate) { c.DNSNames = []string{"admin"} }},
	} {
		t.Run(name, func(t *testing.T) {
			servertest.WantCode(t, row.by.client(t, s, row.subject, row.edit), path, http.StatusUnauthorized, "Unauthorized")
		})
	}
	// A certificate without a name is no credential: the client is anonymous.
	servertest.WantCode(t, trusted.client(t, s, pkix.Name{Organization: root.Organization}, nil), path, http.StatusForbidden,
		`secrets is forbidden: User "system:anonymous" cannot list resource "secrets" in API group "" in the namespace "default"`)
	// A certificate that the trusted authority signed for a client does not sign others.
	leaf := trusted.client(t, s, root, func(c *x509.Certificate) { c.SerialNumber = big.NewInt(3) })
	block, _ := pem.Decode(leaf.CertData)
	keyBlock, _ := pem.Decode(leaf.KeyData)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	chained := (&signer{cert, key}).client(t, s, root, nil)
	chained.CertData = append(chained.CertData, leaf.CertData...)
	servertest.WantCode(t, chained, path, http.StatusUnauthorized, "Unauthorized")
}

// TestNamesThatLookAlike: rights belong to a name as its bytes are.
func TestNamesThatLookAlike(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	for _, group := range []string{"System:Masters", "SYSTEM:MASTERS", "system:masters ", " system:masters", "system:masters\x00", "system:masters\n", "system:m\u0430sters", "system\uff1amasters", "system:masters,dev", "system:master", "system:masters\u200b"} {
		c, err := s.RESTConfigFor("mallory", group)
		if err != nil {
			continue // no certificate can have it
		}
		if code, body := servertest.Get(t, c, "/api/v1/namespaces/default/secrets"); code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("the group %q: %d %s", group, code, body)
		}
	}
	for _, name := range []string{"system:admin", "admin", "system:serviceaccount:kube-system:default", "system:kube-controller-manager\u200b", "System:kube-controller-manager", "system:node:n1"} {
		c, err := s.RESTConfigFor(name)
		if err != nil {
			t.Fatal(err)
		}
		if code, body := servertest.Get(t, c, "/api/v1/namespaces/default/secrets"); code != http.StatusForbidden {
			t.Errorf("the user %q: %d %s", name, code, body)
		}
	}
}

// TestSmuggledIdentities: headers that name a user have an effect only in one spelling, and only if
// the sender may use them.
func TestSmuggledIdentities(t *testing.T) {
	b := besiege(t)
	const vault = "GET /api/v1/namespaces/bank/secrets/vault"
	for _, headers := range [][]string{
		{asBob, "X-Remote-User: root", "X-Remote-Group: system:masters"},
		{"X-Remote-User: root", "X-Remote-Group: system:masters"},
		{asBob, "X-Remote-Uid: 1", "X-Remote-Extra-Scopes: all"},
		{asBob, "Impersonate-User: root", "Impersonate-Group: system:masters"},
		{asBob, "Impersonate-Group: system:masters"},
		{asBob, "impersonate-user: root"},
		{asBob, "Impersonate_User: root", "Impersonate_Group: system:masters"},
		{asBob, "Impersonate-User: bob", "Impersonate-Group: system:masters"},
		{asBob, "Impersonate-Extra-Groups: system:masters"},
		{asBob, "X-Forwarded-User: root", "Forwarded: for=127.0.0.1", "X-Forwarded-For: 127.0.0.1", "X-Real-Ip: 127.0.0.1"},
		{asBob, "Authorization: Bearer t-admin"},
		{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("root:t-admin"))},
		{"Authorization: Bearer\tt-admin"},
		{"Authorization: t-admin"},
		{"Proxy-Authorization: Bearer t-admin"},
		{"X-Authorization: Bearer t-admin"},
		{"Cookie: authorization=t-admin; token=t-admin"},
	} {
		if code, text := b.raw(vault, headers...); code < 400 || strings.Contains(text, hidden) {
			t.Errorf("%q: %d %s", headers, code, text)
		}
	}
	for _, query := range []string{"?access_token=t-admin", "?token=t-admin", "?as=root&as-group=system:masters", "?impersonate-user=root"} {
		if code, text := b.raw(vault+query, asBob); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", query, code, text)
		}
	}
	// An administrator who acts as bob is bob, also if the headers shall be lost on the way.
	for _, headers := range [][]string{
		{"Impersonate-User: bob"},
		{"impersonate-user: bob"},
		{"Impersonate-User: bob", "Connection: Impersonate-User"},
		{"Impersonate-User: bob", "X-Remote-Group: system:masters"},
		{"Impersonate-User: bob", "Impersonate-User: root"},
	} {
		if code, text := b.raw(vault, append(headers, asRoot)...); code != http.StatusForbidden {
			t.Errorf("%q as the administrator: %d %s", headers, code, text)
		}
	}
}

// TestImpersonationTakesEachRight: a user needs a right for each user, group, UID and value
// that it takes on.
func TestImpersonationTakesEachRight(t *testing.T) {
	b := besiege(t)
	grant := func(rules ...string) {
		t.Helper()
		code, _, text := exchange(t, b.RESTConfig(), "PUT", rbacPath+"/clusterroles/mask", roleBody("mask", strings.Join(rules, ",")))
		if code >= 300 {
			t.Fatalf("%d %s", code, text)
		}
	}
	grant()
	if code, _, text := exchange(t, b.RESTConfig(), "POST", rbacPath+"/clusterrolebindings", bindingBody("mask", "ClusterRole", "mask", rbacBob)); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	rule := func(group, resource, name string) string {
		return `{"apiGroups":["` + group + `"],"resources":["` + resource + `"],"resourceNames":["` + name + `"],"verbs":["impersonate"]}`
	}
	user, dev := rule("", "users", "ann"), rule("", "groups", "dev")
	uid, scope := rule("authentication.k8s.io", "uids", "7"), rule("authentication.k8s.io", "userextras/scopes", "view")
	all := []string{"Impersonate-User: ann", "Impersonate-Group: dev", "Impersonate-Uid: 7", "Impersonate-Extra-Scopes: view"}
	for _, row := range []struct {
		rules, headers []string
		allowed        bool
	}{
		{[]string{user, dev, uid, scope}, all, true},
		{[]string{dev, uid, scope}, all, false},
		{[]string{user, uid, scope}, all, false},
		{[]string{user, dev, scope}, all, false},
		{[]string{user, dev, uid}, all, false},
		{[]string{user, dev, uid, scope}, append(all, "Impersonate-Group: system:masters"), false},
		{[]string{user, dev, uid, scope}, append(all, "Impersonate-Extra-Scopes: admin"), false},
		{[]string{user, dev, uid, scope}, append(all, "Impersonate-Extra-Other: view"), false},
		{[]string{rule("", "serviceaccounts", "ann")}, all[:1], false},
	} {
		grant(row.rules...)
		code, text := b.raw("POST "+selfReviews, append([]string{asBob, "Content-Type: application/json", "Content-Length: 2"}, append(row.headers, "", "{}")...)...)
		if row.allowed != (code == http.StatusCreated) || !row.allowed && code != http.StatusForbidden {
			t.Errorf("%q: %d %s", row.headers, code, text)
		}
	}
}

// TestTokensEnd checks that a token of a service account ends with its bound object, with its time,
// and with its account, and is valid for its audience alone.
func TestTokensEnd(t *testing.T) {
	s := withBot(t, &tidemark.Server{})
	admin := s.RESTConfig()
	run(t, admin, []step{
		{"POST /api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"serviceAccountName":"bot","terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"i"}]}}`, 201, nil},
		{"POST /api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`, 201, nil},
	})
	uid := func(path string) string {
		_, _, b := exchange(t, admin, "GET", path, "")
		return strings.Trim(pick(t, b, "metadata.uid"), `"`)
	}
	for _, bound := range []struct{ kind, path string }{{"Pod", "/api/v1/namespaces/default/pods/p"}, {"Secret", "/api/v1/namespaces/default/secrets/s"}} {
		name := bound.path[strings.LastIndexByte(bound.path, '/')+1:]
		r := create[authenticationv1.TokenRequest](t, admin, botToken, `{"spec":{"boundObjectRef":{"kind":"`+bound.kind+`","apiVersion":"v1","name":"`+name+`","uid":"`+uid(bound.path)+`"}}}`)
		servertest.WantCode(t, servertest.WithToken(s, r.Status.Token), "/version", http.StatusOK, "")
		if code, _, text := exchange(t, admin, "DELETE", bound.path, ""); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
		servertest.WantCode(t, servertest.WithToken(s, r.Status.Token), "/version", http.StatusUnauthorized, "Unauthorized")
	}
	r := create[authenticationv1.TokenRequest](t, admin, botToken, `{}`)
	parts := strings.Split(r.Status.Token, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	claims := func(edit func(map[string]any)) string {
		var c map[string]any
		if err := json.Unmarshal(decoded, &c); err != nil {
			t.Fatal(err)
		}
		edit(c)
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	header := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	root := claims(func(c map[string]any) { c["sub"] = "system:serviceaccount:kube-system:root" })
	for what, token := range map[string]string{
		"other claims":      parts[0] + "." + root + "." + parts[2],
		"no signature":      parts[0] + "." + parts[1] + ".",
		"no algorithm":      header(`{"alg":"none"}`) + "." + root + ".",
		"another algorithm": header(`{"alg":"HS256"}`) + "." + root + "." + parts[2],
		"a key of its own":  header(`{"alg":"RS256","jwk":{"kty":"RSA","n":"AQAB","e":"AQAB"},"x5u":"https://127.0.0.1:1","jku":"https://127.0.0.1:1"}`) + "." + root + "." + parts[2],
		"four parts":        r.Status.Token + "." + parts[2],
	} {
		if code, body := servertest.Get(t, servertest.WithToken(s, token), "/version"); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", what, code, body)
		}
	}
	if code, _, text := exchange(t, admin, "DELETE", accounts+"/bot", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	run(t, admin, []step{{"POST " + accounts, `{"metadata":{"name":"bot"}}`, 201, nil}}) // another one of the same name
	servertest.WantCode(t, servertest.WithToken(s, r.Status.Token), "/version", http.StatusUnauthorized, "Unauthorized")
}

// TestCredentialsAreNotLogged sends credentials in every place where a client might put them.
func TestCredentialsAreNotLogged(t *testing.T) {
	t.Parallel() // a watch lasts a second
	var logged servertest.Buffer
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte("t-"+canary+",root,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, &tidemark.Server{Authentication: tidemark.Authentication{TokenFile: file}, Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug - 100}))})
	b := besieged{s, t}
	for _, headers := range [][]string{
		{"Authorization: Bearer t-" + canary},
		{"Authorization: Bearer x" + canary},
		{"Authorization: Bearer " + canary + "." + canary + "." + canary},
		{"Authorization: Basic " + canary},
		{"Authorization: " + canary},
		{"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io." + canary},
		{"Cookie: token=" + canary},
		{"X-Remote-User: x", "X-Remote-Extra-Token: " + canary},
	} {
		for _, path := range []string{"/api/v1/secrets?access_token=" + canary, "/nope?access_token=" + canary, "/api/v1/namespaces/default/pods?watch=x&token=" + canary + "&timeoutSeconds=1", "/api/v1/pods?limit=x&access_token=" + canary} {
			b.raw("GET "+path, headers...)
		}
	}
	token := create[authenticationv1.TokenRequest](t, s.RESTConfig(), accounts+"/default/token", `{}`).Status.Token
	servertest.WantCode(t, servertest.WithToken(s, token+"x"), "/version", http.StatusUnauthorized, "Unauthorized")
	_, metrics := servertest.Get(t, s.RESTConfig(), "/metrics")
	if logged.String() == "" {
		t.Error("nothing was logged at all")
	}
	for _, secret := range []string{canary, token, s.RESTConfig().BearerToken} {
		if strings.Contains(logged.String(), secret) || strings.Contains(metrics, secret) {
			t.Errorf("a credential is in the log or the metrics:\n%s", logged.String())
		}
	}
}
