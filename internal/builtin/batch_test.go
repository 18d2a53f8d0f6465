package builtin_test

import (
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/batch"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const (
	job     = "{metadata: {name: j, uid: u1}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}"
	cronJob = "{metadata: {name: j}, spec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}"
)

// jobNumbers lists the numbers below n.
func jobNumbers(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = strconv.Itoa(i)
	}
	return strings.Join(all, ", ")
}

func TestJob(t *testing.T) {
	validate := func(j *batchv1.Job) []string {
		batch.DefaultJob(j)
		batch.PrepareJob(j)
		return testkinds.Texts(batch.ValidateJob(j))
	}
	const exit = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: "
	testkinds.Rules(t, job, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "completionMode: Indexed\ncompletions: 2\nbackoffLimitPerIndex: 1\nmaxFailedIndexes: 1", ""},
		{"parallelism is not negative", "parallelism: -1", "parallelism: Invalid value: -1: must be greater than or equal to 0"},
		{"completions are not negative", "completions: -1", "completions: Invalid value: -1: must be greater than or equal to 0"},
		{"activeDeadlineSeconds is not negative", "activeDeadlineSeconds: -1", "activeDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"backoffLimit is not negative", "backoffLimit: -1", "backoffLimit: Invalid value: -1: must be greater than or equal to 0"},
		{"ttlSecondsAfterFinished is not negative", "ttlSecondsAfterFinished: -1", "ttlSecondsAfterFinished: Invalid value: -1: must be greater than or equal to 0"},
		{"maxFailedIndexes needs a limit", "completionMode: Indexed\ncompletions: 2\nmaxFailedIndexes: 1", "backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"},
		{"managedBy has a domain", "managedBy: a", `managedBy: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")`},
		{"managedBy has 63 characters", "managedBy: \"a.b/{c*60}\"", "managedBy: Too long: may not be more than 63 bytes"},
		{"completionMode is known", "completionMode: Any", `completionMode: Unsupported value: "Any": supported values: "NonIndexed", "Indexed"`},
		{"Indexed needs completions", "completionMode: Indexed\nparallelism: 1", "completions: Required value: when completion mode is Indexed"},
		{"Indexed: parallelism is bounded", "completionMode: Indexed\ncompletions: 1\nparallelism: 100001", "parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed"},
		{"Indexed: maxFailedIndexes is at most completions", "completionMode: Indexed\ncompletions: 1\nbackoffLimitPerIndex: 1\nmaxFailedIndexes: 2", "maxFailedIndexes: Invalid value: 2: must be less than or equal to completions"},
		{"Indexed: many completions need maxFailedIndexes", "completionMode: Indexed\ncompletions: 100001\nbackoffLimitPerIndex: 1", "maxFailedIndexes: Required value: must be specified when completions is above 100000"},
		{"Indexed: many completions bound the rest", "completionMode: Indexed\ncompletions: 100001\nbackoffLimitPerIndex: 1\nmaxFailedIndexes: 10001\nparallelism: 10001", "parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index\nmaxFailedIndexes: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"},
		{"Indexed: the last Pod has a valid name", "metadata.name: \"{a*63}\"\ncompletionMode: Indexed\ncompletions: 1", `metadata.name: Invalid value: "{a*63}": will not able to create pod with invalid DNS label: {a*63}-0`},
		{"backoffLimitPerIndex is for Indexed", "backoffLimitPerIndex: 1\nmaxFailedIndexes: 1", "backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode\nmaxFailedIndexes: Invalid value: 1: requires indexed completion mode"},
		{"successPolicy is for Indexed", "successPolicy: {rules: [{succeededCount: 1}]}", `successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: requires indexed completion mode`},
		{"podReplacementPolicy is known", "podReplacementPolicy: Any", `podReplacementPolicy: Unsupported value: "Any": supported values: "Failed", "TerminatingOrFailed"`},
		{"podReplacementPolicy with a failure policy", "podReplacementPolicy: TerminatingOrFailed\npodFailurePolicy: {rules: []}", `podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"`},
		{"the template is checked", "template.spec.containers: []", "template.spec.containers: Required value"},
		{"Pods end", "template.spec.restartPolicy: Always", `template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`},
		{"a failure policy looks at Pods that ended", "template.spec.restartPolicy: OnFailure\npodFailurePolicy: {rules: []}", `template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified`},
		{"labels of the Job's own are its own", "template.metadata: {labels: {job-name: x, controller-uid: x}}", "template.metadata.labels[controller-uid]: Invalid value: ...}: must be 'u1'\ntemplate.metadata.labels[job-name]: Invalid value: ...}: must be 'j'"},
		{"a selector is its own", "selector: {matchLabels: {batch.kubernetes.io/controller-uid: x}}", "selector: Invalid value: {\"matchLabels\":{\"batch.kubernetes.io/controller-uid\":\"x\"}}: `selector` not auto-generated\ntemplate.metadata.labels: Invalid value: ...}: `selector` does not match template `labels`"},
		{"a manual selector is required", "manualSelector: true", "selector: Required value\ntemplate.metadata.labels: Invalid value: null: `selector` does not match template `labels`"},
		{"a manual selector selects the template", "manualSelector: true\nselector: {matchLabels: {a: b}}", "template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"},
	}), validate)
	testkinds.Rules(t, job, testkinds.Below("spec", []testkinds.Rule{
		{"failure: an action is required", "podFailurePolicy: {rules: [{onPodConditions: [{type: a}]}]}", `podFailurePolicy.rules[0].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]`},
		{"failure: an action is known", "podFailurePolicy: {rules: [{action: Any, onPodConditions: [{type: a}]}]}", `podFailurePolicy.rules[0].action: Unsupported value: "Any": supported values: "Count", "FailIndex", "FailJob", "Ignore"`},
		{"failure: FailIndex needs a limit", "podFailurePolicy: {rules: [{action: FailIndex, onPodConditions: [{type: a}]}]}", `podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set`},
		{"failure: 20 rules", "podFailurePolicy: {rules: [" + strings.Repeat("{action: Ignore, onPodConditions: [{type: a}]},", 21) + "]}", "podFailurePolicy.rules: Too many: 21: must have at most 20 items"},
		{"failure: codes or conditions", "podFailurePolicy: {rules: [{action: Ignore}]}", "podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"},
		{"failure: not codes and conditions", "podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [1]}, onPodConditions: [{type: a}]}]}", "podFailurePolicy.rules[0]: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"},
		{"failure: a condition has a name", "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: a b, status: Maybe}]}]}", "podFailurePolicy.rules[0].onPodConditions[0].type: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\npodFailurePolicy.rules[0].onPodConditions[0].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\""},
		{"failure: an operator is required", exit + "{values: [1]}}]}", `podFailurePolicy.rules[0].onExitCodes.operator: Required value: valid values: ["In" "NotIn"]`},
		{"failure: an operator is known", exit + "{operator: Is, values: [1]}}]}", `podFailurePolicy.rules[0].onExitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn"`},
		{"failure: a container exists", exit + "{operator: In, values: [1], containerName: x}}]}", `podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "x": must be one of the container or initContainer names in the pod template`},
		{"failure: codes are required", exit + "{operator: In}}]}", "podFailurePolicy.rules[0].onExitCodes.values: Invalid value: null: at least one value is required"},
		{"failure: In has no 0", exit + "{operator: In, values: [0]}}]}", "podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"},
		{"failure: codes are unique", exit + "{operator: In, values: [1, 1]}}]}", "podFailurePolicy.rules[0].onExitCodes.values[1]: Duplicate value: 1"},
		{"failure: codes are sorted", exit + "{operator: In, values: [2, 1]}}]}", "podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,1]: must be ordered"},
		{"failure: 255 codes", exit + "{operator: NotIn, values: [" + jobNumbers(256) + "]}}]}", "podFailurePolicy.rules[0].onExitCodes.values: Too many: 256: must have at most 255 items"},
		{"success: a rule is required", "completionMode: Indexed\ncompletions: 5\nsuccessPolicy: {rules: []}", "successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is specified"},
		{"success: 20 rules", "completionMode: Indexed\ncompletions: 5\nsuccessPolicy: {rules: [" + strings.Repeat("{succeededCount: 1},", 21) + "]}", "successPolicy.rules: Too many: 21: must have at most 20 items"},
		{"success: a rule says something", "completionMode: Indexed\ncompletions: 5\nsuccessPolicy: {rules: [{}]}", "successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified"},
		{"success: indexes are a list", "completionMode: Indexed\ncompletions: 5\nsuccessPolicy: {rules: [{succeededIndexes: a}, {succeededIndexes: \"5\"}, {succeededIndexes: \"2,1\"}, {succeededIndexes: 1-2-3}, {succeededIndexes: 2-1}]}", "successPolicy.rules[0].succeededIndexes: Invalid value: \"a\": error parsing succeededIndexes: cannot convert string to integer for index: \"a\"\nsuccessPolicy.rules[1].succeededIndexes: Invalid value: \"5\": error parsing succeededIndexes: too large index: \"5\"\nsuccessPolicy.rules[2].succeededIndexes: Invalid value: \"2,1\": error parsing succeededIndexes: non-increasing order, previous: 2, current: 1\nsuccessPolicy.rules[3].succeededIndexes: Invalid value: \"1-2-3\": error parsing succeededIndexes: the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'\nsuccessPolicy.rules[4].succeededIndexes: Invalid value: \"2-1\": error parsing succeededIndexes: non-increasing order, previous: 2, current: 1"},
		{"success: a count is not negative", "completionMode: Indexed\ncompletions: 5\nsuccessPolicy: {rules: [{succeededCount: -1}]}", "successPolicy.rules[0].succeededCount: Invalid value: -1: must be greater than or equal to 0"},
		{"success: a count is at most completions", "completionMode: Indexed\ncompletions: 5\nsuccessPolicy: {rules: [{succeededCount: 6}]}", "successPolicy.rules[0].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)"},
		{"success: a count is at most the indexes", "completionMode: Indexed\ncompletions: 5\nsuccessPolicy: {rules: [{succeededIndexes: 1-2, succeededCount: 3}]}", "successPolicy.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)"},
	}), validate)
}

