package tidemark

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

// standIns selects the values that a start on a data directory replaces by stand-ins if they cannot be decrypted.
func (s *Server) standIns() encryption.StandIns {
	if s.enabled(unsafeDeletionGate) {
		return encryption.AllStandIns
	}
	return encryption.SomeStandIns
}

// Encryption encrypts objects at rest. docs/how-to/encrypt-secrets.md shows how.
type Encryption struct {
	// ProviderConfigFile is an EncryptionConfiguration of apiserver.config.k8s.io/v1, as
	// kube-apiserver reads it: which resources are encrypted, and with which keys. Empty: nothing
	// is encrypted. A file that lacks the key of a stored object is refused.
	ProviderConfigFile string
	// AutomaticReload reads the file again when it changes. A changed file that is invalid, or
	// that lacks a key, is refused, and the one before stays in effect.
	AutomaticReload bool
}

// encryption reads the configuration, and waits for its KMS plugins for a while. It comes before
// the log, which may take long to open.
func (s *Server) encryption(ctx context.Context) (*encryption.Set, error) {
	if s.Encryption.AutomaticReload && s.Encryption.ProviderConfigFile == "" {
		return nil, errors.New("the encryption configuration is to be reloaded, and no file of it is given")
	}
	set, err := encryption.Load(s.encryptionConfig())
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config=%w", err)
	}
	set.Await(ctx)
	return set, nil
}

func (s *Server) encryptionConfig() encryption.Config {
	return encryption.Config{Path: s.Encryption.ProviderConfigFile, Log: s.logOf(logEncryption)}
}

// encryptionChecks are those that kube-apiserver has with KMS plugins or automatic reload.
func (s *Server) encryptionChecks(r *running) []httpapi.Check {
	var all []httpapi.Check
	if s.Encryption.AutomaticReload {
		all = append(all, httpapi.Check{Name: "poststarthook/start-encryption-provider-config-automatic-reload", Live: true, Probe: func() error { return nil }})
	}
	if s.At == 0 && (s.Encryption.AutomaticReload || r.sealed.UsesKMS()) {
		all = append(all, httpapi.Check{Name: "kms-providers", Healthz: true, Probe: r.sealed.Health})
	}
	return all
}

// encryptionMetrics has the metrics of kube-apiserver's reloads, and how much was encrypted.
func (r *running) encryptionMetrics() []httpapi.Metric {
	hash := r.sealed.ConfigHash()
	if hash == "" {
		return nil
	}
	sealed, opened, failed := r.sealed.Counts()
	const transformed, help = "tidemark_encryption_values_total", "Values that were encrypted (to_storage) and decrypted (from_storage), and those that could not be decrypted (failed)."
	kind := func(name string, n int64) httpapi.Metric {
		return httpapi.Metric{Name: transformed, Help: help, Counter: true, Labels: map[string]string{"transformation": name}, Value: float64(n)}
	}
	all := []httpapi.Metric{
		{
			Name: "apiserver_encryption_config_controller_last_config_info", Value: 1, Labels: map[string]string{"hash": hash},
			Help: "The encryption configuration in effect, by the hash of its file.",
		},
		kind("to_storage", sealed), kind("from_storage", opened), kind("failed", failed),
	}
	reloads := r.sealed.Reloads()
	for _, c := range []struct {
		status string
		n      int64
		last   time.Time
	}{{"success", reloads.Succeeded, reloads.LastSuccess}, {"failure", reloads.Failed, reloads.LastFailure}} {
		status := map[string]string{"status": c.status}
		all = append(all, httpapi.Metric{
			Name: "apiserver_encryption_config_controller_automatic_reloads_total", Counter: true, Labels: status, Value: float64(c.n),
			Help: "Reloads of the encryption configuration that succeeded or failed.",
		})
		if !c.last.IsZero() {
			all = append(all, httpapi.Metric{
				Name: "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds", Labels: status, Value: float64(c.last.UnixNano()) / 1e9,
				Help: "When the last reload of the encryption configuration succeeded or failed.",
			})
		}
	}
	return all
}
