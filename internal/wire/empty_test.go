package wire_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestDropEmpty: empty lists and maps without omitempty become null, like unset ones.
func TestDropEmpty(t *testing.T) {
	for _, c := range []struct {
		o    runtime.Object
		want string
		has  bool
	}{
		{&rbacv1.Role{Rules: []rbacv1.PolicyRule{}}, `"rules":null`, true},
		{&rbacv1.Role{}, `"rules":null`, false},
		{&rbacv1.Role{Rules: []rbacv1.PolicyRule{{Verbs: []string{}}}}, `"rules":[{"verbs":null}]`, true},
		{&storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{TopologyKeys: []string{}}}}}, `"topologyKeys":null`, true},
		{&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{CephMonitors: []string{}}}}}}}, `"monitors":null`, true},
		{&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Args: []string{}}}}}, `"containers":[{"name":"c","resources":{}}]`, false},
		{&corev1.Secret{Data: map[string][]byte{"a": {}}}, `"data":{"a":""}`, false},
		{&apiextensionsv1.CustomResourceDefinition{Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{}}}, `"storedVersions":null`, true},
	} {
		if has := wire.HasEmpty(c.o); has != c.has {
			t.Errorf("HasEmpty of %T for %s: %t", c.o, c.want, has)
		}
		wire.DropEmpty(c.o)
		e, err := wire.Encode(&resource.Type{Names: resource.Names{Version: "v1", Kind: "X"}}, c.o)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(e.Bytes), c.want) {
			t.Errorf("%s lacks %s", e.Bytes, c.want)
		}
	}
}