func TestJobDefaults(t *testing.T) {
	const bare = "template.spec: {containers: []}\n"
	testkinds.Rules(t, job, testkinds.Below("spec", []testkinds.Rule{
		{"all", bare + "template.metadata: {labels: {a: b}}", "metadata.labels.a: b\nbackoffLimit: 6\ncompletionMode: NonIndexed\ncompletions: 1\nmanualSelector: false\nparallelism: 1\npodReplacementPolicy: TerminatingOrFailed\nsuspend: false\ntemplate.spec.dnsPolicy: ClusterFirst\ntemplate.spec.restartPolicy: Always\ntemplate.spec.schedulerName: default-scheduler\ntemplate.spec.securityContext: {}\ntemplate.spec.terminationGracePeriodSeconds: 30"},
		{"a limit of each index", bare + "backoffLimitPerIndex: 1", "backoffLimit: 2147483647\ncompletionMode: NonIndexed\ncompletions: 1\nmanualSelector: false\nparallelism: 1\npodReplacementPolicy: TerminatingOrFailed\nsuspend: false\ntemplate.spec.dnsPolicy: ClusterFirst\ntemplate.spec.restartPolicy: Always\ntemplate.spec.schedulerName: default-scheduler\ntemplate.spec.securityContext: {}\ntemplate.spec.terminationGracePeriodSeconds: 30"},
		{"parallelism is set", bare + "parallelism: 2", "backoffLimit: 6\ncompletionMode: NonIndexed\nmanualSelector: false\npodReplacementPolicy: TerminatingOrFailed\nsuspend: false\ntemplate.spec.dnsPolicy: ClusterFirst\ntemplate.spec.restartPolicy: Always\ntemplate.spec.schedulerName: default-scheduler\ntemplate.spec.securityContext: {}\ntemplate.spec.terminationGracePeriodSeconds: 30"},
		{"a failure policy", bare + "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: a}]}]}", "backoffLimit: 6\ncompletionMode: NonIndexed\ncompletions: 1\nmanualSelector: false\nparallelism: 1\npodFailurePolicy.rules[0].onPodConditions[0].status: True\npodReplacementPolicy: Failed\nsuspend: false\ntemplate.spec.dnsPolicy: ClusterFirst\ntemplate.spec.restartPolicy: Always\ntemplate.spec.schedulerName: default-scheduler\ntemplate.spec.securityContext: {}\ntemplate.spec.terminationGracePeriodSeconds: 30"},
	}), func(j *batchv1.Job) []string { return testkinds.Changes(j, batch.DefaultJob) })
	testkinds.Rules(t, job, []testkinds.Rule{
		{"a new Job has a selector", "metadata.labels: {a: b}", "spec.selector.matchLabels[batch.kubernetes.io/controller-uid]: u1\nspec.template.metadata.labels.controller-uid: u1\nspec.template.metadata.labels.job-name: j\nspec.template.metadata.labels[batch.kubernetes.io/controller-uid]: u1\nspec.template.metadata.labels[batch.kubernetes.io/job-name]: j\nspec.template.metadata: removed"},
		{"a manual one stays", "spec.manualSelector: true", ""},
	}, func(j *batchv1.Job) []string { return testkinds.Changes(j, batch.PrepareJob) })
}

