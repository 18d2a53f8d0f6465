package satoken

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/json"
	"math/big"
	"slices"
)

// webKey is a public key (RFC 7517).
type webKey struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Curve     string `json:"crv,omitempty"`
	Algorithm string `json:"alg"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	Modulus   string `json:"n,omitempty"`
	Exponent  string `json:"e,omitempty"`
}

func (k *key) webKey() (webKey, error) {
	w := webKey{Use: "sig", ID: k.id, Algorithm: k.alg}
	switch p := k.public.(type) {
	case *rsa.PublicKey:
		w.Type = "RSA"
		w.Modulus, w.Exponent = encoding.EncodeToString(p.N.Bytes()), encoding.EncodeToString(big.NewInt(int64(p.E)).Bytes())
	case *ecdsa.PublicKey:
		w.Type, w.Curve = "EC", p.Params().Name
		point, err := p.Bytes() // 4, x, y
		if err != nil {
			return w, err
		}
		n := numberBytes(p)
		w.X, w.Y = encoding.EncodeToString(point[1:1+n]), encoding.EncodeToString(point[1+n:])
	}
	return w, nil
}

// published returns the keys that verify tokens, after making one if there is none.
func (a *Authority) published() ([]*key, error) {
	if _, err := a.signer(); err != nil {
		return nil, err
	}
	return a.verifiers(""), nil
}

// KeyIDs returns the IDs of the key that signs tokens and of all that verify them, in order. It makes a
// key if there is none.
func (a *Authority) KeyIDs() (signs string, verify []string, err error) {
	signer, err := a.signer()
	if err != nil {
		return "", nil, err
	}
	for _, k := range a.verifiers("") {
		verify = append(verify, k.id)
	}
	slices.Sort(verify)
	return signer.id, verify, nil
}

// KeySet returns the public keys, as a JSON Web Key Set (RFC 7517).
func (a *Authority) KeySet() ([]byte, error) {
	keys, err := a.published()
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []webKey `json:"keys"`
	}
	for _, k := range keys {
		w, err := k.webKey()
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, w)
	}
	return json.Marshal(set)
}

// Discovery returns the OpenID Connect discovery document, which gives verifiers the URL of the
// keys.
func (a *Authority) Discovery(keySetURL string) ([]byte, error) {
	keys, err := a.published()
	if err != nil {
		return nil, err
	}
	var algorithms []string
	for _, k := range keys {
		algorithms = append(algorithms, k.alg)
	}
	slices.Sort(algorithms)
	return json.Marshal(struct {
		Issuer     string   `json:"issuer"`
		KeySet     string   `json:"jwks_uri"`
		Responses  []string `json:"response_types_supported"`
		Subjects   []string `json:"subject_types_supported"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}{a.c.Issuers[0], keySetURL, []string{"id_token"}, []string{"public"}, slices.Compact(algorithms)})
}
