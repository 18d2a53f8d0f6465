package columns

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// workloads are the kinds with Pods of the groups core, apps, batch and autoscaling.
var workloads = []kind{
	of(podColumns, pod).reading(podMembers...),
	of(func() []column {
		return append([]column{name}, append(templateColumns(), str("Pod Labels", "The labels for the pod template."))...)
	}, func(o *corev1.PodTemplate, r *resource.Row) {
		r.String(o.Name)
		template(r, &o.Template.Spec)
		labels(r, o.Template.Labels)
	}),
	of(func() []column {
		spec, status := corev1.ReplicationControllerSpec{}, corev1.ReplicationControllerStatus{}
		return append(nameAndAge(num("Desired", doc(spec, "replicas")), num("Current", doc(status, "replicas")), num("Ready", doc(status, "readyReplicas"))),
			wide(append(templateColumns(), str("Selector", doc(spec, "selector")))...)...)
	}, func(o *corev1.ReplicationController, r *resource.Row) {
		r.String(o.Name)
		replicas(r, deref(o.Spec.Replicas, 0), o.Status.Replicas, o.Status.ReadyReplicas)
		since(r, o)
		if o.Spec.Template == nil {
			template(r, &corev1.PodSpec{})
		} else {
			template(r, &o.Spec.Template.Spec)
		}
		labels(r, o.Spec.Selector)
	}),
	of(func() []column {
		spec, status := appsv1.ReplicaSetSpec{}, appsv1.ReplicaSetStatus{}
		return append(nameAndAge(num("Desired", doc(spec, "replicas")), num("Current", doc(status, "replicas")), num("Ready", doc(status, "readyReplicas"))),
			wide(append(templateColumns(), str("Selector", doc(spec, "selector")))...)...)
	}, func(o *appsv1.ReplicaSet, r *resource.Row) {
		r.String(o.Name)
		replicas(r, deref(o.Spec.Replicas, 0), o.Status.Replicas, o.Status.ReadyReplicas)
		since(r, o)
		template(r, &o.Spec.Template.Spec)
		selector(r, o.Spec.Selector)
	}),
	of(func() []column {
		status := appsv1.DeploymentStatus{}
		return append(nameAndAge(str("Ready", podsReady), str("Up-to-date", doc(status, "updatedReplicas")), str("Available", doc(status, "availableReplicas"))),
			wide(append(templateColumns(), str("Selector", doc(appsv1.DeploymentSpec{}, "selector")))...)...)
	}, deployment),
	of(func() []column {
		return append(nameAndAge(str("Ready", podsReady)), wide(templateColumns()...)...)
	}, func(o *appsv1.StatefulSet, r *resource.Row) {
		r.String(o.Name)
		r.String(itoa(o.Status.ReadyReplicas) + "/" + itoa(deref(o.Spec.Replicas, 0)))
		since(r, o)
		template(r, &o.Spec.Template.Spec)
	}),
	of(daemonSetColumns, daemonSet),
	of(func() []column {
		return nameAndAge(str("Controller", "Controller of the object"), str("Revision", doc(appsv1.ControllerRevision{}, "revision")))
	}, controllerRevision),
	of(func() []column {
		return append(nameAndAge(str("Status", "Status of the job."), str("Completions", doc(batchv1.JobStatus{}, "succeeded")), str("Duration", "Time required to complete the job.")),
			wide(append(templateColumns(), str("Selector", doc(batchv1.JobSpec{}, "selector")))...)...)
	}, job),
	of(func() []column {
		spec, status := batchv1.CronJobSpec{}, batchv1.CronJobStatus{}
		return append(nameAndAge(str("Schedule", doc(spec, "schedule")), str("Timezone", doc(spec, "timeZone")), flag("Suspend", doc(spec, "suspend")),
			num("Active", doc(status, "active")), str("Last Schedule", doc(status, "lastScheduleTime"))),
			wide(append(templateColumns(), str("Selector", doc(batchv1.JobSpec{}, "selector")))...)...)
	}, cronJob),
	of(autoscalerColumns, autoscaler),
	of(func() []column {
		return []column{str("Name", name.Description), num("Desired", doc(autoscalingv1.ScaleSpec{}, "replicas")), num("Available", doc(autoscalingv1.ScaleStatus{}, "replicas")), age}
	}, func(o *autoscalingv1.Scale, r *resource.Row) {
		r.String(o.Name)
		replicas(r, o.Spec.Replicas, o.Status.Replicas)
		since(r, o)
	}),
}

const podsReady = "Number of the pod with ready state"

// templateColumns returns the columns that template fills.
func templateColumns() []column {
	return []column{str("Containers", "Names of each container in the template."), str("Images", "Images referenced by each container in the template.")}
}

