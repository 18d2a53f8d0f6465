package admission

import (
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/admission/pluginconfig"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// errStaticManifests refuses webhooks and policies in files if their feature is off.
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

// openManifests reads the webhooks or policies of a plugin in a directory; without one, there are none.
func (c *Configuration) openManifests(plugin, dir string) error {
	if dir == "" {
		return nil
	}
	if !c.StaticManifests {
		return errStaticManifests
	}
	if err := manifest.Check(dir); err != nil {
		return err
	}
	d, err := manifest.Open(plugin, dir)
	if err != nil {
		return &initError{err}
	}
	c.Manifests[plugin] = d
	return nil
}

// readWebhooks reads the WebhookAdmissionConfiguration of a plugin, and the files that it names. Nil: the
// server has no credentials for webhooks.
func (c *Configuration) readWebhooks(plugin string, text []byte) (*webhook.Users, error) {
	if text == nil {
		return nil, nil
	}
	kind := schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "WebhookAdmissionConfiguration"}
	read, err := pluginconfig.Decode(text, pluginconfig.Kind{GroupVersionKind: kind, Object: &webhookConfiguration{}, Strict: true})
	if err != nil {
		return nil, err
	}
	w := read.(*webhookConfiguration)
	if w.KubeConfigFile != "" && !filepath.IsAbs(w.KubeConfigFile) {
		return nil, field.Invalid(field.NewPath("kubeConfigFile"), w.KubeConfigFile, "must be an absolute file path")
	}
	if err := c.openManifests(plugin, w.StaticManifestsDir); err != nil || w.KubeConfigFile == "" {
		return nil, err
	}
	return webhook.ReadUsers(w.KubeConfigFile)
}
