package encryption

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
)

var (
	aesSizes       = []int{16, 24, 32}
	secretboxSizes = []int{32}
)

// validate applies kube-apiserver's rules, in its words.
func validate(c *apiserver.EncryptionConfiguration) field.ErrorList {
	root := field.NewPath("resources")
	if len(c.Resources) == 0 {
		return field.ErrorList{field.Required(root, "at least one resources is required")}
	}
	var errs field.ErrorList
	plugins := map[string]bool{}
	for i, r := range c.Resources {
		resources, providers := root.Index(i).Child("resources"), root.Index(i).Child("providers")
		if len(r.Resources) == 0 {
			errs = append(errs, atLeastOne(resources, resources.String()))
		}
		errs = append(errs, validateOverlap(r.Resources, resources)...)
		for j, name := range r.Resources {
			if why := badResource(name); why != "" {
				errs = append(errs, field.Invalid(resources.Index(j), name, why))
			}
		}
		if len(r.Providers) == 0 {
			errs = append(errs, atLeastOne(providers, providers.String()))
		}
		for j := range r.Providers {
			errs = append(errs, validateProvider(&r.Providers[j], providers.Index(j), plugins)...)
		}
	}
	return errs
}

func atLeastOne(at *field.Path, what string) *field.Error {
	return field.Required(at, fmt.Sprintf("at least one %s is required", what))
}

// validateOverlap refuses names of one list that mask others. It is linear in their number.
func validateOverlap(names []string, at *field.Path) (errs field.ErrorList) {
	seen := map[schema.GroupResource]bool{}
	groups := map[string]int{} // names of a group
	var twice, masked bool
	for _, name := range names {
		gr := schema.ParseGroupResource(name)
		twice = twice || seen[gr]
		groups[gr.Group]++
		seen[gr] = true
	}
	for gr := range seen {
		switch {
		case gr == anything:
			masked = masked || len(names) > 1
		case gr.Resource == "*":
			masked = masked || groups[gr.Group] > 1
		}
	}
	if twice {
		errs = append(errs, field.Invalid(at, names, "the same resource cannot be specified multiple times"))
	}
	if masked {
		errs = append(errs, field.Invalid(at, names, "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"))
	}
	return errs
}

// badResource returns why a resource cannot be encrypted, or an empty string.
func badResource(name string) string {
	gr := schema.ParseGroupResource(name)
	switch {
	case strings.ToLower(name) != name:
		return "resource name should not contain capital letters"
	case name == "*":
		return "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
	case name == "apiserveripinfo", name == "serviceipallocations", name == "servicenodeportallocations":
		return "resources which do not have REST API/s cannot be encrypted"
	case gr.Group == "events.k8s.io":
		return "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
	case gr.Group == "extensions":
		return "'extensions' group has been removed and cannot be used for encryption"
	case gr.Group == "*" && gr.Resource != "*":
		return "encrypting the same resource across groups is not supported"
	}
	return ""
}

func validateProvider(p *apiserver.ProviderConfiguration, at *field.Path, plugins map[string]bool) (errs field.ErrorList) {
	switch names := kinds(p); {
	case len(names) == 0:
		errs = append(errs, field.Invalid(at, "", "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"))
	case len(names) > 1: // the value would contain the keys
		errs = append(errs, field.Invalid(at, strings.Join(names, ", "), "more than one provider specified in a single element, should split into different list elements"))
	}
	switch {
	case p.KMS != nil:
		errs = append(errs, validateKMS(p.KMS, at.Child("kms"), plugins)...)
	case p.AESGCM != nil:
		errs = append(errs, validateKeys(p.AESGCM.Keys, at.Child("aesgcm", "keys"), aesSizes)...)
	case p.AESCBC != nil:
		errs = append(errs, validateKeys(p.AESCBC.Keys, at.Child("aescbc", "keys"), aesSizes)...)
	case p.Secretbox != nil:
		errs = append(errs, validateKeys(p.Secretbox.Keys, at.Child("secretbox", "keys"), secretboxSizes)...)
	}
	return errs
}