func TestJobUpdate(t *testing.T) {
	testkinds.Updates(t, job, testkinds.UpdatesBelow("spec", []testkinds.Update{
		{"parallelism changes", "", "parallelism: 5", "completions: Invalid value: null: field is immutable"},
		{"completions stay", "", "completions: 5", "completions: Invalid value: 5: field is immutable"},
		{"Indexed: completions follow parallelism", "completionMode: Indexed\ncompletions: 2\nparallelism: 2", "completions: 3\nparallelism: 3", ""},
		{"Indexed: completions follow nothing else", "completionMode: Indexed\ncompletions: 2\nparallelism: 2", "completions: 3", "completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"},
		{"the selector stays", "", "selector: {matchLabels: {a: b}}", "template.metadata.labels: Invalid value: ...}: `selector` does not match template `labels`\nselector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"batch.kubernetes.io/controller-uid\":\"u1\"}}: field is immutable"},
		{"the template stays", "", "template.spec.hostname: a", "template: Invalid value: ...}: field is immutable"},
		{"labels of the template stay", "", "template.metadata.labels: {job-name: x}", "template: Invalid value: ...}: field is immutable"},
		{"the template stays selected", "", "template.metadata.labels: {batch.kubernetes.io/controller-uid: x}", "template.metadata.labels: Invalid value: ...}: `selector` does not match template `labels`\ntemplate: Invalid value: ...}: field is immutable"},
		{"suspended: scheduling changes", "suspend: true", "template.spec.nodeSelector: {a: b}\ntemplate.spec.containers[0].resources: {requests: {cpu: 1}}", ""},
		{"suspended: the rest of the template stays", "suspend: true", "template.spec.hostname: a", "template.spec: Invalid value: ...}: field is immutable"},
		{"the mode stays", "completions: 1\nparallelism: 1", "completionMode: Indexed", `completionMode: Invalid value: "Indexed": field is immutable`},
		{"policies stay", "", "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: a}]}]}\npodReplacementPolicy: Failed", `podFailurePolicy: Invalid value: {"Rules":[{"Action":"Ignore","OnExitCodes":null,"OnPodConditions":[{"Type":"a","Status":"True"}]}]}: field is immutable`},
		{"managedBy stays", "", "managedBy: a.b/c", `managedBy: Invalid value: "a.b/c": field is immutable`},
	}), func(j, old *batchv1.Job) []string {
		for _, j := range []*batchv1.Job{j, old} {
			batch.DefaultJob(j)
			batch.PrepareJob(j)
		}
		return testkinds.Texts(batch.ValidateJobUpdate(j, old))
	})
	testkinds.Updates(t, job, []testkinds.Update{
		{"warn: a changed template", "", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", `spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"warn: not of what stays", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", "metadata.labels: {a: b}", ""},
		{"warn: too many indexes", "", "spec.completionMode: Indexed\nspec.completions: 100001\nspec.parallelism: 10001", "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"},
	}, batch.JobWarnings)
}

