package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/impersonation"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// claimRights requires further rights for changes of the status of a ResourceClaim: on resourceclaims/binding to change
// allocation or reservedFor, and on resourceclaims/driver, with the name of the driver, to change its devices. These
// subresources exist for authorization only. For a service account on the node of the allocation, the right for that node
// suffices.
func claimRights(c *Config) registry.Plugin {
	if c.Authz == nil {
		return registry.Plugin{}
	}
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return t.Type.Collection == claims && t.Subresource == "status" && o == admissionv1.Update
		},
		Users: func(u *authn.User) bool { return u != nil },
		Causes: func(ctx context.Context, a *registry.Attributes) (field.ErrorList, error) {
			next, last := &a.Object.(*resourcev1.ResourceClaim).Status, &a.Old.(*resourcev1.ResourceClaim).Status
			right := authz.Attributes{User: a.User, IsResource: true, Verb: a.RequestVerb(), Group: resourcev1.GroupName, Version: a.Type.Version, Resource: a.Type.Resource}
			errs, err := c.mayBind(ctx, right, next, last)
			if err != nil {
				return nil, err
			}
			right.Namespace = a.Namespace
			more, err := c.mayReport(ctx, right, next, last)
			return append(errs, more...), err
		},
	}
}

// mayBind checks the right to change the allocation of a claim. The error is that of authz.Undecided.
func (c *Config) mayBind(ctx context.Context, right authz.Attributes, next, last *resourcev1.ResourceClaimStatus) (field.ErrorList, error) {
	if equality.Semantic.DeepEqual(next.Allocation, last.Allocation) && equality.Semantic.DeepEqual(next.ReservedFor, last.ReservedFor) {
		return nil, nil
	}
	right.Subresource = "binding"
	switch err := authz.Require(ctx, c.Authz, &right); {
	case authz.IsUndecided(err):
		return nil, err
	case err != nil:
		return field.ErrorList{field.Forbidden(field.NewPath("status"), fmt.Sprintf(
			`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, right.Verb, err))}, nil
	}
	return nil, nil
}

// mayReport checks the rights to change the status of the devices of drivers. The error is that of
// authz.Undecided.
func (c *Config) mayReport(ctx context.Context, right authz.Attributes, next, last *resourcev1.ResourceClaimStatus) (errs field.ErrorList, err error) {
	right.Subresource = "driver"
	verbs := []string{"arbitrary-node:" + right.Verb}
	if node := allocatedNode(next.Allocation); node != "" && impersonation.NodeOf(right.User) == node {
		verbs = []string{"associated-node:" + right.Verb, verbs[0]}
	}
	for _, driver := range changedDrivers(next.Devices, last.Devices) {
		var first, undecided error
		allowed := slices.ContainsFunc(verbs, func(verb string) bool {
			right.Verb, right.Name = verb, driver
			err := authz.Require(ctx, c.Authz, &right)
			if authz.IsUndecided(err) {
				undecided = err
			}
			first = cmp.Or(first, err)
			return err == nil
		})
		switch {
		case allowed:
		case undecided != nil:
			return nil, undecided
		default:
			errs = append(errs, field.Forbidden(field.NewPath("status", "devices"), fmt.Sprintf(
				`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, first)))
		}
	}
	return errs, nil
}

// changedDrivers returns the drivers whose devices differ, sorted.
func changedDrivers(next, last []resourcev1.AllocatedDeviceStatus) []string {
	type device struct{ driver, pool, device, share string }
	idOf := func(d *resourcev1.AllocatedDeviceStatus) device {
		id := device{d.Driver, d.Pool, d.Device, ""}
		if d.ShareID != nil {
			id.share = *d.ShareID
		}
		return id
	}
	before, drivers := map[device]*resourcev1.AllocatedDeviceStatus{}, map[string]bool{}
	for i := range last {
		before[idOf(&last[i])] = &last[i]
	}
	for i := range next {
		id := idOf(&next[i])
		if was := before[id]; was == nil || !equality.Semantic.DeepEqual(*was, next[i]) {
			drivers[id.driver] = true
		}
		delete(before, id)
	}
	for id := range before {
		drivers[id.driver] = true
	}
	return slices.Sorted(maps.Keys(drivers))
}

// allocatedNode returns the node of an allocation that is for a single node; empty otherwise.
func allocatedNode(a *resourcev1.AllocationResult) string {
	if a == nil || a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != "metadata.name" || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}
