package rbac

import (
	"hash/maphash"
	"math/bits"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// subject is a user or a group that bindings name: at the cluster scope, or in the namespace of
// a RoleBinding. A service account is a user, too.
type subject struct {
	hash            uint64
	group           bool
	namespace, name string
}

// Hash implements derived.Key.
func (k subject) Hash() uint64 { return k.hash }

// seed makes hashes that clients cannot foresee.
var seed = maphash.MakeSeed()

// newSubject returns a subject. Its hash is made of the hashes of both names, so that a decision
// hashes each name once.
func newSubject(group bool, name string, at place) subject {
	return subject{subjectHash(group, name) ^ at.hash, group, at.namespace, name}
}

func subjectHash(group bool, name string) uint64 {
	hash := maphash.String(seed, name)
	if group {
		return ^hash
	}
	return hash
}

// place is a namespace, or the cluster scope, which is the zero value.
type place struct {
	hash      uint64
	namespace string
}

func newPlace(namespace string) place {
	if namespace == "" {
		return place{}
	}
	return place{bits.RotateLeft64(maphash.String(seed, namespace), 32), namespace}
}

// scopes are the cluster and, if there is one, a namespace. n is their number.
func scopes(namespace string) (all [2]place, n int) {
	if namespace == "" {
		return all, 1
	}
	all[1] = newPlace(namespace)
	return all, 2
}

// identity is a user with the hashes of the names that bindings may name.
type identity struct {
	*authn.User
	hashes [24]uint64 // of the first subjects; those of others are computed when they are used
}

func newIdentity(u *authn.User) identity {
	who := identity{User: u}
	for i := range min(who.subjects(), len(who.hashes)) {
		who.hashes[i] = subjectHash(who.name(i))
	}
	return who
}

// subjects is the number of subjects that the user is: itself and its groups.
func (u *identity) subjects() int { return 1 + len(u.Groups) }

func (u *identity) name(i int) (group bool, name string) {
	if i == 0 {
		return false, u.Name
	}
	return true, u.Groups[i-1]
}

// subject returns a subject that the user is.
func (u *identity) subject(i int, at place) subject {
	group, name := u.name(i)
	if i >= len(u.hashes) {
		return newSubject(group, name, at)
	}
	return subject{u.hashes[i] ^ at.hash, group, at.namespace, name}
}