func TestJobStatus(t *testing.T) {
	const (
		start    = "startTime: 2020-01-01T00:00:00Z\n"
		complete = start + "completionTime: 2020-01-01T00:00:01Z\nconditions: [{type: SuccessCriteriaMet, status: \"True\"}, {type: Complete, status: \"True\"}]"
		failed   = start + "conditions: [{type: FailureTarget, status: \"True\"}, {type: Failed, status: \"True\"}]"
	)
	testkinds.Updates(t, job, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"it completes", "", complete, ""},
		{"it fails", "", failed, ""},
		{"not negative", "", "active: -1\nsucceeded: -1\nfailed: -1\nready: -1\nterminating: -1", "active: Invalid value: -1: must be greater than or equal to 0\nsucceeded: Invalid value: -1: must be greater than or equal to 0\nfailed: Invalid value: -1: must be greater than or equal to 0\nready: Invalid value: -1: must be greater than or equal to 0\nterminating: Invalid value: -1: must be greater than or equal to 0\nfailed: Invalid value: -1: cannot decrease the failed counter\nsucceeded: Invalid value: -1: cannot decrease the succeeded counter"},
		{"uncounted Pods are named once", "", "uncountedTerminatedPods: {succeeded: [a, \"\"], failed: [a]}", "uncountedTerminatedPods.succeeded[1]: Invalid value: \"\": must not be empty\nuncountedTerminatedPods.failed[0]: Duplicate value: \"a\""},
		{"not complete and failed", "", complete + "\nconditions[2]: {type: Failed, status: \"True\"}", "conditions: Invalid value: cannot set Complete=True and Failed=true conditions\nconditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition\nconditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions"},
		{"not complete and about to fail", "", complete + "\nconditions[2]: {type: FailureTarget, status: \"True\"}", "conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions\nconditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"},
		{"complete needs a time", "", complete + "\ncompletionTime: null", "completionTime: Required value: completionTime is required for Complete jobs"},
		{"a time needs complete", "", start + "completionTime: 2020-01-01T00:00:01Z", `completionTime: Invalid value: "2020-01-01T00:00:01Z": cannot set completionTime when there is no Complete=True condition`},
		{"it ends after it began", "", complete + "\ncompletionTime: 2019-01-01T00:00:01Z", "completionTime: Invalid value: \"2019-01-01T00:00:01Z\": must be equal to or after `startTime`"},
		{"failed needs FailureTarget", "", start + "conditions: [{type: Failed, status: \"True\"}]", "conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"},
		{"complete needs SuccessCriteriaMet", "", complete + "\nconditions: [{type: Complete, status: \"True\"}]", "conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition"},
		{"finished: none is active", "", failed + "\nactive: 1", "active: Invalid value: 1: active>0 is invalid for finished job"},
		{"finished: it began", "", failed + "\nstartTime: null", "startTime: Required value: startTime is required for finished job"},
		{"finished: all is counted", "", failed + "\nuncountedTerminatedPods: {failed: [a]}", `uncountedTerminatedPods: Invalid value: {"Succeeded":null,"Failed":["a"]}: must be empty for finished job`},
		{"finished: none ends", "", failed + "\nterminating: 1", "terminating: Invalid value: 1: terminating>0 is invalid for finished job"},
		{"not more ready than active", "", "ready: 1", "ready: Invalid value: 1: cannot set more ready pods than active"},
		{"indexes are for Indexed", "", "completedIndexes: \"0\"", `completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode`},
		{"indexes are a list", "spec.completionMode: Indexed\nspec.completions: 3", "completedIndexes: a", `completedIndexes: Invalid value: "a": error parsing completedIndexes: cannot convert string to integer for index: "a"`},
		{"failed indexes need a limit", "spec.completionMode: Indexed\nspec.completions: 3", "failedIndexes: \"0\"", `failedIndexes: Invalid value: "0": cannot set non-null failedIndexes when backoffLimitPerIndex is null`},
		{"failed indexes are a list", "spec.completionMode: Indexed\nspec.completions: 3\nspec.backoffLimitPerIndex: 1", "failedIndexes: a", `failedIndexes: Invalid value: "a": error parsing failedIndexes: cannot convert string to integer for index: "a"`},
		{"an index does not fail and complete", "spec.completionMode: Indexed\nspec.completions: 3\nspec.backoffLimitPerIndex: 1", "failedIndexes: 0-1\ncompletedIndexes: 1,2", `failedIndexes: Invalid value: "0-1": failedIndexes and completedIndexes overlap at index: 1`},
		{"not successful and failed", "", failed + "\nconditions[2]: {type: SuccessCriteriaMet, status: \"True\"}", "conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions\nconditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"},
		{"an end stays", failed, "conditions: []", "conditions: Invalid value: cannot disable the terminal Failed=True condition\nconditions: Invalid value: cannot disable the terminal FailureTarget=True condition"},
		{"success stays", complete, "conditions[0]: {type: SuccessCriteriaMet, status: \"False\"}", "conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition\nconditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"},
		{"failures do not go down", "failed: 2", "failed: 1", "failed: Invalid value: 1: cannot decrease the failed counter"},
		{"successes do not go down", "succeeded: 2", "succeeded: 1", "succeeded: Invalid value: 1: cannot decrease the succeeded counter"},
		{"successes go down with the indexes", "spec.completionMode: Indexed\nspec.completions: 3\nspec.parallelism: 3\nsucceeded: 2", "succeeded: 1", ""},
		{"the end is not moved", complete, "completionTime: 2020-01-01T00:00:02Z", `completionTime: Invalid value: "2020-01-01T00:00:02Z": field is immutable`},
		{"the start is not moved", start + "active: 0", "startTime: 2020-01-01T00:00:02Z", `startTime: Invalid value: "2020-01-01T00:00:02Z": field is immutable for unsuspended job once set`},
		{"the start is moved by a resume", start + "conditions: [{type: Suspended, status: \"True\"}]", "startTime: 2020-01-01T00:00:02Z\nconditions: [{type: Suspended, status: \"False\"}]", ""},
	}), func(j, old *batchv1.Job) []string { return testkinds.Texts(batch.ValidateJobStatus(j, old)) })
}

