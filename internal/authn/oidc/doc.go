// Package oidc authenticates the users of an OpenID Connect issuer by their ID tokens.
//
// An Issuer verifies tokens with the issuer's public keys, which it fetches in the background. A
// token with a known key never waits for the network. A token that no known key verifies waits a
// limited time for newer keys, and delays no other token. Rules map the claims of a verified token
// to a user, as an apiserver.JWTAuthenticator specifies.
//
// The texts of the errors are those of kube-apiserver, whose TokenReview shows them. They never
// contain a token.
package oidc
