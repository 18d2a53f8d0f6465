package builtin_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/apps"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const (
	template = "template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}"
	workload = "{metadata: {name: w}, spec: {selector: {matchLabels: {app: a}}, " + template + "}}"
)

func TestDeployment(t *testing.T) {
	validate := func(d *appsv1.Deployment) []string {
		apps.DefaultDeployment(d)
		return testkinds.Texts(apps.ValidateDeployment(d))
	}
	testkinds.Rules(t, workload, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "strategy: {type: Recreate}", ""},
		{"replicas are not negative", "replicas: -1", "replicas: Invalid value: -1: must be greater than or equal to 0"},
		{"a selector is required", "selector: null", "selector: Required value\ntemplate.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"},
		{"a selector is not empty", "selector: {}", "selector: Invalid value: {}: empty selector is invalid for deployment"},
		{"a selector is valid", "selector: {matchExpressions: [{key: a, operator: Is}]}", "selector.matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator\nselector: Invalid value: {\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Is\"}]}: invalid label selector"},
		{"a selector selects the template", "selector: {matchLabels: {app: b}}", "template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"},
		{"the template is checked", "template.spec.containers: []", "template.spec.containers: Required value"},
		{"Pods run on", "template.spec.restartPolicy: Never", `template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`},
		{"a strategy is known", "strategy: {type: Any}", `strategy: Unsupported value: {"Type":"Any","RollingUpdate":null}: supported values: "Recreate", "RollingUpdate"`},
		{"Recreate has no numbers", "strategy: {type: Recreate, rollingUpdate: {}}", "strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"},
		{"maxUnavailable is not negative", "strategy: {rollingUpdate: {maxUnavailable: -1}}", "strategy.rollingUpdate.maxUnavailable: Invalid value: -1: must be greater than or equal to 0"},
		{"maxUnavailable is a percentage", "strategy: {rollingUpdate: {maxUnavailable: a}}", `strategy.rollingUpdate.maxUnavailable: Invalid value: "a": a valid percent string must be a numeri...`},
		{"maxUnavailable is at most all", "strategy: {rollingUpdate: {maxUnavailable: 101%}}", `strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`},
		{"maxSurge is not negative", "strategy: {rollingUpdate: {maxSurge: -1}}", "strategy.rollingUpdate.maxSurge: Invalid value: -1: must be greater than or equal to 0"},
		{"one of both is above zero", "strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 0%}}", "strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"},
		{"minReadySeconds is not negative", "minReadySeconds: -1", "minReadySeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"revisionHistoryLimit is not negative", "revisionHistoryLimit: -1", "revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0"},
		{"progressDeadlineSeconds is not negative", "progressDeadlineSeconds: -1", "progressDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0\nprogressDeadlineSeconds: Invalid value: -1: must be greater than minReadySeconds"},
		{"progressDeadlineSeconds is above minReadySeconds", "progressDeadlineSeconds: 5\nminReadySeconds: 5", "progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"},
	}), validate)
	testkinds.Rules(t, workload, testkinds.Below("spec", []testkinds.Rule{
		{"default: all", "template.spec.containers[0]: {name: c, image: i, imagePullPolicy: Always, terminationMessagePath: /a, terminationMessagePolicy: File}", "progressDeadlineSeconds: 600\nreplicas: 1\nrevisionHistoryLimit: 10\nstrategy.rollingUpdate.maxSurge: 25%\nstrategy.rollingUpdate.maxUnavailable: 25%\nstrategy.type: RollingUpdate\nstrategy: removed\ntemplate.spec.dnsPolicy: ClusterFirst\ntemplate.spec.restartPolicy: Always\ntemplate.spec.schedulerName: default-scheduler\ntemplate.spec.securityContext: {}\ntemplate.spec.terminationGracePeriodSeconds: 30"},
	}), func(d *appsv1.Deployment) []string { return testkinds.Changes(d, apps.DefaultDeployment) })
	testkinds.Updates(t, workload, []testkinds.Update{
		{"the selector stays", "", "spec.selector: {matchLabels: {app: b}}\nspec.template.metadata.labels: {app: b}", `spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable`},
	}, func(d, old *appsv1.Deployment) []string {
		apps.DefaultDeployment(d)
		return testkinds.Texts(apps.ValidateDeploymentUpdate(d, old))
	})
	testkinds.Updates(t, workload, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"status: not negative", "", ": {observedGeneration: -1, replicas: -1, updatedReplicas: -2, readyReplicas: -2, availableReplicas: -2, unavailableReplicas: -1, terminatingReplicas: -1, collisionCount: -1}", "observedGeneration: Invalid value: -1: must be greater than or equal to 0\nreplicas: Invalid value: -1: must be greater than or equal to 0\nupdatedReplicas: Invalid value: -2: must be greater than or equal to 0\nreadyReplicas: Invalid value: -2: must be greater than or equal to 0\navailableReplicas: Invalid value: -2: must be greater than or equal to 0\nunavailableReplicas: Invalid value: -1: must be greater than or equal to 0\nterminatingReplicas: Invalid value: -1: must be greater than or equal to 0\ncollisionCount: Invalid value: -1: must be greater than or equal to 0"},
		{"status: not more than replicas", "", ": {replicas: 1, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2}", "updatedReplicas: Invalid value: 2: cannot be greater than status.replicas\nreadyReplicas: Invalid value: 2: cannot be greater than status.replicas\navailableReplicas: Invalid value: 2: cannot be greater than status.replicas"},
		{"status: not more available than ready", "", ": {replicas: 1, availableReplicas: 1}", "availableReplicas: Invalid value: 1: cannot be greater than readyReplicas"},
		{"status: collisions do not go down", "collisionCount: 2", "collisionCount: 1", "collisionCount: Invalid value: 1: cannot be decremented"},
		{"status: collisions do not go away", "collisionCount: 2", "collisionCount: null", "collisionCount: Invalid value: 0: cannot be decremented"},
	}), func(d, old *appsv1.Deployment) []string {
		return testkinds.Texts(apps.ValidateDeploymentStatus(d, old))
	})
	testkinds.Updates(t, workload, []testkinds.Update{
		{"warn: a changed template", "", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", `spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"warn: not of what stays", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", "metadata.labels: {a: b}", ""},
	}, apps.DeploymentWarnings)
}

