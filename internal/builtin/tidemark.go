package builtin

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// tidemarkGroup has the kinds that other API servers do not have.
func tidemarkGroup() resource.Group {
	return group("tidemark.dev", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "changes", Kind: "Change"},
			New:   object[Change], Namespaced: true, Verbs: []string{"list", "watch"},
		},
	}})
}

// Change is one change of one object. Package changes has its other fields; it is never stored.
type Change struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *Change) DeepCopyObject() runtime.Object {
	n := &Change{TypeMeta: c.TypeMeta}
	c.ObjectMeta.DeepCopyInto(&n.ObjectMeta)
	return n
}

// OpenAPIModelName is the name of the model in OpenAPI documents.
func (Change) OpenAPIModelName() string { return "dev.tidemark.v1.Change" }
