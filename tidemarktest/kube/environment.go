package kube

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// Environment is for suites that were written for envtest: its fields and methods have the names and
// the meaning of those of envtest.Environment, as far as such suites use them.
//
//	testEnv = &kube.Environment{CRDDirectoryPaths: []string{"config/crd/bases"}}
//	cfg, err := testEnv.Start()
type Environment struct {
	// Config is how to reach the API as administrator. Start sets it; with UseExistingCluster it has to be
	// set before.
	Config *rest.Config
	// KubeConfig is a kubeconfig file of the administrator. Start sets it.
	KubeConfig []byte

	// CRDInstallOptions.Paths are added to CRDDirectoryPaths.
	CRDInstallOptions CRDInstallOptions
	// CRDDirectoryPaths are files and directories with CustomResourceDefinitions.
	CRDDirectoryPaths []string
	// ErrorIfCRDPathMissing makes a path that does not exist an error.
	ErrorIfCRDPathMissing bool
	// WebhookInstallOptions are the webhooks under test.
	WebhookInstallOptions WebhookInstallOptions

	// UseExistingCluster uses the cluster of Config. Nil: the variable USE_EXISTING_CLUSTER decides.
	UseExistingCluster *bool
	// BinaryAssetsDirectory is ignored: there are no binaries to find.
	BinaryAssetsDirectory string
	// AttachControlPlaneOutput is ignored: the server logs to a file of its own.
	AttachControlPlaneOutput bool
	// ControlPlaneStartTimeout and ControlPlaneStopTimeout limit Start and Stop; zero: no limit but those
	// of tidemarktest.
	ControlPlaneStartTimeout, ControlPlaneStopTimeout time.Duration

	// Controllers selects the controllers of the server, as tidemarktest.World.Controllers does. With
	// []string{"-*"} there are none, as with envtest.
	Controllers []string
	// Host is the server; nil: the process that tests share.
	Host tidemarktest.Host

	env *tidemarktest.Env
}

// CRDInstallOptions say where definitions are.
type CRDInstallOptions struct {
	// Paths are files and directories.
	Paths []string
	// ErrorIfPathMissing makes a path that does not exist an error.
	ErrorIfPathMissing bool
	// MaxTime and PollInterval are ignored: definitions are established when Start returns.
	MaxTime, PollInterval time.Duration
	// CleanUpAfterUse is ignored: Stop deletes the cluster.
	CleanUpAfterUse bool
}

// WebhookInstallOptions say where webhook configurations are, and where the webhooks are served.
type WebhookInstallOptions struct {
	// Paths are files and directories. A path that does not exist is an error.
	Paths []string
	// IgnoreErrorIfPathMissing skips paths that do not exist.
	IgnoreErrorIfPathMissing bool
	// MutatingWebhooks and ValidatingWebhooks are further configurations.
	MutatingWebhooks   []*admissionregistrationv1.MutatingWebhookConfiguration
	ValidatingWebhooks []*admissionregistrationv1.ValidatingWebhookConfiguration
	// MaxTime and PollInterval are ignored: a configuration is in effect when Start returns.
	MaxTime, PollInterval time.Duration
	// LocalServingHost and LocalServingPort are the address to serve webhooks on: an IP address or
	// localhost. Start sets those that are empty.
	LocalServingHost string
	LocalServingPort int
	// LocalServingCertDir has tls.crt and tls.key to serve with. Start sets it, and Stop removes it.
	LocalServingCertDir string
	// LocalServingCAData is the certificate that the API server trusts. Start sets it.
	LocalServingCAData []byte
}

// User is a user and its groups.
type User struct {
	Name   string
	Groups []string
}

// AuthenticatedUser is a user with credentials.
type AuthenticatedUser struct{ env *tidemarktest.Env }

// Config returns a configuration for client-go as the user.
func (u *AuthenticatedUser) Config() *rest.Config { return Config(u.env) }

// KubeConfig returns a kubeconfig file of the user.
func (u *AuthenticatedUser) KubeConfig() ([]byte, error) { return u.env.KubeconfigData(), nil }

