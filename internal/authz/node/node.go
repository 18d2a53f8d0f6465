// Package node authorizes nodes: users system:node:NAME of the group system:nodes. A node may read
// the objects that its Pods refer to, and write its own objects. The rules and reasons are those of
// kube-apiserver's node authorizer; the admission plugin NodeRestriction has the checks that depend
// on the body of a request.
package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Authorizer authorizes nodes, and has no opinion on other users. It is safe for concurrent use;
// make one with New.
type Authorizer struct {
	store *store.Store
	graph *graph
}

// New returns the authorizer of the nodes whose Pods and volumes are in a store. Each decision
// follows from the newest state.
func New(s *store.Store) *Authorizer { return &Authorizer{s, newGraph()} }

// NameOf returns the name of the node that a user is; ok is false for other users. The name may
// be empty: such a node has no rights.
func NameOf(u *authn.User) (name string, ok bool) {
	if u == nil {
		return "", false
	}
	if name, ok = strings.CutPrefix(u.Name, "system:node:"); !ok || !slices.Contains(u.Groups, "system:nodes") {
		return "", false
	}
	return name, true
}

// Rules implements authz.Ruler. The rules of nodes depend on too many objects to list them.
func (n *Authorizer) Rules(_ context.Context, u *authn.User, _ string) authz.Rules {
	if _, ok := NameOf(u); !ok {
		return authz.Rules{}
	}
	return authz.Rules{Incomplete: true, Err: errors.New("node authorizer does not support user rule resolution")}
}

