package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/nodeselector"
)

// specWarnings makes paths and messages only for a spec that has something to warn about.
func specWarnings(w warnings) []string {
	look := w
	look.at = lazyPath{unread: true}
	if look.pod(); !look.found {
		return nil
	}
	w.pod()
	return w.list
}

// NameWarnings warns about the name of a workload that cannot be the hostname of its Pods.
func NameWarnings(name string) []string {
	faults := check.LabelFaults(name)
	if len(faults) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", faults)}
}

// Warnings warns about parts of a Pod's spec and annotations that have no effect or an unexpected
// one.
func Warnings(p *corev1.Pod) []string {
	return specWarnings(warnings{spec: &p.Spec, annotations: p.Annotations})
}

// TemplateWarnings is Warnings for the template of a workload.
func TemplateWarnings(t *corev1.PodTemplateSpec, at *field.Path) []string {
	return specWarnings(warnings{spec: &t.Spec, annotations: t.Annotations, at: lazyPath{path: at}, template: true})
}

// warnings collects the warnings about one Pod spec.
type warnings struct {
	spec        *corev1.PodSpec
	annotations map[string]string
	at          lazyPath // of the template, or the Pod
	template    bool
	found       bool
	list        []string
	pairs       int // number of compared pairs
}

// The limits of the work. A response holds at most 4 KiB of warnings.
const (
	maxWarnings = 1000
	// maxPairs limits the comparisons of ports and files with each other.
	maxPairs = 1 << 20
)

func (w *warnings) add(format string, args ...any) {
	w.found = true
	if !w.at.unread && len(w.list) < maxWarnings {
		w.list = append(w.list, fmt.Sprintf(format, args...))
	}
}

// another counts a comparison, and reports whether it is within the limit.
func (w *warnings) another() bool {
	w.pairs++
	return w.pairs <= maxPairs
}

// below returns a path below that of the template.
func (w *warnings) below(name string, more ...string) lazyPath { return w.at.Child(name, more...) }

func (w *warnings) pod() {
	w.oldLabels()
	w.oldAnnotations()
	for i := range w.spec.Volumes {
		w.volume(&w.spec.Volumes[i], i)
	}
	for i := range w.spec.Volumes {
		w.overlaps(&w.spec.Volumes[i])
	}
	w.twice()
	w.fraction(w.spec.Overhead, w.below("spec", "overhead"))
	if w.spec.SecurityContext == nil || w.spec.SecurityContext.SeccompProfile == nil {
		w.seccompAnnotation(seccompPodAnnotation)
	}
	w.containers()
	w.ports()
	if s := w.spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		w.add("%s: must be >= 0; negative values are invalid and will be treated as 1", w.below("spec", "terminationGracePeriodSeconds"))
	}
	w.affinity()
	if c := w.spec.DNSConfig; c != nil {
		for i, ip := range c.Nameservers {
			w.ip(ip, w.below("spec", "dnsConfig", "nameservers").Index(i))
		}
	}
	for i := range w.spec.HostAliases {
		w.ip(w.spec.HostAliases[i].IP, w.below("spec", "hostAliases").Index(i).Child("ip"))
	}
}

func (w *warnings) ip(ip string, at lazyPath) {
	for _, text := range check.IPWarnings(ip, at.path) {
		w.add("%s", text)
	}
}

func (w *warnings) oldLabels() {
	start := len(w.list)
	for key := range w.spec.NodeSelector {
		if why, ok := nodeselector.DeprecatedLabels[key]; ok {
			w.add("%s: %s", w.below("spec", "nodeSelector").Key(key), why)
		}
	}
	slices.Sort(w.list[start:])
	if a := w.spec.Affinity; a != nil && a.NodeAffinity != nil {
		at := w.below("spec", "affinity", "nodeAffinity")
		if s := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; s != nil {
			for i := range s.NodeSelectorTerms {
				w.nodeTerm(&s.NodeSelectorTerms[i], at.Child(required, "nodeSelectorTerms").Index(i), false)
			}
		}
		for i := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			t := &a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference
			w.nodeTerm(t, at.Child(preferred).Index(i).Child("preference"), true)
		}
	}
	for i := range w.spec.TopologySpreadConstraints {
		c, at := &w.spec.TopologySpreadConstraints[i], w.below("spec", "topologySpreadConstraints").Index(i)
		if why, ok := nodeselector.DeprecatedLabels[c.TopologyKey]; ok {
			w.add("%s: %s is %s", at.Child("topologyKey"), c.TopologyKey, why)
		}
		w.selector(c.LabelSelector, at)
	}
}

