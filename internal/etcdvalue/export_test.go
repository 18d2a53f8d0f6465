package etcdvalue

import "k8s.io/apimachinery/pkg/runtime/schema"

// Storage describes how a built-in collection is stored.
type Storage struct {
	Collection string
	// Path is the prefix of its keys, below the root: "services/specs".
	Path       string
	Namespaced bool
	// Kind is that of the values; Protobuf: not JSON.
	Kind     schema.GroupVersionKind
	Protobuf bool
}

// Builtins returns how the built-in collections are stored, in no order.
func Builtins() (all []Storage) {
	for _, k := range builtins().byName {
		if k.collection == masterLeases || k.collection == ranges {
			continue
		}
		all = append(all, Storage{
			Collection: k.collection, Path: k.path, Namespaced: k.typ.Namespaced,
			Kind: k.version.WithKind(k.typ.Kind), Protobuf: k.form == inProtobuf,
		})
	}
	return all
}
