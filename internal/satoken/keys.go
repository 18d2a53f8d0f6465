package satoken

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

const (
	keyFile = "serviceaccount.pem"
	keyBits = 2048
	pemType = "RSA PRIVATE KEY"
)

// key is one that signs and verifies.
type key struct {
	private *rsa.PrivateKey
	id      string // the hash of its public half, as upstream names keys
	header  string // of the tokens that it signs, encoded
}

// keyring holds the keys. The first one signs.
type keyring []*key

func newKey(private *rsa.PrivateKey) (*key, error) {
	if bits := private.N.BitLen(); bits < keyBits {
		return nil, fmt.Errorf("an RSA key of %d bits is too short: want %d or more", bits, keyBits)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	k := &key{private: private, id: encoding.EncodeToString(sum[:])}
	header, err := json.Marshal(header{Algorithm: "RS256", Key: k.id})
	k.header = encoding.EncodeToString(header)
	return k, err
}

// header is the first part of a token.
type header struct {
	Algorithm string `json:"alg"`
	Key       string `json:"kid"`
}

// sign returns a token with the payload.
func (k *key) sign(payload []byte) (string, error) {
	text := k.header + "." + encoding.EncodeToString(payload)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, k.private, crypto.SHA256, sum[:])
	if err != nil {
		return "", err
	}
	return text + "." + encoding.EncodeToString(signature), nil
}

// parse reads a token and checks its signature, before it uses any claim. It returns nil,
// without an error, if the text is not a token of this issuer.
func (a *Authority) parse(token string) (*claims, error) {
	signed := strings.LastIndexByte(token, '.')
	first, payload, _ := strings.Cut(token[:signed], ".")
	var h header
	if !decode(first, &h) || h.Algorithm != "RS256" {
		return nil, nil
	}
	k := a.key(h.Key)
	if k == nil {
		return nil, nil
	}
	signature, err := encoding.DecodeString(token[signed+1:])
	if err != nil {
		return nil, errors.New("the signature of a service account token is not base64url")
	}
	sum := sha256.Sum256([]byte(token[:signed]))
	if err := rsa.VerifyPKCS1v15(&k.private.PublicKey, crypto.SHA256, sum[:], signature); err != nil {
		return nil, errors.New("the signature of a service account token is wrong")
	}
	c := new(claims)
	if !decode(payload, c) || c.Issuer != a.c.Issuer {
		return nil, nil // signed under another issuer's name: the flag was another one
	}
	c.who = c.user()
	return c, nil
}

// decode reads one part of a token.
func decode(part string, into any) bool {
	b, err := encoding.DecodeString(part)
	return err == nil && json.Unmarshal(b, into) == nil
}

// known returns the keys. It does not wait for a key that is being made.
func (a *Authority) known() keyring {
	if keys := a.keys.Load(); keys != nil {
		return *keys
	}
	return nil
}

// key returns the key with the ID, or nil.
func (a *Authority) key(id string) *key {
	for _, k := range a.known() {
		if k.id == id {
			return k
		}
	}
	return nil
}

// signer returns the key that signs, and makes one if there is none. A key that cannot be
// written is not used: its tokens would end with the process.
func (a *Authority) signer() (*key, error) {
	if keys := a.known(); keys != nil {
		return keys[0], nil
	}
	a.making.Lock()
	defer a.making.Unlock()
	if keys := a.known(); keys != nil { // meanwhile
		return keys[0], nil
	}
	private, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, err
	}
	k, err := newKey(private)
	if err != nil {
		return nil, err
	}
	if a.c.Dir != "" {
		text := pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: x509.MarshalPKCS1PrivateKey(private)})
		if err := atomicfile.MakeDir(a.c.Dir); err != nil {
			return nil, err
		}
		if err := atomicfile.Write(filepath.Join(a.c.Dir, keyFile), text, 0o600); err != nil {
			return nil, fmt.Errorf("the key of service account tokens cannot be kept: %w", err)
		}
	}
	a.keys.Store(&keyring{k})
	return k, nil
}

// readKeys reads the keys of a directory; none if there is no file.
func readKeys(dir string) (keyring, error) {
	if dir == "" {
		return nil, nil
	}
	path := filepath.Join(dir, keyFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; put the keys of service account tokens back, or delete the file: then all tokens have to be asked for again", path, err)
	}
	return keys, nil
}

func parseKeys(b []byte) (keyring, error) {
	var all keyring
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			break
		}
		b = rest
		private, err := parseKey(block)
		if err != nil {
			return nil, err
		}
		k, err := newKey(private)
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	if len(all) == 0 {
		return nil, errors.New("it holds no RSA private key")
	}
	return all, nil
}

// parseKey reads a key in PKCS #1 or PKCS #8.
func parseKey(block *pem.Block) (*rsa.PrivateKey, error) {
	if block.Type == pemType {
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := k.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it holds a %T, not an RSA key", k)
	}
	return private, nil
}

// KeySet returns the public keys, as a JSON Web Key Set (RFC 7517).
func (a *Authority) KeySet() ([]byte, error) {
	if _, err := a.signer(); err != nil {
		return nil, err
	}
	type webKey struct {
		Use       string `json:"use"`
		Type      string `json:"kty"`
		ID        string `json:"kid"`
		Algorithm string `json:"alg"`
		Modulus   string `json:"n"`
		Exponent  string `json:"e"`
	}
	var set struct {
		Keys []webKey `json:"keys"`
	}
	for _, k := range a.known() {
		set.Keys = append(set.Keys, webKey{
			Use: "sig", Type: "RSA", ID: k.id, Algorithm: "RS256",
			Modulus:  base64.RawURLEncoding.EncodeToString(k.private.N.Bytes()),
			Exponent: base64.RawURLEncoding.EncodeToString(big.NewInt(int64(k.private.E)).Bytes()),
		})
	}
	return json.Marshal(set)
}

// Discovery returns the OpenID Connect discovery document, which tells verifiers the URL of the
// keys.
func (a *Authority) Discovery(keySetURL string) ([]byte, error) {
	return json.Marshal(struct {
		Issuer     string   `json:"issuer"`
		KeySet     string   `json:"jwks_uri"`
		Responses  []string `json:"response_types_supported"`
		Subjects   []string `json:"subject_types_supported"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}{a.c.Issuer, keySetURL, []string{"id_token"}, []string{"public"}, []string{"RS256"}})
}
