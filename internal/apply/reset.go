package apply

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// A filter says what a writer of a kind, or of one of its subresources, never owns,
// because the server puts it back: row S6. The nil filter lets everything pass.
type filter struct {
	// without are paths that are never owned, with all below them; only, where it is
	// not empty, are the paths below which all is owned, and nothing else. A path's
	// names are separated by dots; "*" is any element of a list.
	without, only []string

	library fieldpath.Filter
}

// resets are those of the built-in kinds: by kind and subresource, "" being the
// object itself. They hold at every version of the kind.
var resets = map[schema.GroupKind]map[string]*filter{
	{Group: "", Kind: "Namespace"}:                                              {"": noStatus, "status": noSpec, "finalize": noStatus},
	{Group: "", Kind: "Node"}:                                                   statusAndSpec,
	{Group: "", Kind: "PersistentVolume"}:                                       statusAndSpec,
	{Group: "", Kind: "PersistentVolumeClaim"}:                                  statusAndSpec,
	{Group: "", Kind: "Pod"}:                                                    podResets,
	{Group: "", Kind: "ReplicationController"}:                                  statusAndSpec,
	{Group: "", Kind: "ResourceQuota"}:                                          statusAndSpec,
	{Group: "", Kind: "Service"}:                                                statusAndSpec,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:  statusAndRest,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:           statusAndSpec,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:                       statusAndRest,
	{Group: "apps", Kind: "DaemonSet"}:                                          statusAndSpec,
	{Group: "apps", Kind: "Deployment"}:                                         {"": noStatus, "status": without("spec", "metadata.labels")},
	{Group: "apps", Kind: "ReplicaSet"}:                                         statusAndSpec,
	{Group: "apps", Kind: "StatefulSet"}:                                        statusAndSpec,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:                     statusAndSpec,
	{Group: "batch", Kind: "CronJob"}:                                           statusAndSpec,
	{Group: "batch", Kind: "Job"}:                                               statusAndSpec,
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}:           signingResets,
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}:               {"status": noSpec},
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"}:                 statusAndRest,
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "PriorityLevelConfiguration"}: statusAndRest,
	{Group: "internal.apiserver.k8s.io", Kind: "StorageVersion"}:                statusAndRest,
	{Group: "networking.k8s.io", Kind: "Ingress"}:                               statusAndSpec,
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:                           {"": noStatus, "status": noRest},
	{Group: "policy", Kind: "PodDisruptionBudget"}:                              statusAndSpec,
	{Group: "resource.k8s.io", Kind: "DeviceTaintRule"}:                         statusAndRest,
	{Group: "resource.k8s.io", Kind: "ResourceClaim"}:                           statusAndRest,
	{Group: "resource.k8s.io", Kind: "ResourcePoolStatusRequest"}:               statusAndRest,
	{Group: "scheduling.k8s.io", Kind: "PodGroup"}:                              statusAndRest,
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:                         statusAndRest,
	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}:         statusAndRest,
}

var (
	noStatus = without("status")
	noSpec   = without("spec")
	noRest   = without("metadata", "spec")

	statusAndSpec = map[string]*filter{"": noStatus, "status": noSpec}
	statusAndRest = map[string]*filter{"": noStatus, "status": noRest}
	customResets  = statusAndRest

	podResets = map[string]*filter{
		"":                    noStatus,
		"status":              without("spec", "metadata.deletionTimestamp", "metadata.ownerReferences"),
		"ephemeralcontainers": only("spec.ephemeralContainers"),
		"resize": only("spec.containers.*.resources", "spec.containers.*.resizePolicy",
			"spec.initContainers.*.resources", "spec.initContainers.*.resizePolicy"),
	}
	signingResets = map[string]*filter{
		"":         without("spec", "status"),
		"status":   without("spec", "status.conditions"),
		"approval": without("spec", "status.certificate"),
	}
)

func resetsOf(kind schema.GroupKind) map[string]*filter { return resets[kind] }

func without(paths ...string) *filter {
	set := fieldpath.NewSet()
	for _, p := range paths {
		var names []any
		for name := range strings.SplitSeq(p, ".") {
			names = append(names, name)
		}
		set.Insert(fieldpath.MakePathOrDie(names...))
	}
	return &filter{without: paths, library: fieldpath.NewExcludeSetFilter(set)}
}

func only(paths ...string) *filter {
	var matchers []*fieldpath.SetMatcher
	for _, p := range paths {
		var parts []any
		for name := range strings.SplitSeq(p, ".") {
			if name == "*" {
				parts = append(parts, fieldpath.MatchAnyPathElement())
				continue
			}
			parts = append(parts, name)
		}
		matchers = append(matchers, fieldpath.MakePrefixMatcherOrDie(parts...))
	}
	return &filter{only: paths, library: fieldpath.NewIncludeMatcherFilter(matchers...)}
}
