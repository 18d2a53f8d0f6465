// Package imagepolicy is the admission plugin ImagePolicyWebhook. A remote service decides which
// images Pods may run. Its responses are kept for a time, in a bounded cache.
package imagepolicy

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// Config is the configuration of the plugin.
type Config struct {
	// Client calls the service.
	Client *rest.RESTClient
	// AllowTTL and DenyTTL are how long a response is kept. Zero: not at all.
	AllowTTL, DenyTTL time.Duration
	// Backoff is the pause before the second attempt of a call. It grows by half with each. Zero:
	// there is no pause.
	Backoff time.Duration
	// DefaultAllow: a Pod is allowed if the service fails.
	DefaultAllow bool
}

// Parse reads a configuration, as YAML or JSON, and the kubeconfig that it names. Unknown fields
// are ignored, as in kube-apiserver. Nil is an error.
func Parse(text []byte) (Config, error) {
	if text == nil {
		return Config{}, errors.New("no config specified")
	}
	var file struct {
		ImagePolicy imagePolicyWebhookConfig `json:"imagePolicy"`
	}
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096).Decode(&file); err != nil {
		return Config{}, err
	}
	return file.ImagePolicy.config()
}

// imagePolicyWebhookConfig is the configuration in a file. The errors of decoding have its name.
type imagePolicyWebhookConfig struct {
	KubeConfigFile string `json:"kubeConfigFile"`
	// The times are in seconds, RetryBackoff in milliseconds. Zero: the default; -1: zero.
	AllowTTL     time.Duration `json:"allowTTL"`
	DenyTTL      time.Duration `json:"denyTTL"`
	RetryBackoff time.Duration `json:"retryBackoff"`
	DefaultAllow bool          `json:"defaultAllow"`
}

func (f *imagePolicyWebhookConfig) config() (c Config, err error) {
	const longest = 30 * time.Minute
	c.DefaultAllow = f.DefaultAllow
	if c.Backoff, err = span(f.RetryBackoff, bounds{time.Millisecond, 1, 5 * time.Minute, 500 * time.Millisecond}); err != nil {
		return c, err
	}
	if c.AllowTTL, err = span(f.AllowTTL, bounds{time.Second, time.Second, longest, 5 * time.Minute}); err != nil {
		return c, err
	}
	if c.DenyTTL, err = span(f.DenyTTL, bounds{time.Second, time.Second, longest, 30 * time.Second}); err != nil {
		return c, err
	}
	remote, err := webhook.Config(f.KubeConfigFile)
	if err != nil {
		return c, err
	}
	c.Client, err = clientOf(remote)
	return c, err
}

// bounds are those of a time in the configuration.
type bounds struct{ unit, least, most, byDefault time.Duration }

func span(value time.Duration, b bounds) (time.Duration, error) {
	switch value {
	case -1:
		return 0, nil
	case 0:
		return b.byDefault, nil
	}
	// A product that overflows is outside the bounds, too.
	if value < 0 || value > b.most/b.unit || value*b.unit < b.least {
		return 0, fmt.Errorf("valid value is between %v and %v, got %v", b.least, b.most, value*b.unit)
	}
	return value * b.unit, nil
}
