// Package pluginconfig decodes the configurations of admission plugins, with the errors of
// kube-apiserver.
package pluginconfig

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Kind is a kind of a configuration.
type Kind struct {
	schema.GroupVersionKind
	// Object is an empty object of the kind.
	Object runtime.Object
	// Strict: unknown and repeated fields are errors.
	Strict bool
}

// Decode decodes a configuration of one of the kinds, as YAML or JSON. All kinds are strict if the
// first one is.
func Decode(text []byte, kinds ...Kind) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	for _, k := range kinds {
		scheme.AddKnownTypeWithName(k.GroupVersionKind, k.Object)
	}
	var options []serializer.CodecFactoryOptionsMutator
	if kinds[0].Strict {
		options = append(options, serializer.EnableStrict)
	}
	return runtime.Decode(serializer.NewCodecFactory(scheme, options...).UniversalDeserializer(), text)
}
