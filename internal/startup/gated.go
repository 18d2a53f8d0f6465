package startup

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
)

// gatedRole is a role, and the binding of its name, that exists only if a feature is enabled.
type gatedRole struct{ gate, role string }

var gatedRoles = []gatedRole{
	{"ClusterTrustBundle", "system:cluster-trust-bundle-discovery"},
	{"ClusterTrustBundle", "system:controller:kube-apiserver-serving-clustertrustbundle-publisher"},
	{"DRADeviceTaints", "system:controller:device-taint-eviction-controller"},
	{"DynamicResourceAllocation", "system:controller:resource-claim-controller"},
	{"PodCertificateRequest", "system:controller:podcertificaterequestcleaner"},
	{"StorageVersionMigrator", "system:controller:storage-version-migrator-controller"},
}

// gatedRule is a rule of roles that exists only if a feature is enabled.
type gatedRule struct {
	gate string
	// role has the rule; empty: all roles may have it.
	role string
	// group and resource are those of the rule; an empty resource is any.
	group, resource string
	// verb has to be one of the rule's; empty: any.
	verb string
}

var gatedRules = []gatedRule{
	{"ClusterTrustBundle", "system:node", "certificates.k8s.io", "clustertrustbundles", ""},
	{"DRADeviceTaintRules", "", "resource.k8s.io", "devicetaintrules", ""},
	{"DRADeviceTaintRules", "", "resource.k8s.io", "devicetaintrules/status", ""},
	{"DRAExtendedResource", "system:kube-scheduler", "resource.k8s.io", "resourceclaims", "create"},
	{"DRAResourceClaimGranularStatusAuthorization", "", "resource.k8s.io", "resourceclaims/binding", ""},
	{"DynamicResourceAllocation", "system:kube-scheduler", "resource.k8s.io", "", ""},
	{"PodCertificateRequest", "system:node", "certificates.k8s.io", "podcertificaterequests", ""},
}

// gatedPaths are paths that only a feature adds to the rules of system:monitoring.
var gatedPaths = map[string]string{"/flagz": "ComponentFlagz", "/statusz": "ComponentStatusz"}

// adapt changes an embedded object to those features that are enabled. It reports false if the server does not have it: a
// role of a disabled feature, or the APIService of a version that is not served.
func (c *Config) adapt(w *desired) (ok bool) {
	kind, name := w.target.Type.Kind, w.target.Name
	switch {
	case kind == "APIService":
		version, group, _ := strings.Cut(name, ".")
		return c.Catalog.Lists(group, version) != nil
	case c.Enabled == nil:
	case kind == "ClusterRole" || kind == "ClusterRoleBinding":
		if slices.ContainsFunc(gatedRoles, func(g gatedRole) bool { return g.role == name && !c.Enabled(g.gate) }) {
			return false
		}
		if kind == "ClusterRole" {
			c.adaptRules(w)
		}
	}
	return true
}

// Adapt gives a copy of a server's objects those of another version of Kubernetes: it deletes roles, rules and APIServices
// that the version does not have, and creates and updates the others as Ensure does.
func Adapt(ctx context.Context, c Config) error {
	ctx = registry.WithLoop(ctx, "startup")
	var obsolete []desired
	err := each(c.Catalog, func(w desired) {
		if c.stored(w.target) != nil {
			obsolete = append(obsolete, w)
		}
	})
	if err != nil {
		return err
	}
	for _, w := range obsolete {
		before := w.own
		switch kept := c.adapt(&w); {
		case !kept:
			if _, err := c.Registry.Delete(ctx, w.target, nil, nil); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		case !bytes.Equal(before, w.own):
			if err := c.edit(ctx, w.target, manager, c.withoutRules); err != nil {
				return err
			}
		}
	}
	rest, err := c.embedded(ctx)
	if err != nil {
		return err
	}
	return c.inParallel(rest)
}

// withoutRules removes the rules of disabled features from a stored role.
func (c *Config) withoutRules(o metav1.Object) error {
	role, ok := o.(*rbacv1.ClusterRole)
	if !ok || !c.removeRules(role) {
		return errUnchanged
	}
	return nil
}

// adaptRules removes the rules and paths of disabled features.
func (c *Config) adaptRules(w *desired) {
	role := rbacv1.ClusterRole{}
	if json.Unmarshal(append(append([]byte{'{'}, w.own...), '}'), &role) != nil { // of no ClusterRole
		return
	}
	if role.Name = w.target.Name; !c.removeRules(&role) {
		return
	}
	text, err := json.Marshal(struct {
		Rules []rbacv1.PolicyRule     `json:"rules"`
		Of    *rbacv1.AggregationRule `json:"aggregationRule,omitempty"`
	}{role.Rules, role.AggregationRule})
	if err == nil {
		w.own = text[1 : len(text)-1]
	}
}

// removeRules removes the rules and paths of disabled features from a role, and reports whether it had any.
func (c *Config) removeRules(role *rbacv1.ClusterRole) (changed bool) {
	before := len(role.Rules)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(gatedRules, func(g gatedRule) bool { return g.has(role.Name, &r) && !c.Enabled(g.gate) })
	})
	changed = len(role.Rules) != before
	for i := range role.Rules {
		r := &role.Rules[i]
		r.NonResourceURLs = slices.DeleteFunc(r.NonResourceURLs, func(path string) bool {
			gate := gatedPaths[path]
			gone := gate != "" && role.Name == "system:monitoring" && !c.Enabled(gate)
			changed = changed || gone
			return gone
		})
	}
	return changed
}

func (g *gatedRule) has(role string, r *rbacv1.PolicyRule) bool {
	return (g.role == "" || g.role == role) && slices.Contains(r.APIGroups, g.group) &&
		(g.resource == "" || slices.Contains(r.Resources, g.resource)) && (g.verb == "" || slices.Contains(r.Verbs, g.verb))
}
