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

// readPolicies reads the configuration of a plugin of policies. Its only setting is the directory of files.
func (c *Configuration) readPolicies(plugin string, text []byte) error {
	if text == nil {
		return nil
	}
	gvk := schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: plugin + "Configuration"}
	read, err := pluginconfig.Decode(text, pluginconfig.Kind{GroupVersionKind: gvk, Object: &policyConfiguration{}, Strict: true})
	if err != nil {
		return err
	}
	return c.openManifests(plugin, read.(*policyConfiguration).StaticManifestsDir)
}
