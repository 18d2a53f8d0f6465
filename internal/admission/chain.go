// Package admission is the chain of plugins that each write goes through before it is stored.
// Its one table, plugins, lists them in the order in which they are called; docs/admission.md
// shows the same list.
//
// Plugins that need more than a file have packages below this one: addresses, defaultclass, eventlimit,
// imagepolicy, noderestriction, quota, webhook, and policy/mutating and policy/validating. Package
// match decides which requests a webhook or a policy applies to.
package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/admission/defaultclass"
	"github.com/tidemark-dev/tidemark/internal/admission/eventlimit"
	"github.com/tidemark-dev/tidemark/internal/admission/imagepolicy"
	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/admission/noderestriction"
	"github.com/tidemark-dev/tidemark/internal/admission/policy"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/mutating"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/validating"
	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	"github.com/tidemark-dev/tidemark/internal/admission/webhook"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// entry is a line of the table.
type entry struct {
	// name is the name that kube-apiserver's flags know; empty: a part of the server.
	name string
	mode mode
	// plugin makes the plugin; nil if it does nothing, or if the verbs do its work.
	plugin func(c *Config) []registry.Plugin
}

// mode is when a plugin is enabled.
type mode uint8

const (
	// on: it is enabled unless it is disabled by a flag.
	on mode = iota
	// off: it is enabled by a flag.
	off
	// always: a part of the server that has no name.
	always
)

// plugins are all plugins of kube-apiserver v1.37, in its order, and after them the parts of
// the server that are plugins, too.
var plugins = []entry{
	{"AlwaysAdmit", off, nil},            // it does nothing
	{"NamespaceAutoProvision", off, nil}, // Namespaces
	{"NamespaceLifecycle", on, nil},      // Namespaces
	{"NamespaceExists", off, one(namespaceExists)},
	{"LimitPodHardAntiAffinityTopology", off, one(limitAntiAffinity)},
	{"LimitRanger", on, one(limitRanger)},
	{"ServiceAccount", off, one(serviceAccount)},
	{"NodeRestriction", off, one(func(c *Config) registry.Plugin { return noderestriction.Plugin(c.Authz) })},
	{"TaintNodesByCondition", on, one(taintNodes)},
	{"AlwaysPullImages", off, one(alwaysPullImages)},
	{"ImagePolicyWebhook", off, one(func(c *Config) registry.Plugin { return imagepolicy.Plugin(c.Configuration.Images, c.Now) })},
	{"PodSecurity", on, one(podSecurityPlugin)},
	{"PodNodeSelector", off, one(podNodeSelector)},
	{"Priority", on, one(priority)},
	{"DefaultTolerationSeconds", on, one(defaultTolerations)},
	{"PodTolerationRestriction", off, one(restrictTolerations)},
	{"EventRateLimit", off, one(func(c *Config) registry.Plugin { return eventlimit.Plugin(c.Configuration.EventLimits, c.Now) })},
	{"ExtendedResourceToleration", off, one(tolerateExtendedResources)},
	{"DefaultStorageClass", on, func(*Config) []registry.Plugin { return []registry.Plugin{defaultclass.StorageClass()} }},
	{"StorageObjectInUseProtection", on, one(protectStorage)},
	{"PodGroupProtection", on, nil}, // for a feature that is off by default
	{"OwnerReferencesPermissionEnforcement", off, one(ownerPermissions)},
	{"PersistentVolumeClaimResize", on, func(*Config) []registry.Plugin { return []registry.Plugin{defaultclass.Resize()} }},
	{"RuntimeClass", on, one(runtimeClass)},
	{"CertificateApproval", on, one(certificateApproval)},
	{"CertificateSigning", on, one(certificateSigning)},
	{"ClusterTrustBundleAttest", on, one(bundleAttestation)},
	{"CertificateSubjectRestriction", on, one(subjectRestriction)},
	{"DefaultIngressClass", on, func(*Config) []registry.Plugin { return []registry.Plugin{defaultclass.IngressClass()} }},
	{"DenyServiceExternalIPs", off, one(denyExternalIPs)},
	{"PodTopologyLabels", on, one(topologyLabels)},
	{"NodeDeclaredFeatureValidator", on, one(declaredFeatures)},
	{"PodResizeValidator", on, one(validateResize)},
	{"MutatingAdmissionPolicy", on, one(mutatingPolicies)},
	{"MutatingAdmissionWebhook", on, webhooks((*webhook.Webhooks).Mutating)},
	{"ValidatingAdmissionPolicy", on, one(validatingPolicies)},
	{"ValidatingAdmissionWebhook", on, webhooks((*webhook.Webhooks).Validating)},
	{"ResourceQuota", on, quotas},
	{"AlwaysDeny", off, one(alwaysDeny)},

	{"", always, one(appArmor)},
	{"", always, serviceAddresses},
	{"", always, one(definitionNames)},
	{"", always, one(customObjects)},
	{"", always, one(adminAccess)},
	{"", always, one(claimRights)},
	{"", always, one(paramRights)},
	{"", always, one(reservedNames)},
	{"", always, one(unenforcedWarnings)},
	{"", always, one(podCertificateSigning)},
	{"", always, one(escalation)}, // after all plugins that change a role
}

// extensions are the plugins that users extend with objects. They do not see the server's own writes.
var extensions = []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"}

// one makes a list of one plugin, or of none if the plugin has no functions.
func one(plugin func(c *Config) registry.Plugin) func(c *Config) []registry.Plugin {
	return func(c *Config) []registry.Plugin {
		p := plugin(c)
		if p.Mutate == nil && p.Complete == nil && p.Causes == nil && p.Validate == nil && p.Record == nil {
			return nil
		}
		return []registry.Plugin{p}
	}
}

