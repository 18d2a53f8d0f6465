package batch

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// JobWarnings returns the warnings about a Job.
func JobWarnings(j, old *batchv1.Job) (list []string) {
	switch {
	case old == nil:
		list = podspec.NameWarnings(j.Name)
	case equality.Semantic.DeepEqual(&j.Spec, &old.Spec):
		return nil
	}
	return append(list, specWarnings(&j.Spec, field.NewPath("spec"))...)
}

// CronJobWarnings returns the warnings about a CronJob.
func CronJobWarnings(c, old *batchv1.CronJob) (list []string) {
	if old == nil {
		list = podspec.NameWarnings(c.Name)
	}
	if old == nil || !equality.Semantic.DeepEqual(&c.Spec, &old.Spec) {
		list = append(list, specWarnings(&c.Spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec"))...)
	}
	if old != nil && strings.Contains(c.Spec.Schedule, "TZ") {
		list = append(list, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return list
}

func specWarnings(s *batchv1.JobSpec, at *field.Path) (list []string) {
	if isIndexed(s) && s.Completions != nil && *s.Completions > manyCompletions && s.Parallelism != nil && *s.Parallelism > maxOfMany {
		list = append(list, fmt.Sprintf("%s: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail", at))
	}
	return append(list, podspec.TemplateWarnings(&s.Template, at.Child("template"))...)
}
