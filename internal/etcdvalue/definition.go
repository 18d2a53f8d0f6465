package etcdvalue

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/wire"
)

// encodeDefinition returns a CustomResourceDefinition as kube-apiserver stores it: in v1beta1,
// which has the parts that all versions share at the top.
func encodeDefinition(object []byte) ([]byte, error) {
	o, err := wire.Unmarshal(object, func() runtime.Object { return new(apiextensionsv1.CustomResourceDefinition) })
	if err != nil {
		return nil, err
	}
	var hub apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(o.(*apiextensionsv1.CustomResourceDefinition), &hub, nil); err != nil {
		return nil, err
	}
	var old apiextensionsv1beta1.CustomResourceDefinition
	if err := apiextensionsv1beta1.Convert_apiextensions_CustomResourceDefinition_To_v1beta1_CustomResourceDefinition(&hub, &old, nil); err != nil {
		return nil, err
	}
	old.ResourceVersion = ""
	old.TypeMeta = metav1.TypeMeta{Kind: "CustomResourceDefinition", APIVersion: apiextensionsv1beta1.SchemeGroupVersion.String()}
	return line(&old)
}

// readDefinition reads a CustomResourceDefinition of v1beta1 or v1 into v1.
func readDefinition(k *kind, s source) (runtime.Object, error) {
	var hub apiextensions.CustomResourceDefinition
	switch {
	case s.kind.Kind != k.typ.Kind:
		return nil, &VersionError{k.collection, s.kind}
	case s.kind.GroupVersion() == apiextensionsv1beta1.SchemeGroupVersion:
		var old apiextensionsv1beta1.CustomResourceDefinition
		if err := s.into(&old); err != nil {
			return nil, err
		}
		apiextensionsv1beta1.SetObjectDefaults_CustomResourceDefinition(&old)
		if err := apiextensionsv1beta1.Convert_v1beta1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&old, &hub, nil); err != nil {
			return nil, err
		}
	case s.kind.GroupVersion() == apiextensionsv1.SchemeGroupVersion:
		var same apiextensionsv1.CustomResourceDefinition
		if err := s.into(&same); err != nil {
			return nil, err
		}
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&same)
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&same, &hub, nil); err != nil {
			return nil, err
		}
	default:
		return nil, &VersionError{k.collection, s.kind}
	}
	var o apiextensionsv1.CustomResourceDefinition
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(&hub, &o, nil); err != nil {
		return nil, err
	}
	return &o, nil
}
