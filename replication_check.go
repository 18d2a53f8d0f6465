package tidemark

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// checkTransaction returns an error if a transaction of a follower would store what the API cannot read. The follower has
// decided, defaulted and validated the objects; the server makes sure that they are objects of their kinds.
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
	var o struct {
		metav1.TypeMeta
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(value, &o); err != nil {
		return err
	}
	typ := builtinTypes()[collection]
	if typ == nil {
		if strings.Contains(collection, ".") && (o.Kind == "" || o.APIVersion == "") {
			return fmt.Errorf("the value has no kind or apiVersion")
		}
		return nil
	}
	if version := strings.TrimPrefix(typ.Group+"/"+typ.Version, "/"); o.Kind != typ.Kind || o.APIVersion != version {
		return fmt.Errorf("the value is a %s of %s: want a %s of %s", o.Kind, o.APIVersion, typ.Kind, version)
	}
	if err := wire.CheckQuantities(value, reflect.TypeOf(typ.New())); err != nil {
		return err
	}
	_, err := wire.Unmarshal(value, typ.New)
	return err
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
