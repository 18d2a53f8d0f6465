package registry

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Target is the collection, object or subresource of a request.
type Target struct {
	Type *resource.Type
	// Subresource is empty for the object itself.
	Subresource string
	// Namespace is empty for a kind without namespaces, and for a list of all namespaces. Name
	// is empty for a collection.
	Namespace, Name string
	// Replica serves reads that may be old; nil: the store does. Writes ignore it.
	Replica *store.Replica
	// At is the revision that reads see as the newest one; zero: they see the newest state. Writes ignore it.
	At store.Revision
}

// key returns the key of the object in its collection.
func (t Target) key() string {
	if t.Type.Namespaced {
		return t.Namespace + "/" + t.Name
	}
	return t.Name
}

// Stored returns the object of the target in a state, nil if there is none.
func (t Target) Stored(s *store.State) *store.Object { return s.Get(t.Type.Collection, t.key()) }

// split returns the namespace and the name of a key.
func (t Target) split(key string) (namespace, name string) {
	if !t.Type.Namespaced {
		return "", key
	}
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}

// stored returns the type whose strategy applies to a write: the stored version, unless objects are
// converted per request.
func (t Target) stored() *resource.Type { return t.Type.StrategyVersion() }

// Exchanged returns the type that clients read and write at the target: the type of the object,
// unless the subresource has its own, such as Scale.
func (t Target) Exchanged() *resource.Type {
	if s := t.subresource(); s != nil && s.Exchange != nil {
		return s.Exchange
	}
	return t.Type
}

// exchanges reports whether the subresource has bodies of its own type, such as Scale.
func (t Target) exchanges() bool {
	s := t.subresource()
	return s != nil && s.Exchange != nil
}

// subresource returns the target's subresource, nil for the object itself.
func (t Target) subresource() *resource.Subresource {
	if t.Subresource == "" {
		return nil
	}
	return t.Type.Subresource(t.Subresource)
}

// replicas returns where each version of the kind stores the replicas that a Scale shows, for
// managed fields. It is nil if the target is not a Scale.
func (t Target) replicas() apply.Replicas {
	s := t.subresource()
	if s == nil || s.Replicas == nil {
		return nil
	}
	all := apply.Replicas{t.Type.GroupVersion().String(): s.Replicas}
	for _, other := range t.Type.Versions {
		all[other.GroupVersion().String()] = nil
		if o := other.Subresource(t.Subresource); o != nil {
			all[other.GroupVersion().String()] = o.Replicas
		}
	}
	return all
}

// notFound returns the error for an object that does not exist.
func (t Target) notFound() error {
	return apierrors.NewNotFound(t.Type.GroupResource(), t.Name)
}

// Body is the body of a request.
type Body struct {
	Media wire.MediaType
	Bytes []byte
}

// Object is the response of a verb that returns one object.
type Object struct {
	// Stored is the object in its stored version. The caller converts it to Target.Type.
	Stored *store.Object
	// Status is set instead of Stored if the response is a Status.
	Status *metav1.Status
	// Created reports whether the code of the response is 201.
	Created bool
	// Accepted reports whether the code of the response is 202: the deletion is not finished.
	Accepted bool
	// Warnings are for the headers of the response.
	Warnings []string
	// Annotations are for the audit event of the request, with an error, too; nil: there are
	// none.
	Annotations map[string]string

	// committed reports that the request has stored something, or removed it.
	committed bool
}

var schemaNamespaces = schema.GroupResource{Resource: "namespaces"}

// definitionsCollection is the collection of the definitions of custom resources.
const definitionsCollection = "customresourcedefinitions.apiextensions.k8s.io"

// storageKey returns the key of an object in etcd, which kube-apiserver's errors have.
func storageKey(t Target) string {
	prefix := keyPrefixes[t.Type.Collection]
	if prefix == "" {
		prefix = t.Type.Resource
		if t.Type.Custom != nil {
			prefix = t.Type.Group + "/" + prefix
		}
	}
	return storageRoot + "/" + prefix + "/" + strings.TrimPrefix(t.key(), "/")
}

// storageRoot is the default of kube-apiserver's flag --etcd-prefix.
const storageRoot = "/registry"

// keyPrefixes are the prefixes of storage keys that differ from the name of the resource.
var keyPrefixes = map[string]string{
	"services":                           "services/specs",
	"endpoints":                          "services/endpoints",
	"replicationcontrollers":             "controllers",
	"nodes":                              "minions",
	"ingresses.networking.k8s.io":        "ingress",
	"apiservices.apiregistration.k8s.io": "apiregistration.k8s.io/apiservices",
	definitionsCollection:                "apiextensions.k8s.io/customresourcedefinitions",
}
