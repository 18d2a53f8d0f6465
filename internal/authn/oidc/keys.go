package oidc

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

const (
	// maxDocumentBytes limits what an issuer may send as one response: discovery, keys,
	// distributed claims.
	maxDocumentBytes = 1 << 20
	// maxKeys limits the keys of an issuer: a token without a key ID is tried with each.
	maxKeys = 100
	// maxRSABits limits the cost of verifying a signature.
	maxRSABits = 16384
)

// keySet holds the public keys of an issuer. It is immutable.
type keySet struct {
	keys []jose.JSONWebKey
	// document is the response of the issuer.
	document []byte
}

// parseKeys reads a JSON Web Key Set. It skips keys that cannot sign a token, among them
// symmetric keys, as RFC 7517 asks for.
func parseKeys(document []byte) (*keySet, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, fmt.Errorf("oidc: failed to decode keys: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("oidc: failed to decode keys: %d keys are more than %d", len(set.Keys), maxKeys)
	}
	s := &keySet{document: document}
	for _, text := range set.Keys {
		var k jose.JSONWebKey
		if err := k.UnmarshalJSON(text); err != nil {
			continue
		}
		k = k.Public()
		switch public := k.Key.(type) {
		case *rsa.PublicKey:
			if public.N.BitLen() > maxRSABits {
				continue
			}
		case *ecdsa.PublicKey:
		default:
			continue
		}
		s.keys = append(s.keys, k)
	}
	return s, nil
}

// same reports whether the issuer sent the same document.
func (s *keySet) same(document []byte) bool { return s != nil && bytes.Equal(s.document, document) }

var errSignature = errors.New("failed to verify id token signature")

// verify returns the payload of a token that one of the keys has signed. A token that names a
// key is verified with that key alone.
func (s *keySet) verify(token *jose.JSONWebSignature) ([]byte, error) {
	if s == nil {
		return nil, errSignature
	}
	id := token.Signatures[0].Header.KeyID
	for i := range s.keys {
		if k := &s.keys[i]; id == "" || id == k.KeyID {
			if payload, err := token.Verify(k.Key); err == nil {
				return payload, nil
			}
		}
	}
	return nil, errSignature
}