// nodeTerm warns about a term of a node selector. Values says whether to check its values, too,
// which nothing else does for preferred terms.
func (w *warnings) nodeTerm(t *corev1.NodeSelectorTerm, at lazyPath, values bool) {
	for i := range t.MatchExpressions {
		q, at := &t.MatchExpressions[i], at.Child("matchExpressions").Index(i)
		if why, ok := nodeselector.DeprecatedLabels[q.Key]; ok {
			w.add("%s: %s is %s", at.Child("key"), q.Key, why)
		}
		for j := 0; values && j < len(q.Values); j++ {
			for _, fault := range validation.IsValidLabelValue(q.Values[j]) {
				w.add("%s: %s is invalid, %s", at.Child("values").Index(j), q.Values[j], fault)
			}
		}
	}
}

// selector warns about a missing selector, which differs from an empty one.
func (w *warnings) selector(s *metav1.LabelSelector, at lazyPath) {
	if s == nil {
		w.add("%s: a null labelSelector results in matching no pod", at.Child("labelSelector"))
	}
}

func (w *warnings) oldAnnotations() {
	if len(w.annotations) == 0 {
		return
	}
	for _, old := range [...]struct{ key, why string }{
		{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
		{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
		{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	} {
		if _, ok := w.annotations[old.key]; ok {
			w.add("%s: %s", w.below("metadata", "annotations").Key(old.key), old.why)
		}
	}
}

func (w *warnings) seccompAnnotation(key string) {
	if _, ok := w.annotations[key]; ok {
		w.add(`%s: non-functional in v1.27+; use the "seccompProfile" field instead`, w.below("metadata", "annotations").Key(key))
	}
}

// twice warns about duplicate and empty keys in lists that are merged by key.
func (w *warnings) twice() {
	if len(w.spec.HostAliases) > 1 {
		var ips check.Seen[string]
		for i := range w.spec.HostAliases {
			if ip := w.spec.HostAliases[i].IP; ips.Again(ip) {
				w.add("%s: duplicate ip %q", w.below("spec", "hostAliases").Index(i).Child("ip"), ip)
			}
		}
	}
	if len(w.spec.ImagePullSecrets) > 1 {
		var names check.Seen[string]
		for i, s := range w.spec.ImagePullSecrets {
			if names.Again(s.Name) {
				w.add("%s: duplicate name %q", w.below("spec", "imagePullSecrets").Index(i).Child("name"), s.Name)
			}
		}
	}
	for i, s := range w.spec.ImagePullSecrets {
		if s.Name == "" {
			w.add("%s: invalid empty name %q", w.below("spec", "imagePullSecrets").Index(i).Child("name"), s.Name)
		}
	}
}

// fraction warns about fractions of a byte.
func (w *warnings) fraction(all corev1.ResourceList, at lazyPath) {
	for _, name := range [...]corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		w.wholeBytes(all, name, at)
	}
}

func (w *warnings) wholeBytes(all corev1.ResourceList, name corev1.ResourceName, at lazyPath) {
	if q, ok := all[name]; ok && q.MilliValue()%1000 != 0 {
		w.add("%s: fractional byte value %q is invalid, must be an integer", at.Key(string(name)), q.String())
	}
}

func (w *warnings) containers() {
	for c, at := range eachContainer(w.spec, w.below("spec")) {
		if len(w.annotations) > 0 {
			if c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil {
				w.seccompAnnotation(seccompContainerAnnotation + c.Name)
			}
			w.appArmorAnnotation(c)
		}
		for _, name := range [...]corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			w.wholeBytes(c.Resources.Limits, name, at.Child("resources", "limits"))
			w.wholeBytes(c.Resources.Requests, name, at.Child("resources", "requests"))
		}
		w.hides(c, at)
	}
}

// appArmorAnnotation warns about the deprecated annotation of a template. SyncAppArmor warns about
// that of a Pod.
func (w *warnings) appArmorAnnotation(c *corev1.Container) {
	key := appArmorAnnotation + c.Name
	annotation, ok := w.annotations[key]
	if !ok || !w.template || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return
	}
	if s := w.spec.SecurityContext; s == nil || s.AppArmorProfile == nil || !equality.Semantic.DeepEqual(s.AppArmorProfile, appArmorProfile(annotation)) {
		w.add(`%s: deprecated since v1.30; use the "appArmorProfile" field instead`, w.below("metadata", "annotations").Key(key))
	}
}

