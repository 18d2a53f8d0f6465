// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/networking/v1

// Package networkingv1 has the validation rules that the types of networking/v1 declare.
package networkingv1

import (
	_ "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// localSchemeBuilder is for the generated code, which registers with it.
var localSchemeBuilder runtime.SchemeBuilder
