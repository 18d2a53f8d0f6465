package satoken_test

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/satoken"
)

// world is the objects that tokens name, and the time.
type world struct {
	objects map[string]satoken.Found
	now     time.Time
}

func newWorld() *world {
	return &world{
		now: time.Date(2030, 1, 1, 0, 0, 0, 500, time.UTC),
		objects: map[string]satoken.Found{
			"serviceaccounts ns/bot": {UID: "u-bot"}, "pods ns/p": {UID: "u-p"}, "secrets ns/s": {UID: "u-s"}, "nodes /n": {UID: "u-n"},
		},
	}
}

func (w *world) config(dir string) satoken.Config {
	return satoken.Config{
		Dir: dir, Now: func() time.Time { return w.now },
		Find: func(resource, namespace, name string) (satoken.Found, bool) {
			f, ok := w.objects[resource+" "+namespace+"/"+name]
			return f, ok
		},
	}
}

func open(t testing.TB, c satoken.Config) *satoken.Authority {
	t.Helper()
	a, err := satoken.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var bot = satoken.Subject{Namespace: "ns", ServiceAccount: satoken.Ref{Name: "bot", UID: "u-bot"}}

func issue(t testing.TB, a *satoken.Authority, s satoken.Subject, audiences ...string) string {
	t.Helper()
	issued, err := a.Issue(s, audiences, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return issued.Token
}

// good returns the reason to reject a token, empty: none.
func good(t testing.TB, a *satoken.Authority, token string, audiences ...string) string {
	t.Helper()
	u, _, err := a.AuthenticateToken(context.Background(), authn.NewToken(token), audiences)
	switch {
	case err != nil && u != nil:
		t.Fatalf("a user beside an error: %+v, %v", u, err)
	case err != nil:
		if strings.Contains(err.Error(), token) {
			t.Errorf("the error shows the token: %v", err)
		}
		return err.Error()
	case u == nil:
		return "no token"
	}
	return ""
}

func TestUser(t *testing.T) {
	w := newWorld()
	a := open(t, w.config(""))
	bound := bot
	bound.Pod, bound.Node = &satoken.Ref{Name: "p", UID: "u-p"}, &satoken.Ref{Name: "n", UID: "u-n"}
	homeless := bot
	homeless.Pod, homeless.Node = &satoken.Ref{Name: "p", UID: "u-p"}, &satoken.Ref{Name: "gone"}
	for _, row := range []struct {
		s     satoken.Subject
		extra map[string]string
	}{
		{bot, nil},
		{bound, map[string]string{"pod-name": "p", "pod-uid": "u-p", "node-name": "n", "node-uid": "u-n"}},
		{homeless, map[string]string{"pod-name": "p", "pod-uid": "u-p", "node-name": "gone"}},
	} {
		u, audiences, err := a.AuthenticateToken(context.Background(), authn.NewToken(issue(t, a, row.s)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if u.Name != "system:serviceaccount:ns:bot" || u.UID != "u-bot" || !slices.Equal(audiences, []string{satoken.DefaultIssuer}) ||
			!slices.Equal(u.Groups, []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}) {
			t.Errorf("%+v for %q", u, audiences)
		}
		extra := map[string]string{}
		for key, values := range u.Extra {
			extra[strings.TrimPrefix(key, "authentication.kubernetes.io/")] = strings.Join(values, "|")
		}
		if id := extra["credential-id"]; !strings.HasPrefix(id, "JTI=") || len(id) != len("JTI=")+36 {
			t.Errorf("credential-id is %q", id)
		}
		delete(extra, "credential-id")
		if !maps.Equal(extra, row.extra) {
			t.Errorf("extra is %v, want %v", extra, row.extra)
		}
	}
}

func TestAudiences(t *testing.T) {
	a := open(t, newWorld().config(""))
	token := issue(t, a, bot, "x", "y")
	if why := good(t, a, token); !strings.Contains(why, `["x" "y"]`) {
		t.Errorf("a token for others: %q", why)
	}
	if _, audiences, err := a.AuthenticateToken(context.Background(), authn.NewToken(token), []string{"z", "y", "x"}); err != nil || !slices.Equal(audiences, []string{"y", "x"}) {
		t.Errorf("%q, %v", audiences, err)
	}
}

// TestLongest: a token that is issued is good, however long; one that would not be is
// not issued.
func TestLongest(t *testing.T) {
	w := newWorld()
	a := open(t, w.config(""))
	audiences := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("audience-%06d", i)
		}
		return all
	}
	issued, refused := 1, 20_000
	for refused-issued > 1 {
		n := (issued + refused) / 2
		made, err := a.Issue(bot, audiences(n), time.Hour)
		token := made.Token
		var long *satoken.TooLongError
		switch {
		case err == nil:
			issued = n
			if why := good(t, a, token, "audience-000000"); why != "" {
				t.Fatalf("a token with %d audiences is not good: %s", n, why)
			}
		case errors.As(err, &long) && token == "" && long.Bytes > long.Most:
			refused = n
		default:
			t.Fatalf("%d audiences: %v", n, err)
		}
	}
	if issued < 500 {
		t.Errorf("a token has room for %d audiences", issued)
	}
}

func TestTime(t *testing.T) {
	w := newWorld()
	a := open(t, w.config(""))
	token := issue(t, a, bot)
	begin := w.now
	for _, row := range []struct {
		after time.Duration
		want  string
	}{
		{0, ""},
		{time.Hour + time.Minute - time.Second, ""},
		{time.Hour + time.Minute + time.Second, "service account token has expired"},
		{-59 * time.Second, ""},
		{-2 * time.Minute, "service account token is not valid yet"},
	} {
		w.now = begin.Add(row.after)
		if got := good(t, a, token); got != row.want {
			t.Errorf("%v later: %q, want %q", row.after, got, row.want)
		}
	}
}

// TestGone: a token ends with each object that it is bound to, at once, and one of
// the same name does not bring it back.
func TestGone(t *testing.T) {
	pod, secret, node := bot, bot, bot
	pod.Pod = &satoken.Ref{Name: "p", UID: "u-p"}
	secret.Secret = &satoken.Ref{Name: "s", UID: "u-s"}
	node.Node = &satoken.Ref{Name: "n", UID: "u-n"}
	for key, s := range map[string]satoken.Subject{"serviceaccounts ns/bot": bot, "pods ns/p": pod, "secrets ns/s": secret, "nodes /n": node} {
		w := newWorld()
		a := open(t, w.config(""))
		token := issue(t, a, s)
		if why := good(t, a, token); why != "" {
			t.Errorf("%s: %s", key, why)
		}
		w.objects[key] = satoken.Found{UID: w.objects[key].UID, Deleted: w.now.Add(30 * time.Second)}
		if why := good(t, a, token); why != "" {
			t.Errorf("%s is on its way out: %s", key, why)
		}
		w.now = w.now.Add(2 * time.Minute)
		if why := good(t, a, token); !strings.Contains(why, "deleted") && !strings.Contains(why, "invalidated") {
			t.Errorf("%s should be gone: %q", key, why)
		}
		w.objects[key] = satoken.Found{UID: "another"}
		if why := good(t, a, token); !strings.Contains(why, " UID (another) does not match ") {
			t.Errorf("another %s: %q", key, why)
		}
		delete(w.objects, key)
		if why := good(t, a, token); !strings.Contains(why, "invalidated") && why != `serviceaccounts "bot" not found` {
			t.Errorf("no %s: %q", key, why)
		}
	}
}

// TestForged: nothing but a signature of ours counts, whatever the header says.
func TestForged(t *testing.T) {
	a, other := open(t, newWorld().config("")), open(t, newWorld().config(""))
	token := issue(t, a, bot)
	parts := strings.Split(token, ".")
	raw := base64.RawURLEncoding
	var header struct{ Alg, Kid string }
	b, _ := raw.DecodeString(parts[0])
	if err := json.Unmarshal(b, &header); err != nil {
		t.Fatal(err)
	}
	head := func(alg string) string {
		return raw.EncodeToString([]byte(`{"alg":"` + alg + `","kid":"` + header.Kid + `"}`))
	}
	set, err := a.KeySet()
	if err != nil {
		t.Fatal(err)
	}
	hs256 := head("HS256") + "." + parts[1]
	mac := hmac.New(sha256.New, set)
	mac.Write([]byte(hs256))
	flipped := []byte(parts[2])
	flipped[20] ^= 1
	for what, forged := range map[string]string{
		"no algorithm":          head("none") + "." + parts[1] + ".",
		"a shared secret":       hs256 + "." + raw.EncodeToString(mac.Sum(nil)),
		"another payload":       parts[0] + "." + raw.EncodeToString([]byte(`{"iss":"x"}`)) + "." + parts[2],
		"a changed signature":   parts[0] + "." + parts[1] + "." + string(flipped),
		"no signature":          parts[0] + "." + parts[1] + ".",
		"another one's":         issue(t, other, bot),
		"a part more":           token + ".x",
		"a part less":           parts[0] + "." + parts[1],
		"trailing bits":         token + "=",
		"another name of RS256": head("rs256") + "." + parts[1] + "." + parts[2],
		"too long":              token + strings.Repeat("A", 17<<10),
		"empty":                 "",
		"dots":                  "..",
	} {
		if why := good(t, a, forged); why == "" {
			t.Errorf("%s: it is taken", what)
		}
	}
	if why := good(t, a, token); why != "" {
		t.Errorf("the token itself: %s", why)
	}
}

// TestIssuer: who renames the issuer gives up the tokens of the old name.
func TestIssuer(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	c := w.config(dir)
	token := issue(t, open(t, c), bot)
	c.Issuers = []string{"https://example.com"}
	renamed := open(t, c)
	if why := good(t, renamed, token); why != "no token" {
		t.Errorf("a token of the old name: %q", why)
	}
	if why := good(t, renamed, issue(t, renamed, bot)); why != "" {
		t.Error(why)
	}
}

// TestKeys: tokens outlive a restart, and the file is for the owner alone. A new
// key before the old one signs, and the old one's tokens stay good.
func TestKeys(t *testing.T) {
	w, dir := newWorld(), filepath.Join(t.TempDir(), "pki")
	path := filepath.Join(dir, "serviceaccount.pem")
	a := open(t, w.config(dir))
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a key before one is needed: %v", err)
	}
	old := issue(t, a, bot)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if why := good(t, open(t, w.config(dir)), old); why != "" {
		t.Errorf("after a restart: %s", why)
	}
	before, _ := os.ReadFile(path)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, _ := x509.MarshalPKCS8PrivateKey(private)
	first := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(path, append(first, before...), 0o600); err != nil {
		t.Fatal(err)
	}
	both := open(t, w.config(dir))
	fresh := issue(t, both, bot)
	for what, token := range map[string]string{"the old key's": old, "the new key's": fresh} {
		if why := good(t, both, token); why != "" {
			t.Errorf("%s: %s", what, why)
		}
		if !verifies(t, both, token) {
			t.Errorf("%s is not good by the published keys", what)
		}
	}
	if why := good(t, a, fresh); why == "" {
		t.Error("the old server takes a key that it does not know")
	}
}

