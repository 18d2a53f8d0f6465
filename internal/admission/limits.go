package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	podresources "k8s.io/component-helpers/resource"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// limitRanger applies the LimitRanges of a namespace to Pods and claims: it sets default
// requests and limits of containers, and refuses objects outside the limits.
func limitRanger(c *Config) registry.Plugin {
	l := c.lookups
	return registry.Plugin{
		Handles: func(s *store.State, t registry.Target, o admissionv1.Operation) bool {
			switch t.Type.Collection {
			case pods:
				if !(t.Subresource == "" && o == admissionv1.Create || t.Subresource == "resize" && o == admissionv1.Update) {
					return false
				}
			case "persistentvolumeclaims":
				if t.Subresource != "" || o == admissionv1.Delete {
					return false
				}
			default:
				return false
			}
			return s.Snapshot(limitRanges).Count(t.Namespace+"/", "") > 0
		},
		Mutate:   l.setDefaultLimits,
		Validate: l.checkLimits,
	}
}

func (l *lookups) setDefaultLimits(_ context.Context, a *registry.Attributes) error {
	p, ok := a.Object.(*corev1.Pod)
	if !ok || a.Subresource != "" {
		return nil
	}
	ranges, err := l.limitsIn(a.State, a.Namespace)
	for _, r := range ranges {
		fill(p, r)
	}
	return err
}

// fill sets the missing requests and limits of containers, and lists them in an annotation.
func fill(p *corev1.Pod, r *corev1.LimitRange) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range r.Spec.Limits {
		if l := &r.Spec.Limits[i]; l.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, l.DefaultRequest)
			maps.Copy(limits, l.Default)
		}
	}
	var said []string
	each := func(kind string, all []corev1.Container) {
		for i := range all {
			c := &all[i]
			for _, given := range []struct {
				what  string
				names []string
			}{
				{"request", missing(&c.Resources.Requests, requests)},
				{"limit", missing(&c.Resources.Limits, limits)},
			} {
				if len(given.names) > 0 {
					said = append(said, fmt.Sprintf("%s %s for %s %s", strings.Join(given.names, ", "), given.what, kind, c.Name))
				}
			}
		}
	}
	each("container", p.Spec.Containers)
	each("init container", p.Spec.InitContainers)
	if len(said) == 0 {
		return
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: " + strings.Join(said, "; ")
}

// missing adds the quantities that a list lacks, and returns their names, sorted.
func missing(to *corev1.ResourceList, from corev1.ResourceList) (names []string) {
	for name, q := range from {
		if _, ok := (*to)[name]; ok {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = q.DeepCopy()
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

func (l *lookups) checkLimits(_ context.Context, a *registry.Attributes) error {
	if old, ok := a.Old.(metav1.Object); ok && old.GetDeletionTimestamp() != nil {
		return nil
	}
	ranges, err := l.limitsIn(a.State, a.Namespace)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		var errs []error
		switch o := a.Object.(type) {
		case *corev1.Pod:
			errs = checkPod(o, r)
		case *corev1.PersistentVolumeClaim:
			errs = checkClaim(o, r)
		}
		if len(errs) > 0 {
			return a.Forbidden("%w", utilerrors.NewAggregate(errs))
		}
	}
	return nil
}

func checkPod(p *corev1.Pod, r *corev1.LimitRange) (errs []error) {
	for i := range r.Spec.Limits {
		l := &r.Spec.Limits[i]
		switch l.Type {
		case corev1.LimitTypeContainer:
			for _, all := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
				for j := range all {
					errs = append(errs, within(l, all[j].Resources.Requests, all[j].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			requests, limits := together(p)
			errs = append(errs, within(l, requests, limits)...)
		}
	}
	return errs
}

// together returns the requests and limits of a Pod as a whole: those at the level of the Pod for
// CPU and memory, or else the sums of its containers.
func together(p *corev1.Pod) (requests, limits corev1.ResourceList) {
	requests = podresources.AggregateContainerRequests(p, podresources.PodResourcesOptions{})
	limits = podresources.AggregateContainerLimits(p, podresources.PodResourcesOptions{})
	if own := p.Spec.Resources; own != nil {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := own.Requests[name]; ok {
				requests[name] = q
			}
			if q, ok := own.Limits[name]; ok {
				limits[name] = q
			}
		}
	}
	return requests, limits
}

// within checks requests and limits against one item of a LimitRange.
func within(l *corev1.LimitRangeItem, requests, limits corev1.ResourceList) (errs []error) {
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range sorted(l.Min) {
		add(bounded("minimum", l, name, atLeast, requests, limits))
	}
	for _, name := range sorted(l.Max) {
		add(bounded("maximum", l, name, atMost, requests, limits))
	}
	for _, name := range sorted(l.MaxLimitRequestRatio) {
		add(inProportion(l, name, requests, limits))
	}
	return errs
}

// checkClaim checks the requests of a claim, which has no limits.
func checkClaim(c *corev1.PersistentVolumeClaim, r *corev1.LimitRange) (errs []error) {
	requests := c.Spec.Resources.Requests
	for i := range r.Spec.Limits {
		l := &r.Spec.Limits[i]
		if l.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		for _, name := range sorted(l.Min) {
			if err := bounded("minimum", l, name, atLeast, requests, nil); err != nil {
				errs = append(errs, err)
			}
		}
		for _, name := range sorted(l.Max) {
			request, ok := requests[name]
			most := l.Max[name]
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, l.Type, most.String()))
			case !atMost(request, most):
				errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, l.Type, most.String(), request.String()))
			}
		}
	}
	return errs
}

