package consistentlist

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/resourceversion"
)

// Guarantee is the promise of a list about its resource version (API Concepts,
// "Semantics for get and list"). The zero value is MostRecent. Two Guarantees that
// promise the same are equal.
type Guarantee struct {
	match   match
	version string // of notOlderThan and exact
}

type match uint8

const (
	mostRecent match = iota
	anyVersion
	notOlderThan
	exact
)

var (
	// MostRecent is a state at least as new as the moment of the request.
	MostRecent = Guarantee{}
	// Any is any state, also one older than the caller has seen before. It is the
	// cheapest, and most servers send it in one page, whatever the limit.
	Any = Guarantee{match: anyVersion}
)

// NotOlderThan is a state at least as new as a version of the same resource, from an
// object or a list. Where versions are opaque it holds only for that same version;
// anything else is an *Error of kind Incomparable.
func NotOlderThan(version string) Guarantee { return Guarantee{notOlderThan, version} }

// Exact is the state at a version of the same resource, and no other.
func Exact(version string) Guarantee { return Guarantee{exact, version} }

// String is the guarantee in words.
func (g Guarantee) String() string {
	switch g.match {
	case anyVersion:
		return "any"
	case notOlderThan:
		return fmt.Sprintf("not older than %q", g.version)
	case exact:
		return fmt.Sprintf("exactly %q", g.version)
	default:
		return "most recent"
	}
}

// check refuses versions that a server understands as something else.
func (g Guarantee) check() error {
	if g.match != notOlderThan && g.match != exact {
		return nil
	}
	switch g.version {
	case "":
		return &Error{Kind: Invalid, Guarantee: g, Detail: "without a version a server sends the most recent: use MostRecent"}
	case "0":
		return &Error{Kind: Invalid, Guarantee: g, Detail: "for 0 a server sends any version: use Any"}
	}
	return nil
}

// set puts the guarantee into the first request of a list, or into a streaming list.
func (g Guarantee) set(o *metav1.ListOptions) {
	switch g.match {
	case anyVersion:
		o.ResourceVersion, o.ResourceVersionMatch = "0", metav1.ResourceVersionMatchNotOlderThan
	case notOlderThan:
		o.ResourceVersion, o.ResourceVersionMatch = g.version, metav1.ResourceVersionMatchNotOlderThan
	case exact:
		o.ResourceVersion, o.ResourceVersionMatch = g.version, metav1.ResourceVersionMatchExact
	}
}

// verify holds the version that a server says it sent against the guarantee.
func (g Guarantee) verify(got string) error {
	switch g.match {
	case exact:
		if got != g.version {
			return &Error{Kind: NotHonoured, Guarantee: g, Got: got, Detail: "the server sent another version"}
		}
	case notOlderThan:
		if got == g.version {
			return nil
		}
		older, err := resourceversion.Less(got, g.version)
		switch {
		case err != nil:
			return &Error{Kind: Incomparable, Guarantee: g, Got: got, Err: err}
		case older:
			return &Error{Kind: NotHonoured, Guarantee: g, Got: got, Detail: "the server sent an older version"}
		}
	}
	return nil
}
