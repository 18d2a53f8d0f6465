package admission

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// levels evaluates Pods. It is a table of a few hundred kilobytes, made when the first namespace
// needs it. Servers of one process share it: it depends on the library alone.
var levels = sync.OnceValue(func() policy.Evaluator {
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err) // the checks are constants of the library
	}
	return e
})

// everyone is the policy of a namespace without labels: it allows everything.
var everyone = func() api.Policy {
	p := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	return api.Policy{Enforce: p, Audit: p, Warn: p}
}()

// label is in the stored bytes of each namespace with a level.
var label = []byte(`"pod-security.kubernetes.io/`)

// makers are the collections of objects with a Pod template.
var makers = []string{"cronjobs.batch", "daemonsets.apps", "deployments.apps", "jobs.batch", "podtemplates", "replicasets.apps", "replicationcontrollers", "statefulsets.apps"}

// podSecurityPlugin holds Pods to the Pod Security Standard that the labels of their namespace
// name: it refuses Pods that violate the enforced level, and warns of Pods that violate the
// warning level. For the objects that make Pods it only warns.
func podSecurityPlugin(c *Config) registry.Plugin {
	return registry.Plugin{Handles: c.lookups.handlesPodSecurity, Validate: c.lookups.checkPodSecurity}
}

// handlesPodSecurity handles namespaces, and in namespaces with the labels of a level Pods and
// the objects that make Pods.
func (l *lookups) handlesPodSecurity(s *store.State, t registry.Target, o admissionv1.Operation) bool {
	switch collection := t.Type.Collection; {
	case o == admissionv1.Delete:
		return false
	case collection == namespaces:
		return t.Subresource == ""
	case collection == pods:
		return (t.Subresource == "" || t.Subresource == "ephemeralcontainers" || t.Subresource == "resize") && (l.audited || l.restricted(s, t.Namespace))
	case slices.Contains(makers, collection):
		return t.Subresource == "" && l.restricted(s, t.Namespace)
	}
	return false
}

// restricted reports whether a namespace has a level that does not allow everything.
func (l *lookups) restricted(s *store.State, namespace string) bool {
	wanted, err := l.levelsIn(s, namespace)
	return err != nil || !wanted.FullyPrivileged()
}

func (l *lookups) checkPodSecurity(_ context.Context, a *registry.Attributes) error {
	if n, ok := a.Object.(*corev1.Namespace); ok {
		return checkLevels(a, n)
	}
	wanted, err := l.levelsIn(a.State, a.Namespace)
	switch {
	case err != nil:
		return err
	case wanted.FullyPrivileged():
		a.Annotate(enforcedAnnotation, wanted.Enforce.String())
		return nil
	}
	if pod, ok := a.Object.(*corev1.Pod); ok {
		if old, ok := a.Old.(*corev1.Pod); ok && !changesImages(pod, old) {
			return nil
		}
		a.Annotate(enforcedAnnotation, wanted.Enforce.String())
		note(a, wanted, &pod.ObjectMeta, &pod.Spec)
		if r := violates(wanted.Enforce, &pod.ObjectMeta, &pod.Spec); !r.Allowed {
			return a.Forbidden("violates PodSecurity %q: %s", wanted.Enforce.String(), r.ForbiddenDetail())
		}
		warn(a, wanted, &pod.ObjectMeta, &pod.Spec)
		return nil
	}
	if t := template(a.Object); t != nil {
		note(a, wanted, &t.ObjectMeta, &t.Spec)
		warn(a, wanted, &t.ObjectMeta, &t.Spec)
	}
	return nil
}

func violates(level api.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec) policy.AggregateCheckResult {
	return policy.AggregateCheckResults(levels().EvaluatePod(level, meta, spec))
}

// Annotations of audit events.
const (
	enforcedAnnotation   = api.AuditAnnotationPrefix + api.EnforcedPolicyAnnotationKey
	violationsAnnotation = api.AuditAnnotationPrefix + api.AuditViolationsAnnotationKey
)