// Start creates the cluster and returns how to reach it as administrator.
func (e *Environment) Start() (*rest.Config, error) {
	if e.existing() {
		if e.Config == nil {
			return nil, errors.New("UseExistingCluster wants Config")
		}
		return e.Config, nil
	}
	ctx, cancel := limited(e.ControlPlaneStartTimeout)
	defer cancel()
	o := &e.WebhookInstallOptions
	configurations, err := o.configurations()
	if err != nil {
		return nil, err
	}
	world := tidemarktest.World{
		CRDDirectoryPaths:     slices.Concat(e.CRDDirectoryPaths, e.CRDInstallOptions.Paths),
		ErrorIfCRDPathMissing: e.ErrorIfCRDPathMissing || e.CRDInstallOptions.ErrorIfPathMissing,
		Webhooks: tidemarktest.Webhooks{
			Paths: o.Paths, IgnoreErrorIfPathMissing: o.IgnoreErrorIfPathMissing, Configurations: configurations,
			Conversion:       len(o.Paths)+len(configurations) > 0, // as in envtest, the paths may have none
			LocalServingHost: o.LocalServingHost, LocalServingPort: o.LocalServingPort,
		},
		Controllers: e.Controllers, Host: e.Host,
	}
	env, err := world.Open(ctx)
	if err != nil {
		return nil, err
	}
	e.env, e.Config, e.KubeConfig = env, Config(env), env.KubeconfigData()
	if hook := env.Webhooks(); hook != nil {
		if err := e.publish(hook); err != nil {
			return nil, errors.Join(err, e.Stop())
		}
	}
	return e.Config, nil
}

// configurations returns MutatingWebhooks and ValidatingWebhooks as JSON.
func (o *WebhookInstallOptions) configurations() (all []string, err error) {
	add := func(kind string, configuration any) {
		var object map[string]any
		text, wrong := json.Marshal(configuration)
		if wrong == nil {
			wrong = json.Unmarshal(text, &object)
		}
		if wrong == nil { // objects in Go often have neither
			object["apiVersion"], object["kind"] = "admissionregistration.k8s.io/v1", kind
			text, wrong = json.Marshal(object)
		}
		all, err = append(all, string(text)), errors.Join(err, wrong)
	}
	for _, c := range o.MutatingWebhooks {
		add("MutatingWebhookConfiguration", c)
	}
	for _, c := range o.ValidatingWebhooks {
		add("ValidatingWebhookConfiguration", c)
	}
	return all, err
}

// publish sets where the webhooks are served. Their server listens itself.
func (e *Environment) publish(hook *tidemarktest.WebhookServer) error {
	o := &e.WebhookInstallOptions
	dir, err := os.MkdirTemp("", "tidemark-webhooks-*")
	if err != nil {
		return err
	}
	o.LocalServingHost, o.LocalServingPort, o.LocalServingCAData, o.LocalServingCertDir = hook.Host, hook.Port, hook.CAData, dir
	if err := hook.WriteCertDir(dir); err != nil {
		return err
	}
	return hook.Release()
}

// Stop deletes the cluster. It does nothing for an existing one.
func (e *Environment) Stop() error {
	if e.env == nil {
		return nil
	}
	var err error
	if e.env.Webhooks() != nil {
		err = os.RemoveAll(e.WebhookInstallOptions.LocalServingCertDir)
	}
	return errors.Join(err, e.env.Close())
}

// AddUser returns a user of the cluster. The configuration, which may be nil, has the settings of
// its connections: the other fields are those of Config.
func (e *Environment) AddUser(u User, base *rest.Config) (*AuthenticatedUser, error) {
	if e.env == nil {
		return nil, errors.New("users can be added to clusters that Start has created")
	}
	env, err := e.env.AddUser(tidemarktest.User(u))
	if err != nil {
		return nil, err
	}
	return &AuthenticatedUser{env}, nil
}

// Env returns the cluster of tidemarktest, for features that envtest does not have; nil before
// Start.
func (e *Environment) Env() *tidemarktest.Env { return e.env }

func (e *Environment) existing() bool {
	if e.UseExistingCluster != nil {
		return *e.UseExistingCluster
	}
	existing, err := strconv.ParseBool(os.Getenv("USE_EXISTING_CLUSTER"))
	return err == nil && existing
}

func limited(d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), d)
}