func TestReplicaSet(t *testing.T) {
	testkinds.Rules(t, workload, testkinds.Below("spec", []testkinds.Rule{
		{"replicas are not negative", "replicas: -1", "replicas: Invalid value: -1: must be greater than or equal to 0"},
		{"minReadySeconds is not negative", "minReadySeconds: -1", "minReadySeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"a selector is required", "selector: null", "selector: Required value\ntemplate.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"},
		{"a selector selects the template", "selector: {matchLabels: {app: b}}", "template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"},
	}), func(r *appsv1.ReplicaSet) []string {
		apps.DefaultReplicaSet(r)
		return testkinds.Texts(apps.ValidateReplicaSet(r))
	})
	testkinds.Updates(t, workload, []testkinds.Update{
		{"the selector stays", "", "spec.selector: {matchLabels: {app: b}}\nspec.template.metadata.labels: {app: b}", `spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable`},
	}, func(r, old *appsv1.ReplicaSet) []string {
		apps.DefaultReplicaSet(r)
		return testkinds.Texts(apps.ValidateReplicaSetUpdate(r, old))
	})
	testkinds.Updates(t, workload, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"status: not negative", "", ": {observedGeneration: -1, replicas: -1, fullyLabeledReplicas: -2, readyReplicas: -2, availableReplicas: -2, terminatingReplicas: -1}", "replicas: Invalid value: -1: must be greater than or equal to 0\nfullyLabeledReplicas: Invalid value: -2: must be greater than or equal to 0\nreadyReplicas: Invalid value: -2: must be greater than or equal to 0\navailableReplicas: Invalid value: -2: must be greater than or equal to 0\nobservedGeneration: Invalid value: -1: must be greater than or equal to 0\nterminatingReplicas: Invalid value: -1: must be greater than or equal to 0"},
		{"status: not more than replicas", "", ": {replicas: 1, fullyLabeledReplicas: 2, readyReplicas: 2, availableReplicas: 2}", "fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas\nreadyReplicas: Invalid value: 2: cannot be greater than status.replicas\navailableReplicas: Invalid value: 2: cannot be greater than status.replicas"},
		{"status: not more available than ready", "", ": {replicas: 1, availableReplicas: 1}", "availableReplicas: Invalid value: 1: cannot be greater than readyReplicas"},
	}), func(r, old *appsv1.ReplicaSet) []string {
		return testkinds.Texts(apps.ValidateReplicaSetStatus(r, old))
	})
	testkinds.Updates(t, workload, []testkinds.Update{
		{"warn: a changed template", "", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", `spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"warn: not of what stays", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", "metadata.labels: {a: b}", ""},
	}, apps.ReplicaSetWarnings)
}

