package satoken_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/satoken"
)

// pair is a key in two files: both halves, and the public one.
type pair struct {
	private         crypto.Signer
	both, public    string // paths
	bothPEM, pubPEM []byte
}

func newPair(t *testing.T, private crypto.Signer) *pair {
	t.Helper()
	dir := t.TempDir()
	p := &pair{private: private, both: filepath.Join(dir, "key.pem"), public: filepath.Join(dir, "key.pub")}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	p.bothPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if der, err = x509.MarshalPKIXPublicKey(private.Public()); err != nil {
		t.Fatal(err)
	}
	p.pubPEM = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	put(t, p.both, p.bothPEM)
	put(t, p.public, p.pubPEM)
	return p
}

func put(t *testing.T, path string, parts ...[]byte) {
	t.Helper()
	if err := os.WriteFile(path, slices.Concat(parts...), 0o600); err != nil {
		t.Fatal(err)
	}
}

func ecKey(t *testing.T, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func rsaKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKeyFiles: one file signs, others verify. Tokens name the algorithm of their key, and a server
// with only the public half accepts them.
func TestKeyFiles(t *testing.T) {
	for alg, private := range map[string]crypto.Signer{
		"RS256": rsaKey(t), "ES256": ecKey(t, elliptic.P256()), "ES384": ecKey(t, elliptic.P384()), "ES512": ecKey(t, elliptic.P521()),
	} {
		p, other := newPair(t, private), newPair(t, ecKey(t, elliptic.P256()))
		put(t, p.both, []byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"), p.bothPEM) // as openssl writes it
		c := newWorld().config("")
		c.SigningKeyFile = p.both
		signing := open(t, c)
		token := issue(t, signing, bot)
		head, _ := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
		if !strings.Contains(string(head), `"alg":"`+alg+`"`) {
			t.Errorf("%s: the header is %s", alg, head)
		}
		if why := good(t, signing, token); why != "" {
			t.Errorf("%s: %s", alg, why)
		}
		c.SigningKeyFile, c.KeyFiles = other.both, []string{p.public}
		rotated := open(t, c)
		for what, token := range map[string]string{"old": token, "new": issue(t, rotated, bot)} {
			if why := good(t, rotated, token); why != "" {
				t.Errorf("%s, the %s key: %s", alg, what, why)
			}
		}
		c.KeyFiles = nil
		if why := good(t, open(t, c), token); why != "invalid signature, no keys found" {
			t.Errorf("%s without its key: %q", alg, why)
		}
		var set struct {
			Keys []struct{ Kty, Crv, Alg string }
		}
		b, err := rotated.KeySet()
		if err == nil {
			err = json.Unmarshal(b, &set)
		}
		if err != nil || len(set.Keys) != 2 || set.Keys[0].Alg != "ES256" || set.Keys[0].Crv != "P-256" || set.Keys[1].Alg != alg {
			t.Errorf("%s: %s, %v", alg, b, err)
		}
	}
}

// TestOtherAlgorithms: a key verifies all algorithms of its kind, and none of another kind, whatever
// a token says.
func TestOtherAlgorithms(t *testing.T) {
	p := newPair(t, rsaKey(t))
	c := newWorld().config("")
	c.SigningKeyFile = p.both
	a := open(t, c)
	payload := strings.Split(issue(t, a, bot), ".")[1]
	sign := func(head string) string {
		text := base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + payload
		sum := sha512.Sum512([]byte(text))
		s, err := rsa.SignPKCS1v15(nil, p.private.(*rsa.PrivateKey), crypto.SHA512, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return text + "." + base64.RawURLEncoding.EncodeToString(s)
	}
	for head, ok := range map[string]bool{
		`{"alg":"RS512"}`:                true, // without a key ID
		`{"alg":"RS256"}`:                false,
		`{"alg":"ES512"}`:                false,
		`{"alg":"HS512"}`:                false,
		`{"alg":"none"}`:                 false,
		`{"alg":"RS512","crit":["exp"]}`: false,
		`{"alg":"RS512","kid":"other"}`:  false,
	} {
		if why := good(t, a, sign(head)); (why == "") != ok {
			t.Errorf("%s: %q", head, why)
		}
	}
}

// TestKeyFilesChange: changed files are in use soon, and the tokens of a key that is gone end. A broken
// file changes nothing.
func TestKeyFilesChange(t *testing.T) {
	first, second := newPair(t, ecKey(t, elliptic.P256())), newPair(t, ecKey(t, elliptic.P256()))
	w := newWorld()
	c := w.config("")
	c.SigningKeyFile = first.both
	a := open(t, c)
	token := issue(t, a, bot)
	put(t, first.both, []byte("broken"))
	w.now = w.now.Add(2 * time.Second)
	if why := good(t, a, token); why != "" {
		t.Errorf("after a broken file: %s", why)
	}
	put(t, first.both, second.bothPEM)
	w.now = w.now.Add(2 * time.Second)
	if why := good(t, a, token); why != "invalid signature, no keys found" {
		t.Errorf("after its key is gone: %q", why)
	}
	if why := good(t, a, issue(t, a, bot)); why != "" {
		t.Errorf("with the new key: %s", why)
	}
}

func TestBadKeyFiles(t *testing.T) {
	p := newPair(t, ecKey(t, elliptic.P256()))
	odd := newPair(t, ecKey(t, elliptic.P224()))
	for what, c := range map[string]satoken.Config{
		"absent":                {SigningKeyFile: p.both + "x"},
		"no private key":        {SigningKeyFile: p.public},
		"another curve":         {KeyFiles: []string{odd.public}},
		"one good and one none": {KeyFiles: []string{p.public, os.DevNull}},
	} {
		if _, err := satoken.Open(c); err == nil {
			t.Errorf("%s is no error", what)
		}
	}
}

// TestIssuers: tokens of all issuers are accepted, and the first is that of new ones.
func TestIssuers(t *testing.T) {
	p := newPair(t, ecKey(t, elliptic.P256()))
	c := newWorld().config("")
	c.SigningKeyFile, c.Issuers = p.both, []string{"https://old"}
	old := issue(t, open(t, c), bot)
	c.Issuers = []string{"https://new", "https://old"}
	a := open(t, c)
	if why := good(t, a, old); why != "" {
		t.Errorf("a token of the old issuer: %s", why)
	}
	payload, _ := base64.RawURLEncoding.DecodeString(strings.Split(issue(t, a, bot), ".")[1])
	if !strings.Contains(string(payload), `"iss":"https://new"`) || !strings.Contains(string(payload), `"aud":["https://new","https://old"]`) {
		t.Errorf("a new token has %s", payload)
	}
}

// TestLife: a long lifetime is cut. The tokens of Pods for this server get a year, if admission has
// requested them.
func TestLife(t *testing.T) {
	w := newWorld()
	c := w.config("")
	c.MaxLife, c.ExtendInjected = 2*time.Hour, true
	a := open(t, c)
	pod := bot
	pod.Pod = &satoken.Ref{Name: "p", UID: "u-p"}
	begin := w.now
	for _, row := range []struct {
		what        string
		s           satoken.Subject
		audiences   []string
		life        time.Duration
		told, until time.Duration
	}{
		{"short", bot, nil, time.Hour, time.Hour, time.Hour},
		{"long", bot, nil, 3 * time.Hour, 2 * time.Hour, 2 * time.Hour},
		{"by admission", pod, nil, 3607 * time.Second, 3607 * time.Second, 365 * 24 * time.Hour},
		{"by another", pod, nil, 3600 * time.Second, 3600 * time.Second, 3600 * time.Second},
		{"for another server", pod, []string{satoken.DefaultIssuer, "x"}, 3607 * time.Second, 3607 * time.Second, 3607 * time.Second},
		{"not of a pod", bot, nil, 3607 * time.Second, 3607 * time.Second, 3607 * time.Second},
	} {
		w.now = begin
		issued, err := a.Issue(row.s, row.audiences, row.life)
		if err != nil || issued.Life != row.told {
			t.Errorf("%s: %v, %v; want %v", row.what, issued.Life, err, row.told)
		}
		for after, want := range map[time.Duration]string{row.until + 59*time.Second: "", row.until + 61*time.Second: "service account token has expired"} {
			w.now = begin.Add(after)
			if why := good(t, a, issued.Token); why != want {
				t.Errorf("%s, %v later: %q, want %q", row.what, after, why, want)
			}
		}
	}
}
