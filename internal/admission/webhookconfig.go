package admission

import (
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/admission/pluginconfig"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// webhookConfiguration is a WebhookAdmissionConfiguration.
type webhookConfiguration struct {
	metav1.TypeMeta    `json:",inline"`
	KubeConfigFile     string `json:"kubeConfigFile"`
	StaticManifestsDir string `json:"staticManifestsDir"`
}

// DeepCopyObject implements runtime.Object.
func (c *webhookConfiguration) DeepCopyObject() runtime.Object { copied := *c; return &copied }

// parseWebhooks reads a WebhookAdmissionConfiguration, and the kubeconfig that it names. Nil: there
// is none.
func parseWebhooks(text []byte) (*webhook.Users, error) {
	if text == nil {
		return nil, nil
	}
	kind := schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "WebhookAdmissionConfiguration"}
	read, err := pluginconfig.Decode(text, pluginconfig.Kind{GroupVersionKind: kind, Object: &webhookConfiguration{}, Strict: true})
	if err != nil {
		return nil, err
	}
	switch c := read.(*webhookConfiguration); {
	case c.StaticManifestsDir != "":
		return nil, fmt.Errorf("static webhook manifests dir %q configured, which needs a feature gate that this server does not have: ManifestBasedAdmissionControlConfig", c.StaticManifestsDir)
	case c.KubeConfigFile == "":
		return nil, nil
	case !filepath.IsAbs(c.KubeConfigFile):
		return nil, field.Invalid(field.NewPath("kubeConfigFile"), c.KubeConfigFile, "must be an absolute file path")
	default:
		return webhook.ReadUsers(c.KubeConfigFile)
	}
}
