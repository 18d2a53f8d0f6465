package admission

import (
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/admission/pluginconfig"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// errStaticManifests refuses webhooks and policies in files: their feature is off by default in
// kube-apiserver, and this server does not have it.
var errStaticManifests = field.Forbidden(field.NewPath("staticManifestsDir"),
	"staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled")

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
	case c.KubeConfigFile != "" && !filepath.IsAbs(c.KubeConfigFile):
		return nil, field.Invalid(field.NewPath("kubeConfigFile"), c.KubeConfigFile, "must be an absolute file path")
	case c.StaticManifestsDir != "":
		return nil, errStaticManifests
	case c.KubeConfigFile == "":
		return nil, nil
	default:
		return webhook.ReadUsers(c.KubeConfigFile)
	}
}
