package encryption

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
)

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 1 << 20

// defaultTimeout is the time for one call of a KMS plugin.
const defaultTimeout = 3 * time.Second

// decoder reads configurations. It is made once: building the scheme takes some milliseconds.
var decoder = newDecoder()

func newDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(apiserver.SchemeGroupVersion, &apiserver.EncryptionConfiguration{})
	// The name that old documents give it.
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Version: "v1", Kind: "EncryptionConfig"}, &apiserver.EncryptionConfiguration{})
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// readConfig reads a file of at most maxConfig bytes. The errors do not name it.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) == 0:
		return nil, errors.New("the file is empty")
	case len(data) > maxConfig:
		return nil, fmt.Errorf("the file has more than %d bytes", maxConfig)
	}
	return data, nil
}

// parse decodes and validates a configuration. Errors contain no key.
func parse(data []byte) (*apiserver.EncryptionConfiguration, error) {
	o, gvk, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	c, ok := o.(*apiserver.EncryptionConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is a %v, not an EncryptionConfiguration", gvk)
	}
	setDefaults(c)
	if errs := validate(c); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return c, refuseV1(c)
}

func setDefaults(c *apiserver.EncryptionConfiguration) {
	for i := range c.Resources {
		for j := range c.Resources[i].Providers {
			k := c.Resources[i].Providers[j].KMS
			if k == nil {
				continue
			}
			if k.Timeout == nil {
				k.Timeout = &metav1.Duration{Duration: defaultTimeout}
			}
			if k.APIVersion == "" {
				k.APIVersion = "v1"
			}
		}
	}
}

// refuseV1 refuses KMS plugins of the first version, which kube-apiserver refuses by default.
func refuseV1(c *apiserver.EncryptionConfiguration) error {
	for _, r := range c.Resources {
		for _, p := range r.Providers {
			if p.KMS != nil && p.KMS.APIVersion == "v1" {
				return errors.New("KMSv1 is deprecated and not supported. Use KMSv2 instead: set apiVersion: v2 for the provider " + p.KMS.Name)
			}
		}
	}
	return nil
}
