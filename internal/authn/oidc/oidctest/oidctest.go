// Package oidctest is an OpenID Connect issuer for tests, which signs any claims.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// URL is the issuer of an Issuer that does not listen.
const URL = "https://issuer.test"

// Issuer is an issuer. It is an http.Handler with discovery, keys and groups, and an
// http.RoundTripper that serves requests without a connection. All methods are safe for concurrent
// use.
type Issuer struct {
	// URL is the issuer's URL.
	URL string
	// CA is the certificate (PEM) that verifies the issuer's; empty if it does not listen.
	CA string
	// Fetches counts the requests for keys.
	Fetches atomic.Int64
	// Down makes requests fail.
	Down atomic.Bool
	// Hang makes requests wait until their client gives up, or for Resume.
	Hang atomic.Bool

	mu        sync.Mutex
	resumed   chan struct{} // Resume closes it; nil: no request hangs
	serial    int
	signing   *jose.JSONWebKey
	public    []jose.JSONWebKey
	responses map[string]string // by path, in place of those of the issuer
}

// New returns an issuer that does not listen, with one RSA key.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{URL: URL, responses: map[string]string{}}
	i.Rotate(t, jose.RS256)
	return i
}

// Listen returns an issuer on a port of the loopback interface, until the test ends.
func Listen(t testing.TB) *Issuer {
	t.Helper()
	i := New(t)
	s := httptest.NewTLSServer(i)
	t.Cleanup(s.Close)
	i.URL = s.URL
	i.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return i
}

// NewKey returns a key for an algorithm.
func NewKey(t testing.TB, a jose.SignatureAlgorithm) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch a {
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jose.ES512:
		key, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	default:
		return rsaKey(t)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// free has the RSA keys of tests that have ended. Making one takes a tenth of a second and more.
var free struct {
	sync.Mutex
	keys []*rsa.PrivateKey
}

// rsaKey returns an RSA key that no running test uses.
func rsaKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	var key *rsa.PrivateKey
	free.Lock()
	if last := len(free.keys) - 1; last >= 0 {
		key, free.keys = free.keys[last], free.keys[:last]
	}
	free.Unlock()
	if key == nil {
		var err error
		if key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		free.Lock()
		defer free.Unlock()
		free.keys = append(free.keys, key)
	})
	return key
}

// Rotate replaces the key. Tokens that were signed before cannot be verified any more.
func (i *Issuer) Rotate(t testing.TB, a jose.SignatureAlgorithm) {
	t.Helper()
	key := NewKey(t, a)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.serial++
	id := "key-" + strconv.Itoa(i.serial)
	i.signing = &jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(a)}
	i.public = []jose.JSONWebKey{{Key: key.Public(), KeyID: id, Algorithm: string(a), Use: "sig"}}
}

// Publish adds a public key to those that the issuer shows.
func (i *Issuer) Publish(k jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.public = append(i.public, k)
}

// Key returns the key that signs.
func (i *Issuer) Key() *jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.signing
}

// Response replaces the response for a path.
func (i *Issuer) Respond(path, body string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.responses[path] = body
}

// Claims returns the claims of a valid token for the audience "tidemark", with more claims, which
// may replace these; nil removes one.
func (i *Issuer) Claims(now time.Time, more map[string]any) map[string]any {
	c := map[string]any{"iss": i.URL, "aud": "tidemark", "sub": "ann", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix()}
	maps.Copy(c, more)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// Token returns a token with Claims.
func (i *Issuer) Token(t testing.TB, now time.Time, more map[string]any) string {
	t.Helper()
	return Sign(t, i.Key(), i.Claims(now, more))
}

// Sign signs claims with a key, by the key's algorithm.
func Sign(t testing.TB, key *jose.JSONWebKey, claims any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, ok := claims.([]byte)
	if !ok {
		if payload, err = json.Marshal(claims); err != nil {
			t.Fatal(err)
		}
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/keys" {
		i.Fetches.Add(1)
	}
	if i.Hang.Load() {
		select {
		case <-r.Context().Done():
			return
		case <-i.hanging():
		}
	}
	if i.Down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if body, ok := i.responses[r.URL.Path]; ok {
		fmt.Fprint(w, body)
		return
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case "/keys":
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: i.public})
	default:
		http.NotFound(w, r)
	}
}

// hanging returns the channel that Resume closes.
func (i *Issuer) hanging() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.resumed == nil {
		i.resumed = make(chan struct{})
	}
	return i.resumed
}

// Resume ends Hang, also for the requests that hang.
func (i *Issuer) Resume() {
	i.Hang.Store(false)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.resumed != nil {
		close(i.resumed)
		i.resumed = nil
	}
}

// RoundTrip implements http.RoundTripper.
func (i *Issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	response := httptest.NewRecorder()
	i.ServeHTTP(response, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return response.Result(), nil
}
