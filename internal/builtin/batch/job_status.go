package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// statusRules checks an update of a Job's status. It accepts errors in parts that the update does
// not change.
type statusRules struct {
	check.Errors
	job, old       *batchv1.Job
	next, had      *batchv1.JobStatus
	at             *field.Path
	indexed        bool
	finished       bool // the new state; the fields below are about changes
	finishedChange bool
}

// ValidateJobStatus checks an update of the status.
func ValidateJobStatus(j, old *batchv1.Job) field.ErrorList {
	r := statusRules{job: j, old: old, next: &j.Status, had: &old.Status, at: field.NewPath("status"), indexed: isIndexed(&j.Spec), finished: isFinished(j)}
	r.finishedChange = r.finished != isFinished(old)
	r.numbers()
	r.ends()
	r.whileFinished()
	r.indexes()
	r.success()
	r.changes()
	return r.List()
}

func isTrue(j *batchv1.Job, t batchv1.JobConditionType) bool {
	return hasCondition(j, t, corev1.ConditionTrue)
}

func isFinished(j *batchv1.Job) bool {
	return isTrue(j, batchv1.JobComplete) || isTrue(j, batchv1.JobFailed)
}

// changed reports whether a condition became true or stopped being true.
func (r *statusRules) changed(t batchv1.JobConditionType) bool {
	return isTrue(r.job, t) != isTrue(r.old, t)
}

func (r *statusRules) conditions(detail string) {
	r.Invalid(r.at, "conditions", field.OmitValueType{}, detail)
}

func (r *statusRules) numbers() {
	r.NonNegative(r.at, "active", int64(r.next.Active))
	r.NonNegative(r.at, "succeeded", int64(r.next.Succeeded))
	r.NonNegative(r.at, "failed", int64(r.next.Failed))
	check.NonNegativeIfSet(&r.Errors, r.at, "ready", r.next.Ready)
	check.NonNegativeIfSet(&r.Errors, r.at, "terminating", r.next.Terminating)
	u := r.next.UncountedTerminatedPods
	if u == nil {
		return
	}
	seen := map[types.UID]bool{}
	for _, part := range [...]struct {
		name string
		uids []types.UID
	}{{"succeeded", u.Succeeded}, {"failed", u.Failed}} {
		for i, uid := range part.uids {
			at := r.at.Child("uncountedTerminatedPods", part.name).Index(i)
			switch {
			case uid == "":
				r.Invalid(at, "", uid, "must not be empty")
			case seen[uid]:
				r.Duplicate(at, "", uid)
			}
			seen[uid] = true
		}
	}
}

func sameTime(a, b *metav1.Time) bool {
	return ptr.Equal(a, b)
}

// ends checks the final conditions and their times.
func (r *statusRules) ends() {
	complete, failed := isTrue(r.job, batchv1.JobComplete), isTrue(r.job, batchv1.JobFailed)
	completeChange, failedChange := r.changed(batchv1.JobComplete), r.changed(batchv1.JobFailed)
	startChange, endChange := !sameTime(r.had.StartTime, r.next.StartTime), !sameTime(r.had.CompletionTime, r.next.CompletionTime)
	if (completeChange || failedChange) && complete && failed {
		r.conditions("cannot set Complete=True and Failed=true conditions")
	}
	target := isTrue(r.job, batchv1.JobFailureTarget)
	if (completeChange || r.changed(batchv1.JobFailureTarget)) && complete && target {
		r.conditions("cannot set Complete=True and FailureTarget=true conditions")
	}
	if completeChange || endChange {
		switch end := r.next.CompletionTime; {
		case end != nil && !complete:
			r.Invalid(r.at, "completionTime", end, "cannot set completionTime when there is no Complete=True condition")
		case end == nil && complete:
			r.Required(r.at, "completionTime", "completionTime is required for Complete jobs")
		}
	}
	if start, end := r.next.StartTime, r.next.CompletionTime; (startChange || endChange) && start != nil && end != nil && end.Before(start) {
		r.Invalid(r.at, "completionTime", end, "must be equal to or after `startTime`")
	}
	if (failedChange || !ptr.Equal(r.had.FailedIndexes, r.next.FailedIndexes)) && failed && !target {
		r.conditions("cannot set Failed=True condition without the FailureTarget=true condition")
	}
	met := isTrue(r.job, batchv1.JobSuccessCriteriaMet)
	if (completeChange || r.changed(batchv1.JobSuccessCriteriaMet)) && complete && !met {
		r.conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	}
}

