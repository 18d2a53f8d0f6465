package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	fastjson "github.com/go-json-experiment/json"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Metadata is the part of an object's metadata that controllers need. It is found in the stored
// bytes without decoding them, and points into them.
type Metadata struct {
	// UID is the uid without quotes.
	UID []byte
	// Deleting reports whether there is a deletionTimestamp.
	Deleting bool
	// Stopping reports whether there is a grace period. Only the client that runs the object,
	// such as a kubelet, can end it.
	Stopping bool
	// OwnerReferences and Finalizers are JSON lists, nil if they are empty.
	OwnerReferences, Finalizers []byte
}

// MetadataOf returns the metadata of an object. It is empty for nil.
func MetadataOf(o *store.Object) (m Metadata) {
	if o == nil {
		return m
	}
	value := o.Bytes()
	eachMemberAt(value, 0, func(key []byte, at int) bool {
		if string(key) != "metadata" {
			return true
		}
		eachMemberAt(value, at, m.take(value))
		return false
	})
	return m
}

// take returns a function that sets the fields from the members of the metadata.
func (m *Metadata) take(value []byte) func(key []byte, at int) bool {
	until := func(at int) []byte { return value[at:max(at, skipValue(value, at))] }
	return func(key []byte, at int) bool {
		switch string(key) {
		case "uid":
			if text := until(at); len(text) > 2 && text[0] == '"' {
				m.UID = text[1 : len(text)-1]
			}
		case "deletionTimestamp":
			m.Deleting = at < len(value) && value[at] == '"'
		case "deletionGracePeriodSeconds":
			m.Stopping = at < len(value) && value[at] >= '1' && value[at] <= '9'
		case "ownerReferences":
			m.OwnerReferences = list(until(at))
		case "finalizers":
			m.Finalizers = list(until(at))
		case "managedFields":
			// They are long, and the last member in built-in kinds. In alphabetical order,
			// ownerReferences and uid follow.
			return m.UID == nil || bytes.Contains(value[at:], laterOwners)
		}
		return true
	}
}

// laterOwners begins with a rare letter, so that the search for it is fast.
var laterOwners = []byte(`References":[`)

// list returns the value if it is a list with items, else nil.
func list(value []byte) []byte {
	if len(value) > 2 && value[0] == '[' {
		return value
	}
	return nil
}

// HalfGone reports whether an object is being deleted and nothing blocks it. A server that was
// killed between the two steps of a removal leaves such objects; the next deletion removes them.
// The spec of a namespace can block its deletion, too, and is not checked here.
func (m Metadata) HalfGone() bool { return m.Deleting && !m.Stopping && m.Finalizers == nil }

// Owners decodes OwnerReferences.
func (m Metadata) Owners() ([]metav1.OwnerReference, error) {
	if m.OwnerReferences == nil {
		return nil, nil
	}
	var all []metav1.OwnerReference
	if fastjson.Unmarshal(m.OwnerReferences, &all) == nil {
		return all, nil
	}
	all = nil
	err := json.Unmarshal(m.OwnerReferences, &all)
	return all, err
}

// FinalizerNames decodes Finalizers.
func (m Metadata) FinalizerNames() ([]string, error) {
	if m.Finalizers == nil {
		return nil, nil
	}
	var all []string
	err := json.Unmarshal(m.Finalizers, &all)
	return all, err
}

// eachMemberAt calls f for each member of the object that begins at i, with the key without its
// quotes and the position of the value, until f returns false. Unlike eachMember it finds the end
// of a value only after f has returned.
func eachMemberAt(b []byte, i int, f func(key []byte, at int) bool) {
	if i = space(b, i); i >= len(b) || b[i] != '{' {
		return
	}
	for i = space(b, i+1); i < len(b) && b[i] == '"'; {
		end := skipString(b, i)
		if end < 0 {
			return
		}
		key := b[i+1 : end-1]
		if i = space(b, end); i >= len(b) || b[i] != ':' {
			return
		}
		i = space(b, i+1)
		if !f(key, i) {
			return
		}
		if end = skipValue(b, i); end < 0 {
			return
		}
		if i = space(b, end); i >= len(b) || b[i] != ',' {
			return
		}
		i = space(b, i+1)
	}
}

// Member returns the value at a path of members of an object, nil if there is none.
func Member(object []byte, path ...string) []byte { return find(object, path...) }

// Decode decodes a stored object of a kind that is stored as JSON of its Go type. The caller owns
// the result. The error contains the object's key.
func Decode[T any, P interface {
	*T
	runtime.Object
}](o *store.Object) (P, error) {
	if why := o.Unreadable(); why != "" {
		return nil, fmt.Errorf("reading %s: %s", o.Key, why)
	}
	made, err := wire.Unmarshal(o.Bytes(), func() runtime.Object { return P(new(T)) })
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.Key, err)
	}
	return made.(P), nil
}

// Identity distinguishes an object from earlier and later ones of the same name.
type Identity struct {
	UID string
	// Deleted is the deletionTimestamp; zero if there is none.
	Deleted time.Time
}

// IdentityOf returns the identity of an object in a state; ok is false if it does not exist.
func IdentityOf(s *store.State, t Target) (i Identity, ok bool) {
	o := s.Get(t.Type.Collection, t.key())
	if o == nil {
		return i, false
	}
	meta := member(o.Bytes(), "metadata")
	i.UID = text(member(meta, "uid"))
	if deleted := text(member(meta, "deletionTimestamp")); deleted != "" {
		i.Deleted, _ = time.Parse(time.RFC3339, deleted)
	}
	return i, true
}

// isDeleted reports whether the deletion of an object has begun.
func isDeleted(o *store.Object) bool {
	return textAt(o.Bytes(), "metadata", "deletionTimestamp") != ""
}
