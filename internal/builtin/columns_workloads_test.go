package builtin_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestPodColumns(t *testing.T) {
	const (
		pod     = "{" + columnsMeta + ", spec: {containers: [{name: a}, {name: b}]}, status: {phase: Running}}"
		ready   = "ready: true, state: {running: {}}"
		done    = "state: {terminated: {exitCode: 0, reason: Completed}}"
		inits   = "spec.initContainers: [{name: i}, {name: j}]\nstatus.phase: Pending\n"
		sidecar = "spec.initContainers: [{name: i, restartPolicy: Always}, {name: j}]\n"
	)
	prints[corev1.Pod](t, "Name | Ready | Status | Restarts | Age | +IP | +Node | +Nominated Node | +Readiness Gates", pod, []testkinds.Rule{
		{"the phase", "", "x | 0/2 | Running | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"a reason says more than the phase", "status.reason: Evicted", "x | 0/2 | Evicted | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"a gate keeps it from being scheduled", "status.conditions: [{type: PodScheduled, status: \"False\", reason: SchedulingGated}]", "x | 0/2 | SchedulingGated | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"a container waits", "status.containerStatuses: [{name: a, state: {waiting: {reason: ImagePullBackOff}}}]", "x | 0/2 | ImagePullBackOff | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"the first container counts", "status.containerStatuses: [{name: a, state: {waiting: {reason: ErrImagePull}}}, {name: b, state: {waiting: {reason: CrashLoopBackOff}}}]", "x | 0/2 | ErrImagePull | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"a container is ready", "status.containerStatuses: [{name: a, " + ready + "}]", "x | 1/2 | Running | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"a container restarted", "status.containerStatuses: [{name: a, restartCount: 2, lastState: {terminated: {exitCode: 1, finishedAt: 2020-01-01T00:01:00Z}}}]", "x | 0/2 | Running | 2 (4m ago) | 5m | <none> | <none> | <none> | <none>"},
		{"a container restarted some time", "status.containerStatuses: [{name: a, restartCount: 2}]", "x | 0/2 | Running | 2 | 5m | <none> | <none> | <none> | <none>"},
		{"a container ended with a reason", "status.containerStatuses: [{name: a, state: {terminated: {exitCode: 1, reason: OOMKilled}}}]", "x | 0/2 | OOMKilled | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"a container ended by a signal", "status.containerStatuses: [{name: a, state: {terminated: {exitCode: 1, signal: 9}}}]", "x | 0/2 | Signal:9 | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"a container ended with a code", "status.containerStatuses: [{name: a, state: {terminated: {exitCode: 3}}}]", "x | 0/2 | ExitCode:3 | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"one container runs on", "status.conditions: [{type: Ready, status: \"True\"}]\nstatus.containerStatuses: [{name: a, " + done + "}, {name: b, " + ready + "}]", "x | 1/2 | Running | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"one container runs on, and the Pod is not ready", "status.containerStatuses: [{name: a, " + done + "}, {name: b, " + ready + "}]", "x | 1/2 | NotReady | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"one container failed", "status.containerStatuses: [{name: a, " + done + "}, {name: b, state: {terminated: {exitCode: 1, reason: Error}}}]", "x | 0/2 | Error | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"it succeeded", "status.phase: Succeeded\nstatus.containerStatuses: [{name: a, " + done + "}, {name: b, " + done + "}]", "x | 0/2 | Completed | 0 | 5m | <none> | <none> | <none> | <none>\nCompleted=True: Succeeded"},
		{"it failed", "status.phase: Failed", "x | 0/2 | Failed | 0 | 5m | <none> | <none> | <none> | <none>\nCompleted=True: Failed"},
		{"init: the second one runs", inits + "status.initContainerStatuses: [{name: i, " + done + "}, {name: j, state: {running: {}}}]", "x | 0/2 | Init:1/2 | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"init: it has not begun", inits + "status.initContainerStatuses: [{name: i, state: {waiting: {reason: PodInitializing}}}]", "x | 0/2 | Init:0/2 | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"init: one waits", inits + "status.initContainerStatuses: [{name: i, restartCount: 1, state: {waiting: {reason: ErrImagePull}}}]", "x | 0/2 | Init:ErrImagePull | 1 | 5m | <none> | <none> | <none> | <none>"},
		{"init: one failed", inits + "status.initContainerStatuses: [{name: i, state: {terminated: {exitCode: 1}}}]", "x | 0/2 | Init:ExitCode:1 | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"init: restarts do not count afterwards", inits + "status.phase: Running\nstatus.initContainerStatuses: [{name: i, restartCount: 3, " + done + "}]", "x | 0/2 | Running | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"sidecar: it counts among the containers", sidecar, "x | 0/3 | Running | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"sidecar: it is ready", sidecar + "status.initContainerStatuses: [{name: i, started: true, restartCount: 3, " + ready + "}]", "x | 1/3 | Running | 3 | 5m | <none> | <none> | <none> | <none>"},
		{"deleted", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z", "x | 0/2 | Terminating | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"deleted after its end", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z\nstatus.phase: Failed", "x | 0/2 | Failed | 0 | 5m | <none> | <none> | <none> | <none>\nCompleted=True: Failed"},
		{"deleted on a lost node", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z\nstatus.reason: NodeLost", "x | 0/2 | Unknown | 0 | 5m | <none> | <none> | <none> | <none>"},
		{"wide", "spec.nodeName: k\nspec.readinessGates: [{conditionType: g}, {conditionType: h}]\nstatus.conditions: [{type: g, status: \"True\"}]\nstatus.podIPs: [{ip: 10.0.0.1}, {ip: \"::1\"}]\nstatus.nominatedNodeName: m", "x | 0/2 | Running | 0 | 5m | 10.0.0.1 | k | m | 1/2"},
	})
}

func TestWorkloadColumns(t *testing.T) {
	const template = "template: {metadata: {labels: {l: m}}, spec: {containers: [{name: a, image: b}, {name: c, image: d}]}}"
	const selected = "selector: {matchLabels: {l: m}}, " + template
	prints[corev1.PodTemplate](t, "Name | Containers | Images | Pod Labels", "{"+columnsMeta+", "+template+"}", []testkinds.Rule{{"pod template", "", "x | a,c | b,d | l=m"}})
	prints[corev1.ReplicationController](t, "Name | Desired | Current | Ready | Age | +Containers | +Images | +Selector", "{"+columnsMeta+", spec: {replicas: 3, selector: {l: m}, "+template+"}, status: {replicas: 2, readyReplicas: 1}}", []testkinds.Rule{
		{"replication controller", "", "x | 3 | 2 | 1 | 5m | a,c | b,d | l=m"},
		{"replication controller: no template", "spec: {}", "x | 0 | 2 | 1 | 5m |  |  | <none>"},
	})
	prints[appsv1.ReplicaSet](t, "Name | Desired | Current | Ready | Age | +Containers | +Images | +Selector", "{"+columnsMeta+", spec: {replicas: 3, "+selected+"}, status: {replicas: 2, readyReplicas: 1}}", []testkinds.Rule{{"replica set", "", "x | 3 | 2 | 1 | 5m | a,c | b,d | l=m"}})
	prints[appsv1.Deployment](t, "Name | Ready | Up-to-date | Available | Age | +Containers | +Images | +Selector", "{"+columnsMeta+", spec: {replicas: 4, "+selected+"}, status: {readyReplicas: 3, updatedReplicas: 2, availableReplicas: 1}}", []testkinds.Rule{
		{"deployment", "", "x | 3/4 | 2 | 1 | 5m | a,c | b,d | l=m"},
		{"deployment: an empty selector", "spec.selector: {}", "x | 3/4 | 2 | 1 | 5m | a,c | b,d | "},
		{"deployment: a wrong selector", "spec.selector: {matchExpressions: [{key: a, operator: Any}]}", "x | 3/4 | 2 | 1 | 5m | a,c | b,d | <invalid>"},
	})
	prints[appsv1.StatefulSet](t, "Name | Ready | Age | +Containers | +Images", "{"+columnsMeta+", spec: {replicas: 2, "+selected+"}, status: {readyReplicas: 1}}", []testkinds.Rule{{"stateful set", "", "x | 1/2 | 5m | a,c | b,d"}})
	prints[appsv1.DaemonSet](t, "Name | Desired | Current | Ready | Up-to-date | Available | Node Selector | Age | +Containers | +Images | +Selector", "{"+columnsMeta+", spec: {"+selected+"}, status: {desiredNumberScheduled: 5, currentNumberScheduled: 4, numberReady: 3, updatedNumberScheduled: 2, numberAvailable: 1}}", []testkinds.Rule{
		{"daemon set", "", "x | 5 | 4 | 3 | 2 | 1 | <none> | 5m | a,c | b,d | l=m"},
		{"daemon set: some nodes", "spec.template.spec.nodeSelector: {b: c, a: b}", "x | 5 | 4 | 3 | 2 | 1 | a=b,b=c | 5m | a,c | b,d | l=m"},
	})
	prints[appsv1.ControllerRevision](t, "Name | Controller | Revision | Age", "{"+columnsMeta+", revision: 2}", []testkinds.Rule{
		{"controller revision", "", "x | <none> | 2 | 5m"},
		{"controller revision: its controller", "metadata.ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: s, uid: u, controller: true}]", "x | statefulset.apps/s | 2 | 5m"},
	})
	prints[autoscalingv1.Scale](t, "Name | Desired | Available | Age", "{"+columnsMeta+", spec: {replicas: 2}, status: {replicas: 1}}", []testkinds.Rule{{"scale", "", "x | 2 | 1 | 5m"}})
}

func TestJobColumns(t *testing.T) {
	const spec = "template: {spec: {containers: [{name: a, image: b}]}}"
	prints[batchv1.Job](t, "Name | Status | Completions | Duration | Age | +Containers | +Images | +Selector", "{"+columnsMeta+", spec: {completions: 3, "+spec+"}, status: {succeeded: 1}}", []testkinds.Rule{
		{"running", "", "x | Running | 1/3 |  | 5m | a | b | <none>"},
		{"begun", "status.startTime: 2020-01-01T00:01:00Z", "x | Running | 1/3 | 4m | 5m | a | b | <none>"},
		{"complete", "status: {succeeded: 3, startTime: 2020-01-01T00:01:00Z, completionTime: 2020-01-01T00:01:30Z, conditions: [{type: Complete, status: \"True\"}]}", "x | Complete | 3/3 | 30s | 5m | a | b | <none>"},
		{"failed", "status.conditions: [{type: FailureTarget, status: \"True\"}, {type: Failed, status: \"True\"}]", "x | Failed | 1/3 |  | 5m | a | b | <none>"},
		{"about to fail", "status.conditions: [{type: FailureTarget, status: \"True\"}]", "x | FailureTarget | 1/3 |  | 5m | a | b | <none>"},
		{"suspended", "status.conditions: [{type: Suspended, status: \"True\"}]", "x | Suspended | 1/3 |  | 5m | a | b | <none>"},
		{"resumed", "status.conditions: [{type: Suspended, status: \"False\"}]", "x | Running | 1/3 |  | 5m | a | b | <none>"},
		{"deleted", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z\nstatus.conditions: [{type: Suspended, status: \"True\"}]", "x | Terminating | 1/3 |  | 5m | a | b | <none>"},
		{"deleted after its end", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z\nstatus.conditions: [{type: Failed, status: \"True\"}]", "x | Failed | 1/3 |  | 5m | a | b | <none>"},
		{"one completion", "spec.completions: null", "x | Running | 1/1 |  | 5m | a | b | <none>"},
		{"a work queue", "spec.completions: null\nspec.parallelism: 4", "x | Running | 1/1 of 4 |  | 5m | a | b | <none>"},
		{"a selector", "spec.selector: {matchLabels: {l: m}}", "x | Running | 1/3 |  | 5m | a | b | l=m"},
	})
	prints[batchv1.CronJob](t, "Name | Schedule | Timezone | Suspend | Active | Last Schedule | Age | +Containers | +Images | +Selector", "{"+columnsMeta+", spec: {schedule: 0 0 * * *, suspend: false, jobTemplate: {spec: {"+spec+"}}}}", []testkinds.Rule{
		{"cron job", "", "x | 0 0 * * * | <none> | False | 0 | <none> | 5m | a | b | <none>"},
		{"cron job: suspended", "spec.suspend: true", "x | 0 0 * * * | <none> | True | 0 | <none> | 5m | a | b | <none>"},
		{"cron job: no word of suspension", "spec.suspend: null", "x | 0 0 * * * | <none> | <unset> | 0 | <none> | 5m | a | b | <none>"},
		{"cron job: at work", "spec.timeZone: UTC\nstatus: {active: [{name: a}], lastScheduleTime: 2020-01-01T00:01:00Z}", "x | 0 0 * * * | UTC | False | 1 | 4m | 5m | a | b | <none>"},
	})
}

func TestAutoscalerColumns(t *testing.T) {
	prints[autoscalingv2.HorizontalPodAutoscaler](t, "Name | Reference | Targets | MinPods | MaxPods | Replicas | Age", "{"+columnsMeta+", spec: {scaleTargetRef: {kind: Deployment, name: d}, minReplicas: 1, maxReplicas: 3}, status: {currentReplicas: 2}}", []testkinds.Rule{
		{"no metrics", "", "x | Deployment/d | <none> | 1 | 3 | 2 | 5m"},
		{"no least number", "spec.minReplicas: null", "x | Deployment/d | <none> | <unset> | 3 | 2 | 5m"},
		{"resource: a part", "spec.metrics: [{type: Resource, resource: {name: cpu, target: {averageUtilization: 80}}}]\nstatus.currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 50}}}]", "x | Deployment/d | cpu: 50%/80% | 1 | 3 | 2 | 5m"},
		{"resource: a value", "spec.metrics: [{type: Resource, resource: {name: cpu, target: {averageValue: 1}}}]\nstatus.currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageValue: 2}}}]", "x | Deployment/d | cpu: 2/1 | 1 | 3 | 2 | 5m"},
		{"resource: unknown", "spec.metrics: [{type: Resource, resource: {name: cpu, target: {}}}]", "x | Deployment/d | cpu: <unknown>/<auto> | 1 | 3 | 2 | 5m"},
		{"container", "spec.metrics: [{type: ContainerResource, containerResource: {name: cpu, container: c, target: {averageUtilization: 80}}}]", "x | Deployment/d | cpu: <unknown>/80% | 1 | 3 | 2 | 5m"},
		{"pods", "spec.metrics: [{type: Pods, pods: {metric: {name: m}, target: {averageValue: 1}}}]\nstatus.currentMetrics: [{type: Pods, pods: {metric: {name: m}, current: {averageValue: 2}}}]", "x | Deployment/d | 2/1 | 1 | 3 | 2 | 5m"},
		{"object: a value", "spec.metrics: [{type: Object, object: {metric: {name: m}, target: {value: 1}}}]\nstatus.currentMetrics: [{type: Object, object: {metric: {name: m}, current: {value: 2}}}]", "x | Deployment/d | 2/1 | 1 | 3 | 2 | 5m"},
		{"external: an average", "spec.metrics: [{type: External, external: {metric: {name: m}, target: {averageValue: 1}}}]\nstatus.currentMetrics: [{type: External, external: {metric: {name: m}, current: {averageValue: 2}}}]", "x | Deployment/d | 2/1 (avg) | 1 | 3 | 2 | 5m"},
		{"a status of another type", "spec.metrics: [{type: External, external: {metric: {name: m}, target: {value: 1}}}]\nstatus.currentMetrics: [{type: Pods}]", "x | Deployment/d | <unknown>/1 | 1 | 3 | 2 | 5m"},
		{"an unknown type", "spec.metrics: [{type: Any}]", "x | Deployment/d | <unknown type> | 1 | 3 | 2 | 5m"},
		{"more than two", "spec.metrics: [{type: Any}, {type: Any}, {type: Any}]", "x | Deployment/d | <unknown type>, <unknown type> + 1 more... | 1 | 3 | 2 | 5m"},
	})
}
