package admission

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// namespaceLevels are the levels of a namespace. With err its labels are not valid, and the levels
// that they do not name are the strictest.
type namespaceLevels struct {
	api.Policy
	err error
}

// levelsIn returns the pod security levels of a namespace.
func (p *podSecurity) levelsIn(s *store.State, namespace string) (namespaceLevels, error) {
	o := s.Get(namespaces, namespace)
	if o == nil {
		return namespaceLevels{}, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
	}
	labels, err := p.levels.Of(o)
	if err != nil || labels == nil {
		return namespaceLevels{Policy: p.defaults()}, err
	}
	wanted, errs := p.policyOf(labels)
	return namespaceLevels{wanted, errs.ToAggregate()}, nil
}

// levelsOf reads the labels of a namespace; nil: none of them names a level.
func levelsOf(namespace *store.Object) (map[string]string, error) {
	if !bytes.Contains(namespace.Bytes(), label) {
		return nil, nil
	}
	made, err := registry.Decode[metav1.PartialObjectMetadata](namespace)
	if err != nil {
		return nil, err
	}
	return made.Labels, nil
}

func (c *PodSecurity) policyOf(labels map[string]string) (api.Policy, field.ErrorList) {
	return api.PolicyToEvaluate(labels, c.defaults())
}

// checkLevels rejects invalid levels in the labels of a namespace, and warns about Pods that
// violate a newly enforced level.
func (p *podSecurity) checkLevels(ctx context.Context, a *registry.Attributes, n *corev1.Namespace) error {
	wanted, errs := p.policyOf(n.Labels)
	invalid := apierrors.NewInvalid(a.Type.GroupVersionKind().GroupKind(), n.Name, errs)
	old, ok := a.Old.(*corev1.Namespace)
	if !ok {
		if len(errs) > 0 {
			return invalid
		}
		p.warnExempt(a, n, wanted)
		return nil
	}
	before, oldErrs := p.policyOf(old.Labels)
	if len(errs) > 0 && !reflect.DeepEqual(errs, oldErrs) {
		return invalid
	}
	now, was := wanted.Enforce, before.Enforce
	if now == was || now.Level == api.LevelPrivileged || now.Version == was.Version && api.CompareLevels(now.Level, was.Level) < 1 {
		return nil
	}
	if p.exemptsNamespace(n.Name) {
		p.warnExempt(a, n, wanted)
		return nil
	}
	return p.warnViolations(ctx, a, n.Name, now)
}

// warnExempt warns of labels on a namespace that is exempt.
func (p *podSecurity) warnExempt(a *registry.Attributes, n *corev1.Namespace, wanted api.Policy) {
	defaults := p.defaults()
	if !p.exemptsNamespace(n.Name) || wanted.FullyPrivileged() || wanted.Equivalent(&defaults) {
		return
	}
	var parts []string
	add := func(mode string, of api.LevelVersion, level, version string) {
		_, hasLevel := n.Labels[level]
		_, hasVersion := n.Labels[version]
		if of.Level != api.LevelPrivileged && (hasLevel || hasVersion) {
			parts = append(parts, mode+"="+of.String())
		}
	}
	add("enforce", wanted.Enforce, api.EnforceLevelLabel, api.EnforceVersionLabel)
	add("audit", wanted.Audit, api.AuditLevelLabel, api.AuditVersionLabel)
	add("warn", wanted.Warn, api.WarnLevelLabel, api.WarnVersionLabel)
	a.Warn(fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", n.Name, strings.Join(parts, ", ")))
}

// The check of the Pods of a namespace ends after mostPods Pods, after mostTime, or after half of
// the time that the request has left.
const (
	mostPods = 3000
	mostTime = time.Second
)

// warnViolations warns of the Pods of a namespace that violate a level, with one line for each
// reason.
func (p *podSecurity) warnViolations(ctx context.Context, a *registry.Attributes, namespace string, level api.LevelVersion) error {
	timeout := mostTime
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type reason struct {
		first string
		count int
	}
	reasons := map[string]reason{}
	pods, total, err := p.podsOf(ctx, a.State, namespace)
	if err != nil {
		return err
	}
	checked := 0
	for _, pod := range pods[:min(len(pods), mostPods)] {
		if r := (subject{&pod.ObjectMeta, &pod.Spec}).at(level); !r.Allowed {
			w := reasons[r.ForbiddenReason()]
			if w.count == 0 || pod.Name < w.first {
				w.first = pod.Name
			}
			w.count++
			reasons[r.ForbiddenReason()] = w
		}
		if checked++; ctx.Err() != nil {
			break
		}
	}
	if checked < total {
		a.Warn(fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, total))
	}
	if len(reasons) > 0 {
		a.Warn(fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, level.String()))
	}
	var lines []string
	for text, w := range reasons {
		others := ""
		switch w.count {
		case 1:
		case 2:
			others = " (and 1 other pod)"
		default:
			others = fmt.Sprintf(" (and %d other pods)", w.count-1)
		}
		lines = append(lines, w.first+others+": "+text)
	}
	slices.Sort(lines)
	for _, line := range lines {
		a.Warn(line)
	}
	return nil
}

// podsOf returns the Pods of a namespace that are not exempt: first one of each owner, then the
// others. When the context ends, it has read only a part of the total.
func (p *podSecurity) podsOf(ctx context.Context, s *store.State, namespace string) (all []*corev1.Pod, total int, err error) {
	var others []*corev1.Pod
	seen := map[types.UID]bool{}
	for o := range s.Snapshot(pods).Scan(namespace+"/", "") {
		if total++; ctx.Err() != nil {
			continue
		}
		pod, err := registry.Decode[corev1.Pod](o)
		if err != nil {
			return nil, 0, err
		}
		if name := pod.Spec.RuntimeClassName; name != nil && slices.Contains(p.RuntimeClasses, *name) {
			total--
			continue
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && seen[owner.UID] {
			others = append(others, pod)
			continue
		}
		if owner != nil {
			seen[owner.UID] = true
		}
		all = append(all, pod)
	}
	return append(all, others...), total, nil
}
