package bugs

import (
	"fmt"
	"strings"
	"testing/fstest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// Custom is a custom resource. Its specification and status have no pointers, and their slices are
// replaced, never changed.
type Custom[Spec, Status any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status"`
}

// DeepCopyObject implements runtime.Object.
func (c *Custom[Spec, Status]) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// CustomList is a list of custom resources.
type CustomList[Spec, Status any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Custom[Spec, Status] `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *CustomList[Spec, Status]) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Custom[Spec, Status], len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Custom[Spec, Status])
	}
	return &out
}

var (
	group  = schema.GroupVersion{Group: "example.com", Version: "v1"}
	scheme = runtime.NewScheme()
	// mapper spares each manager the discovery.
	mapper = meta.NewDefaultRESTMapper(nil)
	// kinds are those of the custom resources.
	kinds []string
)

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, group)
	register[DatabaseSpec, DatabaseStatus]("Database")
	register[WebsiteSpec, WebsiteStatus]("Website")
	register[PoolSpec, PoolStatus]("Pool")
	register[BackupSpec, BackupStatus]("Backup")
	register[CredentialSpec, CredentialStatus]("Credential")
	for _, kind := range []string{"ConfigMap", "Secret", "Service", "PersistentVolumeClaim"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		mapper.Add(appsv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
}

func register[Spec, Status any](kind string) {
	scheme.AddKnownTypeWithName(group.WithKind(kind), new(Custom[Spec, Status]))
	scheme.AddKnownTypeWithName(group.WithKind(kind+"List"), new(CustomList[Spec, Status]))
	mapper.Add(group.WithKind(kind), meta.RESTScopeNamespace)
	kinds = append(kinds, kind)
}

// definitions returns the CustomResourceDefinitions, and the namespace that backups go to.
func definitions() fstest.MapFS {
	text := "{apiVersion: v1, kind: Namespace, metadata: {name: " + archive + "}}\n"
	for _, kind := range kinds {
		name := strings.ToLower(kind)
		text += fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.%[3]s}
spec:
  group: %[3]s
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`, name, kind, group.Group)
	}
	return fstest.MapFS{"definitions.yaml": {Data: []byte(text)}}
}
