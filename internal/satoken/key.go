package satoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // registers SHA-384 and SHA-512
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
)

// minRSABits is the least length of an RSA key that signs. Keys that only verify may be shorter.
const minRSABits = 2048

// key verifies tokens, and signs them if it has a private half. It is immutable.
type key struct {
	public  crypto.PublicKey // *rsa.PublicKey or *ecdsa.PublicKey
	private crypto.Signer    // nil: the key only verifies
	id      string           // the hash of its public half, as kube-apiserver names keys
	alg     string           // with which it signs
	header  string           // of the tokens that it signs, encoded
}

// header is the first part of a token.
type header struct {
	Algorithm string   `json:"alg"`
	Key       string   `json:"kid"`
	Critical  []string `json:"crit,omitempty"`
}

// hashes are the hash functions of the algorithms.
var hashes = map[string]crypto.Hash{
	"RS256": crypto.SHA256, "RS384": crypto.SHA384, "RS512": crypto.SHA512,
	"ES256": crypto.SHA256, "ES384": crypto.SHA384, "ES512": crypto.SHA512,
}

// newKey returns a key that verifies, and that signs unless private is nil.
func newKey(public crypto.PublicKey, private crypto.Signer) (*key, error) {
	k := &key{public: public, private: private}
	switch p := public.(type) {
	case *rsa.PublicKey:
		if bits := p.N.BitLen(); private != nil && bits < minRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits is too short to sign: want %d or more", bits, minRSABits)
		}
		k.alg = "RS256"
	case *ecdsa.PublicKey:
		switch p.Curve {
		case elliptic.P256():
			k.alg = "ES256"
		case elliptic.P384():
			k.alg = "ES384"
		case elliptic.P521():
			k.alg = "ES512"
		default:
			return nil, fmt.Errorf("an ECDSA key of the curve %s: want P-256, P-384 or P-521", p.Curve.Params().Name)
		}
	default:
		return nil, fmt.Errorf("a %T: want an RSA or an ECDSA key", public)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	k.id = encoding.EncodeToString(sum[:])
	head, err := json.Marshal(header{Algorithm: k.alg, Key: k.id})
	k.header = encoding.EncodeToString(head)
	return k, err
}

// sign returns a token with the payload.
func (k *key) sign(payload []byte) (string, error) {
	text := k.header + "." + encoding.EncodeToString(payload)
	h := hashes[k.alg]
	hash := h.New()
	hash.Write([]byte(text))
	signature, err := k.signature(hash.Sum(nil), h)
	if err != nil {
		return "", err
	}
	return text + "." + encoding.EncodeToString(signature), nil
}

// signature signs a digest. An ECDSA signature is the two numbers, each as long as the curve's order
// (RFC 7518).
func (k *key) signature(digest []byte, h crypto.Hash) ([]byte, error) {
	private, ok := k.private.(*ecdsa.PrivateKey)
	if !ok {
		return k.private.Sign(rand.Reader, digest, h)
	}
	r, s, err := ecdsa.Sign(rand.Reader, private, digest)
	if err != nil {
		return nil, err
	}
	n := numberBytes(&private.PublicKey)
	return append(r.FillBytes(make([]byte, n)), s.FillBytes(make([]byte, n))...), nil
}

// numberBytes is the length of each number of a signature.
func numberBytes(p *ecdsa.PublicKey) int { return (p.Params().BitSize + 7) / 8 }

var errSignature = errors.New("the signature of a service account token is wrong")

// verify checks a signature with the algorithm that a token names. An ECDSA key has one algorithm.
func (k *key) verify(alg, text string, signature []byte) error {
	h, ok := hashes[alg]
	if !ok {
		return errSignature
	}
	hash := h.New()
	hash.Write([]byte(text))
	digest := hash.Sum(nil)
	switch p := k.public.(type) {
	case *rsa.PublicKey:
		if alg[0] == 'R' && rsa.VerifyPKCS1v15(p, h, digest, signature) == nil {
			return nil
		}
	case *ecdsa.PublicKey:
		n := numberBytes(p)
		if alg == k.alg && len(signature) == 2*n &&
			ecdsa.Verify(p, digest, new(big.Int).SetBytes(signature[:n]), new(big.Int).SetBytes(signature[n:])) {
			return nil
		}
	}
	return errSignature
}

// parseKeys reads keys in PEM: private ones in PKCS #1, PKCS #8 or SEC 1, public ones in PKCS #1 or
// PKIX, and certificates. Blocks of other types are skipped. No key is an error.
func parseKeys(b []byte) ([]*key, error) {
	var all []*key
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			break
		}
		b = rest
		public, private, err := parseBlock(block)
		if err != nil {
			return nil, err
		}
		if public == nil {
			continue
		}
		k, err := newKey(public, private)
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	if len(all) == 0 {
		return nil, errors.New("it holds no RSA or ECDSA key in PEM")
	}
	return all, nil
}

// parseBlock returns the key of a PEM block; nil if the block is of no key. A public key has no
// private half.
func parseBlock(block *pem.Block) (crypto.PublicKey, crypto.Signer, error) {
	var private any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		private, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		private, err = x509.ParseECPrivateKey(block.Bytes)
	case "PRIVATE KEY":
		private, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PUBLIC KEY":
		public, err := x509.ParsePKCS1PublicKey(block.Bytes)
		return public, nil, err
	case "PUBLIC KEY":
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		return public, nil, err
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, err
		}
		return cert.PublicKey, nil, nil
	default:
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("a %T: want an RSA or an ECDSA key", private)
	}
	return signer.Public(), signer, nil
}

// pem returns a private key that the server made, as its file has it.
func (k *key) pem() ([]byte, error) {
	switch p := k.private.(type) {
	case *rsa.PrivateKey:
		return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: x509.MarshalPKCS1PrivateKey(p)}), nil
	case *ecdsa.PrivateKey:
		der, err := x509.MarshalECPrivateKey(p)
		return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
	}
	return nil, fmt.Errorf("a %T has no file", k.private)
}