// note annotates the audit event of a Pod that violates the audit level.
func note(a *registry.Attributes, wanted api.Policy, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	if wanted.Audit.Level == api.LevelPrivileged {
		return
	}
	if r := violates(wanted.Audit, meta, spec); !r.Allowed {
		a.Annotate(violationsAnnotation, fmt.Sprintf("would violate PodSecurity %q: %s", wanted.Audit.String(), r.ForbiddenDetail()))
	}
}

func warn(a *registry.Attributes, wanted api.Policy, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	if r := violates(wanted.Warn, meta, spec); !r.Allowed {
		a.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", wanted.Warn.String(), r.ForbiddenDetail()))
	}
}

// changesImages reports whether an update of a Pod changes or adds images. No level depends on
// the other fields that an update can change.
func changesImages(pod, old *corev1.Pod) bool {
	differ := func(a, b []corev1.Container) bool {
		return !slices.EqualFunc(a, b, func(a, b corev1.Container) bool { return a.Image == b.Image })
	}
	if differ(pod.Spec.Containers, old.Spec.Containers) || differ(pod.Spec.InitContainers, old.Spec.InitContainers) {
		return true
	}
	type one struct{ name, image string }
	had := make(map[one]bool, len(old.Spec.EphemeralContainers))
	for _, c := range old.Spec.EphemeralContainers {
		had[one{c.Name, c.Image}] = true
	}
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return !had[one{c.Name, c.Image}] })
}

// template returns the Pod template of an object, nil if it has none.
func template(o runtime.Object) *corev1.PodTemplateSpec {
	switch o := o.(type) {
	case *corev1.PodTemplate:
		return &o.Template
	case *corev1.ReplicationController:
		return o.Spec.Template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	}
	return nil
}

// checkLevels refuses labels of a namespace that name no level, and warns of Pods that
// violate a level which is enforced from now on.
func checkLevels(a *registry.Attributes, n *corev1.Namespace) error {
	wanted, errs := api.PolicyToEvaluate(n.Labels, everyone)
	old, ok := a.Old.(*corev1.Namespace)
	invalid := apierrors.NewInvalid(a.Type.GroupVersionKind().GroupKind(), n.Name, errs)
	if !ok {
		if len(errs) > 0 {
			return invalid
		}
		return nil
	}
	before, oldErrs := api.PolicyToEvaluate(old.Labels, everyone)
	if len(errs) > 0 && !reflect.DeepEqual(errs, oldErrs) {
		return invalid
	}
	now, was := wanted.Enforce, before.Enforce
	if now == was || now.Level == api.LevelPrivileged || now.Version == was.Version && api.CompareLevels(now.Level, was.Level) < 1 {
		return nil
	}
	warnings, err := violations(a.State, n.Name, now)
	for _, w := range warnings {
		a.Warn(w)
	}
	return err
}

// mostPods is how many Pods of a namespace are evaluated when its level changes.
const mostPods = 3000

// violations describes which Pods of a namespace violate a level, with one line for each
// reason.
func violations(s *store.State, namespace string, level api.LevelVersion) ([]string, error) {
	type reason struct {
		first string
		count int
	}
	reasons := map[string]reason{}
	pods, err := podsOf(s, namespace)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods[:min(len(pods), mostPods)] {
		if r := violates(level, &pod.ObjectMeta, &pod.Spec); !r.Allowed {
			w := reasons[r.ForbiddenReason()]
			if w.count == 0 || pod.Name < w.first {
				w.first = pod.Name
			}
			w.count++
			reasons[r.ForbiddenReason()] = w
		}
	}
	var lines, all []string
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
	if len(pods) > mostPods {
		all = append(all, fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", mostPods, len(pods)))
	}
	if len(lines) > 0 {
		all = append(all, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, level.String()))
	}
	return append(all, lines...), nil
}

// podsOf returns the Pods of a namespace: first one of each owner, then the others.
func podsOf(s *store.State, namespace string) (all []*corev1.Pod, err error) {
	var others []*corev1.Pod
	seen := map[types.UID]bool{}
	for o := range s.Snapshot(pods).Scan(namespace+"/", "") {
		pod, err := registry.Decode[corev1.Pod](o)
		if err != nil {
			return nil, err
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
	return append(all, others...), nil
}
