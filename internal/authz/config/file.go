// Package config makes the chain of authorizers that a configuration names: an
// AuthorizationConfiguration in a file, or the flags that came before it. A file is read again
// when it changes.
package config

import (
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/utils/set"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = 3 << 20

// read reads a file.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	}
	return data, err
}

// decoder decodes the configuration in all its versions, applies the defaults, and refuses unknown
// and repeated members.
var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}()

// Parse reads an AuthorizationConfiguration in JSON or YAML, and validates it. required are the
// types that it has to contain besides webhooks.
func Parse(data []byte, required set.Set[string]) (*apiserver.AuthorizationConfiguration, error) {
	c := &apiserver.AuthorizationConfiguration{}
	if len(data) > 0 {
		decoded, err := runtime.Decode(decoder, data)
		if err != nil {
			return nil, fmt.Errorf("failed to load AuthorizationConfiguration from file: %w", err)
		}
		var ok bool
		if c, ok = decoded.(*apiserver.AuthorizationConfiguration); !ok {
			return nil, fmt.Errorf("failed to load AuthorizationConfiguration from file: expected AuthorizationConfiguration, got %T", decoded)
		}
	}
	if err := validate(c).ToAggregate(); err != nil {
		return nil, err
	}
	return c, checkTypes(c, required)
}

// checkTypes checks the names of authorizers that are not webhooks, and that all required types are
// there.
func checkTypes(c *apiserver.AuthorizationConfiguration, required set.Set[string]) error {
	var errs []error
	missing := required.Clone()
	for _, a := range c.Authorizers {
		if a.Type == apiserver.TypeWebhook {
			continue
		}
		missing.Delete(string(a.Type))
		if want := nameOf(string(a.Type)); a.Name != want {
			errs = append(errs, fmt.Errorf("expected name %s for authorizer %s instead of %s", want, a.Type, a.Name))
		}
	}
	if missing.Len() > 0 {
		errs = append(errs, fmt.Errorf("missing required types: %v", missing.SortedList()))
	}
	return utilerrors.NewAggregate(errs)
}

// nameOf is the name of an authorizer that is not a webhook.
func nameOf(mode string) string { return strings.ToLower(mode) }
