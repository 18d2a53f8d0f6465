// Package authn tells who sends a request.
package authn

import (
	"net/http"
)

// User is who sends a request. It is immutable.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Anonymous is the user of a request without credentials.
var Anonymous = &User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}

// Authenticator finds out who sends a request. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the user, nil when the request carries no credentials at
	// all, and an error when it carries wrong ones. The error's text is for the log
	// and holds no secret.
	Authenticate(r *http.Request) (*User, error)
}
