package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// The limits of Indexed Jobs, whose status has the state of each index.
const (
	maxParallelism      = 100_000
	maxFailedIndexes    = 100_000
	manyCompletions     = 100_000
	maxOfMany           = 10_000 // parallelism and failed indexes of Jobs with more than manyCompletions
	maxManagedBy        = 63     // bytes
	maxRules            = 20
	maxExitCodes        = 255
	maxSucceededIndexes = 64 * 1024 // bytes
)

var (
	completionModes     = []batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion}
	replacementPolicies = []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
	failureActions      = []batchv1.PodFailurePolicyAction{batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore}
	exitCodeOperators   = []batchv1.PodFailurePolicyOnExitCodesOperator{batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn}
	conditionStatuses   = []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
	endingPolicies      = []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
)

// ValidateJob checks a new Job.
func ValidateJob(j *batchv1.Job) field.ErrorList {
	var errs check.Errors
	generatedSelector(&errs, j)
	ownSpec(&errs, &j.Spec)
	hostnames(&errs, j)
	return errs.List()
}

// hostnames checks that the Pods of an indexed Job can have its name with their index as their hostname.
func hostnames(errs *check.Errors, j *batchv1.Job) {
	if isIndexed(&j.Spec) && j.Spec.Completions != nil && *j.Spec.Completions > 0 {
		hostname := fmt.Sprintf("%s-%d", j.Name, *j.Spec.Completions-1)
		if len(validation.IsDNS1123Label(hostname)) > 0 {
			errs.Invalid(field.NewPath("metadata"), "name", j.Name, "will not able to create pod with invalid DNS label: "+hostname)
		}
	}
}

// ownSpec checks the spec of a Job, which must have a selector, unlike that of a template.
func ownSpec(errs *check.Errors, s *batchv1.JobSpec) {
	at := field.NewPath("spec")
	jobSpec(errs, s, at)
	if s.Selector == nil {
		errs.Required(at, "selector", "")
	} else {
		errs.LabelSelector(s.Selector, at.Child("selector"))
	}
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil && !selector.Matches(labels.Set(s.Template.Labels)) {
		errs.Invalid(at.Child("template", "metadata"), "labels", s.Template.Labels, "`selector` does not match template `labels`")
	}
}

func isIndexed(s *batchv1.JobSpec) bool {
	return s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
}

