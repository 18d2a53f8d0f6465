// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/autoscaling/v2

// Package autoscalingv2 has the validation rules that the types of autoscaling/v2 declare.
package autoscalingv2

import (
	_ "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime"
)

// localSchemeBuilder is for the generated code, which registers with it.
var localSchemeBuilder runtime.SchemeBuilder