// hides warns about a variable that is set twice, unless the second value refers to the first.
func (w *warnings) hides(c *corev1.Container, at lazyPath) {
	if len(c.Env) < 2 {
		return
	}
	var names check.Seen[string]
	for i := range c.Env {
		v := &c.Env[i]
		if !names.Again(v.Name) {
			continue
		}
		if ref := "$(" + v.Name + ")"; v.ValueFrom != nil || v.Value == ref || !strings.Contains(v.Value, ref) {
			w.add("%s: hides previous definition of %q, which may be dropped when using apply", at.Child("env").Index(i), v.Name)
		}
	}
}

// containerPort is a port and its path.
type containerPort struct {
	*corev1.ContainerPort
	at lazyPath
}

func (w *warnings) ports() {
	type key struct {
		port     int32
		protocol corev1.Protocol
	}
	var all map[key][]containerPort
	var names map[string]lazyPath
	var named []string
	for c, at := range eachContainer(w.spec, w.below("spec")) {
		for i := range c.Ports {
			p := containerPort{&c.Ports[i], at.Child("ports").Index(i)}
			if p.HostIP != "" && p.HostPort == 0 {
				w.add("%s: hostIP set without hostPort: %+v", p.at, *p.ContainerPort)
			}
			if all == nil {
				all, names = map[key][]containerPort{}, map[string]lazyPath{}
			}
			k := key{p.ContainerPort.ContainerPort, p.Protocol}
			for _, other := range all[k] {
				if !w.another() {
					break
				}
				w.samePort(p, other)
			}
			all[k] = append(all[k], p)
			if p.Name == "" {
				continue
			}
			if other, ok := names[p.Name]; !ok {
				names[p.Name] = p.at
			} else {
				w.found = true
				if w.at.unread || len(named) == maxWarnings {
					continue
				}
				named = append(named, fmt.Sprintf("%s: duplicate port name %q with %s, services and probes that select ports by name will use %s", p.at, p.Name, other, other))
			}
		}
	}
	w.list = append(w.list, named...)
}

// samePort compares two ports of the same number.
func (w *warnings) samePort(p, other containerPort) {
	switch {
	case p.HostIP == other.HostIP && p.HostPort == other.HostPort:
		w.add("%s: duplicate port definition with %s", p.at, other.at)
	case p.HostPort == 0 || other.HostPort == 0:
		w.add("%s: overlapping port definition with %s", p.at, other.at)
	case p.HostPort == other.HostPort && (p.HostIP == "") != (other.HostIP == ""):
		w.add("%s: dangerously ambiguous port definition with %s", p.at, other.at)
	}
}

func (w *warnings) affinity() {
	a := w.spec.Affinity
	if a == nil {
		return
	}
	terms := func(must []corev1.PodAffinityTerm, should []corev1.WeightedPodAffinityTerm, name string) {
		at := w.below("spec", "affinity", name)
		for i := range must {
			w.selector(must[i].LabelSelector, at.Child(required).Index(i))
		}
		for i := range should {
			w.selector(should[i].PodAffinityTerm.LabelSelector, at.Child(preferred).Index(i).Child("podAffinityTerm"))
		}
	}
	if p := a.PodAffinity; p != nil {
		terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, "podAffinity")
	}
	if p := a.PodAntiAffinity; p != nil {
		terms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, "podAntiAffinity")
	}
}