// whileFinished checks that no Pod of a finished Job is active or terminating.
func (r *statusRules) whileFinished() {
	if !r.finished {
		return
	}
	s := r.next
	if (r.finishedChange || s.Active != r.had.Active) && s.Active > 0 {
		r.Invalid(r.at, "active", s.Active, "active>0 is invalid for finished job")
	}
	never := r.job.Spec.Suspend != nil && *r.job.Spec.Suspend && r.job.Spec.Completions != nil && *r.job.Spec.Completions == 0
	if (r.finishedChange || !sameTime(s.StartTime, r.had.StartTime)) && !never && s.StartTime == nil {
		r.Required(r.at, "startTime", "startTime is required for finished job")
	}
	u := s.UncountedTerminatedPods
	if (r.finishedChange || !equality.Semantic.DeepEqual(u, r.had.UncountedTerminatedPods)) && u != nil && len(u.Failed)+len(u.Succeeded) > 0 {
		r.Invalid(r.at, "uncountedTerminatedPods", check.Bare(u), "must be empty for finished job")
	}
}

// indexes checks the lists of completed and failed indexes.
func (r *statusRules) indexes() {
	s, completions := r.next, r.job.Spec.Completions
	done, failed := s.CompletedIndexes != r.had.CompletedIndexes, !ptr.Equal(s.FailedIndexes, r.had.FailedIndexes)
	perIndex := r.job.Spec.BackoffLimitPerIndex != nil
	if done && completions != nil {
		if _, err := countIndexes(s.CompletedIndexes, *completions); err != nil {
			r.Invalid(r.at, "completedIndexes", s.CompletedIndexes, fmt.Sprintf("error parsing completedIndexes: %s", err))
		}
	}
	if failed && completions != nil && perIndex && s.FailedIndexes != nil {
		if _, err := countIndexes(*s.FailedIndexes, *completions); err != nil {
			r.Invalid(r.at, "failedIndexes", s.FailedIndexes, fmt.Sprintf("error parsing failedIndexes: %s", err))
		}
	}
	if done && s.CompletedIndexes != "" && !r.indexed {
		r.Invalid(r.at, "completedIndexes", s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if failed && !perIndex && s.FailedIndexes != nil {
		r.Invalid(r.at, "failedIndexes", *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	}
	if (done || failed) && completions != nil && s.FailedIndexes != nil {
		if i, found := overlap(s.CompletedIndexes, *s.FailedIndexes, *completions); found {
			r.Invalid(r.at, "failedIndexes", *s.FailedIndexes, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", i))
		}
	}
}

// success checks the numbers of Pods, and the condition SuccessCriteriaMet.
func (r *statusRules) success() {
	s := r.next
	if (r.finishedChange || !ptr.Equal(s.Terminating, r.had.Terminating)) && r.finished && s.Terminating != nil && *s.Terminating > 0 {
		r.Invalid(r.at, "terminating", s.Terminating, "terminating>0 is invalid for finished job")
	}
	if (!ptr.Equal(s.Ready, r.had.Ready) || s.Active != r.had.Active) && s.Ready != nil && *s.Ready > s.Active {
		r.Invalid(r.at, "ready", *s.Ready, "cannot set more ready pods than active")
	}
	met := isTrue(r.job, batchv1.JobSuccessCriteriaMet)
	if met && isTrue(r.job, batchv1.JobFailed) {
		r.conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions")
	}
	if met && isTrue(r.job, batchv1.JobFailureTarget) {
		r.conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	}
	if !met && r.job.Spec.SuccessPolicy != nil && isTrue(r.job, batchv1.JobComplete) {
		r.conditions("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	}
}

// changes checks that the update does not revert final values.
func (r *statusRules) changes() {
	for _, t := range [...]batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		if isTrue(r.old, t) && !isTrue(r.job, t) {
			r.conditions(fmt.Sprintf("cannot disable the terminal %s=True condition", t))
		}
	}
	if r.next.Failed < r.had.Failed {
		r.Invalid(r.at, "failed", r.next.Failed, "cannot decrease the failed counter")
	}
	// An Indexed Job that scales down loses the successes of the removed indexes.
	scales := r.indexed && ptr.Equal(r.job.Spec.Completions, r.job.Spec.Parallelism)
	if !scales && r.next.Succeeded < r.had.Succeeded {
		r.Invalid(r.at, "succeeded", r.next.Succeeded, "cannot decrease the succeeded counter")
	}
	if r.next.CompletionTime != nil && r.had.CompletionTime != nil && !sameTime(r.next.CompletionTime, r.had.CompletionTime) {
		r.Invalid(r.at, "completionTime", r.next.CompletionTime, "field is immutable")
	}
	resumes := hasCondition(r.old, batchv1.JobSuspended, corev1.ConditionTrue) && hasCondition(r.job, batchv1.JobSuspended, corev1.ConditionFalse)
	if r.had.StartTime != nil && !sameTime(r.had.StartTime, r.next.StartTime) && !resumes && !ptr.Deref(r.job.Spec.Suspend, false) {
		r.Invalid(r.at, "startTime", r.next.StartTime, "field is immutable for unsuspended job once set")
	}
	had, has := isTrue(r.old, batchv1.JobSuccessCriteriaMet), isTrue(r.job, batchv1.JobSuccessCriteriaMet)
	if had && !has {
		r.conditions("cannot disable the SuccessCriteriaMet=True condition")
	}
	if !had && has && isTrue(r.old, batchv1.JobComplete) {
		r.conditions("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
	}
}