func TestCronJob(t *testing.T) {
	testkinds.Rules(t, cronJob, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "schedule: '*/5 0-12 1,15 jan-DEC ?'\ntimeZone: Europe/Berlin", ""},
		{"a name leaves room for its Jobs", "metadata.name: \"{a*53}\"", `metadata.name: Invalid value: "{a*53}": must be no more than 52 characters`},
		{"a schedule is required", "schedule: ''", "schedule: Required value"},
		{"a schedule has five fields", "schedule: '* * *'", `schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]`},
		{"a field is a number", "schedule: 'a * * * *'", `schedule: Invalid value: "a * * * *": failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax`},
		{"a field is not below its least", "schedule: '* * 0 * *'", `schedule: Invalid value: "* * 0 * *": beginning of range (0) below minimum (1): 0`},
		{"a field is not above its most", "schedule: '60 * * * *'", `schedule: Invalid value: "60 * * * *": end of range (60) above maximum (59): 60`},
		{"a range goes up", "schedule: '5-1 * * * *'", `schedule: Invalid value: "5-1 * * * *": beginning of range (5) beyond end of range (1): 5-1`},
		{"a range has two ends", "schedule: '1-2-3 * * * *'", `schedule: Invalid value: "1-2-3 * * * *": too many hyphens: 1-2-3`},
		{"a step is positive", "schedule: '*/0 * * * *'", `schedule: Invalid value: "*/0 * * * *": step of range should be a positive number: */0`},
		{"a field has one step", "schedule: '*/1/2 * * * *'", `schedule: Invalid value: "*/1/2 * * * *": too many slashes: */1/2`},
		{"a number is not negative", "schedule: '*/-1 * * * *'", `schedule: Invalid value: "*/-1 * * * *": negative number (-1) not allowed: -1`},
		{"a word", "schedule: '@hourly'", ""},
		{"a word is known", "schedule: '@often'", `schedule: Invalid value: "@often": unrecognized descriptor: @often`},
		{"a duration", "schedule: '@every 1h'", ""},
		{"a duration is one", "schedule: '@every a'", `schedule: Invalid value: "@every a": failed to parse duration @every a: time: invalid duration "a"`},
		{"no zone in the schedule", "schedule: 'TZ=UTC * * * * *'", `schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`},
		{"no zone without a schedule", "schedule: 'TZ=UTC'", "schedule: Invalid value: \"TZ=UTC\": invalid schedule format: runtime error: slice bounds out of range [3:-1]\nschedule: Invalid value: \"TZ=UTC\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"},
		{"startingDeadlineSeconds is not negative", "startingDeadlineSeconds: -1", "startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"a zone is not empty", "timeZone: ''", `timeZone: Invalid value: "": timeZone must be nil or non-empty string`},
		{"a zone has a form", "timeZone: ../a", `timeZone: Invalid value: "../a": unknown time zone ../a`},
		{"a zone is not that of the machine", "timeZone: Local", `timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones`},
		{"a zone is known", "timeZone: Nowhere/Land", `timeZone: Invalid value: "Nowhere/Land": unknown time zone Nowhere/Land`},
		{"concurrencyPolicy is known", "concurrencyPolicy: Any", `concurrencyPolicy: Unsupported value: "Any": supported values: "Allow", "Forbid", "Replace"`},
		{"the Job is checked", "jobTemplate.spec.parallelism: -1", "jobTemplate.spec.parallelism: Invalid value: -1: must be greater than or equal to 0"},
		{"the Job has no selector", "jobTemplate.spec.selector: {}", "jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated"},
		{"the Job has no manual selector", "jobTemplate.spec.manualSelector: true", `jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"`},
		{"histories are not negative", "successfulJobsHistoryLimit: -1\nfailedJobsHistoryLimit: -1", "successfulJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0\nfailedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0"},
	}), func(c *batchv1.CronJob) []string {
		batch.DefaultCronJob(c)
		return testkinds.Texts(batch.ValidateCronJob(c))
	})
	testkinds.Rules(t, cronJob, []testkinds.Rule{
		{"default: all", "spec.jobTemplate.spec.template.spec: {containers: []}", "spec.concurrencyPolicy: Allow\nspec.failedJobsHistoryLimit: 1\nspec.jobTemplate.spec.template.spec.dnsPolicy: ClusterFirst\nspec.jobTemplate.spec.template.spec.restartPolicy: Always\nspec.jobTemplate.spec.template.spec.schedulerName: default-scheduler\nspec.jobTemplate.spec.template.spec.securityContext: {}\nspec.jobTemplate.spec.template.spec.terminationGracePeriodSeconds: 30\nspec.successfulJobsHistoryLimit: 3\nspec.suspend: false"},
	}, func(c *batchv1.CronJob) []string { return testkinds.Changes(c, batch.DefaultCronJob) })
	testkinds.Updates(t, cronJob, []testkinds.Update{
		{"a zone in the schedule stays", "spec.schedule: 'TZ=UTC * * * * *'", "spec.suspend: true", ""},
		{"a zone in one place", "spec.schedule: 'TZ=UTC * * * * *'", "spec.timeZone: UTC", `spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use both timeZone field and TZ or CRON_TZ in schedule`},
		{"a wrong zone stays", "spec.timeZone: Nowhere/Land", "spec.suspend: true", ""},
	}, func(c, old *batchv1.CronJob) []string {
		batch.DefaultCronJob(c)
		return testkinds.Texts(batch.ValidateCronJobUpdate(c, old))
	})
	testkinds.Updates(t, cronJob, []testkinds.Update{
		{"warn: a zone in the schedule", "spec.schedule: 'TZ=UTC * * * * *'", "metadata.labels: {a: b}", "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"},
		{"warn: a changed template", "", "spec.jobTemplate.spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", `spec.jobTemplate.spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
	}, batch.CronJobWarnings)
}
