// Package noderestriction is the admission plugin NodeRestriction. It restricts the writes of
// nodes, which are users system:node:NAME of the group system:nodes, to their own Node, lease and
// CSINode, the status of their Pods, mirror Pods, and tokens for their Pods. Restrictions that do
// not depend on the body of a request are the node authorizer's.
package noderestriction

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/node"
	"github.com/tidemark-dev/tidemark/internal/builtin/certificates"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// restriction is the plugin.
type restriction struct {
	authz authz.Authorizer // nil: it allows nothing
}

// request is a write of a node.
type request struct {
	*registry.Attributes
	node string
}

// Plugin returns the plugin. The authorizer decides which nodes may request tokens for other
// audiences than those that their Pods name; nil: none may.
func Plugin(a authz.Authorizer) registry.Plugin {
	p := restriction{a}
	rules := p.rules()
	return registry.Plugin{
		Users: func(u *authn.User) bool { _, ok := node.NameOf(u); return ok },
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return o != admissionv1.Connect && rules[t.Type.Collection] != nil
		},
		Mutate: func(ctx context.Context, a *registry.Attributes) error {
			name, _ := node.NameOf(a.User)
			if name == "" {
				return a.Forbidden("could not determine node from user %q", a.User.Name)
			}
			return rules[a.Type.Collection](ctx, request{a, name})
		},
	}
}

type rule func(ctx context.Context, r request) error

// rules are the rules of collections. The others are left to authorization.
func (p restriction) rules() map[string]rule {
	return map[string]rule{
		"pods":                           func(_ context.Context, r request) error { return pods(r) },
		"nodes":                          func(_ context.Context, r request) error { return nodes(r) },
		"persistentvolumeclaims":         func(_ context.Context, r request) error { return claims(r) },
		"serviceaccounts":                p.tokens,
		"leases.coordination.k8s.io":     func(_ context.Context, r request) error { return leases(r) },
		"csinodes.storage.k8s.io":        func(_ context.Context, r request) error { return csiNodes(r) },
		"resourceslices.resource.k8s.io": func(_ context.Context, r request) error { return resourceSlices(r) },
		"podcertificaterequests.certificates.k8s.io":     p.podCertificates,
		"certificatesigningrequests.certificates.k8s.io": func(_ context.Context, r request) error { return signingRequests(r) },
	}
}

// nodes allows a node to write its own Node, except for fields that would attract the Pods of
// others.
func nodes(r request) error {
	if r.Name != r.node {
		return r.Forbidden("node %q is not allowed to modify node %q", r.node, r.Name)
	}
	switch r.Operation {
	case admissionv1.Create:
		next := r.Object.(*corev1.Node)
		//lint:ignore SA1019 old clients can send it
		if next.Spec.ConfigSource != nil {
			return r.Forbidden("node %q is not allowed to create pods with a non-nil configSource", r.node)
		}
		if bad := forbiddenLabels(next.Labels, nil); len(bad) > 0 {
			return r.Forbidden("node %q is not allowed to set the following labels: %s", r.node, strings.Join(bad, ", "))
		}
	case admissionv1.Update:
		next, old := r.Object.(*corev1.Node), r.Old.(*corev1.Node)
		//lint:ignore SA1019 old clients can send it
		if s := next.Spec.ConfigSource; s != nil && !equality.Semantic.DeepEqual(s, old.Spec.ConfigSource) {
			return r.Forbidden("node %q is not allowed to update configSource to a new non-nil configSource", r.node)
		}
		if !equality.Semantic.DeepEqual(next.Spec.Taints, old.Spec.Taints) {
			return r.Forbidden("node %q is not allowed to modify taints", r.node)
		}
		if !equality.Semantic.DeepEqual(next.OwnerReferences, old.OwnerReferences) {
			return r.Forbidden("node %q is not allowed to modify ownerReferences", r.node)
		}
		if bad := forbiddenLabels(next.Labels, old.Labels); len(bad) > 0 {
			return r.Forbidden("is not allowed to modify labels: %s", strings.Join(bad, ", "))
		}
	}
	return nil
}

