package admission

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	claims         = "resourceclaims.resource.k8s.io"
	claimTemplates = "resourceclaimtemplates.resource.k8s.io"
)

// adminAccess refuses access to devices that others use, unless the label of the namespace
// allows it: in new claims and templates, and in allocations.
func adminAccess(*Config) registry.Plugin {
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			switch t.Type.Collection {
			case claims:
				return t.Subresource == "" && o == admissionv1.Create || t.Subresource == "status" && o == admissionv1.Update
			case claimTemplates:
				return o == admissionv1.Create
			}
			return false
		},
		Causes: func(_ context.Context, a *registry.Attributes) (field.ErrorList, error) {
			at := wantsAdmin(a)
			if at == nil {
				return nil, nil
			}
			if n := a.State.Get(namespaces, a.Namespace); n != nil {
				made, err := registry.Decode[metav1.PartialObjectMetadata](n)
				if err != nil {
					return field.ErrorList{field.InternalError(at, err)}, nil
				}
				if made.Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true" {
					return nil, nil
				}
			}
			return field.ErrorList{field.Forbidden(at, "admin access to devices requires the `"+resourcev1.DRAAdminNamespaceLabelKey+": true` label on the containing namespace")}, nil
		},
	}
}

// wantsAdmin returns the path of the first field that asks for access as an administrator; nil:
// there is none, or it was granted already.
func wantsAdmin(a *registry.Attributes) *field.Path {
	switch o := a.Object.(type) {
	case *resourcev1.ResourceClaim:
		if old, ok := a.Old.(*resourcev1.ResourceClaim); ok {
			if allocatedToAdmin(old) != nil {
				return nil
			}
			return allocatedToAdmin(o)
		}
		return requestedByAdmin(o.Spec.Devices.Requests)
	case *resourcev1.ResourceClaimTemplate:
		return requestedByAdmin(o.Spec.Spec.Devices.Requests)
	}
	return nil
}

// requestedByAdmin returns the path that kube-apiserver names, in templates too.
func requestedByAdmin(all []resourcev1.DeviceRequest) *field.Path {
	for i := range all {
		if e := all[i].Exactly; e != nil && e.AdminAccess != nil && *e.AdminAccess {
			return field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
		}
	}
	return nil
}

func allocatedToAdmin(c *resourcev1.ResourceClaim) *field.Path {
	if c.Status.Allocation == nil {
		return nil
	}
	for i, r := range c.Status.Allocation.Devices.Results {
		if r.AdminAccess != nil && *r.AdminAccess {
			return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
		}
	}
	return nil
}
