package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// maxDisruptedPods limits the evictions that the controller of a budget has not processed yet.
const maxDisruptedPods = 2000

// eviction deletes a Pod if its PodDisruptionBudget allows it. A Pod that does not run, or is being
// deleted, needs no permission.
func (c *Config) eviction(ctx context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
	sent := call.Sent.(*policyv1.Eviction)
	if sent.Name != call.Target.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	e := evicting{Config: c, registry: call.Registry, by: call.By, ctx: ctx, pod: c.target("pods", call.Target.Namespace, call.Target.Name)}
	if sent.DeleteOptions != nil {
		e.options = *sent.DeleteOptions
	}
	if ignore := e.options.IgnoreStoreReadErrorWithClusterBreakingPotential; ignore != nil && *ignore {
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), call.Target.Name, field.ErrorList{
			field.Invalid(field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true, "can not be set for pod eviction, try after removing the option"),
		})
	}
	if errs := metav1validation.ValidateDeleteOptions(&e.options); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	if call.DryRun {
		e.options.DryRun = []string{metav1.DryRunAll}
	}
	e.dryRun = slices.Contains(e.options.DryRun, metav1.DryRunAll)
	return nil, e.run()
}

// evicting is a running eviction.
type evicting struct {
	*Config
	registry *registry.Registry
	by       *authn.User
	ctx      context.Context
	pod      registry.Target
	options  metav1.DeleteOptions
	dryRun   bool
}

// run evicts the Pod, and decides again if the Pod has changed meanwhile.
func (e *evicting) run() error {
	preconditions := e.options.Preconditions
	for {
		o, err := e.registry.Read(e.ctx, e.pod)
		if err != nil {
			return err
		}
		p := o.(*corev1.Pod)
		if !matches(p, preconditions) {
			return e.delete(preconditions) // for its error
		}
		unlimited := disruptsNothing(p)
		if !unlimited {
			if unlimited, err = e.allowed(p); err != nil {
				return err
			}
		}
		unchanged := unlimited && version(preconditions) == ""
		pre := preconditions
		if unchanged { // unlimited holds for this version only
			pre = &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}
		}
		if err = e.setDisruptionTarget(p, &pre); err == nil {
			err = e.delete(pre)
		}
		if !unchanged || !apierrors.IsConflict(err) {
			return err
		}
	}
}

// disruptsNothing reports whether a Pod counts for no budget.
func disruptsNothing(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed:
		return true
	}
	return p.DeletionTimestamp != nil
}

// allowed checks the Pod's budget and uses up one of its disruptions. If unlimited is true, the
// eviction needs none as long as the Pod does not change.
func (e *evicting) allowed(p *corev1.Pod) (unlimited bool, err error) {
	budgets, err := e.budgets(p)
	switch {
	case err != nil:
		return false, err
	case len(budgets) == 0:
		return false, nil
	case len(budgets) > 1:
		return false, apierrors.NewBadRequest("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
	}
	b := budgets[0]
	if !isReady(p) {
		policy := b.Spec.UnhealthyPodEvictionPolicy
		if policy != nil && *policy == policyv1.AlwaysAllow {
			return true, nil
		}
		if b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0 {
			return true, nil
		}
	}
	_, err = e.registry.UpdateObject(e.ctx, e.budget(b.Namespace, b.Name), registry.ObjectUpdate{
		By: e.by, DryRun: e.dryRun,
		Change: func(o runtime.Object) error {
			return e.use(o.(*policyv1.PodDisruptionBudget), p.Name)
		},
	})
	return false, err
}

// budgets returns the budgets that select the Pod, at most two: more than one is an error.
func (e *evicting) budgets(p *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	var all []*policyv1.PodDisruptionBudget
	for o, err := range e.registry.ReadAll(e.ctx, e.budget(p.Namespace, "")) {
		if err != nil {
			return nil, err
		}
		b := o.(*policyv1.PodDisruptionBudget)
		if !mayMatch(b.Spec.Selector, p.Labels) {
			continue
		}
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && s.Matches(labels.Set(p.Labels)) { // an invalid selector selects nothing
			if all = append(all, b); len(all) == 2 {
				break
			}
		}
	}
	return all, nil
}

// mayMatch reports whether a selector, if it is valid, matches labels. It is much faster than
// LabelSelectorAsSelector, which validates each value.
func mayMatch(s *metav1.LabelSelector, of map[string]string) bool {
	if s == nil {
		return false
	}
	for key, value := range s.MatchLabels {
		if has, ok := of[key]; !ok || has != value {
			return false
		}
	}
	for i := range s.MatchExpressions {
		r := &s.MatchExpressions[i]
		value, ok := of[r.Key]
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			ok = ok && slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpNotIn:
			ok = !ok || !slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !ok
		}
		if !ok {
			return false
		}
	}
	return true
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// use uses up one disruption of a budget, and records the Pod.
func (e *evicting) use(b *policyv1.PodDisruptionBudget, pod string) error {
	s := &b.Status
	switch {
	case s.ObservedGeneration < b.Generation:
		return disrupted(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name))
	case s.DisruptionsAllowed < 0:
		return damaged(b.Name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
	case len(s.DisruptedPods) > maxDisruptedPods:
		return damaged(b.Name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller", "too many pending evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed == 0 && s.CurrentHealthy <= s.DesiredHealthy:
		return disrupted(0, fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, s.DesiredHealthy, s.CurrentHealthy))
	case s.DisruptionsAllowed == 0:
		return disrupted(0, fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name))
	}
	s.DisruptionsAllowed--
	if s.DisruptionsAllowed == 0 {
		e.exhausted(b)
	}
	if s.DisruptedPods == nil {
		s.DisruptedPods = map[string]metav1.Time{}
	}
	s.DisruptedPods[pod] = e.now()
	return nil
}

