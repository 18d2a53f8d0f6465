// Package resourceversion compares resource versions of Kubernetes objects.
//
// A resource version was opaque to clients for years. KEP-5504 ("Comparable
// Resource Versions", Summary and Proposal) promises more: the versions of one
// resource, pods for example, are positive integers in decimal that only grow, so a
// client may ask which of two is newer. Kubernetes v1.35 and later promise it for
// every built-in and every custom resource, older servers on etcd keep it, and the
// promise has three limits:
//
//   - It holds within one resource of one server. The version of a pod says nothing
//     about the version of a node, and one cluster's nothing about another's.
//   - It does not bind aggregated API servers. Some have versions that are no
//     integers; for these every function here gives an error, and never an order.
//     Two texts that are equal are still the same version.
//   - It says nothing of size. Kubernetes stays below 2^128; this package compares
//     digits, and takes any length.
//
// Upstream's function of the same meaning is CompareResourceVersion in
// k8s.io/apimachinery/pkg/util/resourceversion. This package needs the standard
// library alone, and works with any client of any age.
//
// All functions are safe for concurrent use, and allocate nothing but their errors.
package resourceversion

import (
	"fmt"
	"strings"
)

// Compare returns -1 if a is older than b, 0 if they are the same version, and +1
// if a is newer (KEP-5504, Proposal). Both must be versions of one resource of one
// server: Compare cannot see that; see Version for a type that can.
//
// The error is an *InvalidError for the first of a and b that is no comparable
// version; the result is then 0.
func Compare(a, b string) (int, error) {
	if !Valid(a) {
		return 0, &InvalidError{Text: a}
	}
	if !Valid(b) {
		return 0, &InvalidError{Text: b}
	}
	return order(a, b), nil
}

// Less reports whether a is older than b. It fails when Compare does, and then returns
// false.
func Less(a, b string) (bool, error) {
	c, err := Compare(a, b)
	return c < 0, err
}

// Max returns the newer of a and b. It fails when Compare does, and then returns an empty
// string.
func Max(a, b string) (string, error) {
	c, err := Compare(a, b)
	switch {
	case err != nil:
		return "", err
	case c < 0:
		return b, nil
	default:
		return a, nil
	}
}

// Valid reports whether the text is a version that can be compared: decimal digits without a
// leading 0. The empty text and "0" are not versions of objects: in requests they mean the most
// recent and any state.
func Valid(text string) bool {
	if text == "" || text[0] == '0' {
		return false
	}
	for i := 0; i < len(text); i++ {
		if text[i]-'0' > 9 {
			return false
		}
	}
	return true
}

// order compares two valid versions. Of two integers without leading zeros the longer one
// is greater; integers of the same length order like their digits.
func order(a, b string) int {
	switch {
	case len(a) < len(b):
		return -1
	case len(a) > len(b):
		return +1
	default:
		return strings.Compare(a, b)
	}
}

// InvalidError reports a text that is not a comparable resource version. Such a version is
// opaque: clients can only check whether two are equal.
type InvalidError struct {
	// Text is what was given in place of a version, whole.
	Text string
}

// Error returns the text, truncated if it is long, and the reason.
func (e *InvalidError) Error() string {
	const most = 64 // bytes: half more than the longest version of Kubernetes
	shown := e.Text
	if len(shown) > most {
		shown = shown[:most] + "..."
	}
	return fmt.Sprintf("resource version %q cannot be compared: %s", shown, e.problem())
}

func (e *InvalidError) problem() string {
	text := e.Text
	switch {
	case text == "":
		return "it is empty"
	case text == "0":
		return "0 asks for any state, and is the version of none"
	}
	for i, r := range text {
		switch {
		case r >= '0' && r <= '9':
			continue
		case r == '-' || r == '+':
			return fmt.Sprintf("sign %q at byte %d", r, i)
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			return fmt.Sprintf("space %q at byte %d", r, i)
		default:
			return fmt.Sprintf("%q at byte %d is no decimal digit", r, i)
		}
	}
	if text[0] == '0' {
		return "it begins with a zero"
	}
	return "it is valid" // only for an InvalidError that a caller made
}
