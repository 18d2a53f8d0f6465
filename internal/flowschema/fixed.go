package flowschema

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/flowcontrol"
)

// The specs that apply while the objects are not stored.
var (
	exempt   = fixedSchema(flowcontrolv1.FlowSchemaNameExempt)
	catchAll = fixedSchema(flowcontrolv1.FlowSchemaNameCatchAll)

	fixedLevels = []*flowcontrolv1.PriorityLevelConfiguration{
		fixedLevel(flowcontrolv1.PriorityLevelConfigurationNameExempt),
		fixedLevel(flowcontrolv1.PriorityLevelConfigurationNameCatchAll),
	}
)

func fixedSchema(name string) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrol.FixedSchema(name)}
}

func fixedLevel(name string) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrol.FixedLevel(name)}
}