// exhausted sets the condition of a budget without disruptions left.
func (e *evicting) exhausted(b *policyv1.PodDisruptionBudget) {
	next := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
		ObservedGeneration: b.Status.ObservedGeneration,
	}
	b.Status.Conditions = withCondition(b.Status.Conditions, next, e.now(), func(c *metav1.Condition) conditionParts {
		return conditionParts{c.Type, string(c.Status), &c.LastTransitionTime}
	})
}

// disrupted refuses an eviction for now. Zero seconds: it is unknown for how long.
func disrupted(seconds int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", seconds)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: why}}
	return err
}

// damaged refuses an eviction for a budget whose status is damaged. The cause says why in words of its own.
func damaged(budget, why, cause string) error {
	err := apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}, budget, errors.New(why))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: %s", budget, cause),
	})
	return err
}

// setDisruptionTarget adds the condition with the reason of the deletion. If the preconditions
// name a resourceVersion, it becomes the new one.
func (e *evicting) setDisruptionTarget(p *corev1.Pod, pre **metav1.Preconditions) error {
	if e.dryRun || p.DeletionTimestamp != nil {
		return nil
	}
	made, err := e.registry.UpdateObject(e.ctx, e.pod, registry.ObjectUpdate{
		By: e.by, UID: p.UID, ResourceVersion: version(*pre),
		Change: func(o runtime.Object) error {
			setPodCondition(o.(*corev1.Pod), corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
			}, e.now())
			return nil
		},
	})
	if err == nil && version(*pre) != "" {
		now := strconv.FormatUint(uint64(made.Stored.Modified), 10)
		*pre = &metav1.Preconditions{UID: &p.UID, ResourceVersion: &now}
	}
	return err
}

func (e *evicting) delete(pre *metav1.Preconditions) error {
	o := e.options
	o.Preconditions = pre
	_, err := e.registry.DeleteFor(e.ctx, e.pod, &o, e.by)
	return err
}

func (e *evicting) budget(namespace, name string) registry.Target {
	return registry.Target{Type: e.Catalog().Lookup(policyv1.GroupName, "v1", "poddisruptionbudgets"), Namespace: namespace, Name: name}
}

// matches reports whether a Pod meets the preconditions.
func matches(p *corev1.Pod, pre *metav1.Preconditions) bool {
	return pre == nil || (pre.UID == nil || *pre.UID == p.UID) && (pre.ResourceVersion == nil || *pre.ResourceVersion == p.ResourceVersion)
}

func version(pre *metav1.Preconditions) string {
	if pre == nil || pre.ResourceVersion == nil {
		return ""
	}
	return *pre.ResourceVersion
}
