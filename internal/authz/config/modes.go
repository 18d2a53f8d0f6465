package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/apis/apiserver"
)

// The modes, which are also the types of authorizers.
const (
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeABAC        = "ABAC"
	ModeWebhook     = "Webhook"
	ModeRBAC        = "RBAC"
	ModeNode        = "Node"
)

// Modes returns all modes.
func Modes() []string {
	return []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeABAC, ModeWebhook, ModeRBAC, ModeNode}
}

func known(mode string) bool { return slices.Contains(Modes(), mode) }

func sortedModes() []string {
	all := Modes()
	slices.Sort(all)
	return all
}

// Flags are the flags that configure authorization without a configuration file.
type Flags struct {
	// Modes are the authorizers in their order.
	Modes []string
	// PolicyFile is the file of ABAC; empty: none.
	PolicyFile string
	// WebhookFile is the kubeconfig of Webhook; empty: none.
	WebhookFile string
	// WebhookVersion is the version of the SubjectAccessReview.
	WebhookVersion string
	// AuthorizedTTL and UnauthorizedTTL are how long decisions of the webhook are cached; zero: they
	// are not.
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

// Check returns an error if the flags do not fit together.
func (f *Flags) Check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(f.Modes) == 0 {
		fail("at least one --authorization-mode must be passed")
	}
	for _, mode := range f.Modes {
		switch {
		case !known(mode):
			fail("--authorization-mode=%s is not a valid mode: want some of %s", mode, strings.Join(Modes(), ", "))
		case mode == ModeABAC && f.PolicyFile == "":
			fail("--authorization-mode=ABAC needs --authorization-policy-file")
		case mode == ModeWebhook && f.WebhookFile == "":
			fail("--authorization-mode=Webhook needs --authorization-webhook-config-file")
		}
	}
	if f.PolicyFile != "" && !slices.Contains(f.Modes, ModeABAC) {
		fail("cannot specify --authorization-policy-file without --authorization-mode=ABAC")
	}
	if f.WebhookFile != "" && !slices.Contains(f.Modes, ModeWebhook) {
		fail("cannot specify --authorization-webhook-config-file without --authorization-mode=Webhook")
	}
	if f.WebhookVersion != "v1" && f.WebhookVersion != "v1beta1" {
		fail("unsupported webhook authorizer version %q, supported versions are %q, %q", f.WebhookVersion, "v1", "v1beta1")
	}
	if f.AuthorizedTTL < 0 || f.UnauthorizedTTL < 0 {
		errs = append(errs, errors.New("decisions of a webhook cannot be cached for less than no time"))
	}
	once := slices.Compact(slices.Sorted(slices.Values(f.Modes)))
	if len(once) != len(f.Modes) {
		fail("--authorization-mode=%s has a mode more than once", strings.Join(f.Modes, ","))
	}
	return utilerrors.NewAggregate(errs)
}

// configuration returns the configuration that means the same as the flags.
func (f *Flags) configuration() *apiserver.AuthorizationConfiguration {
	c := &apiserver.AuthorizationConfiguration{}
	for _, mode := range f.Modes {
		a := apiserver.AuthorizerConfiguration{Type: apiserver.AuthorizerType(mode), Name: nameOf(mode)}
		if mode == ModeWebhook {
			a.Name = "default"
			a.Webhook = &apiserver.WebhookConfiguration{
				AuthorizedTTL:              metav1.Duration{Duration: f.AuthorizedTTL},
				CacheAuthorizedRequests:    true,
				UnauthorizedTTL:            metav1.Duration{Duration: f.UnauthorizedTTL},
				CacheUnauthorizedRequests:  true,
				Timeout:                    metav1.Duration{Duration: maxWebhookTimeout},
				FailurePolicy:              apiserver.FailurePolicyNoOpinion,
				SubjectAccessReviewVersion: f.WebhookVersion,
				ConnectionInfo: apiserver.WebhookConnectionInfo{
					Type:           apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile,
					KubeConfigFile: &f.WebhookFile,
				},
			}
		}
		c.Authorizers = append(c.Authorizers, a)
	}
	return c
}
