package admission

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/admission/eventlimit"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// maxConfigurationBytes limits a configuration file.
const maxConfigurationBytes = 1 << 20

// Configuration has the configurations of plugins. The zero value is that of a server without a
// configuration file.
type Configuration struct {
	EventLimits   eventlimit.Limits
	NodeSelectors NodeSelectors
	// MutatingUsers and ValidatingUsers are the server's credentials for webhooks; nil: none.
	MutatingUsers, ValidatingUsers *webhook.Users
}

// configurable are the plugins that have a configuration in kube-apiserver.
var configurable = []string{
	"EventRateLimit", "ImagePolicyWebhook", "MutatingAdmissionWebhook", "PodNodeSelector", "PodSecurity", "PodTolerationRestriction",
	"ResourceQuota", "ValidatingAdmissionWebhook",
}

// configured are those of them that have one here.
var configured = []string{"EventRateLimit", "MutatingAdmissionWebhook", "PodNodeSelector", "ValidatingAdmissionWebhook"}

// ReadConfiguration reads an AdmissionConfiguration of apiserver.config.k8s.io/v1, as YAML or
// JSON, and the files that it names. Their paths are relative to that of the file. An empty path
// is an empty configuration. The configurations of plugins that are not enabled are not read.
//
// A configuration for a plugin that this server cannot configure is an error: the operator relies
// on it.
func ReadConfiguration(path string, enabled Plugins) (c Configuration, err error) {
	var all map[string][]byte
	if path != "" {
		if all, err = readFiles(path); err != nil {
			return c, err
		}
	}
	if enabled.On("EventRateLimit") {
		if c.EventLimits, err = eventlimit.Parse(all["EventRateLimit"]); err != nil {
			return c, fmt.Errorf("couldn't init admission plugin %q: %w", "EventRateLimit", err)
		}
	}
	if enabled.On("PodNodeSelector") {
		if c.NodeSelectors, err = parseNodeSelectors(all["PodNodeSelector"]); err != nil {
			return c, fmt.Errorf("couldn't init admission plugin %q: %w", "PodNodeSelector", err)
		}
	}
	for name, users := range map[string]**webhook.Users{"MutatingAdmissionWebhook": &c.MutatingUsers, "ValidatingAdmissionWebhook": &c.ValidatingUsers} {
		if !enabled.On(name) {
			continue
		}
		if *users, err = parseWebhooks(all[name]); err != nil {
			return c, fmt.Errorf("couldn't init admission plugin %q: %w", name, err)
		}
	}
	return c, nil
}

// parseWebhooks reads a WebhookAdmissionConfiguration, and the kubeconfig that it names. Empty: there
// is none.
func parseWebhooks(text []byte) (*webhook.Users, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var c struct {
		APIVersion         string `json:"apiVersion"`
		Kind               string `json:"kind"`
		KubeConfigFile     string `json:"kubeConfigFile"`
		StaticManifestsDir string `json:"staticManifestsDir"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	const version, kind = "apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"
	switch {
	case c.APIVersion != version || c.Kind != kind:
		return nil, fmt.Errorf("no kind %q is registered for version %q: want a %s of %s", c.Kind, c.APIVersion, kind, version)
	case c.StaticManifestsDir != "":
		return nil, fmt.Errorf("static webhook manifests dir %q configured, which needs a feature gate that this server does not have: ManifestBasedAdmissionControlConfig", c.StaticManifestsDir)
	case c.KubeConfigFile == "":
		return nil, nil
	case !filepath.IsAbs(c.KubeConfigFile):
		return nil, field.Invalid(field.NewPath("kubeConfigFile"), c.KubeConfigFile, "must be an absolute file path")
	}
	return webhook.ReadUsers(c.KubeConfigFile)
}

// readFiles returns the configurations of plugins by their names.
func readFiles(path string) (map[string][]byte, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("unable to read admission control configuration from %q [%w]", path, err)
	}
	all, err := parseConfiguration(text, func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		return readFile(name)
	})
	if err != nil {
		return nil, fmt.Errorf("the admission control configuration %s: %w", path, err)
	}
	return all, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigurationBytes+1))
	if err == nil && len(text) > maxConfigurationBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxConfigurationBytes)
	}
	return text, err
}

// parseConfiguration reads an AdmissionConfiguration, and the files that it names with read.
func parseConfiguration(text []byte, read func(path string) ([]byte, error)) (map[string][]byte, error) {
	var c struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Plugins    []struct {
			Name          string          `json:"name"`
			Path          string          `json:"path"`
			Configuration json.RawMessage `json:"configuration"`
		} `json:"plugins"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	versions := []string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}
	if c.Kind != "AdmissionConfiguration" || !slices.Contains(versions, c.APIVersion) {
		return nil, fmt.Errorf("no kind %q is registered for version %q: want an AdmissionConfiguration of %s", c.Kind, c.APIVersion, versions[0])
	}
	all := map[string][]byte{}
	for _, p := range c.Plugins {
		if _, err := modeOf(p.Name); err != nil {
			return nil, err
		}
		if _, twice := all[p.Name]; twice {
			continue // the first one counts
		}
		one := []byte(p.Configuration)
		if string(one) == "null" {
			one = nil
		}
		if one == nil && p.Path != "" {
			var err error
			if one, err = read(p.Path); err != nil {
				return nil, fmt.Errorf("the configuration of %s: %w", p.Name, err)
			}
		}
		if len(one) > 0 && slices.Contains(configurable, p.Name) && !slices.Contains(configured, p.Name) {
			return nil, fmt.Errorf("the admission plugin %s cannot be configured in this server; these can: %v", p.Name, configured)
		}
		all[p.Name] = one
	}
	return all, nil
}
