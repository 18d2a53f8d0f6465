// Package batch has the defaults, validation and warnings of Jobs and CronJobs. Paths, reasons,
// messages and their order are those of kube-apiserver v1.37.
package batch

import (
	"math"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// The older labels of the Pods of a Job, which have no domain.
const (
	oldJobNameLabel       = "job-name"
	oldControllerUIDLabel = "controller-uid"
)

// DefaultJob sets the defaults.
func DefaultJob(j *batchv1.Job) {
	s := &j.Spec
	if s.Completions == nil && s.Parallelism == nil {
		s.Completions = ptr.To[int32](1)
	}
	check.SetIfNil(&s.Parallelism, 1)
	if s.BackoffLimit == nil {
		s.BackoffLimit = ptr.To[int32](6)
		if s.BackoffLimitPerIndex != nil {
			s.BackoffLimit = ptr.To[int32](math.MaxInt32)
		}
	}
	LabelLikePods(j)
	check.SetIfNil(&s.CompletionMode, batchv1.NonIndexedCompletion)
	check.SetIfNil(&s.Suspend, false)
	replacement := batchv1.TerminatingOrFailed
	if s.PodFailurePolicy != nil {
		replacement = batchv1.Failed
	}
	check.SetIfNil(&s.PodReplacementPolicy, replacement)
	check.SetIfNil(&s.ManualSelector, false)
	defaultFailurePolicy(s)
	podspec.DefaultTemplate(&s.Template)
}

// LabelLikePods gives a Job without labels those of its Pods. Both share one map, so that the Job
// also gets the labels that PrepareJob adds: clients find Jobs by them.
func LabelLikePods(j *batchv1.Job) {
	if len(j.Labels) == 0 {
		j.Labels = j.Spec.Template.Labels
	}
}

func defaultFailurePolicy(s *batchv1.JobSpec) {
	if s.PodFailurePolicy == nil {
		return
	}
	for i := range s.PodFailurePolicy.Rules {
		conditions := s.PodFailurePolicy.Rules[i].OnPodConditions
		for j := range conditions {
			if conditions[j].Status == "" {
				conditions[j].Status = corev1.ConditionTrue
			}
		}
	}
}

// PrepareJob generates the selector of a new Job and the labels of its Pods, unless manualSelector
// is set.
func PrepareJob(j *batchv1.Job) {
	if j.Spec.ManualSelector != nil && *j.Spec.ManualSelector {
		return
	}
	t := &j.Spec.Template
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	for _, l := range [...]struct{ name, value string }{
		{oldJobNameLabel, j.Name},
		{batchv1.JobNameLabel, j.Name},
		{oldControllerUIDLabel, string(j.UID)},
		{batchv1.ControllerUidLabel, string(j.UID)},
	} {
		if _, ok := t.Labels[l.name]; !ok {
			t.Labels[l.name] = l.value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
	if len(content.IsLabelValue(j.Name)) == 0 { // validation rejects another name, with an error about the labels alone
		LabelLikePods(j)
	}
}
