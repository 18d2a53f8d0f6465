package tidemark

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authz/config"
)

// Authorization configures the authorizers. Members of the group system:masters may do everything,
// whatever is configured.
type Authorization struct {
	// Modes are the authorizers, in their order: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC and
	// Node. The first one that allows or denies a request decides; a request that none allows is
	// refused. Empty: Node and RBAC. AlwaysAllow disables anonymous requests.
	Modes []string
	// ConfigFile is an AuthorizationConfiguration in YAML or JSON, which takes the place of Modes and
	// of the Webhook fields. It is read again when it changes. Empty: Modes counts.
	ConfigFile string

	// PolicyFile has the policies of ABAC, a line of JSON each. Empty: ABAC cannot be used.
	PolicyFile string

	// WebhookConfigFile is the kubeconfig that names the service of Webhook. Empty: Webhook cannot
	// be used.
	WebhookConfigFile string
	// WebhookVersion is the version of the SubjectAccessReview that the service gets: "v1" or
	// "v1beta1". Empty: v1beta1.
	WebhookVersion string
	// WebhookCacheAuthorizedTTL is how long a response of the service is kept that allows a request.
	// Zero: 5 minutes. Negative: it is not kept.
	WebhookCacheAuthorizedTTL time.Duration
	// WebhookCacheUnauthorizedTTL is the same for other responses. Zero: 30 seconds. Negative: they are not kept.
	WebhookCacheUnauthorizedTTL time.Duration
}

const (
	defaultAuthorizedTTL   = 5 * time.Minute
	defaultUnauthorizedTTL = 30 * time.Second
)

// Check returns an error for options that contradict each other, or have no meaning. It opens no
// file.
func (a *Authorization) Check() error {
	if a.ConfigFile == "" {
		flags := a.flags()
		return flags.Check()
	}
	if len(a.Modes) > 0 || a.WebhookConfigFile != "" || a.WebhookVersion != "" || a.WebhookCacheAuthorizedTTL != 0 || a.WebhookCacheUnauthorizedTTL != 0 {
		return errors.New("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined")
	}
	return nil
}

// source reads the configuration.
func (a *Authorization) source() (*config.Source, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	if a.ConfigFile == "" {
		return config.FromFlags(a.flags())
	}
	source, err := config.FromFile(a.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--authorization-config: %w", err)
	}
	return source, nil
}

// flags returns the configuration without a file, with the defaults.
func (a *Authorization) flags() config.Flags {
	return config.Flags{
		Modes: a.modes(), PolicyFile: a.PolicyFile,
		WebhookFile: a.WebhookConfigFile, WebhookVersion: cmp.Or(a.WebhookVersion, "v1beta1"),
		AuthorizedTTL:   max(0, cmp.Or(a.WebhookCacheAuthorizedTTL, defaultAuthorizedTTL)),
		UnauthorizedTTL: max(0, cmp.Or(a.WebhookCacheUnauthorizedTTL, defaultUnauthorizedTTL)),
	}
}

// modes returns the authorizers without a configuration file.
func (a *Authorization) modes() []string {
	if len(a.Modes) == 0 {
		return []string{config.ModeNode, config.ModeRBAC}
	}
	return a.Modes
}
