package devices

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

const (
	mostConditions  = 8
	longestData     = 10 << 10 // bytes of the data of a driver
	longestName     = 256      // of an interface
	longestHardware = 128
	mostAddresses   = 16
)

// SetClaimStatus sets the status of a claim. The statuses of devices that are no longer
// allocated are removed.
func SetClaimStatus(c, sent *resourcev1.ResourceClaim) {
	was := c.Status.Allocation
	c.Status = sent.Status
	if was == nil {
		return
	}
	had, has := allocatedIn(was), allocatedIn(c.Status.Allocation)
	gone := func(d resourcev1.AllocatedDeviceStatus) bool {
		return had.Has(deviceOf(&d)) && !has.Has(deviceOf(&d))
	}
	c.Status.Devices = slices.DeleteFunc(slices.Clone(c.Status.Devices), gone)
}

// allocated is a device, or a share of one, as results and statuses name it.
type allocated struct {
	driver, pool, device, share string
	isShare                     bool
}

func deviceOf(d *resourcev1.AllocatedDeviceStatus) allocated {
	one := allocated{driver: d.Driver, pool: d.Pool, device: d.Device, isShare: d.ShareID != nil}
	if one.isShare {
		one.share = *d.ShareID
	}
	return one
}

// allocatedIn are the devices of an allocation, which may be nil.
func allocatedIn(a *resourcev1.AllocationResult) (all check.Seen[allocated]) {
	if a == nil {
		return all
	}
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		one := allocated{driver: r.Driver, pool: r.Pool, device: r.Device, isShare: r.ShareID != nil}
		if one.isShare {
			one.share = string(*r.ShareID)
		}
		all.Again(one)
	}
	return all
}

