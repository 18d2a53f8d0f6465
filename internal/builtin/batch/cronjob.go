package batch

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// DefaultCronJob fills in what a client leaves out. What it leaves out of the Job
// is filled in when there is one.
func DefaultCronJob(c *batchv1.CronJob) {
	if c.Spec.ConcurrencyPolicy == "" {
		c.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	orPointer(&c.Spec.Suspend, false)
	orPointer(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	orPointer(&c.Spec.FailedJobsHistoryLimit, 1)
	defaultFailurePolicy(&c.Spec.JobTemplate.Spec)
	core.DefaultTemplate(&c.Spec.JobTemplate.Spec.Template)
}