// generatedSelector checks that the selector and labels are those that PrepareJob generates.
func generatedSelector(errs *check.Errors, j *batchv1.Job) {
	if j.Spec.ManualSelector != nil && *j.Spec.ManualSelector || j.Spec.Selector == nil {
		return
	}
	own := labels.Set{
		oldControllerUIDLabel: string(j.UID), oldJobNameLabel: j.Name,
		batchv1.ControllerUidLabel: string(j.UID), batchv1.JobNameLabel: j.Name,
	}
	at := field.NewPath("spec", "template", "metadata", "labels")
	for _, name := range []string{oldControllerUIDLabel, oldJobNameLabel, batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
		switch have, ok := j.Spec.Template.Labels[name]; {
		case !ok:
			errs.Required(at.Key(name), "", fmt.Sprintf("must be '%s'", own[name]))
		case have != own[name]:
			errs.Invalid(at.Key(name), "", j.Spec.Template.Labels, fmt.Sprintf("must be '%s'", own[name]))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(own) {
		errs.Invalid(field.NewPath("spec"), "selector", j.Spec.Selector, "`selector` not auto-generated")
	}
}

// jobSpec checks the fields that the specs of Jobs and of templates share.
func jobSpec(errs *check.Errors, s *batchv1.JobSpec, at *field.Path) {
	check.NonNegativeIfSet(errs, at, "parallelism", s.Parallelism)
	check.NonNegativeIfSet(errs, at, "completions", s.Completions)
	check.NonNegativeIfSet(errs, at, "activeDeadlineSeconds", s.ActiveDeadlineSeconds)
	check.NonNegativeIfSet(errs, at, "backoffLimit", s.BackoffLimit)
	check.NonNegativeIfSet(errs, at, "ttlSecondsAfterFinished", s.TTLSecondsAfterFinished)
	check.NonNegativeIfSet(errs, at, "backoffLimitPerIndex", s.BackoffLimitPerIndex)
	check.NonNegativeIfSet(errs, at, "maxFailedIndexes", s.MaxFailedIndexes)
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		errs.Required(at, "backoffLimitPerIndex", "when maxFailedIndexes is specified")
	}
	if by := s.ManagedBy; by != nil {
		errs.Add(validation.IsDomainPrefixedPath(at.Child("managedBy"), *by)...)
		if len(*by) > maxManagedBy {
			errs.Add(field.TooLong(at.Child("managedBy"), "", maxManagedBy))
		}
	}
	if s.CompletionMode != nil {
		check.Enum(errs, at, "completionMode", *s.CompletionMode, completionModes)
	}
	if isIndexed(s) {
		indexed(errs, s, at)
	} else if s.CompletionMode == nil || *s.CompletionMode == batchv1.NonIndexedCompletion {
		const requires = "requires indexed completion mode"
		if s.BackoffLimitPerIndex != nil {
			errs.Invalid(at, "backoffLimitPerIndex", *s.BackoffLimitPerIndex, requires)
		}
		if s.MaxFailedIndexes != nil {
			errs.Invalid(at, "maxFailedIndexes", *s.MaxFailedIndexes, requires)
		}
	}
	if s.PodFailurePolicy != nil {
		failurePolicy(errs, s, at.Child("podFailurePolicy", "rules"))
	}
	switch {
	case s.SuccessPolicy == nil:
	case !isIndexed(s):
		errs.Invalid(at, "successPolicy", check.Bare(*s.SuccessPolicy), "requires indexed completion mode")
	default:
		successPolicy(errs, s, at.Child("successPolicy", "rules"))
	}
	if p := s.PodReplacementPolicy; p != nil {
		allowed := replacementPolicies
		if s.PodFailurePolicy != nil {
			allowed = allowed[:1]
		}
		check.Enum(errs, at, "podReplacementPolicy", *p, allowed)
	}
	podspec.ValidateTemplate(errs, &s.Template, at.Child("template"))
	endingPolicy(errs, s, at.Child("template", "spec"))
}

// endingPolicy checks that the restart policy lets Pods end.
func endingPolicy(errs *check.Errors, s *batchv1.JobSpec, at *field.Path) {
	switch p := s.Template.Spec.RestartPolicy; {
	case p == corev1.RestartPolicyAlways:
		errs.Required(at, "restartPolicy", fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))
	case !slices.Contains(endingPolicies, p):
		check.Enum(errs, at, "restartPolicy", p, endingPolicies)
	case s.PodFailurePolicy != nil && p != corev1.RestartPolicyNever:
		errs.Invalid(at, "restartPolicy", p, fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever))
	}
}

