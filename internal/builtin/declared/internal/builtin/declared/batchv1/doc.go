// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/batch/v1

// Package batchv1 has the validation rules that the types of batch/v1 declare.
package batchv1

import (
	_ "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// localSchemeBuilder is for the generated code, which registers with it.
var localSchemeBuilder runtime.SchemeBuilder
