package world

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// checkTransaction returns an error if a transaction of a follower would store an object that the
// API cannot read. The follower has decided, defaulted and validated the objects; the server makes
// sure that they are objects of their kinds.
func checkTransaction(t *store.Txn) error {
	if err := replication.CheckObjects(t); err != nil {
		return err
	}
	for i := range t.Writes {
		w := &t.Writes[i]
		if w.Value == nil {
			continue
		}
		if err := checkReadable(w.Collection, w.Value); err != nil {
			return fmt.Errorf("write %d, of %s %q: %w", i, w.Collection, w.Key, err)
		}
	}
	return nil
}

// checkReadable returns an error unless a value can be read as an object of its collection. The kinds of custom resources
// may not be known yet, and their objects are read without a schema.
func checkReadable(collection string, value []byte) error {
	typ := builtinTypes()[collection]
	create := func() runtime.Object { return new(metav1.PartialObjectMetadata) }
	if typ != nil {
		create = typ.New
	}
	if err := wire.CheckQuantities(value, reflect.TypeOf(create())); err != nil {
		return err
	}
	o, err := wire.Unmarshal(value, create)
	if err != nil {
		return err
	}
	is := o.GetObjectKind().(*metav1.TypeMeta) // the built-in kinds have it, too
	switch {
	case typ == nil && strings.Contains(collection, ".") && (is.Kind == "" || is.APIVersion == ""):
		return errors.New("the value has no kind or apiVersion")
	case typ == nil:
		return nil
	}
	if version := strings.TrimPrefix(typ.Group+"/"+typ.Version, "/"); is.Kind != typ.Kind || is.APIVersion != version {
		return fmt.Errorf("the value is a %s of %s: want a %s of %s", is.Kind, is.APIVersion, typ.Kind, version)
	}
	return nil
}

// builtinTypes returns the stored versions of the built-in kinds by their collections.
var builtinTypes = sync.OnceValue(func() map[string]*resource.Type {
	all := map[string]*resource.Type{}
	for t := range builtin.Catalog().Types() {
		if t.Collection != "" {
			all[t.Collection] = t.StoredVersion()
		}
	}
	return all
})
