package satoken

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// storedIssuer is the issuer of the tokens that Secrets of the type
// kubernetes.io/service-account-token hold. They do not expire: such a token is valid as long as
// its Secret holds it.
const storedIssuer = "kubernetes/serviceaccount"

// storedClaims are the claims of a token in a Secret.
type storedClaims struct {
	Issuer    string `json:"iss"`
	Namespace string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret    string `json:"kubernetes.io/serviceaccount/secret.name"`
	Account   string `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID       string `json:"kubernetes.io/serviceaccount/service-account.uid"`
	Subject   string `json:"sub"`
	World     string `json:"tidemark.dev/fork,omitempty"`
}

// StoredSecret is the part of a Secret that describes its token.
type StoredSecret struct {
	Token []byte
	// Deleting: the Secret has a deletionTimestamp.
	Deleting bool
	// Invalid: the Secret has the label kubernetes.io/legacy-token-invalid-since.
	Invalid bool
}

// IssueStored issues a token for a Secret. The caller stores it there.
func (a *Authority) IssueStored(namespace, secret string, account Ref) (string, error) {
	payload, err := json.Marshal(&storedClaims{
		Issuer: storedIssuer, Namespace: namespace, Secret: secret,
		Account: account.Name, UID: account.UID, Subject: userName(namespace, account.Name),
		World: a.world(),
	})
	if err != nil {
		return "", err
	}
	k, err := a.signer()
	if err != nil {
		return "", err
	}
	return k.sign(payload)
}

// readStored reads the claims of a token in a Secret, whose signature is valid.
func readStored(payload string) (*claims, error) {
	s := new(storedClaims)
	if !decode(payload, s) {
		return nil, errors.New("the claims of a service account token are not in its format")
	}
	for _, claim := range []struct{ name, value string }{
		{"sub", s.Subject}, {"namespace", s.Namespace}, {"secretName", s.Secret},
		{"serviceAccountName", s.Account}, {"serviceAccountUID", s.UID},
	} {
		if claim.value == "" {
			return nil, errors.New(claim.name + " claim is missing")
		}
	}
	if s.Subject != userName(s.Namespace, s.Account) || strings.Contains(s.Namespace, ":") {
		return nil, errors.New("sub claim is invalid")
	}
	return &claims{Bound: bound{Namespace: s.Namespace, ServiceAccount: Ref{s.Account, s.UID}}, World: s.World, stored: s.Secret}, nil
}

// storedHolds returns an error unless the Secret still holds the token, and the service account
// exists.
func (a *Authority) storedHolds(c *claims, t authn.Token, now time.Time) error {
	if a.c.NoLookup || a.unbound {
		return nil
	}
	namespace, account := c.Bound.Namespace, c.Bound.ServiceAccount
	s, ok := a.c.Secret(namespace, c.stored)
	if !ok || s.Deleting {
		//lint:ignore ST1005 the words are kube-apiserver's
		return errors.New("Token has been invalidated")
	}
	if sum := sha256.Sum256(s.Token); subtle.ConstantTimeCompare(sum[:], t.Sum[:]) == 0 {
		//lint:ignore ST1005 the words are kube-apiserver's
		return errors.New("Token does not match server's copy")
	}
	if err := a.accountExists(namespace, account, now); err != nil {
		return err
	}
	if s.Invalid {
		return fmt.Errorf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token", namespace, c.stored, namespace, account.Name)
	}
	return nil
}
