package etcdvalue

import (
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DefaultPrefix is the prefix of the keys of kube-apiserver without --etcd-prefix.
const DefaultPrefix = "/registry"

// guards is the path of keys that are no objects but guards: servers write them together with
// objects. No definition may have the name of their first part as its group.
const guards = "tidemark.dev/guards"

// Keys translates between objects and keys of etcd. The zero value has the prefix
// DefaultPrefix.
type Keys struct{ root string }

// NewKeys returns the keys below a prefix, the value of kube-apiserver's --etcd-prefix. Empty:
// DefaultPrefix.
func NewKeys(prefix string) Keys {
	if prefix == "" {
		return Keys{}
	}
	root := path.Join("/", prefix)
	if !strings.HasSuffix(root, "/") {
		root += "/"
	}
	return Keys{root}
}

// Root returns the prefix of all keys: "/registry/".
func (k Keys) Root() string {
	if k.root == "" {
		return DefaultPrefix + "/"
	}
	return k.root
}

// Of returns the key of an object, given its collection and its key in the store:
// "/registry/services/specs/default/web".
func (k Keys) Of(collection, key string) string { return k.Prefix(collection) + key }

// Prefix returns the prefix of the keys of a collection: "/registry/services/specs/".
func (k Keys) Prefix(collection string) string { return k.Root() + pathOf(collection) + "/" }

// Guard returns the key of a guard. Find reports it as Internal.
func (k Keys) Guard(name string) string { return k.Root() + guards + "/" + name }

func pathOf(collection string) string {
	if b := builtins().byName[collection]; b != nil {
		return b.path
	}
	gr := schema.ParseGroupResource(collection)
	return gr.Group + "/" + gr.Resource
}

// Class is the meaning of a key of etcd.
type Class int

const (
	// Unknown: the key may belong to an API that the server does not serve. It is left alone.
	Unknown Class = iota
	// Object: an object of a built-in collection or a custom resource, which may lack a
	// definition.
	Object
	// Internal: a key that is no object, such as the lease of a server, or a guard.
	Internal
)

// Place is the meaning of a key of etcd, with its parts.
type Place struct {
	Class Class
	// Collection and Key are those of an Object in the store.
	Collection, Key string
	// Namespace is that of an Object or of an Unknown key; empty: there is none. Of an Unknown
	// key, it is the next to last part, where there are three: a namespace must not be
	// finalized while there are such keys.
	Namespace string
}

// internal has the first parts of keys that are no objects: the addresses for proxying between servers.
var internal = map[string]bool{"peerserverleases": true}

// Find returns the meaning of a key. A key outside of the root is Internal.
func (k Keys) Find(at string) Place {
	rest, found := strings.CutPrefix(at, k.Root())
	if !found {
		return Place{Class: Internal}
	}
	first, behind, _ := strings.Cut(rest, "/")
	if internal[first] || strings.HasPrefix(rest, guards+"/") {
		return Place{Class: Internal}
	}
	second, key, _ := strings.Cut(behind, "/")
	b := builtins().byPath[first]
	switch {
	case b != nil:
		key = behind
	default:
		b = builtins().byPath[first+"/"+second]
	}
	switch {
	case b != nil:
		return place(b.collection, key, b.typ.Namespaced && b.collection != masterLeases)
	case strings.Contains(first, ".") && second != "":
		// The group of a custom resource has a dot, the name of a built-in resource does not.
		collection := second + "." + first
		if strings.Contains(second, ".") || builtins().byName[collection] != nil {
			return unknown(key) // the objects of the collection have other keys
		}
		return place(collection, key, strings.Contains(key, "/"))
	}
	return unknown(behind)
}

// place returns an object, or an unknown key if the key does not fit.
func place(collection, key string, namespaced bool) Place {
	namespace, name := "", key
	if namespaced {
		namespace, name, _ = strings.Cut(key, "/")
		if namespace == "" {
			return unknown(key)
		}
	}
	if name == "" || strings.Contains(name, "/") {
		return unknown(key)
	}
	return Place{Class: Object, Collection: collection, Key: key, Namespace: namespace}
}

// unknown returns an unknown key. The rest follows the resource: "NAMESPACE/NAME" or "NAME".
func unknown(rest string) Place {
	namespace, name, found := strings.Cut(rest, "/")
	if !found || strings.Contains(name, "/") {
		namespace = ""
	}
	return Place{Class: Unknown, Namespace: namespace}
}
