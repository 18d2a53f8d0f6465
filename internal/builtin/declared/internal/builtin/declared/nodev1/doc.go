// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/node/v1

// Package nodev1 has the validation rules that the types of node/v1 declare.
package nodev1

import (
	_ "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// localSchemeBuilder is for the generated code, which registers with it.
var localSchemeBuilder runtime.SchemeBuilder
