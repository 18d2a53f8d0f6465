package batch

import (
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // embeds the time zones, which the machine may lack

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/cron"
)

// DefaultCronJob sets the defaults. The controller's Jobs get the defaults of the template.
func DefaultCronJob(c *batchv1.CronJob) {
	if c.Spec.ConcurrencyPolicy == "" {
		c.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	check.SetIfNil(&c.Spec.Suspend, false)
	check.SetIfNil(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	check.SetIfNil(&c.Spec.FailedJobsHistoryLimit, 1)
	defaultFailurePolicy(&c.Spec.JobTemplate.Spec)
	podspec.DefaultTemplate(&c.Spec.JobTemplate.Spec.Template)
}

var concurrencyPolicies = []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}

// maxCronJobName is the maximum length of the name of a CronJob in bytes. The names of its Jobs
// have a suffix of 11 bytes.
const maxCronJobName = 63 - 11

// ValidateCronJob checks a new CronJob.
func ValidateCronJob(c *batchv1.CronJob) field.ErrorList {
	var errs check.Errors
	validateCronJob(&errs, &c.Spec, nil)
	if len(c.Name) > maxCronJobName {
		errs.Invalid(field.NewPath("metadata"), "name", c.Name, "must be no more than 52 characters")
	}
	return errs.List()
}

// ValidateCronJobUpdate checks an update.
func ValidateCronJobUpdate(c, old *batchv1.CronJob) field.ErrorList {
	var errs check.Errors
	validateCronJob(&errs, &c.Spec, &old.Spec)
	return errs.List()
}

// validateCronJob checks a spec; old is nil for a new one.
func validateCronJob(errs *check.Errors, s, old *batchv1.CronJobSpec) {
	at := field.NewPath("spec")
	if s.Schedule == "" {
		errs.Required(at, "schedule", "")
	} else {
		if _, err := cron.Parse(s.Schedule); err != nil {
			errs.Invalid(at, "schedule", s.Schedule, err.Error())
		}
		zoned := strings.Contains(s.Schedule, "TZ")
		switch allowed := old != nil && strings.Contains(old.Schedule, "TZ"); {
		case zoned && !allowed:
			errs.Invalid(at, "schedule", s.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
		case zoned && s.TimeZone != nil:
			errs.Invalid(at, "schedule", s.Schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
		}
	}
	check.NonNegativeIfSet(errs, at, "startingDeadlineSeconds", s.StartingDeadlineSeconds)
	if s.TimeZone != nil && (old == nil || old.TimeZone == nil || *old.TimeZone != *s.TimeZone) {
		timeZone(errs, *s.TimeZone, at)
	}
	check.Enum(errs, at, "concurrencyPolicy", s.ConcurrencyPolicy, concurrencyPolicies)
	job, template := &s.JobTemplate.Spec, at.Child("jobTemplate", "spec")
	jobSpec(errs, job, template)
	if job.Selector != nil {
		errs.Invalid(template, "selector", job.Selector, "`selector` will be auto-generated")
	}
	if manual := job.ManualSelector; manual != nil && *manual {
		errs.Add(field.NotSupported(template.Child("manualSelector"), manual, []string{"nil", "false"}))
	}
	check.NonNegativeIfSet(errs, at, "successfulJobsHistoryLimit", s.SuccessfulJobsHistoryLimit)
	check.NonNegativeIfSet(errs, at, "failedJobsHistoryLimit", s.FailedJobsHistoryLimit)
}

// zonePart matches a component of the name of a time zone.
var zonePart = regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)

func timeZone(errs *check.Errors, name string, at *field.Path) {
	if name == "" {
		errs.Invalid(at, "timeZone", name, "timeZone must be nil or non-empty string")
		return
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zonePart.MatchString(part) {
			errs.Invalid(at, "timeZone", name, "unknown time zone "+name)
			return
		}
	}
	if strings.EqualFold(name, "Local") {
		errs.Invalid(at, "timeZone", name, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(name); err != nil {
		errs.Invalid(at, "timeZone", name, err.Error())
	}
}
