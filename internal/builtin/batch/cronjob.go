package batch

import (
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // zones are known where the machine knows none

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// DefaultCronJob fills in what a client leaves out. What it leaves out of the Job
// is filled in when there is one.
func DefaultCronJob(c *batchv1.CronJob) {
	if c.Spec.ConcurrencyPolicy == "" {
		c.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	core.SetMissing(&c.Spec.Suspend, false)
	core.SetMissing(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	core.SetMissing(&c.Spec.FailedJobsHistoryLimit, 1)
	defaultFailurePolicy(&c.Spec.JobTemplate.Spec)
	core.DefaultTemplate(&c.Spec.JobTemplate.Spec.Template)
}

var concurrencyPolicies = []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}

// maxCronJobName is how long the name of a CronJob may be, in bytes: those of its
// Jobs are longer.
const maxCronJobName = 63 - 11

// ValidateCronJob checks a new one.
func ValidateCronJob(c *batchv1.CronJob) field.ErrorList {
	var f core.Faults
	validateCronJob(&f, &c.Spec, nil)
	if len(c.Name) > maxCronJobName {
		f.Invalid(field.NewPath("metadata"), "name", c.Name, "must be no more than 52 characters")
	}
	return f.List()
}

// ValidateCronJobUpdate checks an update.
func ValidateCronJobUpdate(c, old *batchv1.CronJob) field.ErrorList {
	var f core.Faults
	validateCronJob(&f, &c.Spec, &old.Spec)
	return f.List()
}

// validateCronJob checks a spec; old is nil for a new one.
func validateCronJob(f *core.Faults, s, old *batchv1.CronJobSpec) {
	at := field.NewPath("spec")
	if s.Schedule == "" {
		f.Required(at, "schedule", "")
	} else {
		if err := checkSchedule(s.Schedule); err != nil {
			f.Invalid(at, "schedule", s.Schedule, err.Error())
		}
		zoned := strings.Contains(s.Schedule, "TZ")
		switch allowed := old != nil && strings.Contains(old.Schedule, "TZ"); {
		case zoned && !allowed:
			f.Invalid(at, "schedule", s.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
		case zoned && s.TimeZone != nil:
			f.Invalid(at, "schedule", s.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
		}
	}
	core.NonNegativeIfSet(f, at, "startingDeadlineSeconds", s.StartingDeadlineSeconds)
	if s.TimeZone != nil && (old == nil || old.TimeZone == nil || *old.TimeZone != *s.TimeZone) {
		timeZone(f, *s.TimeZone, at)
	}
	core.OneOf(f, at, "concurrencyPolicy", s.ConcurrencyPolicy, concurrencyPolicies)
	job, template := &s.JobTemplate.Spec, at.Child("jobTemplate", "spec")
	jobSpec(f, job, template)
	if job.Selector != nil {
		f.Invalid(template, "selector", job.Selector, "`selector` will be auto-generated")
	}
	if manual := job.ManualSelector; manual != nil && *manual {
		f.Add(field.NotSupported(template.Child("manualSelector"), manual, []string{"nil", "false"}))
	}
	core.NonNegativeIfSet(f, at, "successfulJobsHistoryLimit", s.SuccessfulJobsHistoryLimit)
	core.NonNegativeIfSet(f, at, "failedJobsHistoryLimit", s.FailedJobsHistoryLimit)
}

// zonePart is the form of what stands between the slashes of a time zone.
var zonePart = regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)

func timeZone(f *core.Faults, name string, at *field.Path) {
	if name == "" {
		f.Invalid(at, "timeZone", name, "timeZone must be nil or non-empty string")
		return
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zonePart.MatchString(part) {
			f.Invalid(at, "timeZone", name, "unknown time zone "+name)
			return
		}
	}
	if strings.EqualFold(name, "Local") {
		f.Invalid(at, "timeZone", name, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(name); err != nil {
		f.Invalid(at, "timeZone", name, err.Error())
	}
}
