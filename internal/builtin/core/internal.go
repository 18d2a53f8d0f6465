package core

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// AsInternal is a value as errors of kube-apiserver show it: it knows types of its
// own, without JSON names, whose members are all shown. They are those of the API
// in another order, and the parts of a host that a Pod uses stand in the security
// context.
func AsInternal(v any) json.RawMessage {
	var b bytes.Buffer
	appendInternal(&b, reflect.ValueOf(v))
	return b.Bytes()
}

// internalOrder are the members of the types whose order differs.
var internalOrder = map[reflect.Type][]string{
	reflect.TypeFor[corev1.PodSpec](): {
		"Volumes", "InitContainers", "Containers", "EphemeralContainers", "RestartPolicy", "TerminationGracePeriodSeconds",
		"ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector", "ServiceAccountName", "AutomountServiceAccountToken", "NodeName",
		"SecurityContext", "ImagePullSecrets", "Hostname", "Subdomain", "SetHostnameAsFQDN", "Affinity", "SchedulerName",
		"Tolerations", "HostAliases", "PriorityClassName", "Priority", "PreemptionPolicy", "DNSConfig", "ReadinessGates",
		"RuntimeClassName", "Overhead", "EnableServiceLinks", "TopologySpreadConstraints", "OS", "SchedulingGates",
		"ResourceClaims", "Resources", "HostnameOverride", "SchedulingGroup",
	},
	reflect.TypeFor[corev1.VolumeSource](): {
		"HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "Secret", "NFS", "ISCSI", "Glusterfs",
		"PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS", "Flocker", "DownwardAPI", "FC", "AzureFile",
		"ConfigMap", "VsphereVolume", "AzureDisk", "PhotonPersistentDisk", "Projected", "PortworxVolume", "ScaleIO", "StorageOS",
		"CSI", "Ephemeral", "Image",
	},
	reflect.TypeFor[corev1.PodSecurityContext](): {
		"SELinuxOptions", "WindowsOptions", "RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups",
		"SupplementalGroupsPolicy", "FSGroup", "FSGroupChangePolicy", "Sysctls", "SeccompProfile", "AppArmorProfile", "SELinuxChangePolicy",
	},
}

// hostMembers stand in the security context.
var hostMembers = []string{"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers"}

func appendInternal(b *bytes.Buffer, v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid:
		b.WriteString("null")
	case reflect.Pointer:
		if v.IsNil() {
			b.WriteString("null")
			return
		}
		if asJSON(v.Type().Elem()) {
			appendJSON(b, v)
			return
		}
		appendInternal(b, v.Elem())
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			appendJSON(b, v)
			return
		}
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			appendInternal(b, v.Index(i))
		}
		b.WriteByte(']')
	case reflect.Struct:
		if asJSON(v.Type()) {
			appendJSON(b, v)
			return
		}
		b.WriteByte('{')
		appendMembers(b, v)
		b.WriteByte('}')
	default:
		appendJSON(b, v)
	}
}

// asJSON tells types that both have: those of apimachinery.
func asJSON(t reflect.Type) bool {
	return t.Kind() != reflect.Struct || !strings.HasPrefix(t.PkgPath(), "k8s.io/api/")
}

func appendJSON(b *bytes.Buffer, v reflect.Value) {
	data, err := json.Marshal(v.Interface())
	if err != nil {
		data = []byte("null")
	}
	b.Write(data)
}

// appendMembers writes the members of a struct; embedded ones are its own.
func appendMembers(b *bytes.Buffer, v reflect.Value) {
	names := internalOrder[v.Type()]
	if names == nil {
		for i := range v.NumField() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	for _, name := range names {
		f, _ := v.Type().FieldByName(name)
		value := v.FieldByIndex(f.Index)
		switch {
		case f.Name == "TypeMeta":
		case f.Anonymous && asJSON(f.Type): // the metadata
			if data, err := json.Marshal(value.Interface()); err == nil && len(data) > 2 {
				separate(b)
				b.Write(data[1 : len(data)-1])
			}
		case f.Anonymous:
			appendMembers(b, value)
		default:
			separate(b)
			b.WriteString(`"` + name + `":`)
			if spec, ok := v.Interface().(corev1.PodSpec); ok && name == "SecurityContext" {
				appendPodSecurity(b, &spec)
				continue
			}
			appendInternal(b, value)
		}
	}
}

// separate writes a comma behind another member.
func separate(b *bytes.Buffer) {
	if s := b.Bytes(); len(s) > 0 && s[len(s)-1] != '{' {
		b.WriteByte(',')
	}
}

func appendPodSecurity(b *bytes.Buffer, spec *corev1.PodSpec) {
	b.WriteByte('{')
	v := reflect.ValueOf(spec).Elem()
	for _, name := range hostMembers {
		separate(b)
		b.WriteString(`"` + name + `":`)
		appendJSON(b, v.FieldByName(name))
	}
	if spec.SecurityContext != nil {
		appendMembers(b, reflect.ValueOf(spec.SecurityContext).Elem())
	}
	b.WriteByte('}')
}
