package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// The fields of a Pod that an environment variable and a volume can refer to, sorted.
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	volumeFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
	// podLabels are all field paths that have a conversion.
	podLabels = []string{
		"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
		"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName",
		"status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	resourceFields = []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory",
	}
)

func (r *rules) env(all []corev1.EnvVar, at *field.Path) {
	if len(all) == 0 {
		return
	}
	at = at.Child("env")
	for i := range all {
		v := &all[i]
		if v.Name == "" {
			r.Required(at.Index(i), "name", "")
		} else if faults := validation.IsRelaxedEnvVarName(v.Name); len(faults) > 0 {
			r.Each(at.Index(i), "name", v.Name, faults)
		}
		if v.ValueFrom != nil {
			r.valueFrom(v, at.Index(i).Child("valueFrom"))
		}
	}
}

func (r *rules) valueFrom(v *corev1.EnvVar, at *field.Path) {
	from, n := v.ValueFrom, 0
	if from.FieldRef != nil {
		n++
		r.fieldRef(at.Child("fieldRef"), from.FieldRef, envFields)
	}
	if from.ResourceFieldRef != nil {
		n++
		r.resourceRef(at.Child("resourceFieldRef"), from.ResourceFieldRef, false)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		n++
		r.keyRef(at.Child("configMapKeyRef"), ref.Name, ref.Key)
	}
	if ref := from.SecretKeyRef; ref != nil {
		n++
		r.keyRef(at.Child("secretKeyRef"), ref.Name, ref.Key)
	}
	if from.FileKeyRef != nil {
		n++
		r.fileRef(at.Child("fileKeyRef"), from.FileKeyRef)
	}
	switch {
	case n == 0:
		r.Invalid(at, "", "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case v.Value != "":
		r.Invalid(at, "", "", "may not be specified when `value` is not empty")
	case n > 1:
		r.Invalid(at, "", "", "may not have more than one field specified at a time")
	}
}

// fieldRef checks a reference to a field of a Pod.
func (r *rules) fieldRef(at *field.Path, f *corev1.ObjectFieldSelector, allowed []string) {
	if f.FieldPath == "" {
		r.Required(at, "fieldPath", "")
		return
	}
	path, key, ofMap := mapKey(f.FieldPath)
	var unknown string
	switch {
	case f.APIVersion != "v1":
		unknown = "unsupported pod version: " + f.APIVersion
	case ofMap && path != "metadata.annotations" && path != "metadata.labels":
		unknown = "field label does not support subscript: " + f.FieldPath
	case !ofMap && path == "spec.host": // the old name
		path = "spec.nodeName"
	case !ofMap && !slices.Contains(podLabels, path):
		unknown = "field label not supported: " + f.FieldPath
	}
	switch {
	case unknown != "":
		r.Invalid(at, "fieldPath", f.FieldPath, "error converting fieldPath: "+unknown)
	case ofMap && path == "metadata.annotations":
		key = strings.ToLower(key)
		r.Each(at, "", key, check.QualifiedNameFaults(key))
	case ofMap:
		r.Each(at, "", key, check.QualifiedNameFaults(key))
	default:
		check.Enum(r.Errors, at, "fieldPath", path, allowed)
	}
}

// mapKey splits the path of a map entry, such as metadata.labels['key'].
func mapKey(path string) (of, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	of, key, ok = strings.Cut(inner, "['")
	if !ok || of == "" {
		return path, "", false
	}
	return of, key, true
}

// resourceRef checks a reference to a resource of a container, and its divisor.
func (r *rules) resourceRef(at *field.Path, f *corev1.ResourceFieldSelector, volume bool) {
	huge := strings.HasPrefix(f.Resource, "requests.hugepages-") || strings.HasPrefix(f.Resource, "limits.hugepages-")
	switch {
	case volume && f.ContainerName == "":
		r.Required(at, "containerName", "")
	case f.Resource == "":
		r.Required(at, "resource", "")
	case !huge:
		check.Enum(r.Errors, at, "resource", f.Resource, resourceFields)
	}
	if f.Divisor.IsZero() {
		return
	}
	const bytes = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
	divisor, allowed, of := f.Divisor.String(), bytes, ""
	switch f.Resource {
	case "limits.cpu", "requests.cpu":
		if divisor != "1m" && divisor != "1" {
			r.Invalid(at, "divisor", f.Resource, "only divisor's values 1m and 1 are supported with the cpu resource")
		}
		return
	case "limits.memory", "requests.memory":
		of = "memory"
	case "limits.ephemeral-storage", "requests.ephemeral-storage":
		of = "local ephemeral storage"
	default:
		if !huge {
			return
		}
		of = "hugepages"
	}
	if !slices.Contains(strings.Split(allowed, ", "), divisor) {
		r.Invalid(at, "divisor", f.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", allowed, of))
	}
}

func (r *rules) keyRef(at *field.Path, name, key string) {
	r.Each(at, "name", name, check.SubdomainFaults(name))
	if key == "" {
		r.Required(at, "key", "")
	} else {
		r.Each(at, "key", key, validation.IsConfigMapKey(key))
	}
}

func (r *rules) fileRef(at *field.Path, f *corev1.FileKeySelector) {
	if f.Key == "" {
		r.Required(at, "key", "")
	} else {
		r.Each(at, "key", f.Key, validation.IsRelaxedEnvVarName(f.Key))
	}
	if f.VolumeName == "" {
		r.Required(at, "volumeName", "")
	} else {
		r.Each(at, "volumeName", f.VolumeName, check.LabelFaults(f.VolumeName))
	}
	if f.Path == "" {
		r.Required(at, "path", "")
	} else {
		r.noBacksteps(at, "path", f.Path)
	}
}

// fileRefVolumes checks that fileKeyRefs refer to emptyDir volumes.
func (r *rules) fileRefVolumes(at *field.Path) {
	for c := range eachContainer(r.spec, lazyPath{unread: true}) {
		for i := range c.Env {
			if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
				r.checkFileRefVolumes(at)
				return
			}
		}
	}
}

func (r *rules) checkFileRefVolumes(at *field.Path) {
	volumes := map[string]*corev1.VolumeSource{}
	for i := range r.spec.Volumes {
		volumes[r.spec.Volumes[i].Name] = &r.spec.Volumes[i].VolumeSource
	}
	for c, of := range eachContainer(r.spec, lazyPath{path: at}) {
		at := of.path
		for i := range c.Env {
			if c.Env[i].ValueFrom == nil || c.Env[i].ValueFrom.FileKeyRef == nil {
				continue
			}
			name := c.Env[i].ValueFrom.FileKeyRef.VolumeName
			at := at.Child("env").Index(i).Child("valueFrom", "fileKeyRef")
			switch v := volumes[name]; {
			case v == nil:
				r.NotFound(at, "volumeName", name)
			case v.EmptyDir == nil:
				r.Invalid(at, "volumeName", name, "referenced volume must be of type emptyDir")
			}
		}
	}
}

func (r *rules) envFrom(all []corev1.EnvFromSource, at *field.Path) {
	for i := range all {
		v, list, at := &all[i], at.Child("envFrom"), at.Child("envFrom").Index(i)
		if v.Prefix != "" {
			r.Each(at, "prefix", v.Prefix, validation.IsRelaxedEnvVarName(v.Prefix))
		}
		n := 0
		if v.ConfigMapRef != nil {
			n++
			r.envRef(at.Child("configMapRef"), v.ConfigMapRef.Name)
		}
		if v.SecretRef != nil {
			n++
			r.envRef(at.Child("secretRef"), v.SecretRef.Name)
		}
		switch {
		case n == 0:
			r.Invalid(list, "", "", "must specify one of: `configMapRef` or `secretRef`")
		case n > 1:
			r.Invalid(list, "", "", "may not have more than one field specified at a time")
		}
	}
}

func (r *rules) envRef(at *field.Path, name string) {
	if name == "" {
		r.Required(at, "name", "")
		return
	}
	r.Each(at, "name", name, apivalidation.NameIsDNSSubdomain(name, true))
}
