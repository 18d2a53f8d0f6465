package issuers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"

	"github.com/tidemark-dev/tidemark/internal/authn/oidc"
)

const (
	// maxFileBytes limits the file. It may hold the authorities of each issuer.
	maxFileBytes = 16 << 20
	// maxIssuers is the limit of kube-apiserver.
	maxIssuers = 64
)

// decoder decodes the file, strictly. A server without a file builds none.
var decoder = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
})

// Read reads an AuthenticationConfiguration, of any version, without validating it.
func Read(path string) (*apiserver.AuthenticationConfiguration, error) {
	b, err := readFile(path)
	if err == nil {
		var c *apiserver.AuthenticationConfiguration
		if c, err = parse(b); err == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", path, err)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(b) > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	return b, err
}

func parse(b []byte) (*apiserver.AuthenticationConfiguration, error) {
	if len(b) == 0 {
		return nil, errors.New("empty config data")
	}
	o, err := runtime.Decode(decoder(), b)
	if err != nil {
		return nil, err
	}
	c, ok := o.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthenticationConfiguration, got %T", o)
	}
	return c, nil
}

// compile validates a configuration, and returns the rules of each issuer.
func compile(c *apiserver.AuthenticationConfiguration, disallowed []string) ([]*oidc.Rules, field.ErrorList) {
	root := field.NewPath("jwt")
	if len(c.JWT) > maxIssuers {
		return nil, field.ErrorList{field.TooMany(root, len(c.JWT), maxIssuers)}
	}
	var all field.ErrorList
	rules := make([]*oidc.Rules, len(c.JWT))
	issuers, discoveries := map[string]bool{}, map[string]bool{}
	for n := range c.JWT {
		a, at := &c.JWT[n], root.Index(n)
		var wrong field.ErrorList
		rules[n], wrong = oidc.Compile(at, a, disallowed)
		all = append(all, wrong...)
		if issuers[a.Issuer.URL] {
			all = append(all, field.Duplicate(at.Child("issuer", "url"), a.Issuer.URL))
		}
		if d := a.Issuer.DiscoveryURL; d != "" && discoveries[d] {
			all = append(all, field.Duplicate(at.Child("issuer", "discoveryURL"), d))
		}
		issuers[a.Issuer.URL], discoveries[a.Issuer.DiscoveryURL] = true, true
	}
	if a := c.Anonymous; a != nil && !a.Enabled && len(a.Conditions) > 0 {
		all = append(all, field.Invalid(field.NewPath("anonymous", "conditions"), a.Conditions, "enabled should be set to true when conditions are defined"))
	}
	return rules, all
}

// unchanged returns an error if a changed file has another policy for anonymous requests.
func unchanged(was, is *apiserver.AnonymousAuthConfig) field.ErrorList {
	if reflect.DeepEqual(was, is) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("anonymous"), "changed from initial configuration file")}
}