// verifies checks a token as others do: by the key set alone.
func verifies(t *testing.T, a *satoken.Authority, token string) bool {
	t.Helper()
	b, err := a.KeySet()
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Keys []struct{ Use, Kty, Kid, Alg, N, E string }
	}
	if err := json.Unmarshal(b, &set); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	header, _ := base64.RawURLEncoding.DecodeString(parts[0])
	for _, k := range set.Keys {
		n, _ := base64.RawURLEncoding.DecodeString(k.N)
		e, _ := base64.RawURLEncoding.DecodeString(k.E)
		public := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
		if strings.Contains(string(header), k.Kid) && rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], signature) == nil {
			return k.Use == "sig" && k.Kty == "RSA" && k.Alg == "RS256"
		}
	}
	return false
}

func TestBadKeyFile(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	short := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}))
	for what, text := range map[string]string{"rubbish": "rubbish", "a short key": short, "empty": ""} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "serviceaccount.pem"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := satoken.Open(newWorld().config(dir)); err == nil || !strings.Contains(err.Error(), "serviceaccount.pem") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestConcurrent: the first tokens of a server, made at once, are of one key.
func TestConcurrent(t *testing.T) {
	a := open(t, newWorld().config(t.TempDir()))
	tokens := make([]string, 8)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() { tokens[i] = issue(t, a, bot) })
	}
	wg.Wait()
	for _, token := range tokens {
		wg.Go(func() {
			if why := good(t, a, token); why != "" {
				t.Error(why)
			}
		})
	}
	wg.Wait()
}

