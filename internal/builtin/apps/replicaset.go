package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// DefaultReplicaSet fills in what a client leaves out.
func DefaultReplicaSet(r *appsv1.ReplicaSet) {
	orPointer(&r.Spec.Replicas, 1)
	core.DefaultTemplate(&r.Spec.Template)
}