// template adds the names and the images of a template's containers.
func template(r *resource.Row, spec *corev1.PodSpec) {
	var names, images strings.Builder
	for i := range spec.Containers {
		if i > 0 {
			names.WriteByte(',')
			images.WriteByte(',')
		}
		names.WriteString(spec.Containers[i].Name)
		images.WriteString(spec.Containers[i].Image)
	}
	r.String(names.String())
	r.String(images.String())
}

func replicas(r *resource.Row, counts ...int32) {
	for _, n := range counts {
		r.Int(int64(n))
	}
}

func deployment(o *appsv1.Deployment, r *resource.Row) {
	r.String(o.Name)
	r.String(itoa(o.Status.ReadyReplicas) + "/" + itoa(deref(o.Spec.Replicas, 0)))
	replicas(r, o.Status.UpdatedReplicas, o.Status.AvailableReplicas)
	since(r, o)
	template(r, &o.Spec.Template.Spec)
	// Unlike those of other kinds, it may be empty.
	if s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector); err != nil {
		r.String("<invalid>")
	} else {
		r.String(s.String())
	}
}

func daemonSetColumns() []column {
	spec, status := appsv1.DaemonSetSpec{}, appsv1.DaemonSetStatus{}
	return append(nameAndAge(
		num("Desired", doc(status, "desiredNumberScheduled")), num("Current", doc(status, "currentNumberScheduled")),
		num("Ready", doc(status, "numberReady")), num("Up-to-date", doc(status, "updatedNumberScheduled")),
		num("Available", doc(status, "numberAvailable")), str("Node Selector", doc(corev1.PodSpec{}, "nodeSelector"))),
		wide(append(templateColumns(), str("Selector", doc(spec, "selector")))...)...)
}

func daemonSet(o *appsv1.DaemonSet, r *resource.Row) {
	s := &o.Status
	r.String(o.Name)
	replicas(r, s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled, s.NumberAvailable)
	labels(r, o.Spec.Template.Spec.NodeSelector)
	since(r, o)
	template(r, &o.Spec.Template.Spec)
	selector(r, o.Spec.Selector)
}

func controllerRevision(o *appsv1.ControllerRevision, r *resource.Row) {
	controller := "<none>"
	if c := metav1.GetControllerOfNoCopy(o); c != nil {
		controller = c.Name
		group, _ := schema.ParseGroupVersion(c.APIVersion)
		if kind := group.WithKind(c.Kind).GroupKind(); !kind.Empty() {
			controller = strings.ToLower(kind.String()) + "/" + c.Name
		}
	}
	r.String(o.Name)
	r.String(controller)
	r.Int(o.Revision)
	since(r, o)
}

// jobStates are the conditions that a job's status shows: the first one that is true. A
// deletion comes after the final conditions and before the others.
var jobStates = []struct {
	condition batchv1.JobConditionType
	ended     bool
}{
	{batchv1.JobComplete, true},
	{batchv1.JobFailed, true},
	{batchv1.JobSuspended, false},
	{batchv1.JobFailureTarget, false},
	{batchv1.JobSuccessCriteriaMet, false},
}

func jobState(o *batchv1.Job) string {
	for _, s := range jobStates {
		if !s.ended && o.DeletionTimestamp != nil {
			return "Terminating"
		}
		for i := range o.Status.Conditions {
			if c := &o.Status.Conditions[i]; c.Type == s.condition {
				if c.Status == corev1.ConditionTrue {
					return string(s.condition)
				}
				break
			}
		}
	}
	return "Running"
}

func job(o *batchv1.Job, r *resource.Row) {
	completions := itoa(o.Status.Succeeded) + "/1"
	if o.Spec.Completions != nil {
		completions = itoa(o.Status.Succeeded) + "/" + itoa(*o.Spec.Completions)
	} else if p := deref(o.Spec.Parallelism, 0); p > 1 {
		completions += " of " + itoa(p)
	}
	r.String(o.Name)
	r.String(jobState(o))
	r.String(completions)
	switch begin, end := o.Status.StartTime, o.Status.CompletionTime; {
	case begin == nil:
		r.String("")
	case end == nil:
		r.Age(begin.Time)
	default:
		r.String(duration.HumanDuration(end.Sub(begin.Time)))
	}
	since(r, o)
	template(r, &o.Spec.Template.Spec)
	selector(r, o.Spec.Selector)
}

func cronJob(o *batchv1.CronJob, r *resource.Row) {
	r.String(o.Name)
	r.String(o.Spec.Schedule)
	r.String(deref(o.Spec.TimeZone, "<none>"))
	switch s := o.Spec.Suspend; {
	case s == nil:
		r.String("<unset>")
	case *s:
		r.String("True")
	default:
		r.String("False")
	}
	r.Int(int64(len(o.Status.Active)))
	if t := o.Status.LastScheduleTime; t != nil {
		r.Age(t.Time)
	} else {
		r.String("<none>")
	}
	since(r, o)
	template(r, &o.Spec.JobTemplate.Spec.Template.Spec)
	selector(r, o.Spec.JobTemplate.Spec.Selector)
}
