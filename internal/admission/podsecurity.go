package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// privileged is the policy of a server without a configuration: it allows everything.
var privileged = func() api.Policy {
	p := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	return api.Policy{Enforce: p, Audit: p, Warn: p}
}()

// label is in the stored bytes of each namespace with a level.
var label = []byte(`"pod-security.kubernetes.io/`)

// makers are the collections of objects with a Pod template.
var makers = []string{"cronjobs.batch", "daemonsets.apps", "deployments.apps", "jobs.batch", "podtemplates", "replicasets.apps", "replicationcontrollers", "statefulsets.apps"}

// podSecurity is the plugin PodSecurity. It holds Pods to the Pod Security Standard that the labels
// of their namespace name: it refuses Pods that violate the enforced level, warns of Pods that
// violate the warning level, and annotates the audit events of Pods that violate the audit level. It
// does not refuse the objects that make Pods.
type podSecurity struct {
	*lookups
	PodSecurity
	metrics *securityMetrics
}

func podSecurityPlugin(c *Config) registry.Plugin {
	p := podSecurity{c.lookups, c.Configuration.PodSecurity, c.Metrics.security}
	return registry.Plugin{Handles: p.handles, Validate: p.validate}
}

// handles handles namespaces, Pods, and the objects that make Pods where a level may not allow them.
func (p *podSecurity) handles(s *store.State, t registry.Target, o admissionv1.Operation) bool {
	switch collection := t.Type.Collection; {
	case o != admissionv1.Create && o != admissionv1.Update:
		return false
	case collection == namespaces:
		return t.Subresource == ""
	case collection == pods:
		return t.Subresource == "" || t.Subresource == "ephemeralcontainers" || t.Subresource == "resize"
	case slices.Contains(makers, collection):
		return t.Subresource == "" && (p.exempts() || p.restricted(s, t.Namespace))
	}
	return false
}

// restricted reports whether a namespace has a level that does not allow everything.
func (p *podSecurity) restricted(s *store.State, namespace string) bool {
	wanted, err := p.levelsIn(s, namespace)
	return err != nil || wanted.err != nil || !wanted.FullyPrivileged()
}

func (p *podSecurity) validate(ctx context.Context, a *registry.Attributes) error {
	if n, ok := a.Object.(*corev1.Namespace); ok {
		return p.checkLevels(ctx, a, n)
	}
	if reason := p.exemption(a); reason != "" {
		p.metrics.exempt(a)
		a.Annotate(exemptAnnotation, reason)
		return nil
	}
	pod, enforce := a.Object.(*corev1.Pod)
	wanted, err := p.levelsIn(a.State, a.Namespace)
	switch {
	case err != nil && enforce:
		p.metrics.failed(a, true)
		failure := apierrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", a.Namespace))
		a.Annotate(errorAnnotation, fmt.Sprintf("%s: %v", failure.ErrStatus.Message, err))
		return failure
	case err != nil:
		p.metrics.failed(a, true)
		a.Annotate(errorAnnotation, fmt.Sprintf("failed to lookup namespace %q: %v", a.Namespace, err))
		return nil
	case enforce && wanted.err == nil && wanted.FullyPrivileged():
		p.metrics.evaluated(a, allowed, wanted.Enforce, modeEnforce)
		a.Annotate(enforcedAnnotation, privileged.Enforce.String()) // the version has no meaning
		return nil
	case !enforce && wanted.err == nil && wanted.Warn.Level == api.LevelPrivileged && wanted.Audit.Level == api.LevelPrivileged:
		return nil
	case enforce:
		if old, ok := a.Old.(*corev1.Pod); ok && !changesImages(pod, old) {
			return nil
		}
		return p.evaluate(a, wanted, subject{&pod.ObjectMeta, &pod.Spec}, true)
	}
	if t := template(a.Object); t != nil {
		return p.evaluate(a, wanted, subject{&t.ObjectMeta, &t.Spec}, false)
	}
	return nil
}

// subject is a Pod, or a template of Pods.
type subject struct {
	meta *metav1.ObjectMeta
	spec *corev1.PodSpec
}

func (s subject) at(level api.LevelVersion) policy.AggregateCheckResult {
	return policy.AggregateCheckResults(levels().EvaluatePod(level, s.meta, s.spec))
}

// evaluate applies the levels of a namespace.
func (p *podSecurity) evaluate(a *registry.Attributes, wanted namespaceLevels, s subject, enforce bool) (refusal error) {
	if name := s.spec.RuntimeClassName; name != nil && *name != "" && slices.Contains(p.RuntimeClasses, *name) {
		p.metrics.exempt(a)
		a.Annotate(exemptAnnotation, "runtimeClass")
		return nil
	}
	if wanted.err != nil {
		p.metrics.failed(a, false)
		a.Annotate(errorAnnotation, fmt.Sprintf("Failed to parse policy: %v", wanted.err))
	}
	known := make(map[api.LevelVersion]policy.AggregateCheckResult, 3)
	at := func(level api.LevelVersion) policy.AggregateCheckResult {
		r, ok := known[level]
		if !ok {
			r = s.at(level)
			known[level] = r
		}
		return r
	}
	if enforce {
		a.Annotate(enforcedAnnotation, wanted.Enforce.String())
		decision := allowed
		if r := at(wanted.Enforce); !r.Allowed {
			decision = denied
			refusal = a.Forbidden("violates PodSecurity %q: %s", wanted.Enforce.String(), r.ForbiddenDetail())
		}
		p.metrics.evaluated(a, decision, wanted.Enforce, modeEnforce)
	}
	if r := at(wanted.Audit); !r.Allowed {
		a.Annotate(violationsAnnotation, fmt.Sprintf("would violate PodSecurity %q: %s", wanted.Audit.String(), r.ForbiddenDetail()))
		p.metrics.evaluated(a, denied, wanted.Audit, modeAudit)
	}
	if refusal != nil {
		return refusal
	}
	if r := at(wanted.Warn); !r.Allowed {
		a.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", wanted.Warn.String(), r.ForbiddenDetail()))
		p.metrics.evaluated(a, denied, wanted.Warn, modeWarn)
	}
	return nil
}

// Annotations of audit events.
const (
	enforcedAnnotation   = api.AuditAnnotationPrefix + api.EnforcedPolicyAnnotationKey
	violationsAnnotation = api.AuditAnnotationPrefix + api.AuditViolationsAnnotationKey
	exemptAnnotation     = api.AuditAnnotationPrefix + api.ExemptionReasonAnnotationKey
	errorAnnotation      = api.AuditAnnotationPrefix + "error"
)

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