// ValidateClaimStatus checks an update of the status. An allocation is immutable until it is
// removed.
func ValidateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	s, was, path := &c.Status, &old.Status, field.NewPath("status")
	reserved := path.Child("reservedFor")
	devices := allocatedIn(s.Allocation)
	errs := eachOnce(s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, reserved,
		func(r *resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID }, validateConsumer)
	errs = append(errs, eachOnce(s.Devices, -1, path.Child("devices"),
		sharedOf,
		func(d *resourcev1.AllocatedDeviceStatus, path *field.Path) field.ErrorList {
			return validateDeviceStatus(d, &devices, path)
		})...)
	switch {
	case len(s.ReservedFor) == 0:
	case s.Allocation == nil:
		errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
	case c.DeletionTimestamp != nil && addsTo(was.ReservedFor, s.ReservedFor):
		errs = append(errs, field.Forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	at := path.Child("allocation")
	switch {
	case s.Allocation == nil:
	case was.Allocation == nil:
		errs = append(errs, validateAllocation(&s.Allocation.Devices, &c.Spec.Devices, at.Child("devices"))...)
		if n := s.Allocation.NodeSelector; n != nil {
			errs = append(errs, validateNodes(n, at.Child("nodeSelector"))...)
		}
	case !equality.Semantic.DeepEqual(s.Allocation, was.Allocation):
		errs = append(errs, field.Invalid(at, check.Bare(s.Allocation), "field is immutable").WithOrigin("update"))
	}
	return errs
}

// addsTo reports whether now has an item that was lacks.
func addsTo[T comparable](was, now []T) bool {
	had := check.SeenIn(was)
	return slices.ContainsFunc(now, func(v T) bool { return !had.Has(v) })
}

func validateConsumer(r *resourcev1.ResourceClaimConsumerReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, x := range []struct{ field, value string }{{"resource", r.Resource}, {"name", r.Name}, {"uid", string(r.UID)}} {
		if x.value == "" {
			errs = append(errs, field.Required(path.Child(x.field), ""))
		}
	}
	return errs
}

var sources = []resourcev1.AllocationConfigSource{resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass}

func validateAllocation(a *resourcev1.DeviceAllocationResult, claim *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	errs := each(a.Results, resourcev1.AllocationResultsMaxSize, path.Child("results"),
		func(r *resourcev1.DeviceRequestAllocationResult, path *field.Path) field.ErrorList {
			errs := validateReference(r.Request, claim, path.Child("request"))
			errs = append(errs, validateDriver(r.Driver, path.Child("driver"))...)
			errs = append(errs, validatePool(r.Pool, path.Child("pool"))...)
			errs = append(errs, validateLabel(r.Device, path.Child("device"))...)
			errs = append(errs, validateBinding(r.BindingConditions, r.BindingFailureConditions, path)...)
			errs = append(errs, each(r.Tolerations, -1, path.Child("tolerations"), validateToleration)...)
			if r.ShareID != nil {
				errs = append(errs, validateUID(string(*r.ShareID), path.Child("shareID"))...)
			}
			return errs
		})
	return append(errs, each(a.Config, 2*resourcev1.DeviceConfigMaxSize, path.Child("config"), // of the class and of the claim
		func(c *resourcev1.DeviceAllocationConfiguration, path *field.Path) field.ErrorList {
			var errs field.ErrorList
			if c.Source == "" {
				errs = append(errs, field.Required(path.Child("source"), ""))
			} else if !slices.Contains(sources, c.Source) {
				errs = append(errs, field.NotSupported(path.Child("source"), c.Source, sources))
			}
			errs = append(errs, validateReferences(c.Requests, claim, path.Child("requests"))...)
			return append(errs, validateConfiguration(&c.DeviceConfiguration, path)...)
		})...)
}

func validateDeviceStatus(d *resourcev1.AllocatedDeviceStatus, devices *check.Seen[allocated], path *field.Path) field.ErrorList {
	errs := validateDriver(d.Driver, path.Child("driver"))
	errs = append(errs, validatePool(d.Pool, path.Child("pool"))...)
	errs = append(errs, validateLabel(d.Device, path.Child("device"))...)
	if d.ShareID != nil {
		errs = append(errs, validateUID(*d.ShareID, path.Child("shareID"))...)
	}
	if !devices.Has(deviceOf(d)) {
		errs = append(errs, field.Invalid(path, sharedOf(d), "must be an allocated device in the claim"))
	}
	if n := len(d.Conditions); n > mostConditions {
		errs = append(errs, field.TooMany(path.Child("conditions"), n, mostConditions))
	}
	errs = append(errs, check.Conditions(d.Conditions, path.Child("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateObject(*d.Data, longestData, path.Child("data"))...)
	}
	if n := d.NetworkData; n != nil {
		errs = append(errs, validateNetwork(n, path.Child("networkData"))...)
	}
	return errs
}

// shared is a device, or the part of one that is allocated by itself.
type shared struct{ Driver, Pool, Device, ShareID string }

func sharedOf(d *resourcev1.AllocatedDeviceStatus) shared {
	s := shared{Driver: d.Driver, Pool: d.Pool, Device: d.Device}
	if d.ShareID != nil {
		s.ShareID = *d.ShareID
	}
	return s
}

// validateUID requires a UUID as Kubernetes writes it.
func validateUID(uid string, path *field.Path) field.ErrorList {
	return uuid(uid, path).WithOrigin("format=k8s-uuid")
}

func uuid(uid string, path *field.Path) field.ErrorList {
	const hyphens = "        -    -    -    -            "
	if len(uid) != len(hyphens) {
		return field.ErrorList{field.Invalid(path, uid, fmt.Sprintf("error validating uid: invalid UUID length: %d", len(uid)))}
	}
	for i, c := range uid {
		hyphen := hyphens[i] == '-'
		switch {
		case hyphen && c == '-', !hyphen && ('0' <= c && c <= '9' || 'a' <= c && c <= 'f'):
		case !hyphen && 'A' <= c && c <= 'F':
			return field.ErrorList{field.Invalid(path, uid, "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters")}
		default:
			return field.ErrorList{field.Invalid(path, uid, "error validating uid: invalid UUID format")}
		}
	}
	return nil
}

func validateNetwork(n *resourcev1.NetworkDeviceData, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(n.InterfaceName) > longestName {
		errs = append(errs, field.TooLong(path.Child("interfaceName"), "", longestName))
	}
	if len(n.HardwareAddress) > longestHardware {
		errs = append(errs, field.TooLong(path.Child("hardwareAddress"), "", longestHardware))
	}
	return append(errs, eachOnce(n.IPs, mostAddresses, path.Child("ips"), itself, func(ip *string, path *field.Path) field.ErrorList {
		return validation.IsValidInterfaceAddress(path, *ip)
	})...)
}
