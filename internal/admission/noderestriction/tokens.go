package noderestriction

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// tokens allows a node to request tokens that are bound to its Pods, for audiences that the
// volumes of the Pod name.
func (p restriction) tokens(ctx context.Context, r request) error {
	if r.Operation != admissionv1.Create || r.Subresource != "token" {
		return nil
	}
	asked := r.Object.(*authenticationv1.TokenRequest)
	ref := asked.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return r.Forbidden("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return r.Forbidden("node requested token with a pod binding without a uid")
	}
	pod, err := podOf(r, ref.Name)
	if err != nil {
		return err
	}
	if ref.UID != pod.UID {
		return r.Forbidden("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != r.node {
		return r.Forbidden("node requested token bound to a pod scheduled on a different node")
	}
	audience := ""
	switch len(asked.Spec.Audiences) {
	case 0:
	case 1:
		audience = asked.Spec.Audiences[0]
	default:
		return r.Forbidden("node may only request 0 or 1 audiences")
	}
	return p.checkAudience(ctx, r, pod, audience)
}

// checkAudience allows an audience that a volume of the Pod names, or that the node may request by
// a right of its own.
func (p restriction) checkAudience(ctx context.Context, r request, pod *corev1.Pod, audience string) error {
	named, err := namesAudience(r, pod, audience)
	switch {
	case err != nil:
		return r.Forbidden("error validating audience %q: %w", audience, err)
	case named:
		return nil
	}
	if p.authz != nil {
		ok, _, err := authz.Allowed(ctx, p.authz, &authz.Attributes{
			User: r.User, IsResource: true, Verb: "request-serviceaccounts-token-audience",
			Version: "v1", Resource: audience, Namespace: r.Namespace, Name: r.Name,
		})
		if ok || err != nil {
			return err
		}
	}
	return r.Forbidden("%s is not authorized to request tokens for audience %q", r.User.Name, audience)
}

// namesAudience reports whether a volume of a Pod names an audience: by a projected token, or by
// the driver of the volume.
func namesAudience(r request, pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience
		}) {
			return true, nil
		}
		driver, err := driverOf(r, pod, v)
		if err == nil && driver != "" {
			var has bool
			if has, err = driverNames(r, driver, audience); has {
				return true, nil
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return false, utilerrors.NewAggregate(errs)
}

// driverOf returns the CSI driver of a volume, or "".
func driverOf(r request, pod *corev1.Pod, v *corev1.Volume) (string, error) {
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return driverOfClaim(r, pod.Name+"-"+v.Name)
	case v.PersistentVolumeClaim != nil:
		return driverOfClaim(r, v.PersistentVolumeClaim.ClaimName)
	case v.CSI != nil:
		return v.CSI.Driver, nil
	case v.AWSElasticBlockStore != nil:
		return awsDisk, nil
	case v.GCEPersistentDisk != nil:
		return gceDisk, nil
	case v.Cinder != nil:
		return cinder, nil
	case v.AzureDisk != nil:
		return azureDisk, nil
	case v.AzureFile != nil:
		return azureFile, nil
	case v.VsphereVolume != nil:
		return vsphere, nil
	case v.PortworxVolume != nil:
		return portworx, nil
	}
	return "", nil
}

// The drivers of volumes that were a part of Kubernetes once.
const (
	awsDisk   = "ebs.csi.aws.com"
	gceDisk   = "pd.csi.storage.gke.io"
	cinder    = "cinder.csi.openstack.org"
	azureDisk = "disk.csi.azure.com"
	azureFile = "file.csi.azure.com"
	vsphere   = "csi.vsphere.vmware.com"
	portworx  = "pxd.portworx.com"
)

func driverOfClaim(r request, name string) (string, error) {
	claim, err := get[corev1.PersistentVolumeClaim](r, storedClaims, r.Namespace+"/", name)
	if err != nil {
		return "", err
	}
	volume, err := get[corev1.PersistentVolume](r, storedVolumes, "", claim.Spec.VolumeName)
	if err != nil {
		return "", err
	}
	s := &volume.Spec
	switch {
	case s.CSI != nil:
		return s.CSI.Driver, nil
	case s.AWSElasticBlockStore != nil:
		return awsDisk, nil
	case s.GCEPersistentDisk != nil:
		return gceDisk, nil
	case s.Cinder != nil:
		return cinder, nil
	case s.AzureDisk != nil:
		return azureDisk, nil
	case s.AzureFile != nil:
		return azureFile, nil
	case s.VsphereVolume != nil:
		return vsphere, nil
	case s.PortworxVolume != nil:
		return portworx, nil
	}
	return "", nil
}

func driverNames(r request, name, audience string) (bool, error) {
	driver, err := get[storagev1.CSIDriver](r, storedDrivers, "", name)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(driver.Spec.TokenRequests, func(t storagev1.TokenRequest) bool { return t.Audience == audience }), nil
}

// stored is where the objects of a kind are, and the name of the kind in errors.
type stored struct {
	collection string
	kind       schema.GroupResource
}

var (
	storedPods     = stored{"pods", schema.GroupResource{Resource: "pod"}}
	storedNodes    = stored{"nodes", schema.GroupResource{Resource: "node"}}
	storedAccounts = stored{"serviceaccounts", schema.GroupResource{Resource: "serviceaccount"}}
	storedClaims   = stored{"persistentvolumeclaims", schema.GroupResource{Resource: "persistentvolumeclaim"}}
	storedVolumes  = stored{"persistentvolumes", schema.GroupResource{Resource: "persistentvolume"}}
	storedDrivers  = stored{"csidrivers.storage.k8s.io", schema.GroupResource{Group: "storage.k8s.io", Resource: "csidriver"}}
)

// get returns a stored object. The prefix is its namespace with a slash, or empty.
func get[T any, P interface {
	*T
	runtime.Object
}](r request, of stored, prefix, name string) (P, error) {
	o := r.State.Get(of.collection, prefix+name)
	if o == nil {
		return nil, apierrors.NewNotFound(of.kind, name)
	}
	return registry.Decode[T, P](o)
}
