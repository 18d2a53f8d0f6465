package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/admission/pluginconfig"
)

// LimitedResource is a resource that is limited by default: a namespace can use it only under a
// quota for it.
type LimitedResource struct {
	APIGroup string `json:"apiGroup"`
	Resource string `json:"resource"`
	// MatchContains are parts of names of used resources that need a quota.
	MatchContains []string `json:"matchContains"`
	// MatchScopes are scopes. An object in one of them needs a quota with the scope. They apply to
	// objects of all resources, as in kube-apiserver.
	MatchScopes []corev1.ScopedResourceSelectorRequirement `json:"matchScopes"`
}

// configuration is the configuration of the plugin ResourceQuota.
type configuration struct {
	metav1.TypeMeta  `json:",inline"`
	LimitedResources []LimitedResource `json:"limitedResources"`
}

// DeepCopyObject implements runtime.Object. The copy shares the resources.
func (c *configuration) DeepCopyObject() runtime.Object { copied := *c; return &copied }

// configurationKinds are the kinds of the configuration.
var configurationKinds = []schema.GroupVersionKind{
	{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "ResourceQuotaConfiguration"},
	{Group: "resourcequota.admission.k8s.io", Version: "v1beta1", Kind: "Configuration"},
	{Group: "resourcequota.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration"},
}

// ParseLimited reads a ResourceQuotaConfiguration of apiserver.config.k8s.io/v1, or a Configuration
// of resourcequota.admission.k8s.io, as YAML or JSON. Nil is an empty one.
func ParseLimited(text []byte) ([]LimitedResource, error) {
	if text == nil {
		return nil, nil
	}
	var kinds []pluginconfig.Kind
	for _, k := range configurationKinds {
		kinds = append(kinds, pluginconfig.Kind{GroupVersionKind: k, Object: &configuration{}, Strict: true})
	}
	read, err := pluginconfig.Decode(text, kinds...)
	if err != nil {
		return nil, err
	}
	all := read.(*configuration).LimitedResources
	var errs field.ErrorList
	for i := range all {
		if all[i].Resource == "" {
			errs = append(errs, field.Required(field.NewPath("limitedResources").Index(i).Child("resource"), ""))
		}
	}
	return all, errs.ToAggregate()
}

// covered returns an error if a write uses a limited resource that no quota covers.
func (c *charge) covered(limited []LimitedResource, of schema.GroupResource, quotas []*corev1.ResourceQuota) error {
	var (
		covered []corev1.ResourceName
		scopes  []corev1.ScopedResourceSelectorRequirement
	)
	c.measure()
	changes := c.old == nil && nonZero(c.use) || c.old != nil && nonZero(c.more)
	for _, q := range quotas {
		selectors := selectorsOf(q)
		scopes = append(scopes, c.kind.matched(selectors, c.object)...)
		names, err := c.restricted(q)
		if err != nil {
			return err
		}
		covered = append(covered, names...)
		if names != nil && c.old != nil && !c.kind.selected(selectors, c.old) {
			changes = changes || nonZero(c.use)
		}
	}
	if negative := belowZero(c.use); len(negative) > 0 {
		return c.negative(negative)
	}
	if !changes {
		return nil
	}
	var missing []corev1.ResourceName
	for _, l := range limited {
		if l.APIGroup != of.Group || l.Resource != of.Resource {
			continue
		}
		for name, amount := range c.use {
			limits := func(part string) bool { return strings.Contains(string(name), part) }
			if amount.Sign() > 0 && slices.ContainsFunc(l.MatchContains, limits) && !slices.Contains(covered, name) {
				missing = append(missing, name)
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return c.fail("insufficient quota to consume: %s", joined(slices.Compact(missing)))
	}
	var outside []corev1.ScopedResourceSelectorRequirement
	for _, l := range limited {
		for _, s := range c.kind.matched(l.MatchScopes, c.object) {
			same := func(other corev1.ScopedResourceSelectorRequirement) bool { return other.ScopeName == s.ScopeName }
			if !slices.ContainsFunc(scopes, same) {
				outside = append(outside, s)
			}
		}
	}
	if len(outside) > 0 { // 500 in kube-apiserver
		return c.fail("insufficient quota to match these scopes: %s", fmt.Sprint(outside))
	}
	return nil
}

// matched returns the selectors that match an object.
func (k *kind) matched(by []corev1.ScopedResourceSelectorRequirement, o runtime.Object) (all []corev1.ScopedResourceSelectorRequirement) {
	if k.inScope == nil {
		return nil
	}
	for i := range by {
		if k.inScope(&by[i], o) {
			all = append(all, by[i])
		}
	}
	return all
}

func nonZero(list corev1.ResourceList) bool {
	for _, q := range list {
		if !q.IsZero() {
			return true
		}
	}
	return false
}
