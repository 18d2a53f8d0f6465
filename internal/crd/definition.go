package crd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	fastjson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Collection is where definitions are stored.
const Collection = "customresourcedefinitions.apiextensions.k8s.io"

// definition is a stored definition, decoded as far as needed.
type definition struct {
	stored *store.Object
	head   head
	// versions are those of the spec, in its order.
	versions []*version
	of       *identity // of the Set that read it; forks of the Set share the definition
	// ctx is canceled with the set.
	ctx context.Context
	// outdated is true once another definition has replaced it. Its deletion does not count.
	outdated *atomic.Bool
	// gone is true once it was replaced or deleted. Guarded by the mu of schemas.
	gone bool
	// hook returns the webhook that converts objects; nil: there is none. The first call makes it.
	hook func() (*webhook, error)
	// hooked is true once hook was called.
	hooked atomic.Bool
	bytes  int64 // see documentBytes
}

// head is the part of a definition that is decoded.
type head struct {
	Metadata struct {
		Name              string `json:"name"`
		UID               string `json:"uid"`
		Generation        int64  `json:"generation"`
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Group      string                                    `json:"group"`
		Scope      apiextensionsv1.ResourceScope             `json:"scope"`
		Conversion *apiextensionsv1.CustomResourceConversion `json:"conversion"`
		Versions   []versionHead                             `json:"versions"`
	} `json:"spec"`
	Status struct {
		AcceptedNames  apiextensionsv1.CustomResourceDefinitionNames       `json:"acceptedNames"`
		Conditions     []apiextensionsv1.CustomResourceDefinitionCondition `json:"conditions"`
		StoredVersions []string                                            `json:"storedVersions"`
	} `json:"status"`
}

// versionHead is the part of a version that is decoded.
type versionHead struct {
	Name               string                                           `json:"name"`
	Served             bool                                             `json:"served"`
	Storage            bool                                             `json:"storage"`
	Deprecated         bool                                             `json:"deprecated"`
	DeprecationWarning *string                                          `json:"deprecationWarning"`
	Schema             span                                             `json:"schema"`
	Subresources       *apiextensionsv1.CustomResourceSubresources      `json:"subresources"`
	Columns            []apiextensionsv1.CustomResourceColumnDefinition `json:"additionalPrinterColumns"`
	SelectableFields   []apiextensionsv1.SelectableField                `json:"selectableFields"`
}

// span has the offsets of a value in the stored definition.
type span struct{ from, to int64 }

// UnmarshalJSONFrom sets the offsets.
func (s *span) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	s.to = d.InputOffset()
	s.from = s.to - int64(len(v))
	return nil
}

// read decodes a stored definition. Its webhook looks Services up in the store of the Set.
func read(o *store.Object, s *Set) (*definition, error) {
	d := &definition{stored: o, of: s.identity, ctx: s.ctx, outdated: new(atomic.Bool)}
	if err := fastjson.Unmarshal(o.Bytes(), &d.head, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("the definition %s: %w", o.Key, err)
	}
	if d.hasWebhook() { // a definition without one does not hold the Set, which a fork may outlive
		d.hook = sync.OnceValues(func() (*webhook, error) {
			d.hooked.Store(true)
			return newWebhook(d.head.Spec.Conversion.Webhook, s.connections)
		})
	}
	d.bytes = documentBytes(d.head.Spec.Versions)
	for i := range d.head.Spec.Versions {
		d.versions = append(d.versions, &version{versionHead: &d.head.Spec.Versions[i], of: d})
	}
	return d, nil
}

// close closes the connections to the webhook.
func (d *definition) close() {
	if !d.hooked.Load() {
		return
	}
	if w, err := d.hook(); err == nil {
		w.close()
	}
}

// established reports whether the resource is served.
func (d *definition) established() bool {
	for i := range d.head.Status.Conditions {
		if c := &d.head.Status.Conditions[i]; c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// version returns the version of an apiVersion, nil if there is none.
func (d *definition) version(apiVersion string) *version {
	for _, v := range d.versions {
		if apiVersion == d.head.Spec.Group+"/"+v.Name {
			return v
		}
	}
	return nil
}

// storage returns the stored version. Validation ensures that there is one.
func (d *definition) storage() *version {
	for _, v := range d.versions {
		if v.Storage {
			return v
		}
	}
	return nil
}
