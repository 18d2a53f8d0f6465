// +k8s:validation-gen=TypesWithField=TypeMeta
// +k8s:validation-gen-input=k8s.io/api/autoscaling/v1

// Package autoscalingv1 has the validation rules that the types of autoscaling/v1 declare.
package autoscalingv1

import (
	_ "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// localSchemeBuilder is for the generated code, which registers with it.
var localSchemeBuilder runtime.SchemeBuilder