func TestDaemonSet(t *testing.T) {
	testkinds.Rules(t, workload, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "updateStrategy: {type: OnDelete}", ""},
		{"a selector selects the template", "selector: {matchLabels: {app: b}}", "template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"},
		{"a selector is not empty", "selector: {}", "selector: Invalid value: {}: empty selector is invalid for daemonset"},
		{"a selector is valid", "selector: {matchExpressions: [{key: a, operator: Is}]}", `selector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`},
		{"the template is checked", "template.spec.containers: []", "template.spec.containers: Required value"},
		{"Pods run on", "template.spec.restartPolicy: Never", `template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`},
		{"minReadySeconds is not negative", "minReadySeconds: -1", "minReadySeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"templateGeneration is not negative", "metadata.annotations: {deprecated.daemonset.template.generation: \"-1\"}", "templateGeneration: Invalid value: -1: must be greater than or equal to 0"},
		{"revisionHistoryLimit is not negative", "revisionHistoryLimit: -1", "revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0"},
		{"a strategy is known", "updateStrategy: {type: Any}", `updateStrategy: Unsupported value: {"Type":"Any","RollingUpdate":null}: supported values: "RollingUpdate", "OnDelete"`},
		{"maxUnavailable is not negative", "updateStrategy: {rollingUpdate: {maxUnavailable: -1}}", "updateStrategy.rollingUpdate.maxUnavailable: Invalid value: -1: must be greater than or equal to 0"},
		{"maxUnavailable is at most all", "updateStrategy: {rollingUpdate: {maxUnavailable: 101%}}", `updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`},
		{"maxSurge is at most all", "updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 101%}}", `updateStrategy.rollingUpdate.maxSurge: Invalid value: "101%": must not be greater than 100%`},
		{"one of both", "updateStrategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}", "updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"},
		{"one at least", "updateStrategy: {rollingUpdate: {maxUnavailable: 0}}", "updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"},
	}), func(d *appsv1.DaemonSet) []string {
		apps.DefaultDaemonSet(d)
		return testkinds.Texts(apps.ValidateDaemonSet(d))
	})
	testkinds.Updates(t, workload, []testkinds.Update{
		{"the selector stays", "", "spec.selector: {matchLabels: {app: b}}\nspec.template.metadata.labels: {app: b}", `spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable`},
	}, func(d, old *appsv1.DaemonSet) []string {
		apps.DefaultDaemonSet(d)
		return testkinds.Texts(apps.ValidateDaemonSetUpdate(d, old))
	})
	testkinds.Updates(t, workload, []testkinds.Update{
		{"a new template is counted", "metadata.annotations: {deprecated.daemonset.template.generation: \"3\"}", "spec.template.spec.hostname: a", "metadata.annotations[deprecated.daemonset.template.generation]: 4"},
		{"an old template is not", "metadata.annotations: {deprecated.daemonset.template.generation: \"3\"}", "metadata.annotations: {deprecated.daemonset.template.generation: \"9\"}", "metadata.annotations[deprecated.daemonset.template.generation]: 3"},
	}, func(d, old *appsv1.DaemonSet) []string {
		return testkinds.Changes(d, func(d *appsv1.DaemonSet) { apps.PrepareDaemonSetUpdate(d, old) })
	})
	testkinds.Rules(t, workload, []testkinds.Rule{
		{"the count begins with 1", "metadata.labels: {a: b}", "metadata.annotations[deprecated.daemonset.template.generation]: 1"},
	}, func(d *appsv1.DaemonSet) []string { return testkinds.Changes(d, apps.PrepareDaemonSet) })
	testkinds.Updates(t, workload, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"status: not negative", "", ": {observedGeneration: -1, currentNumberScheduled: -1, numberMisscheduled: -1, desiredNumberScheduled: -1, numberReady: -1, updatedNumberScheduled: -1, numberAvailable: -1, numberUnavailable: -1, collisionCount: -1}", "currentNumberScheduled: Invalid value: -1: must be greater than or equal to 0\nnumberMisscheduled: Invalid value: -1: must be greater than or equal to 0\ndesiredNumberScheduled: Invalid value: -1: must be greater than or equal to 0\nnumberReady: Invalid value: -1: must be greater than or equal to 0\nobservedGeneration: Invalid value: -1: must be greater than or equal to 0\nupdatedNumberScheduled: Invalid value: -1: must be greater than or equal to 0\nnumberAvailable: Invalid value: -1: must be greater than or equal to 0\nnumberUnavailable: Invalid value: -1: must be greater than or equal to 0\ncollisionCount: Invalid value: -1: must be greater than or equal to 0"},
		{"status: collisions do not go down", "collisionCount: 2", "collisionCount: 1", "collisionCount: Invalid value: 1: cannot be decremented"},
	}), func(d, old *appsv1.DaemonSet) []string { return testkinds.Texts(apps.ValidateDaemonSetStatus(d, old)) })
	testkinds.Updates(t, workload, []testkinds.Update{
		{"warn: a changed template", "", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", `spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"warn: not of what stays", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", "spec.minReadySeconds: 5", ""},
	}, apps.DaemonSetWarnings)
}