// indexed checks the numbers of Indexed Jobs.
func indexed(errs *check.Errors, s *batchv1.JobSpec, at *field.Path) {
	if s.Completions == nil {
		errs.Required(at, "completions", "when completion mode is Indexed")
	}
	atMost := func(name string, n *int32, most int32, detail string) {
		if n != nil && *n > most {
			errs.Invalid(at, name, *n, detail)
		}
	}
	atMost("parallelism", s.Parallelism, maxParallelism, fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", maxParallelism))
	if s.Completions != nil {
		atMost("maxFailedIndexes", s.MaxFailedIndexes, *s.Completions, "must be less than or equal to completions")
	}
	atMost("maxFailedIndexes", s.MaxFailedIndexes, maxFailedIndexes, fmt.Sprintf("must be less than or equal to %d", maxFailedIndexes))
	if s.Completions == nil || *s.Completions <= manyCompletions || s.BackoffLimitPerIndex == nil {
		return
	}
	if s.MaxFailedIndexes == nil {
		errs.Required(at, "maxFailedIndexes", fmt.Sprintf("must be specified when completions is above %d", manyCompletions))
	}
	detail := fmt.Sprintf("must be less than or equal to %d when completions are above %d and used with backoff limit per index", maxOfMany, manyCompletions)
	atMost("parallelism", s.Parallelism, maxOfMany, detail)
	atMost("maxFailedIndexes", s.MaxFailedIndexes, maxOfMany, detail)
}

// ValidateJobUpdate checks an update. Labels of the template need not be those that PrepareJob generates: the selector is
// immutable, and must select the template.
func ValidateJobUpdate(j, old *batchv1.Job) field.ErrorList {
	var errs check.Errors
	ownSpec(&errs, &j.Spec)
	s, had, at := &j.Spec, &old.Spec, field.NewPath("spec")
	switch {
	case !isIndexed(s):
		errs.Immutable(at, "completions", s.Completions, had.Completions)
	case s.Completions == nil, equality.Semantic.DeepEqual(s.Completions, had.Completions):
	case *s.Completions != *s.Parallelism:
		errs.Invalid(at, "completions", s.Completions, "can only be modified in tandem with spec.parallelism")
	}
	errs.Immutable(at, "selector", s.Selector, had.Selector)
	templateUpdate(&errs, s, old, at)
	errs.Immutable(at, "completionMode", s.CompletionMode, had.CompletionMode)
	errs.Immutable(at, "podFailurePolicy", s.PodFailurePolicy, had.PodFailurePolicy)
	errs.Immutable(at, "backoffLimitPerIndex", s.BackoffLimitPerIndex, had.BackoffLimitPerIndex)
	errs.Immutable(at, "managedBy", s.ManagedBy, had.ManagedBy)
	errs.Immutable(at, "successPolicy", s.SuccessPolicy, had.SuccessPolicy)
	hostnames(&errs, j)
	return errs.List()
}

// templateUpdate checks changes of the template. While a Job is suspended and has no active Pods,
// its scheduling constraints and resources are mutable.
func templateUpdate(errs *check.Errors, s *batchv1.JobSpec, old *batchv1.Job, at *field.Path) {
	had := &old.Spec.Template
	suspended := old.Spec.Suspend != nil && *old.Spec.Suspend
	open := suspended && old.Status.Active == 0 && (old.Status.StartTime == nil || hasCondition(old, batchv1.JobSuspended, corev1.ConditionTrue))
	if !open {
		errs.Immutable(at, "template", &s.Template, had)
		return
	}
	kept, next := had.DeepCopy(), &s.Template.Spec
	scheduling(&kept.Spec, next)
	for _, part := range [...]struct{ to, from []corev1.Container }{
		{kept.Spec.Containers, next.Containers}, {kept.Spec.InitContainers, next.InitContainers},
	} {
		for i := 0; len(part.to) == len(part.from) && i < len(part.to); i++ {
			if part.to[i].Name == part.from[i].Name {
				part.to[i].Resources = part.from[i].Resources
			}
		}
	}
	errs.Immutable(at.Child("template.spec"), "", *next, kept.Spec)
}

// scheduling copies the mutable scheduling constraints.
func scheduling(kept, next *corev1.PodSpec) {
	switch {
	case next.Affinity == nil && kept.Affinity != nil:
		kept.Affinity.NodeAffinity = nil
		if *kept.Affinity == (corev1.Affinity{}) {
			kept.Affinity = nil
		}
	case next.Affinity != nil && kept.Affinity == nil:
		kept.Affinity = &corev1.Affinity{NodeAffinity: next.Affinity.NodeAffinity}
	case next.Affinity != nil:
		kept.Affinity.NodeAffinity = next.Affinity.NodeAffinity
	}
	kept.NodeSelector, kept.Tolerations, kept.SchedulingGates = next.NodeSelector, next.Tolerations, next.SchedulingGates
}

// hasCondition reports whether a condition has a status.
func hasCondition(j *batchv1.Job, t batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == t && c.Status == status })
}
