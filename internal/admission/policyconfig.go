package admission

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/admission/pluginconfig"
)

// policyConfiguration is a ValidatingAdmissionPolicyConfiguration or a
// MutatingAdmissionPolicyConfiguration.
type policyConfiguration struct {
	metav1.TypeMeta    `json:",inline"`
	StaticManifestsDir string `json:"staticManifestsDir"`
}

// DeepCopyObject implements runtime.Object.
func (c *policyConfiguration) DeepCopyObject() runtime.Object { copied := *c; return &copied }

// checkPolicies checks the configuration of a policy plugin, which must have the kind. The only
// setting is a directory of static manifests, which this server does not support.
func checkPolicies(text []byte, kind string) error {
	if text == nil {
		return nil
	}
	gvk := schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: kind}
	read, err := pluginconfig.Decode(text, pluginconfig.Kind{GroupVersionKind: gvk, Object: &policyConfiguration{}, Strict: true})
	if err != nil {
		return err
	}
	if read.(*policyConfiguration).StaticManifestsDir != "" {
		return errStaticManifests
	}
	return nil
}
