package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// RangeAllocations is the type of kube-apiserver's bitmaps of what it has allocated. It is stored, and not
// served: no catalog has it.
var RangeAllocations = &resource.Type{
	Names:      resource.Names{Version: "v1", Kind: "RangeAllocation", Resource: "ranges", Singular: "range"},
	Collection: "ranges",
	New:        func() runtime.Object { return new(corev1.RangeAllocation) },
}
