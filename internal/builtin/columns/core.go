package columns

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

func itoa[T ~int | ~int32 | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// core are the kinds of the core group that are not in networks, storage or workloads.
var core = []kind{
	of(func() []column {
		return nameAndAge(str("Data", doc(corev1.ConfigMap{}, "data")))
	}, func(o *corev1.ConfigMap, r *resource.Row) {
		r.String(o.Name)
		r.Int(int64(len(o.Data) + len(o.BinaryData)))
		since(r, o)
	}),
	of(func() []column {
		return nameAndAge(str("Type", doc(corev1.Secret{}, "type")), str("Data", doc(corev1.Secret{}, "data")))
	}, func(o *corev1.Secret, r *resource.Row) {
		r.String(o.Name)
		r.String(string(o.Type))
		r.Int(int64(len(o.Data)))
		since(r, o)
	}),
	of(func() []column {
		return nameAndAge(str("Status", "The status of the namespace"))
	}, func(o *corev1.Namespace, r *resource.Row) {
		r.String(o.Name)
		r.String(string(o.Status.Phase))
		since(r, o)
	}),
	of(func() []column { return nameAndAge() }, func(o *corev1.ServiceAccount, r *resource.Row) {
		r.String(o.Name)
		since(r, o)
	}),
	of(eventColumns, event),
	of(nodeColumns, node),
	of(func() []column {
		return []column{name, str("Status", "Status of the component conditions"),
			str("Message", "Message of the component conditions"), str("Error", "Error of the component conditions")}
	}, componentStatus),
	of(func() []column {
		return nameAndAge(
			str("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
			str("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."))
	}, quota),
}

func eventColumns() []column {
	d := corev1.Event{}
	return slices.Concat(
		[]column{str("Last Seen", doc(d, "lastTimestamp")), str("Type", doc(d, "type")), str("Reason", doc(d, "reason")), str("Object", doc(d, "involvedObject"))},
		wide(str("Subobject", doc(d.InvolvedObject, "fieldPath")), str("Source", doc(d, "source"))),
		[]column{str("Message", doc(d, "message"))},
		wide(str("First Seen", doc(d, "firstTimestamp")), str("Count", doc(d, "count")), name))
}

func event(o *corev1.Event, r *resource.Row) {
	first, last, count := o.FirstTimestamp.Time, o.LastTimestamp.Time, o.Count
	if first.IsZero() {
		first = o.EventTime.Time
	}
	if last.IsZero() {
		last = first
	}
	switch {
	case o.Series != nil:
		last, count = o.Series.LastObservedTime.Time, o.Series.Count
	case count == 0:
		count = 1
	}
	about := strings.ToLower(o.InvolvedObject.Kind)
	if o.InvolvedObject.Name != "" {
		about += "/" + o.InvolvedObject.Name
	}
	source, host := o.Source.Component, o.Source.Host
	if source == "" {
		source = o.ReportingController
	}
	if host == "" {
		host = o.ReportingInstance
	}
	if host != "" {
		source += ", " + host
	}
	r.Age(last)
	r.String(o.Type)
	r.String(o.Reason)
	r.String(about)
	r.String(o.InvolvedObject.FieldPath)
	r.String(source)
	r.String(strings.TrimSpace(o.Message))
	r.Age(first)
	r.Int(int64(count))
	r.String(o.Name)
}

func nodeColumns() []column {
	info, status := corev1.NodeSystemInfo{}, corev1.NodeStatus{}
	return append(
		[]column{name, str("Status", "The status of the node"), str("Roles", "The roles of the node"), age, str("Version", doc(info, "kubeletVersion"))},
		wide(str("Internal-IP", doc(status, "addresses")), str("External-IP", doc(status, "addresses")), str("OS-Image", doc(info, "osImage")),
			str("Kernel-Version", doc(info, "kernelVersion")), str("Container-Runtime", doc(info, "containerRuntimeVersion")))...)
}

func node(o *corev1.Node, r *resource.Row) {
	status := "Unknown"
	for i := range o.Status.Conditions { // the last condition wins
		if c := &o.Status.Conditions[i]; c.Type == corev1.NodeReady {
			if status = "Ready"; c.Status != corev1.ConditionTrue {
				status = "NotReady"
			}
		}
	}
	if o.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	info := &o.Status.NodeInfo
	r.String(o.Name)
	r.String(status)
	joined(r, roles(o.Labels), "<none>")
	since(r, o)
	r.String(info.KubeletVersion)
	r.String(address(o, corev1.NodeInternalIP))
	r.String(address(o, corev1.NodeExternalIP))
	r.Or(info.OSImage, "<unknown>")
	kernel := info.KernelVersion
	if kernel == "" {
		kernel = "<unknown>"
	}
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	r.String(kernel)
	r.Or(info.ContainerRuntimeVersion, "<unknown>")
}

func address(o *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range o.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return "<none>"
}

// roles returns the roles in the labels of a node, without duplicates.
func roles(labels map[string]string) []string {
	var all []string
	for k, v := range labels {
		role, is := strings.CutPrefix(k, "node-role.kubernetes.io/")
		if k == "kubernetes.io/role" {
			role, is = v, true
		}
		if is && role != "" {
			all = append(all, role)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func componentStatus(o *corev1.ComponentStatus, r *resource.Row) {
	status, message, fault := "Unknown", "", ""
	for _, c := range o.Conditions {
		if c.Type != corev1.ComponentHealthy {
			continue
		}
		if status = "Healthy"; c.Status != corev1.ConditionTrue {
			status = "Unhealthy"
		}
		message, fault = c.Message, c.Error
		break
	}
	r.String(o.Name)
	r.String(status)
	r.String(message)
	r.String(fault)
}

func quota(o *corev1.ResourceQuota, r *resource.Row) {
	var requests, limits []string
	for _, name := range keys(o.Status.Hard) {
		used, hard := o.Status.Used[name], o.Status.Hard[name]
		text := string(name) + ": " + used.String() + "/" + hard.String()
		if strings.HasPrefix(string(name), "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	r.String(o.Name)
	r.String(strings.Join(requests, ", "))
	r.String(strings.Join(limits, ", "))
	since(r, o)
}

// endpoints shows the first three addresses, and how many more there are.
//
//lint:ignore SA1019 it is still served
func endpoints(o *corev1.Endpoints, r *resource.Row) {
	var all []string
	for i := range o.Subsets {
		s := &o.Subsets[i]
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				all = append(all, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				all = append(all, net.JoinHostPort(a.IP, itoa(p.Port)))
			}
		}
	}
	text := few(all, 3, ",")
	if len(o.Subsets) == 0 {
		text = "<none>"
	}
	r.String(o.Name)
	r.String(text)
	since(r, o)
}

// later returns the later of two times. Either may be missing.
func later(a time.Time, t *metav1.Time) time.Time {
	if t.After(a) {
		return t.Time
	}
	return a
}
