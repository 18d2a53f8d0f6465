package apply

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// A filter lists fields that a writer of a kind, or of one of its subresources, never owns, because
// the server resets them. The nil filter passes everything. The names of a path are separated by
// dots.
type filter struct {
	tree    *names // the paths that are never owned, with all below them
	library fieldpath.Filter
}

// names is a tree of names. A leaf stands for all below it.
type names struct {
	leaf  bool
	below map[string]*names
}

func (n *names) add(path string) {
	for name := range strings.SplitSeq(path, ".") {
		if n.below == nil {
			n.below = map[string]*names{}
		}
		if n.below[name] == nil {
			n.below[name] = &names{}
		}
		n = n.below[name]
	}
	n.leaf = true
}

// of returns the tree below a path element, or nil.
func (n *names) of(at *node) *names {
	if at.tag != 'f' {
		return nil
	}
	return n.below[string(at.text)]
}

// filter removes the filtered fields from changes.
func (f *filter) filter(t *trie) {
	if f != nil {
		f.below(t, &t.nodes[0], f.tree)
	}
}

func (f *filter) below(t *trie, n *node, of *names) {
	for i := range t.below(n) {
		child := &t.below(n)[i]
		switch to := of.of(child); {
		case to == nil:
		case to.leaf:
			child.marks, child.n = 0, 0
		default:
			f.below(t, child, to)
		}
	}
}

// resets are the filters of the built-in kinds, by kind and subresource, "" for the object
// itself. They apply at each version of the kind.
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
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}:               statusAndRest,
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
	{Group: "storage.k8s.io", Kind: "CSINode"}:                                  statusAndRest,
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

	// Writers of ephemeralcontainers and resize own all fields that they send, also those that are
	// not stored.
	podResets = map[string]*filter{
		"":       noStatus,
		"status": without("spec", "metadata.deletionTimestamp", "metadata.ownerReferences"),
	}
	signingResets = map[string]*filter{
		"":         without("spec", "status"),
		"status":   without("spec", "status.conditions"),
		"approval": without("spec", "status.certificate"),
	}
)

func resetsOf(kind schema.GroupKind) map[string]*filter { return resets[kind] }

func without(paths ...string) *filter {
	set, tree := fieldpath.NewSet(), &names{}
	for _, p := range paths {
		tree.add(p)
		var names []any
		for name := range strings.SplitSeq(p, ".") {
			names = append(names, name)
		}
		set.Insert(fieldpath.MakePathOrDie(names...))
	}
	return &filter{tree: tree, library: fieldpath.NewExcludeSetFilter(set)}
}