// FuzzAuthenticate: no text makes trouble, and none but the token itself is one.
func FuzzAuthenticate(f *testing.F) {
	a := open(f, newWorld().config(""))
	token := issue(f, a, bot)
	parts := strings.Split(token, ".")
	for _, seed := range []string{token, "", "..", "a.b.c", token + ".", parts[0] + ".e30." + parts[2], "eyJhbGciOiJub25lIn0.e30."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, _, err := a.AuthenticateToken(context.Background(), authn.NewToken(text), nil)
		if u != nil && (text != token || err != nil) {
			t.Fatalf("%q is %+v, %v", text, u, err)
		}
	})
}

// TestAllocations: a token that was verified before costs no allocation.
func TestAllocations(t *testing.T) {
	a := open(t, newWorld().config(""))
	token := issue(t, a, bot)
	audiences := a.Audiences()
	if n := testing.AllocsPerRun(100, func() {
		if u, _, err := a.AuthenticateToken(context.Background(), authn.NewToken(token), audiences); u == nil {
			t.Fatal(err)
		}
	}); n > 1 { // the key of the test's map of objects
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	a := open(b, newWorld().config(""))
	token := issue(b, a, bot)
	for b.Loop() {
		if _, _, err := a.AuthenticateToken(context.Background(), authn.NewToken(token), nil); err != nil {
			b.Fatal(err)
		}
	}
}