func sorted(list corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(list)) }

func atLeast(q, bound resource.Quantity) bool { return compare(q, bound) >= 0 }
func atMost(q, bound resource.Quantity) bool  { return compare(q, bound) <= 0 }

// compare compares quantities in thousandths, or in whole units if one is too large for
// thousandths.
func compare(a, b resource.Quantity) int {
	x, y := a.Value(), b.Value()
	if x <= resource.MaxMilliValue && y <= resource.MaxMilliValue {
		x, y = a.MilliValue(), b.MilliValue()
	}
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// bounded checks a resource against a minimum, which requires a request, or a maximum, which
// requires a limit. The bound holds for both the request and the limit.
func bounded(what string, l *corev1.LimitRangeItem, name corev1.ResourceName, holds func(q, bound resource.Quantity) bool, requests, limits corev1.ResourceList) error {
	bound := l.Min[name]
	first, second := "request", "limit"
	if what == "maximum" {
		bound = l.Max[name]
		first, second = second, first
	}
	lists := map[string]corev1.ResourceList{"request": requests, "limit": limits}
	if _, ok := lists[first][name]; !ok {
		return fmt.Errorf("%s %s usage per %s is %s.  No %s is specified", what, name, l.Type, bound.String(), first)
	}
	for _, which := range []string{first, second} {
		if q, ok := lists[which][name]; ok && !holds(q, bound) {
			return fmt.Errorf("%s %s usage per %s is %s, but %s is %s", what, name, l.Type, bound.String(), which, q.String())
		}
	}
	return nil
}

// inProportion checks the ratio of limit to request.
func inProportion(l *corev1.LimitRangeItem, name corev1.ResourceName, requests, limits corev1.ResourceList) error {
	most := l.MaxLimitRequestRatio[name]
	request, limit := requests[name], limits[name]
	if request.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, l.Type, most.String())
	}
	if limit.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, l.Type, most.String())
	}
	x, y := request.Value(), limit.Value()
	if x <= resource.MaxMilliValue && y <= resource.MaxMilliValue && most.Value() <= resource.MaxMilliValue {
		x, y = request.MilliValue(), limit.MilliValue()
	}
	ratio, allowed, scale := float64(y)/float64(x), float64(most.Value()), 1.0
	if most.Value() <= resource.MaxMilliValue {
		allowed, scale = float64(most.MilliValue()), 1000
	}
	if ratio*scale > allowed {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, l.Type, most.String(), ratio)
	}
	return nil
}
