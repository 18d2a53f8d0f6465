// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/resource/v1

// Package resourcev1 has the validation rules that the types of resource/v1 declare.
package resourcev1

import (
	_ "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// localSchemeBuilder is for the generated code, which registers with it.
var localSchemeBuilder runtime.SchemeBuilder
