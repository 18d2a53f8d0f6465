package builtin

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/batch"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// batchGroup is work that ends.
func batchGroup() resource.Group {
	return group("batch", version{"v1", []resource.Type{
		{
			Resource: "cronjobs", Kind: "CronJob", New: object[batchv1.CronJob],
			Namespaced: true, ShortNames: []string{"cj"}, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Subresources:   []resource.Subresource{status},
			Default:        defaults(batch.DefaultCronJob),
			Validate:       validates(batch.ValidateCronJob),
			ValidateUpdate: updates(batch.ValidateCronJobUpdate),
			Warnings:       warns(batch.CronJobWarnings),
			MetadataOnce:   true,
		},
		{
			Resource: "jobs", Kind: "Job", New: object[batchv1.Job],
			Namespaced: true, Categories: inAll,
			UnconditionalUpdate: true, Generation: true,
			Orphans: true,
			OrphansWarning: "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them " +
				"or set propagationPolicy=Orphan to suppress this warning",
			Subresources:   []resource.Subresource{statusBy(setJobStatus, updates(batch.ValidateJobStatus))},
			Default:        defaults(batch.DefaultJob),
			Validate:       validates(batch.ValidateJob),
			ValidateUpdate: updates(batch.ValidateJobUpdate),
			Warnings:       warns(batch.JobWarnings),
			PrepareCreate:  defaults(batch.PrepareJob),
			Fields:         []resource.Field{{Name: "status.successful", Paths: [][]string{{"status", "succeeded"}}, Default: "0"}},
			FieldError:     "field label %q not supported for Job",
		},
	}})
}
