package admission

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	apiserverv1alpha1 "k8s.io/apiserver/pkg/apis/apiserver/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/admission/eventlimit"
	"github.com/tidemark-dev/tidemark/internal/admission/imagepolicy"
	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// maxConfigurationBytes limits a configuration file.
const maxConfigurationBytes = 1 << 20

// Configuration has the configurations of plugins. The zero value is that of a server without a
// configuration file.
type Configuration struct {
	EventLimits   eventlimit.Limits
	NodeSelectors NodeSelectors
	Tolerations   Tolerations
	PodSecurity   PodSecurity
	Images        imagepolicy.Config
	// Limited are the resources that only a quota permits.
	Limited []quota.LimitedResource
	// MutatingUsers and ValidatingUsers are the server's credentials for webhooks; nil: none.
	MutatingUsers, ValidatingUsers *webhook.Users
	// StaticManifests: webhooks and policies may be in files, and clients cannot create objects with their names.
	StaticManifests bool
	// Manifests are the directories of these files, by the name of the plugin. The server calls Watch for each.
	Manifests map[string]*manifest.Directory
}

// configured are the plugins that have a configuration, in the order of the chain. The text is nil
// if the file has none for the plugin. The configuration of a plugin that is not enabled is not
// read, and other plugins have none, as in kube-apiserver.
var configured = []struct {
	name string
	read func(c *Configuration, text []byte) error
}{
	{"ImagePolicyWebhook", func(c *Configuration, text []byte) (err error) {
		c.Images, err = imagepolicy.Parse(text)
		return err
	}},
	{"PodSecurity", func(c *Configuration, text []byte) (err error) {
		c.PodSecurity, err = parsePodSecurity(text)
		return err
	}},
	{"PodNodeSelector", func(c *Configuration, text []byte) (err error) {
		c.NodeSelectors, err = parseNodeSelectors(text)
		return err
	}},
	{"PodTolerationRestriction", func(c *Configuration, text []byte) (err error) {
		c.Tolerations, err = parseTolerations(text)
		return err
	}},
	{"EventRateLimit", func(c *Configuration, text []byte) (err error) {
		c.EventLimits, err = eventlimit.Parse(text)
		return err
	}},
	{manifest.MutatingPolicies, func(c *Configuration, text []byte) error {
		return c.readPolicies(manifest.MutatingPolicies, text)
	}},
	{manifest.MutatingWebhooks, func(c *Configuration, text []byte) (err error) {
		c.MutatingUsers, err = c.readWebhooks(manifest.MutatingWebhooks, text)
		return err
	}},
	{manifest.ValidatingPolicies, func(c *Configuration, text []byte) error {
		return c.readPolicies(manifest.ValidatingPolicies, text)
	}},
	{manifest.ValidatingWebhooks, func(c *Configuration, text []byte) (err error) {
		c.ValidatingUsers, err = c.readWebhooks(manifest.ValidatingWebhooks, text)
		return err
	}},
	{"ResourceQuota", func(c *Configuration, text []byte) (err error) {
		c.Limited, err = quota.ParseLimited(text)
		return err
	}},
}

// ReadConfiguration reads an AdmissionConfiguration of apiserver.config.k8s.io/v1, as YAML or
// JSON, and the files that it names. Their paths are relative to that of the file. An empty path
// is an empty configuration. The last parameter is Configuration.StaticManifests.
func ReadConfiguration(path string, enabled Plugins, staticManifests bool) (c Configuration, err error) {
	c.StaticManifests, c.Manifests = staticManifests, map[string]*manifest.Directory{}
	file := &apiserver.AdmissionConfiguration{}
	if path != "" {
		if file, err = readFiles(path); err != nil {
			return c, fmt.Errorf("failed to apply admission: %w", err)
		}
	}
	for _, p := range configured {
		if !enabled.On(p.name) {
			continue
		}
		text, err := textOf(file, p.name)
		if err != nil {
			return c, err
		}
		if err := p.read(&c, text); err != nil {
			var late *initError
			if errors.As(err, &late) {
				return c, fmt.Errorf("failed to apply admission: failed to initialize admission plugin %q: %w", p.name, err)
			}
			return c, fmt.Errorf("failed to apply admission: couldn't init admission plugin %q: %w", p.name, err)
		}
	}
	return c, nil
}

// initError is an error that kube-apiserver finds when a plugin is complete.
type initError struct{ error }

func (e *initError) Unwrap() error { return e.error }

// readFiles reads a configuration file. The paths in it become relative to the working directory,
// or absolute.
func readFiles(path string) (*apiserver.AdmissionConfiguration, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read plugin config: unable to read admission control configuration from %q [%w]", path, err)
	}
	c, err := parseConfiguration(text, path)
	if err != nil {
		return nil, fmt.Errorf("failed to read plugin config: %w", err)
	}
	return c, nil
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

// decoder decodes AdmissionConfigurations of all versions.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiserver.AddToScheme, apiserverv1alpha1.AddToScheme, apiserverv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // the types are constants of the library
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}()

// parseConfiguration reads the text of the file at a path.
func parseConfiguration(text []byte, path string) (*apiserver.AdmissionConfiguration, error) {
	o, err := runtime.Decode(decoder, text)
	switch {
	case runtime.IsMissingVersion(err) || runtime.IsMissingKind(err) || runtime.IsNotRegisteredError(err):
		return legacyConfiguration(text, path, err)
	case err != nil:
		return nil, err
	}
	c, ok := o.(*apiserver.AdmissionConfiguration)
	if !ok {
		return nil, fmt.Errorf("unexpected type: %T", o)
	}
	for i := range c.Plugins {
		if p := &c.Plugins[i]; p.Path != "" && !filepath.IsAbs(p.Path) {
			p.Path = filepath.Join(filepath.Dir(path), p.Path)
		}
	}
	return c, nil
}

// legacyConfiguration returns the configuration of a file that is itself the configuration of a
// plugin: one of the two that kube-apiserver has read so. Otherwise it returns err.
func legacyConfiguration(text []byte, path string, err error) (*apiserver.AdmissionConfiguration, error) {
	fields := map[string]any{}
	if yaml.Unmarshal(text, &fields) != nil {
		return nil, err
	}
	if fields["imagePolicy"] == nil && fields["podNodeSelectorPluginConfig"] == nil {
		return nil, err
	}
	return &apiserver.AdmissionConfiguration{Plugins: []apiserver.AdmissionPluginConfiguration{
		{Name: "ImagePolicyWebhook", Path: path}, {Name: "PodNodeSelector", Path: path},
	}}, nil
}

// textOf returns the configuration of a plugin, nil if there is none. Of several, the first one
// counts.
func textOf(c *apiserver.AdmissionConfiguration, name string) ([]byte, error) {
	for i := range c.Plugins {
		switch p := &c.Plugins[i]; {
		case p.Name != name:
			continue
		case p.Configuration != nil:
			return bytes.Clone(p.Configuration.Raw), nil
		case p.Path == "":
			return nil, nil
		default:
			text, err := readFile(p.Path)
			if err != nil {
				//lint:ignore ST1005 the words of kube-apiserver
				return nil, fmt.Errorf("Couldn't open admission plugin configuration %s: %w", p.Path, err)
			}
			return text, nil
		}
	}
	return nil, nil
}