// Authorize implements authz.Authorizer. It never denies: other authorizers may allow more.
func (n *Authorizer) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	name, ok := NameOf(a.User)
	if !ok {
		return authz.NoOpinion, "", nil
	}
	if name == "" {
		return authz.NoOpinion, fmt.Sprintf("unknown node for user %q", a.User.Name), nil
	}
	if !a.IsResource {
		return authz.NoOpinion, "", nil
	}
	r := request{n, a, name}
	if rule, ok := rules[schema.GroupResource{Group: a.Group, Resource: a.Resource}]; ok {
		if allowed, reason := rule(r); !allowed {
			return authz.NoOpinion, reason, nil
		}
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// request is a request of a node.
type request struct {
	*Authorizer
	*authz.Attributes
	node string
}

// rule decides on requests for a resource. The reason is for a request that it does not allow.
type rule func(r request) (allowed bool, reason string)

// rules are the rules of resources. The others are not for nodes.
var rules = map[schema.GroupResource]rule{
	{Resource: "secrets"}:                readNamed(secrets),
	{Resource: "configmaps"}:             readNamed(configMaps),
	{Resource: "persistentvolumeclaims"}: persistentVolumeClaims,
	{Resource: "persistentvolumes"}: getOne(func(r request) bool {
		return r.Namespace == "" && r.graph.mounts(r.store.Any(), r.node, r.Name)
	}),
	{Resource: "serviceaccounts"}: serviceAccounts,
	{Resource: "nodes"}:           nodes,
	{Resource: "pods"}:            pods,

	{Group: "resource.k8s.io", Resource: "resourceclaims"}: getOne(func(r request) bool { return r.granted(resourceClaims) }),
	{Group: "resource.k8s.io", Resource: "resourceslices"}: resourceSlices,
	{Group: "storage.k8s.io", Resource: "volumeattachments"}: getOne(func(r request) bool {
		return r.Namespace == "" && r.graph.names(r.store.Any(), r.node, r.graph.attachments, r.Name)
	}),
	{Group: "storage.k8s.io", Resource: "csinodes"}:                    csiNodes,
	{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}: podCertificateRequests,
	{Group: "coordination.k8s.io", Resource: "leases"}:                 leases,

	// The same for all nodes:
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             anyOf("create"),
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      anyOf("create"),
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: anyOf("create"),
	{Resource: "services"}:                       anyOf("get", "list", "watch"),
	{Resource: "endpoints"}:                      anyOf("get"),
	{Resource: "events"}:                         anyOf("create", "update", "patch"),
	{Group: "events.k8s.io", Resource: "events"}: anyOf("create", "update", "patch"),
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: anyOf("create", "get", "list", "watch"),
	{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}:        anyOf("get", "list", "watch"),
	{Group: "storage.k8s.io", Resource: "csidrivers"}:                      anyOf("get", "watch", "list"),
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:                     anyOf("get", "list", "watch"),
}

// anyOf allows verbs on all objects of a resource.
func anyOf(verbs ...string) rule {
	return func(r request) (bool, string) { return r.Subresource == "" && slices.Contains(verbs, r.Verb), "" }
}

// readNamed allows the reading of single objects in a namespace that Pods or volumes name.
func readNamed(k kind) rule {
	return func(r request) (bool, string) {
		switch {
		case r.Verb != "get" && r.Verb != "list" && r.Verb != "watch":
			return false, "can only read resources of this type"
		case r.Subresource != "":
			return false, "cannot read subresource"
		case r.Namespace == "":
			return false, "can only read namespaced object of this type"
		}
		return r.related(func(r request) bool { return r.granted(k) })
	}
}

// getOne allows the reading of objects that are related to the node.
func getOne(has func(r request) bool) rule {
	return func(r request) (bool, string) {
		switch {
		case r.Verb != "get":
			return false, "can only get individual resources of this type"
		case r.Subresource != "":
			return false, "cannot get subresource"
		}
		return r.related(has)
	}
}

// related allows a request for an object that is related to the node.
func (r request) related(has func(r request) bool) (bool, string) {
	switch {
	case r.Name == "":
		return false, "No Object name found"
	case !has(r):
		return false, noPath(r.node)
	}
	return true, ""
}

// granted reports whether Pods of the node, or volumes that they use, name the object.
func (r request) granted(k kind) bool {
	return r.graph.granted(r.store.Any(), grant{r.node, object{k, r.Namespace, r.Name}})
}

// running reports whether the Pod is assigned to the node.
func (r request) running() bool { return r.graph.runs(r.store.Any(), r.node, r.Namespace, r.Name) }

// publishes reports whether the ResourceSlice names the node.
func (r request) publishes() bool {
	return r.Namespace == "" && r.graph.names(r.store.Any(), r.node, r.graph.slices, r.Name)
}

// selects reports whether the field selector of the request selects only objects of the node, by
// a field with the node's name.
func (r request) selects(field string) bool {
	rest, ok := strings.CutPrefix(r.FieldSelector, field)
	if ok && len(rest) > 0 && rest[0] == '=' && rest[1:] == r.node && !strings.ContainsAny(r.node, `\,=`) {
		return true
	}
	all, err := r.FieldRequirements()
	return err == nil && slices.ContainsFunc(all, func(one fields.Requirement) bool {
		return one.Field == field && one.Operator == selection.Equals && one.Value == r.node
	})
}

var getClaim = getOne(func(r request) bool { return r.granted(claims) })

func persistentVolumeClaims(r request) (bool, string) {
	switch {
	case r.Subresource != "status":
		return getClaim(r)
	case r.Verb != "update" && r.Verb != "patch":
		return false, "can only get/update/patch this type"
	}
	return r.related(func(r request) bool { return r.granted(claims) })
}

var readAccount = readNamed(accounts)

func serviceAccounts(r request) (bool, string) {
	switch {
	case r.Verb == "get" && r.Subresource == "":
		return readAccount(r)
	case r.Verb != "create" || r.Name == "":
		return false, "can only create tokens for individual service accounts"
	case r.Subresource != "token":
		return false, "can only create token subresource of serviceaccount"
	}
	return r.related(func(r request) bool { return r.granted(accounts) })
}

// ownVerbs are the verbs for the node's own lease and CSINode.
var ownVerbs = []string{"get", "create", "update", "patch", "delete"}

// leases allows each node its lease. The name of a new one is checked by NodeRestriction.
func leases(r request) (bool, string) {
	switch {
	case !slices.Contains(ownVerbs, r.Verb):
		return false, "can only get, create, update, patch, or delete a node lease"
	case r.Namespace != corev1.NamespaceNodeLease:
		return false, fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case r.Verb != "create" && r.Name != r.node:
		return false, "can only access node lease with the same name as the requesting node"
	}
	return true, ""
}

// csiNodes allows each node its CSINode. The name of a new one is checked by NodeRestriction.
func csiNodes(r request) (bool, string) {
	switch {
	case r.Subresource == "status":
		return false, "CSINode status access requires CSIVolumeHealth feature"
	case r.Subresource != "":
		return false, "cannot authorize CSINode subresources"
	case !slices.Contains(ownVerbs, r.Verb):
		return false, "can only get, create, update, patch, or delete a CSINode"
	case r.Verb != "create" && r.Name != r.node:
		return false, "can only access CSINode with the same name as the requesting node"
	}
	return true, ""
}

// podCertificateRequests allows each node the requests that name it. Those that it creates are checked by NodeRestriction.
func podCertificateRequests(r request) (bool, string) {
	if r.Subresource != "" {
		return false, "nodes may not access the status subresource of PodCertificateRequests"
	}
	switch r.Verb {
	case "create":
		return true, ""
	case "get":
		return r.related(func(r request) bool {
			return r.graph.names(r.store.Any(), r.node, r.graph.requests, r.Namespace+"/"+r.Name)
		})
	case "list", "watch":
		if r.selects("spec.nodeName") {
			return true, ""
		}
		return false, "can only list/watch podcertificaterequests with nodeName field selector"
	}
	return false, fmt.Sprintf("nodes may not %s podcertificaterequests", r.Verb)
}

// resourceSlices allows each node its ResourceSlices. The node of a new one is checked by
// NodeRestriction.
func resourceSlices(r request) (bool, string) {
	if r.Subresource != "" {
		return false, "cannot authorize ResourceSlice subresources"
	}
	switch r.Verb {
	case "create":
		return true, ""
	case "get", "update", "patch", "delete":
		return r.related(request.publishes)
	case "watch", "list", "deletecollection":
		if r.selects("spec.nodeName") {
			return true, ""
		}
		return false, "can only list/watch/deletecollection resourceslices with nodeName field selector"
	}
	return false, "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"
}

// nodes allows each node to read its Node, which need not exist yet. Whether it writes its own
// Node is checked by NodeRestriction.
func nodes(r request) (bool, string) {
	switch r.Subresource {
	case "":
		switch r.Verb {
		case "create", "update", "patch":
			return true, ""
		case "get", "list", "watch":
			switch r.Name {
			case r.node:
				return true, ""
			case "":
				return false, fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", r.node)
			}
			return false, fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", r.node, r.Name)
		}
	case "status":
		return r.Verb == "update" || r.Verb == "patch", ""
	}
	return false, ""
}

// pods allows each node its Pods. Whether it writes its own Pods is checked by NodeRestriction.
func pods(r request) (bool, string) {
	switch r.Subresource {
	case "":
		switch r.Verb {
		case "get":
			return r.related(request.running)
		case "list", "watch":
			switch {
			case r.selects("spec.nodeName"):
				return true, ""
			case r.Name != "":
				return r.related(request.running)
			}
			return false, "can only list/watch pods with spec.nodeName field selector"
		case "create", "delete":
			return true, ""
		}
	case "status":
		return r.Verb == "update" || r.Verb == "patch", ""
	case "eviction":
		return r.Verb == "create", ""
	}
	return false, ""
}
