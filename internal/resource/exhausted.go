package resource

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// Exhausted is the error of a write that needs a node port, an address or the like when none is free. Its code is that of
// kube-apiserver, 500. Clients can cause any number of such errors, so the log has one line a minute for all.
type Exhausted struct{ *apierrors.StatusError }
