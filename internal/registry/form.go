package registry

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Form is a version in which a client can send a request: its resource and the kind of its body.
type Form struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
}

// Forms returns the form of the request first, then the equivalent ones.
func (a *Attributes) Forms() []Form {
	forms := []Form{{Resource: a.RequestedResource(), Kind: a.RequestedKind()}}
	for _, t := range a.Type.Versions {
		if t == a.Type {
			continue
		}
		other := a.Target
		other.Type = t
		forms = append(forms, Form{Resource: t.GroupVersion().WithResource(t.Resource), Kind: other.Exchanged().GroupVersionKind()})
	}
	return forms
}
