package tidemark

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/authz/config"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/kubeversion"
	"github.com/tidemark-dev/tidemark/internal/world"
)

// config checks the fields, and returns them in the terms of the parts of a server. It opens nothing but files of the
// configuration.
func (s *Server) config() (world.Config, error) {
	c := world.Config{
		Storage: s.Storage, At: s.At, AtTime: s.AtTime, ReadOnly: s.ReadOnly, Play: s.Play, History: world.History(s.History), Memory: world.Memory(s.Memory), Encryption: world.Encryption(s.Encryption),
		Forks:     s.Forks.config(),
		InProcess: s.InProcess, Listen: s.Listen.config(), TLS: s.TLS.config(),
		PolicyFile: s.Authorization.PolicyFile, Audit: s.Audit.config(), Fairness: world.Fairness(s.Fairness), Kubelets: world.Kubelets(s.Kubelets),
		NoUnenforcedWarnings: s.Admission.NoUnenforcedWarnings, Controllers: s.Controllers, EventTTL: s.EventTTL, NoChanges: s.NoChanges, DialNodes: s.dialNodes,
		Shutdown: world.Shutdown(s.Shutdown), Logger: s.Logger, SlowRequest: s.Diagnostics.SlowRequest, Tracer: s.Diagnostics.tracer(), Profiling: s.Diagnostics.Profiling,
		Version: s.version(), Clock: s.Clock.of(), Seed: s.Seed, Now: s.now, BackupTime: s.backupTime, Failure: &s.failure,
	}
	if c.Clock != nil {
		c.Now = c.Clock.Now
	}
	if err := s.check(); err != nil {
		return c, err
	}
	var err error
	if c.Kubernetes, err = s.kubernetes(); err != nil {
		return c, err
	}
	if s.Logger != nil {
		for _, name := range c.Kubernetes.WithoutEffect() {
			s.Logger.Warn("the feature gate has no effect", "gate", name)
		}
	}
	return c, s.read(&c)
}

// past reports whether the server begins with a historical state.
func (s *Server) past() bool { return s.At != 0 || !s.AtTime.IsZero() || s.Play > 0 }

// check validates everything that needs no file and no connection.
func (s *Server) check() error {
	if err := errors.Join(s.checkInProcess(), controller.Check(s.Controllers)); err != nil {
		return err
	}
	if s.EventTTL < 0 {
		return fmt.Errorf("events cannot stay for %v", s.EventTTL)
	}
	if err := errors.Join(s.Listen.Check(), s.TLS.Check()); err != nil {
		return err
	}
	if s.ReadOnly && (s.Storage == nil || s.past() || s.Backups.Schedule != "" || s.Controllers != nil) {
		return errors.New("a server that only reads needs a Storage, and has no historical state, no schedule of backups and no controllers")
	}
	if s.At != 0 && !s.AtTime.IsZero() {
		return errors.New("a state to begin with has a resource version or a time, not both")
	}
	if s.Play < 0 || math.IsNaN(s.Play) || math.IsInf(s.Play, 0) {
		return fmt.Errorf("changes cannot be played %v times as fast", s.Play)
	}
	if s.past() && s.Storage == nil {
		return errors.New("a resource version to begin with needs a Storage that has its state")
	}
	if err := s.checkBackups(); err != nil {
		return err
	}
	if err := s.Authentication.Check(); err != nil {
		return fmt.Errorf("authentication: %w", err)
	}
	if _, err := s.kubernetes(); err != nil {
		return err
	}
	return errors.Join(s.Fairness.Check(), s.Kubelets.Check(), s.Audit.Check(), s.Encryption.Check())
}

// kubernetes returns the version of Kubernetes with its feature gates.
func (s *Server) kubernetes() (*features.Profile, error) {
	p, err := features.Resolve(features.Choice{Emulated: s.KubernetesVersion, MinCompatible: s.MinCompatibilityVersion, Gates: s.FeatureGates})
	if err != nil {
		return nil, fmt.Errorf("version and feature gates: %w", err)
	}
	return p, nil
}

// checkInProcess returns an error for options of a listener that there is not.
func (s *Server) checkInProcess() error {
	switch {
	case !s.InProcess:
	case s.Listen.Address != "" || len(s.Listen.MoreAddresses) > 0 || s.Listen.Port != 0:
		return errors.New("a server in process does not listen: want no address and no port")
	case s.TLS.CertFile != "" || len(s.TLS.SNI) > 0:
		return errors.New("a server in process does not listen: want no certificates")
	}
	return nil
}

// checkBackups checks the schedule of backups, before the storage is opened.
func (s *Server) checkBackups() error {
	err := s.Backups.Check()
	switch {
	case s.Backups.Schedule == "" || err != nil:
		return err
	case s.past():
		return errors.New("backups on a schedule need the newest state: the server begins with an older one, and keeps changes in memory")
	case s.Storage == nil:
		return errors.New("backups on a schedule are those of a data directory: the objects are in memory only")
	}
	return nil
}

// read reads the files and texts of the configuration.
func (s *Server) read(c *world.Config) (err error) {
	if c.Backups, err = s.Backups.config(); err != nil {
		return err
	}
	if c.Authentication, err = s.Authentication.config(); err != nil {
		return err
	}
	c.Authentication.AlwaysAllow = slices.Contains(s.Authorization.Modes, config.ModeAlwaysAllow)
	if c.Aggregation, err = s.Aggregation.config(); err != nil {
		return err
	}
	if c.Plugins, err = admission.Choose(s.Admission.Enable, s.Admission.Disable); err != nil {
		return err
	}
	if c.Authorization, err = s.Authorization.source(); err != nil {
		return err
	}
	if c.Admission, err = admission.ReadConfiguration(s.Admission.ConfigFile, c.Plugins, c.Kubernetes.Enabled(features.StaticManifests)); err != nil {
		return err
	}
	c.Services, err = s.Services.config()
	return err
}

// version returns the versions for /version.
func (s *Server) version() world.Version {
	own := cmp.Or(s.Version, release)
	revision, at := commit()
	return world.Version{Own: own, Git: gitVersion(own), Kubernetes: kubeversion.Current.String(), Commit: revision, BuildDate: at}
}