// kinds returns the names of the methods that an element of the providers has.
func kinds(p *apiserver.ProviderConfiguration) (names []string) {
	for _, k := range []struct {
		name string
		set  bool
	}{{"kms", p.KMS != nil}, {"aesgcm", p.AESGCM != nil}, {"aescbc", p.AESCBC != nil}, {"secretbox", p.Secretbox != nil}, {"identity", p.Identity != nil}} {
		if k.set {
			names = append(names, k.name)
		}
	}
	return names
}

func validateKeys(keys []apiserver.Key, at *field.Path, sizes []int) (errs field.ErrorList) {
	if len(keys) == 0 {
		return field.ErrorList{atLeastOne(at, "keys")}
	}
	for i, k := range keys {
		name, secret := at.Index(i).Child("name"), at.Index(i).Child("secret")
		if k.Name == "" {
			errs = append(errs, field.Required(name, "name is a mandatory field for a key"))
		}
		switch data, err := base64.StdEncoding.DecodeString(k.Secret); {
		case k.Secret == "":
			errs = append(errs, field.Required(secret, "secret is a mandatory field for a key"))
		case err != nil:
			errs = append(errs, field.Invalid(secret, redacted, "secrets must be base64 encoded"))
		case !hasSize(len(data), sizes):
			errs = append(errs, field.Invalid(secret, redacted, fmt.Sprintf("secret is not of the expected length, got %d, expected one of %v", len(data), sizes)))
		}
	}
	return errs
}

// redacted stands for a key in messages.
const redacted = "REDACTED"

func hasSize(n int, sizes []int) bool {
	for _, s := range sizes {
		if n == s {
			return true
		}
	}
	return false
}

func validateKMS(k *apiserver.KMSConfiguration, at *field.Path, plugins map[string]bool) (errs field.ErrorList) {
	name := at.Child("name")
	if k.Name == "" {
		errs = append(errs, field.Required(name, "name is a mandatory field for a provider"))
	}
	if k.APIVersion != "v1" && strings.Contains(k.Name, ":") {
		errs = append(errs, field.Invalid(name, k.Name, fmt.Sprintf("invalid KMS provider name %s, must not contain ':'", k.Name)))
	}
	if plugins[k.Name] {
		errs = append(errs, field.Invalid(name, k.Name, fmt.Sprintf("duplicate KMS provider name %s, names must be unique", k.Name)))
	}
	plugins[k.Name] = true
	if k.Timeout.Duration <= 0 {
		errs = append(errs, field.Invalid(at.Child("timeout"), k.Timeout, "timeout should be a positive value"))
	}
	errs = append(errs, validateEndpoint(k.Endpoint, at.Child("endpoint"))...)
	switch {
	case k.CacheSize != nil && k.APIVersion != "v1":
		errs = append(errs, field.Invalid(at.Child("cachesize"), *k.CacheSize, "cachesize is not supported in v2"))
	case k.CacheSize != nil && *k.CacheSize == 0:
		errs = append(errs, field.Invalid(at.Child("cachesize"), *k.CacheSize, "cachesize should be a positive value, or negative to disable"))
	}
	if k.APIVersion != "v1" && k.APIVersion != "v2" {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), k.APIVersion, "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"))
	}
	return errs
}

func validateEndpoint(endpoint string, at *field.Path) field.ErrorList {
	if endpoint == "" {
		return field.ErrorList{field.Invalid(at, "", "endpoint is a mandatory field for a kms")}
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return field.ErrorList{field.Invalid(at, endpoint, fmt.Sprintf("invalid endpoint for kms provider, error: %v", err))}
	}
	if u.Scheme != "unix" {
		return field.ErrorList{field.Invalid(at, endpoint, fmt.Sprintf("unsupported scheme %q for KMS provider, only unix is supported", u.Scheme))}
	}
	return nil
}
