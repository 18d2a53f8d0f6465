package defaultclass

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// found is the name of the default class; empty: there is none.
type found struct {
	name string
	err  error
}

// marker is how the annotations that mark a default class end in stored bytes.
var marker = []byte(`is-default-class"`)

// newDefault returns the default class of a collection: of the classes that have one of
// the annotations, the newest one, and the first by name of several that are as new.
func newDefault(collection string, annotations ...string) *derived.Value[found] {
	return derived.New(func(now []store.Snapshot) found {
		var newest *metav1.PartialObjectMetadata
		for o := range now[0].Scan("", "") { // sorted by name
			if !bytes.Contains(o.Bytes(), marker) {
				continue
			}
			read, err := wire.Unmarshal(o.Bytes(), func() runtime.Object { return new(metav1.PartialObjectMetadata) })
			if err != nil {
				return found{err: fmt.Errorf("reading %s %s: %w", collection, o.Key, err)}
			}
			class := read.(*metav1.PartialObjectMetadata)
			if isMarked(class, annotations) && (newest == nil || newest.CreationTimestamp.Before(&class.CreationTimestamp)) {
				newest = class
			}
		}
		if newest == nil {
			return found{}
		}
		return found{name: newest.Name}
	}, collection)
}

func isMarked(class *metav1.PartialObjectMetadata, annotations []string) bool {
	for _, a := range annotations {
		if class.Annotations[a] == "true" {
			return true
		}
	}
	return false
}