// forbiddenLabels returns the labels that differ, and that a node must not set, sorted.
func forbiddenLabels(next, old map[string]string) []string {
	var bad []string
	check := func(some, other map[string]string) {
		for key, value := range some {
			if have, ok := other[key]; (!ok || have != value) && reserved(key) && !slices.Contains(bad, key) {
				bad = append(bad, key)
			}
		}
	}
	check(next, old)
	check(old, next)
	slices.Sort(bad)
	return bad
}

// reserved reports whether a label of a Node is for administrators: those of Kubernetes, but for
// a few that each node sets.
func reserved(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	of := func(domains ...string) bool {
		return slices.ContainsFunc(domains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
	}
	switch {
	case of(corev1.LabelNamespaceNodeRestriction):
		return true
	case !of("kubernetes.io", "k8s.io"), of(corev1.LabelNamespaceSuffixKubelet, corev1.LabelNamespaceSuffixNode):
		return false
	}
	switch key {
	case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
		corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable,
		corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch":
		return false
	}
	return true
}

// claims allows a node to report the capacity of a claim.
func claims(r request) error {
	if r.Subresource != "status" {
		return r.Forbidden("may only update PVC status")
	}
	if r.Operation != admissionv1.Update {
		return r.Forbidden("unexpected operation %q", r.Operation)
	}
	bare := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		c = c.DeepCopy()
		c.ResourceVersion, c.ManagedFields = "", nil
		s := &c.Status
		s.Capacity, s.Conditions, s.AllocatedResources, s.AllocatedResourceStatuses = nil, nil, nil, nil
		return c
	}
	old, next := bare(r.Old.(*corev1.PersistentVolumeClaim)), bare(r.Object.(*corev1.PersistentVolumeClaim))
	if !equality.Semantic.DeepEqual(old, next) {
		return r.Forbidden("node %q is not allowed to update fields other than status.quantity and status.conditions: %v", r.node, diff.Diff(old, next))
	}
	return nil
}

func leases(r request) error {
	if r.Namespace != corev1.NamespaceNodeLease {
		return r.Forbidden("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	if r.Name != r.node {
		return r.Forbidden("can only access node lease with the same name as the requesting node")
	}
	return nil
}

func csiNodes(r request) error {
	if r.Name != r.node {
		return r.Forbidden("can only access CSINode with the same name as the requesting node")
	}
	if r.Subresource == "status" {
		return r.Forbidden("CSIVolumeHealth feature gate is disabled")
	}
	return nil
}

// resourceSlices checks new slices, and deleted ones, since a node may delete a collection. The
// node of a slice does not change.
func resourceSlices(r request) error {
	var slice *resourcev1.ResourceSlice
	verb := "create"
	switch r.Operation {
	case admissionv1.Create:
		slice = r.Object.(*resourcev1.ResourceSlice)
	case admissionv1.Delete:
		slice, verb = r.Old.(*resourcev1.ResourceSlice), "delete"
	default:
		return nil
	}
	if ptr.Deref(slice.Spec.NodeName, "") != r.node {
		return r.Forbidden("can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}

// signingRequests checks that a certificate for nodes names the node. The signer checks the rest.
func signingRequests(r request) error {
	if r.Operation != admissionv1.Create {
		return nil
	}
	asked := r.Object.(*certificatesv1.CertificateSigningRequest)
	if s := asked.Spec.SignerName; s != certificatesv1.KubeletServingSignerName && s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	parsed, err := certificates.Parse(asked)
	if err != nil {
		return r.Forbidden("unable to parse csr: %w", err)
	}
	if want := fmt.Sprintf("system:node:%s", r.node); parsed.Subject.CommonName != want {
		return r.Forbidden("can only create a node CSR with CN=%s", want)
	}
	return nil
}