func mutatingPolicies(c *Config) registry.Plugin {
	if c.Catalog == nil {
		return registry.Plugin{}
	}
	return mutating.Plugin(policy.Config{Catalog: c.Catalog, Files: c.Configuration.Manifests[manifest.MutatingPolicies], Authz: c.Authz, Metrics: c.Metrics.mutating, Conditions: c.Metrics.Conditions})
}

func quotas(c *Config) []registry.Plugin {
	c.Quotas.Limited = c.Configuration.Limited
	return c.Quotas.Plugins()
}

func validatingPolicies(c *Config) registry.Plugin {
	if c.Catalog == nil {
		return registry.Plugin{}
	}
	return validating.Plugin(policy.Config{Catalog: c.Catalog, Files: c.Configuration.Manifests[manifest.ValidatingPolicies], Authz: c.Authz, Metrics: c.Metrics.validating, Conditions: c.Metrics.Conditions})
}

// webhooks returns a plugin of the webhooks, if there are any.
func webhooks(plugin func(*webhook.Webhooks) registry.Plugin) func(c *Config) []registry.Plugin {
	return func(c *Config) []registry.Plugin {
		if c.Webhooks == nil {
			return nil
		}
		return []registry.Plugin{plugin(c.Webhooks)}
	}
}

func serviceAddresses(c *Config) []registry.Plugin {
	if c.Addresses == nil {
		return nil
	}
	return c.Addresses.Plugins()
}

// Config has the dependencies of the plugins. Every field is required unless its comment says what
// nil means.
type Config struct {
	Store *store.Store
	// Enabled are the plugins that are enabled.
	Enabled Plugins
	// Quotas charges ResourceQuotas; nil: there is no such plugin.
	Quotas *quota.Ledger
	// Addresses allocates the addresses and node ports of Services; nil: there is no such
	// plugin.
	Addresses *addresses.Allocator
	// Names gives definitions of custom resources their names; nil: there is no such plugin.
	Names *crd.Naming
	// Authz decides on the rights that plugins require; nil: the plugins that require rights
	// do nothing.
	Authz authz.Authorizer
	// RBAC is the authorizer of stored roles: clients cannot grant permissions that they do not
	// have. It is required with Authz.
	RBAC *rbac.Authorizer
	// Catalog has the resources that are served; it is required with Authz. Without it, policies
	// have no effect.
	Catalog func() *resource.Catalog
	// Metrics count the calls of plugins; nil: nothing reads them.
	Metrics *Metrics
	// Webhooks calls the webhooks that are stored; nil: they have no effect.
	Webhooks *webhook.Webhooks
	// Configuration has the configurations of plugins.
	Configuration Configuration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// NoWarnings: clients are not warned of objects that this server stores and does not act
	// on.
	NoWarnings bool

	lookups *lookups // Chain sets them
}

// Chain returns the enabled plugins, in their order.
func Chain(c Config) []registry.Plugin {
	c.lookups = newLookups()
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	var chain []registry.Plugin
	for _, e := range plugins {
		switch {
		case e.plugin == nil || e.name != "" && !c.Enabled.On(e.name):
			continue
		case e.name == "ResourceQuota" && c.Quotas == nil:
			continue
		}
		for _, p := range e.plugin(&c) {
			p.Name = e.name
			p.Clients = slices.Contains(extensions, e.name)
			chain = append(chain, p)
		}
	}
	return chain
}

// Plugins are those that are enabled, by name. The zero value has those that are on by
// default.
type Plugins struct{ changed map[string]bool }

// On reports whether a plugin is enabled.
func (p Plugins) On(name string) bool {
	if is, ok := p.changed[name]; ok {
		return is
	}
	i := slices.IndexFunc(plugins, func(e entry) bool { return e.name == name })
	return i >= 0 && (plugins[i].mode == on || plugins[i].mode == always)
}

// Choose enables and disables plugins.
func Choose(enable, disable []string) (Plugins, error) {
	p := Plugins{map[string]bool{}}
	var errs []error
	add := func(flag string, names []string, is bool) {
		for _, name := range names {
			if !known(name) {
				errs = append(errs, fmt.Errorf("--%s: the plugin %q is unknown: want some of %s", flag, name, named(on, off)))
			}
			p.changed[name] = is
		}
	}
	add("disable-admission-plugins", disable, false)
	unknown := errs
	errs = nil
	add("enable-admission-plugins", enable, true)
	errs = append(errs, unknown...)
	both := sets.List(sets.New(enable...).Intersection(sets.New(disable...)))
	if len(both) > 0 {
		errs = append(errs, fmt.Errorf("--enable-admission-plugins and --disable-admission-plugins both have %s", strings.Join(both, ", ")))
	}
	return p, utilerrors.NewAggregate(errs)
}

func known(name string) bool {
	return name != "" && slices.ContainsFunc(plugins, func(e entry) bool { return e.name == name })
}

// named returns the names of the plugins of some modes, in their order.
func named(modes ...mode) string {
	var all []string
	for _, e := range plugins {
		if e.name != "" && slices.Contains(modes, e.mode) {
			all = append(all, e.name)
		}
	}
	return strings.Join(all, ", ")
}

// Modes returns the names of the plugins that are enabled by default, and of those that are
// not.
func Modes() (byDefault, optional string) { return named(on), named(off) }

// creating is a plugin that changes new objects of a collection.
func creating(collection string, mutate func(ctx context.Context, a *registry.Attributes) error) registry.Plugin {
	return registry.Plugin{Handles: registry.Objects(collection, admissionv1.Create), Mutate: mutate}
}
