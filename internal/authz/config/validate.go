package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authz/webhook"
)

// maxWebhookTimeout is the longest time for a response of a webhook.
const maxWebhookTimeout = 30 * time.Second

// validate checks a configuration.
func validate(c *apiserver.AuthorizationConfiguration) field.ErrorList {
	var errs field.ErrorList
	if len(c.Authorizers) == 0 {
		errs = append(errs, field.Required(field.NewPath("authorizers"), "at least one authorization mode must be defined"))
	}
	types, names := map[string]bool{}, map[string]bool{}
	for i := range c.Authorizers {
		a, path := &c.Authorizers[i], field.NewPath("authorizers").Index(i)
		mode := string(a.Type)
		switch {
		case mode == "":
			errs = append(errs, field.Required(path.Child("type"), ""))
			continue
		case !known(mode):
			errs = append(errs, field.NotSupported(path.Child("type"), mode, sortedModes()))
			continue
		case types[mode] && mode != ModeWebhook:
			errs = append(errs, field.Duplicate(path.Child("type"), mode))
			continue
		}
		types[mode] = true
		errs = append(errs, validateName(path.Child("name"), a.Name, names)...)
		names[a.Name] = true
		switch {
		case mode != ModeWebhook && a.Webhook != nil:
			errs = append(errs, field.Invalid(path.Child("webhook"), "non-null", "may only be specified when type=Webhook"))
		case mode == ModeWebhook && a.Webhook == nil:
			errs = append(errs, field.Required(path.Child("webhook"), "required when type=Webhook"))
		case mode == ModeWebhook:
			errs = append(errs, validateWebhook(path, a.Webhook)...)
		}
	}
	return errs
}

func validateName(path *field.Path, name string, before map[string]bool) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "")}
	case before[name]:
		return field.ErrorList{field.Duplicate(path, name)}
	}
	if faults := utilvalidation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return field.ErrorList{field.Invalid(path, name, "authorizer name is invalid: "+strings.Join(faults, ", "))}
	}
	return nil
}

// validateWebhook checks a webhook. path is that of its authorizer, as in kube-apiserver's errors.
func validateWebhook(path *field.Path, c *apiserver.WebhookConfiguration) field.ErrorList {
	var errs field.ErrorList
	switch timeout := c.Timeout.Duration; {
	case timeout == 0:
		errs = append(errs, field.Required(path.Child("timeout"), ""))
	case timeout < 0, timeout > maxWebhookTimeout:
		errs = append(errs, field.Invalid(path.Child("timeout"), timeout.String(), "must be > 0s and <= 30s"))
	}
	for _, ttl := range []struct {
		name string
		d    time.Duration
	}{{"authorizedTTL", c.AuthorizedTTL.Duration}, {"unauthorizedTTL", c.UnauthorizedTTL.Duration}} {
		switch {
		case ttl.d == 0:
			errs = append(errs, field.Required(path.Child(ttl.name), ""))
		case ttl.d < 0:
			errs = append(errs, field.Invalid(path.Child(ttl.name), ttl.d.String(), "must be > 0s"))
		}
	}
	errs = append(errs, oneOf(path.Child("subjectAccessReviewVersion"), c.SubjectAccessReviewVersion, "v1", "v1beta1")...)
	version := path.Child("matchConditionSubjectAccessReviewVersion")
	switch {
	case c.MatchConditionSubjectAccessReviewVersion != "":
		errs = append(errs, oneOf(version, c.MatchConditionSubjectAccessReviewVersion, "v1")...)
	case len(c.MatchConditions) > 0:
		errs = append(errs, field.Required(version, "required if match conditions are specified"))
	}
	errs = append(errs, oneOf(path.Child("failurePolicy"), c.FailurePolicy, apiserver.FailurePolicyNoOpinion, apiserver.FailurePolicyDeny)...)
	errs = append(errs, validateConnection(path.Child("connectionInfo"), &c.ConnectionInfo)...)
	_, faults := webhook.Compile(path, expressions(c))
	return append(errs, faults...)
}

// oneOf requires a value that is one of some.
func oneOf(path *field.Path, value string, values ...string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	for _, v := range values {
		if v == value {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, values)}
}

func validateConnection(path *field.Path, c *apiserver.WebhookConnectionInfo) field.ErrorList {
	const inCluster, byFile = apiserver.AuthorizationWebhookConnectionInfoTypeInCluster, apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile
	file := path.Child("kubeConfigFile")
	switch c.Type {
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "")}
	case inCluster:
		if c.KubeConfigFile != nil {
			return field.ErrorList{field.Invalid(file, *c.KubeConfigFile, "can only be set when type=KubeConfigFile")}
		}
		// This type is for servers that call the cluster's API server: this server would call
		// itself.
		return field.ErrorList{field.Invalid(path.Child("type"), c.Type, "is not allowed for the API server itself: want "+byFile)}
	case byFile:
		if c.KubeConfigFile == nil || *c.KubeConfigFile == "" {
			return field.ErrorList{field.Required(file, "")}
		}
		if fault := fileFault(*c.KubeConfigFile); fault != "" {
			return field.ErrorList{field.Invalid(file, *c.KubeConfigFile, fault)}
		}
		return nil
	}
	return field.ErrorList{field.NotSupported(path.Child("type"), *c, []string{inCluster, byFile})}
}

func fileFault(path string) string {
	if !filepath.IsAbs(path) {
		return "must be an absolute path"
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Sprintf("error loading file: %v", err)
	case !info.Mode().IsRegular():
		return "must be a regular file"
	}
	return ""
}

func expressions(c *apiserver.WebhookConfiguration) []string {
	var all []string
	for _, m := range c.MatchConditions {
		all = append(all, m.Expression)
	}
	return all
}
