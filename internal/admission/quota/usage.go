package quota

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	podresources "k8s.io/component-helpers/resource"
)

// kind describes how the objects of a collection are counted.
type kind struct {
	// new makes an empty object; nil: only the number of objects counts.
	new func() runtime.Object
	// matches reports whether objects count towards a resource.
	matches func(name corev1.ResourceName) bool
	// usage returns the resources that an object uses, and until when if it stops counting without
	// a write.
	usage func(o runtime.Object, now time.Time) (corev1.ResourceList, time.Time)
	// inScope reports whether a scope selector matches an object; nil: none does.
	inScope func(s *corev1.ScopedResourceSelectorRequirement, o runtime.Object) bool
	// lacking returns a message about the fields that an object must have for a quota of these
	// resources, or "". A nil function means that no fields are required.
	lacking func(names []corev1.ResourceName, o runtime.Object) string
	// updates: an update can change the used resources.
	updates bool
}

// aliases are the old names of object counts.
var aliases = map[string]corev1.ResourceName{
	"configmaps":             corev1.ResourceConfigMaps,
	"resourcequotas":         corev1.ResourceQuotas,
	"replicationcontrollers": corev1.ResourceReplicationControllers,
	"secrets":                corev1.ResourceSecrets,
}

const (
	pods     = "pods"
	services = "services"
	claims   = "persistentvolumeclaims"
	devices  = "resourceclaims.resource.k8s.io"
)

// kinds are the collections with more resources than the number of objects.
var kinds = map[string]*kind{
	pods: {
		new: func() runtime.Object { return &corev1.Pod{} }, matches: ofPods, usage: podUsage, inScope: podInScope,
		lacking: podLacks, updates: true,
	},
	services: {
		new:     func() runtime.Object { return &corev1.Service{} },
		matches: oneOf(countPrefix+services, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers),
		usage:   serviceUsage, updates: true,
	},
	claims: {
		new: func() runtime.Object { return &corev1.PersistentVolumeClaim{} }, matches: ofClaims, usage: claimUsage, inScope: claimInScope,
		updates: true,
	},
	devices: {
		new: func() runtime.Object { return &resourcev1.ResourceClaim{} },
		matches: func(name corev1.ResourceName) bool {
			return name == countPrefix+devices || strings.HasSuffix(string(name), perDeviceClass)
		},
		usage: deviceUsage, updates: true,
	},
}

// kindOf returns how a collection is counted, nil if it is not.
func kindOf(collection string) *kind {
	if k := kinds[collection]; k != nil {
		return k
	}
	for _, name := range ignored {
		if name == collection {
			return nil
		}
	}
	name := corev1.ResourceName(countPrefix + collection)
	alias, ok := aliases[collection]
	if !ok {
		alias = name
	}
	return &kind{matches: oneOf(name, alias), usage: func(runtime.Object, time.Time) (corev1.ResourceList, time.Time) {
		return corev1.ResourceList{name: one, alias: one}, time.Time{}
	}}
}

func oneOf(names ...corev1.ResourceName) func(corev1.ResourceName) bool {
	return func(name corev1.ResourceName) bool {
		for _, n := range names {
			if n == name {
				return true
			}
		}
		return false
	}
}

const (
	requestsPrefix = corev1.DefaultResourceRequestsPrefix
	perDeviceClass = corev1.ResourceClaimsPerClass
	perImplicit    = requestsPrefix + resourcev1.ResourceDeviceClassPrefix
	perClass       = ".storageclass.storage.k8s.io/"
)

var ofPodsAlways = oneOf(countPrefix+pods, corev1.ResourcePods,
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage)

// ofPods matches the number of Pods and compute resources: the native ones, huge pages, and
// requests for extended resources.
func ofPods(name corev1.ResourceName) bool {
	text := string(name)
	if ofPodsAlways(name) || strings.HasPrefix(text, corev1.ResourceHugePagesPrefix) || strings.HasPrefix(text, corev1.ResourceRequestsHugePagesPrefix) {
		return true
	}
	return strings.HasPrefix(text, requestsPrefix) && (!isNative(name) || strings.HasPrefix(text, perImplicit))
}

// isNative reports whether a resource is native to Kubernetes.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// isForeign reports whether a resource is an extended resource, which has no separate limit.
func isForeign(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return !isNative(name) && !strings.HasPrefix(string(name), requestsPrefix) && len(validation.IsQualifiedName(requestsPrefix+string(name))) == 0
}

