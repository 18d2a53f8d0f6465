// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/discovery/v1

// Package discoveryv1 has the validation rules that the types of discovery/v1 declare.
package discoveryv1

import (
	_ "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// localSchemeBuilder is for the generated code, which registers with it.
var localSchemeBuilder runtime.SchemeBuilder