func TestStatefulSet(t *testing.T) {
	testkinds.Rules(t, workload, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "volumeClaimTemplates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}]\ntemplate.spec.containers[0].volumeMounts: [{name: v, mountPath: /v}]", ""},
		{"podManagementPolicy is known", "podManagementPolicy: Any", `podManagementPolicy: Invalid value: "Any": must be 'OrderedReady' or 'Parallel'`},
		{"a strategy is known", "updateStrategy: {type: Any}", `updateStrategy: Invalid value: {"Type":"Any","RollingUpdate":null}: must be 'RollingUpdate' or 'OnDelete'`},
		{"OnDelete has no numbers", "updateStrategy: {type: OnDelete, rollingUpdate: {}}", `updateStrategy.rollingUpdate: Invalid value: {"Partition":0,"MaxUnavailable":null}: only allowed for updateStrategy 'RollingUpdate'`},
		{"a partition is not negative", "updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: -1}}", "updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0"},
		{"some are available in a rolling update", "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0}}", "updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0"},
		{"maxUnavailable is a part", "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 200%}}", `updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "200%": must not be greater than 100%`},
		{"a retention policy is known", "persistentVolumeClaimRetentionPolicy: {whenDeleted: Any, whenScaled: Any}", "persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: \"Any\": supported values: \"Retain\", \"Delete\"\npersistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: \"Any\": supported values: \"Retain\", \"Delete\""},
		{"claims are checked", "volumeClaimTemplates: [{metadata: {name: v}}]", "volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required\nvolumeClaimTemplates[0].spec.resources[storage]: Required value"},
		{"replicas are not negative", "replicas: -1", "replicas: Invalid value: -1: must be greater than or equal to 0"},
		{"minReadySeconds is not negative", "minReadySeconds: -1", "minReadySeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"ordinals are not negative", "ordinals: {start: -1}", "ordinals.start: Invalid value: -1: must be greater than or equal to 0"},
		{"serviceName is a label", "serviceName: A", `serviceName: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"a selector is required", "selector: null", "selector: Required value\ntemplate.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"},
		{"a selector is not empty", "selector: {}", "selector: Invalid value: {}: empty selector is invalid for statefulset"},
		{"a selector is valid", "selector: {matchExpressions: [{key: a, operator: Is}]}", "selector.matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator\nselector: Invalid value: {\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Is\"}]}"},
		{"a selector selects the template", "selector: {matchLabels: {app: b}}", "template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"},
		{"the template is checked, its metadata twice", "template.metadata.annotations: {a b: c}", "template.annotations: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\ntemplate.annotations: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"},
		{"Pods run on", "template.spec.restartPolicy: Never", `template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`},
	}), func(s *appsv1.StatefulSet) []string {
		apps.DefaultStatefulSet(s)
		return testkinds.Texts(apps.ValidateStatefulSet(s))
	})
	testkinds.Rules(t, workload, testkinds.Below("spec", []testkinds.Rule{
		{"default: all", "volumeClaimTemplates: [{metadata: {name: v}}]\ntemplate.spec: {containers: []}", "persistentVolumeClaimRetentionPolicy.whenDeleted: Retain\npersistentVolumeClaimRetentionPolicy.whenScaled: Retain\npodManagementPolicy: OrderedReady\nreplicas: 1\nrevisionHistoryLimit: 10\ntemplate.spec.dnsPolicy: ClusterFirst\ntemplate.spec.restartPolicy: Always\ntemplate.spec.schedulerName: default-scheduler\ntemplate.spec.securityContext: {}\ntemplate.spec.terminationGracePeriodSeconds: 30\nupdateStrategy.rollingUpdate.maxUnavailable: 1\nupdateStrategy.rollingUpdate.partition: 0\nupdateStrategy.type: RollingUpdate\nupdateStrategy: removed\nvolumeClaimTemplates[0].apiVersion: v1\nvolumeClaimTemplates[0].kind: PersistentVolumeClaim\nvolumeClaimTemplates[0].spec.volumeMode: Filesystem\nvolumeClaimTemplates[0].status.phase: Pending\nvolumeClaimTemplates[0].status: removed"},
		{"default: a partition", "template.spec: {containers: []}\nupdateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}", "persistentVolumeClaimRetentionPolicy.whenDeleted: Retain\npersistentVolumeClaimRetentionPolicy.whenScaled: Retain\npodManagementPolicy: OrderedReady\nreplicas: 1\nrevisionHistoryLimit: 10\ntemplate.spec.dnsPolicy: ClusterFirst\ntemplate.spec.restartPolicy: Always\ntemplate.spec.schedulerName: default-scheduler\ntemplate.spec.securityContext: {}\ntemplate.spec.terminationGracePeriodSeconds: 30\nupdateStrategy.rollingUpdate.partition: 0"},
	}), func(s *appsv1.StatefulSet) []string { return testkinds.Changes(s, apps.DefaultStatefulSet) })
	testkinds.Updates(t, workload, []testkinds.Update{
		{"replicas change", "", "spec.replicas: 5", ""},
		{"serviceName is immutable", "", "spec.serviceName: a", `spec.serviceName: Invalid value: "a": field is immutable`},
		{"podManagementPolicy is immutable", "", "spec.podManagementPolicy: Parallel", `spec.podManagementPolicy: Invalid value: "Parallel": field is immutable`},
	}, func(s, old *appsv1.StatefulSet) []string {
		apps.DefaultStatefulSet(s)
		apps.DefaultStatefulSet(old)
		return testkinds.Texts(apps.ValidateStatefulSetUpdate(s, old))
	})
	testkinds.Updates(t, workload, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"status: not negative", "", ": {observedGeneration: -1, replicas: -1, readyReplicas: -2, currentReplicas: -2, updatedReplicas: -2, availableReplicas: -2, collisionCount: -1}", "replicas: Invalid value: -1: must be greater than or equal to 0\nreadyReplicas: Invalid value: -2: must be greater than or equal to 0\ncurrentReplicas: Invalid value: -2: must be greater than or equal to 0\nupdatedReplicas: Invalid value: -2: must be greater than or equal to 0\navailableReplicas: Invalid value: -2: must be greater than or equal to 0\nobservedGeneration: Invalid value: -1: must be greater than or equal to 0\ncollisionCount: Invalid value: -1: must be greater than or equal to 0"},
		{"status: not more than replicas", "", ": {replicas: 1, readyReplicas: 2, currentReplicas: 2, updatedReplicas: 2, availableReplicas: 2}", "readyReplicas: Invalid value: 2: cannot be greater than status.replicas\ncurrentReplicas: Invalid value: 2: cannot be greater than status.replicas\nupdatedReplicas: Invalid value: 2: cannot be greater than status.replicas\navailableReplicas: Invalid value: 2: cannot be greater than status.replicas"},
		{"status: not more available than ready", "", ": {replicas: 1, availableReplicas: 1}", "availableReplicas: Invalid value: 1: cannot be greater than status.readyReplicas"},
	}), func(s, old *appsv1.StatefulSet) []string {
		return testkinds.Texts(apps.ValidateStatefulSetStatus(s, old))
	})
	testkinds.Updates(t, workload, []testkinds.Update{
		{"warn: a negative limit", "spec.revisionHistoryLimit: -1", "metadata.labels: {a: b}", "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"},
		{"warn: a part of a byte", "", "spec.volumeClaimTemplates: [{spec: {resources: {requests: {storage: 100m}}}}]", `spec.volumeClaimTemplates[0].Spec.resources.requests[storage]: fractional byte value "100m" is invalid, must be an integer`},
		{"warn: a changed template", "", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", `spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
	}, apps.StatefulSetWarnings)
}

func TestControllerRevision(t *testing.T) {
	const base = "{metadata: {name: r}, revision: 1, data: {a: b}}"
	testkinds.Rules(t, base, []testkinds.Rule{
		{"valid", "revision: 2", ""},
		{"a revision is not negative", "revision: -1", "revision: Invalid value: -1: must be greater than or equal to 0"},
		{"data is required", "data: null", "data: Required value: data is mandatory"},
		{"data is an object", "data: [a]", "data: Required value: data must be a valid JSON object"},
	}, func(r *appsv1.ControllerRevision) []string {
		return testkinds.Texts(apps.ValidateControllerRevision(r))
	})
	testkinds.Updates(t, base, []testkinds.Update{
		{"a revision changes", "", "revision: 2", ""},
		{"a revision is not negative then", "", "revision: -1", "revision: Invalid value: -1: must be greater than or equal to 0"},
		{"data stays", "", "data: {a: c}", `data: Invalid value: {"a":"c"}: field is immutable`},
	}, func(r, old *appsv1.ControllerRevision) []string {
		return testkinds.Texts(apps.ValidateControllerRevisionUpdate(r, old))
	})
}