// podUsage returns the resources of a Pod. A Pod that has ended, or that should have stopped
// long ago, counts only as an object.
func podUsage(o runtime.Object, now time.Time) (corev1.ResourceList, time.Time) {
	p := o.(*corev1.Pod)
	used := corev1.ResourceList{countPrefix + pods: one}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return used, time.Time{}
	}
	var until time.Time
	if p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil {
		until = p.DeletionTimestamp.Add(time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
		if now.After(until) {
			return used, time.Time{}
		}
	}
	how := podresources.PodResourcesOptions{UseStatusResources: true}
	for name, q := range compute(podresources.PodRequests(p, how), podresources.PodLimits(p, how)) {
		used[name] = q
	}
	return used, until
}

// compute returns requests and limits by the names that quotas use.
func compute(requests, limits corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: one}
	for name, q := range requests {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name], used[requestsPrefix+name] = q, q
		case isForeign(name):
			used[requestsPrefix+name] = q
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := limits[name]; ok {
			used["limits."+name] = q
		}
	}
	return used
}

func serviceUsage(o runtime.Object, _ time.Time) (corev1.ResourceList, time.Time) {
	s := o.(*corev1.Service)
	ports, balancers := int64(0), int64(0)
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		balancers = 1
		if given := s.Spec.AllocateLoadBalancerNodePorts; given != nil && !*given {
			for _, p := range s.Spec.Ports {
				if p.NodePort != 0 {
					ports++
				}
			}
			break
		}
		ports = int64(len(s.Spec.Ports))
	case corev1.ServiceTypeNodePort:
		ports = int64(len(s.Spec.Ports))
	}
	return corev1.ResourceList{
		countPrefix + services:               one,
		corev1.ResourceServices:              one,
		corev1.ResourceServicesNodePorts:     *resource.NewQuantity(ports, resource.DecimalSI),
		corev1.ResourceServicesLoadBalancers: *resource.NewQuantity(balancers, resource.DecimalSI),
	}, time.Time{}
}

// ofClaims matches the number and the size of claims, in all and by storage class.
func ofClaims(name corev1.ResourceName) bool {
	switch name {
	case countPrefix + claims, corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage:
		return true
	}
	return strings.HasSuffix(string(name), perClass+claims) || strings.HasSuffix(string(name), perClass+string(corev1.ResourceRequestsStorage))
}

func claimUsage(o runtime.Object, _ time.Time) (corev1.ResourceList, time.Time) {
	c := o.(*corev1.PersistentVolumeClaim)
	used := corev1.ResourceList{countPrefix + claims: one, corev1.ResourcePersistentVolumeClaims: one}
	class := ""
	if named, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		class = named
	} else if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	if class != "" {
		used[corev1.ResourceName(class+perClass+claims)] = one
	}
	if size, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]; ok {
		if given, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && given.Cmp(size) > 0 {
			size = given
		}
		size = size.DeepCopy()
		size.RoundUp(0)
		used[corev1.ResourceRequestsStorage] = size
		if class != "" {
			used[corev1.ResourceName(class+perClass+string(corev1.ResourceRequestsStorage))] = size
		}
	}
	return used, time.Time{}
}

func deviceUsage(o runtime.Object, _ time.Time) (corev1.ResourceList, time.Time) {
	used := corev1.ResourceList{countPrefix + devices: one}
	count := func(mode resourcev1.DeviceAllocationMode, n int64) int64 {
		switch mode {
		case resourcev1.DeviceAllocationModeExactCount:
			return n
		case resourcev1.DeviceAllocationModeAll:
			return resourcev1.AllocationResultsMaxSize
		}
		return 0
	}
	for _, r := range o.(*resourcev1.ResourceClaim).Spec.Devices.Requests {
		most := map[string]int64{} // only one alternative is allocated
		for _, a := range r.FirstAvailable {
			most[a.DeviceClassName] = max(most[a.DeviceClassName], count(a.AllocationMode, a.Count))
		}
		if e := r.Exactly; e != nil && len(r.FirstAvailable) == 0 {
			most[e.DeviceClassName] = count(e.AllocationMode, e.Count)
		}
		for class, n := range most {
			addTo(used, corev1.ResourceName(class+perDeviceClass), *resource.NewQuantity(n, resource.DecimalSI))
		}
	}
	return used, time.Time{}
}
