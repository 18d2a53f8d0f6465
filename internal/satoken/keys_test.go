package satoken

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/await"
)

// TestVerifyMeanwhile: who shows a token does not wait for a key that is being made,
// which takes longer than all else.
func TestVerifyMeanwhile(t *testing.T) {
	a, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	a.making.Lock() // as while a key is made
	defer a.making.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		token := encoding.EncodeToString([]byte(`{"alg":"RS256","kid":"another"}`)) + ".e30.AAAA"
		if u, _, err := a.AuthenticateToken(context.Background(), authn.NewToken(token), nil); u != nil || err != nil {
			t.Errorf("a token of another issuer: %v, %v", u, err)
		}
	}()
	await.Value(t, "a token, without the key that is being made", done)
}

// TestFlippedBits: a key with a flipped bit is refused, or it is the same key.
func TestFlippedBits(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	k, err := a.signer()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, keyFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range good {
		bad := slices.Clone(good)
		bad[at] ^= 1 << (at % 8)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := readOwn(dir, keyFile)
		if err == nil && (len(keys.verify) != 1 || !keys.signer.private.(*rsa.PrivateKey).Equal(k.private)) {
			t.Fatalf("with byte %d changed there are other keys", at)
		}
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
}

// FuzzKeys: whatever parses as a key can verify, and sign if it has a private half.
func FuzzKeys(f *testing.F) {
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P521()} {
		private, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			f.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		if der, err = x509.MarshalPKIXPublicKey(private.Public()); err != nil {
			f.Fatal(err)
		}
		f.Add(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := parseKeys(b)
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, k := range keys {
			if k.verify(k.alg, "a.b", make([]byte, 64)) == nil {
				t.Error("a signature of zeros is valid")
			}
			if k.private == nil {
				continue
			}
			token, err := k.sign([]byte("{}"))
			if err != nil {
				continue // a damaged RSA key
			}
			signed := strings.LastIndexByte(token, '.')
			signature, err := encoding.DecodeString(token[signed+1:])
			if err != nil || k.verify(k.alg, token[:signed], signature) != nil {
				t.Errorf("%s does not verify (%v)", token, err)
			}
		}
	})
}
