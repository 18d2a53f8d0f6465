package builtin

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/batch"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

var jobFields = []resource.Field{{Name: "status.successful", Paths: [][]string{{"status", "succeeded"}}, Default: "0"}}

const jobOrphanWarning = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them " +
	"or set propagationPolicy=Orphan to suppress this warning"

// batchGroup has Jobs and CronJobs.
func batchGroup() resource.Group {
	return group("batch", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "cronjobs", Kind: "CronJob", ShortNames: []string{"cj"}, Categories: inAll},
			New:   object[batchv1.CronJob], Namespaced: true,
			Subresources: []resource.Subresource{status},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Generation: counted,
				Default:        defaults(batch.DefaultCronJob),
				Validate:       validates(batch.ValidateCronJob),
				ValidateUpdate: updates(batch.ValidateCronJobUpdate),
				Warnings:       warns(batch.CronJobWarnings),
			},
		},
		{
			Names: resource.Names{Resource: "jobs", Kind: "Job", Categories: inAll},
			New:   object[batchv1.Job], Namespaced: true,
			Subresources: []resource.Subresource{statusBy(setJobStatus, updates(batch.ValidateJobStatus))},
			Display:      resource.Display{Fields: jobFields, FieldError: "field label %q not supported for Job"},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Generation: counted,
				Deletion:       resource.Deletion{Dependents: resource.OrphanDependents, OrphanWarning: jobOrphanWarning},
				Default:        defaults(batch.DefaultJob),
				PrepareCreate:  defaults(batch.PrepareJob),
				Validate:       validates(batch.ValidateJob),
				ValidateUpdate: updates(batch.ValidateJobUpdate),
				Warnings:       warns(batch.JobWarnings),
			},
		},
	}})
}
