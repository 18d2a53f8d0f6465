package registry

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/wire"
)

// encode makes the bytes that are stored. The version before is nil for a new
// object.
func (r *Registry) encode(w *write, before *existing, next runtime.Object) (wire.Encoded, error) {
	e, err := wire.Encode(w.stored(), next)
	if err != nil {
		return e, apierrors.NewBadRequest(err.Error())
	}
	return e, nil
}
