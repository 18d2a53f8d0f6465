package columns

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

func podColumns() []column {
	spec, status := corev1.PodSpec{}, corev1.PodStatus{}
	return append(
		[]column{name,
			str("Ready", "The aggregate readiness state of this pod for accepting traffic."),
			str("Status", "The aggregate status of the containers in this pod."),
			str("Restarts", "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted."),
			age},
		wide(str("IP", doc(status, "podIP")), str("Node", doc(spec, "nodeName")),
			str("Nominated Node", doc(status, "nominatedNodeName")), str("Readiness Gates", doc(spec, "readinessGates")))...)
}

// podMembers are the members that the cells depend on.
var podMembers = []string{
	"metadata.name", "metadata.creationTimestamp", "metadata.deletionTimestamp",
	"spec.containers.name", "spec.initContainers.name", "spec.initContainers.restartPolicy", "spec.nodeName", "spec.readinessGates",
	"status.phase", "status.reason", "status.podIPs", "status.nominatedNodeName",
	"status.conditions.type", "status.conditions.status", "status.conditions.reason",
	"status.containerStatuses.name", "status.containerStatuses.state", "status.containerStatuses.lastState",
	"status.containerStatuses.ready", "status.containerStatuses.restartCount", "status.containerStatuses.started",
	"status.initContainerStatuses.name", "status.initContainerStatuses.state", "status.initContainerStatuses.lastState",
	"status.initContainerStatuses.ready", "status.initContainerStatuses.restartCount", "status.initContainerStatuses.started",
}

func pod(o *corev1.Pod, r *resource.Row) {
	s := summarize(o)
	r.String(o.Name)
	r.String(itoa(s.ready) + "/" + itoa(s.total))
	r.String(s.reason)
	if restarts := itoa(s.restarts); s.restarts != 0 && !s.restarted.IsZero() {
		r.AgeIn(restarts+" (", s.restarted, " ago)")
	} else {
		r.String(restarts)
	}
	since(r, o)
	ip := ""
	if len(o.Status.PodIPs) > 0 {
		ip = o.Status.PodIPs[0].IP
	}
	r.Or(ip, "<none>")
	r.Or(o.Spec.NodeName, "<none>")
	r.Or(o.Status.NominatedNodeName, "<none>")
	r.String(gates(o))
	switch o.Status.Phase {
	case corev1.PodSucceeded:
		r.Conditions(succeeded)
	case corev1.PodFailed:
		r.Conditions(failed)
	}
}

// The conditions of rows, by which a client can leave out ended Pods.
var (
	succeeded = []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(corev1.PodSucceeded), Message: "The pod has completed successfully."}}
	failed    = []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(corev1.PodFailed), Message: "The pod failed."}}
)

// gates counts the readiness gates of a pod that are true.
func gates(o *corev1.Pod) string {
	if len(o.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	yes := 0
	for _, g := range o.Spec.ReadinessGates {
		if first(o, g.ConditionType) == corev1.ConditionTrue {
			yes++
		}
	}
	return itoa(yes) + "/" + itoa(len(o.Spec.ReadinessGates))
}

// first returns the status of the first condition of a type, or "".
func first(o *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// summary is the state of a pod in a few words.
type summary struct {
	ready, total int
	restarts     int32
	restarted    time.Time // zero: unknown
	reason       string
}

// restart counts the restarts of a container.
func (s *summary) restart(c *corev1.ContainerStatus) {
	s.restarts += c.RestartCount
	if t := c.LastTerminationState.Terminated; t != nil {
		s.restarted = later(s.restarted, &t.FinishedAt)
	}
}

// summarize returns the state of a pod as kubectl prints it. The states of its containers take
// precedence over its phase.
func summarize(o *corev1.Pod) summary {
	s := summary{total: len(o.Spec.Containers), reason: string(o.Status.Phase)}
	if o.Status.Reason != "" {
		s.reason = o.Status.Reason
	}
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := map[string]bool{}
	for i := range o.Spec.InitContainers {
		if c := &o.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			s.total++
		}
	}
	beside, initializing := s.initialize(o, sidecars)
	if !initializing || first(o, corev1.PodInitialized) == corev1.ConditionTrue {
		// The init containers are done: only the restarts of sidecars count.
		s.restarts, s.restarted = beside.restarts, beside.restarted
		s.run(o)
	}
	switch {
	case o.DeletionTimestamp == nil:
	case o.Status.Reason == nodeLost:
		s.reason = "Unknown"
	case o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed:
		s.reason = "Terminating"
	}
	return s
}

// nodeLost is the reason in the status of a pod whose node is unreachable.
const nodeLost = "NodeLost"

// initialize adds the init containers up to the first that is not done. It also returns the
// restarts of the sidecars alone.
func (s *summary) initialize(o *corev1.Pod, sidecars map[string]bool) (beside summary, initializing bool) {
	for i := range o.Status.InitContainerStatuses {
		c := &o.Status.InitContainerStatuses[i]
		s.restart(c)
		if sidecars[c.Name] {
			beside.restart(c)
		}
		ended, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case ended != nil && ended.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case ended != nil:
			s.reason = "Init:" + endReason(ended)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.reason = "Init:" + waiting.Reason
		default:
			s.reason = "Init:" + itoa(i) + "/" + itoa(len(o.Spec.InitContainers))
		}
		return beside, true
	}
	return beside, false
}

// run adds the containers. The reason of the first container wins, so it is visited last.
func (s *summary) run(o *corev1.Pod) {
	running, fault := false, ""
	for i := len(o.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &o.Status.ContainerStatuses[i]
		s.restart(c)
		ended, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case waiting != nil && waiting.Reason != "":
			s.reason = waiting.Reason
		case ended != nil:
			s.reason = endReason(ended)
			if ended.ExitCode != 0 {
				fault = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	// Some containers are done and others are not: show the state of the others.
	switch {
	case running && isReady(o):
		s.reason = "Running"
	case fault != "":
		s.reason = fault
	case running:
		s.reason = "NotReady"
	}
}

func isReady(o *corev1.Pod) bool {
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// endReason returns why a container ended.
func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return "Signal:" + itoa(t.Signal)
	}
	return "ExitCode:" + itoa(t.ExitCode)
}
