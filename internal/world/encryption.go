package world

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

// standIns selects the values that a start on a data directory replaces by stand-ins if they cannot be decrypted.
func (p *process) standIns() encryption.StandIns {
	if p.AllStandIns {
		return encryption.AllStandIns
	}
	return encryption.SomeStandIns
}

// encryption reads the configuration, and waits for its KMS plugins for a while. It comes before
// the log, which may take long to open.
func (p *process) encryption(ctx context.Context) (*encryption.Set, error) {
	set, err := encryption.Load(p.encryptionConfig())
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config=%w", err)
	}
	set.Await(ctx)
	return set, nil
}

func (p *process) encryptionConfig() encryption.Config {
	return encryption.Config{Path: p.Encryption.ProviderConfigFile, Log: p.logOf(logEncryption)}
}

// encryptionChecks are those that kube-apiserver has with KMS plugins or automatic reload.
func (p *process) encryptionChecks() []httpapi.Check {
	var all []httpapi.Check
	if p.Encryption.AutomaticReload {
		all = append(all, httpapi.Check{Name: "poststarthook/start-encryption-provider-config-automatic-reload", Live: true, Probe: func() error { return nil }})
	}
	if p.At == 0 && (p.Encryption.AutomaticReload || p.encrypted.UsesKMS()) {
		all = append(all, httpapi.Check{Name: "kms-providers", Healthz: true, Probe: p.encrypted.Health})
	}
	return all
}

// encryptionMetrics has the metrics of kube-apiserver's reloads, and how much was encrypted.
func (p *process) encryptionMetrics() []httpapi.Metric {
	hash := p.encrypted.ConfigHash()
	if hash == "" {
		return nil
	}
	encrypted, opened, failed := p.encrypted.Counts()
	const transformed, help = "tidemark_encryption_values_total", "Values that were encrypted (to_storage) and decrypted (from_storage), and those that could not be decrypted (failed)."
	kind := func(name string, n int64) httpapi.Metric {
		return httpapi.Metric{Name: transformed, Help: help, Counter: true, Labels: map[string]string{"transformation": name}, Value: float64(n)}
	}
	all := []httpapi.Metric{
		{
			Name: "apiserver_encryption_config_controller_last_config_info", Value: 1, Labels: map[string]string{"hash": hash},
			Help: "The encryption configuration in effect, by the hash of its file.",
		},
		kind("to_storage", encrypted), kind("from_storage", opened), kind("failed", failed),
	}
	reloads := p.encrypted.Reloads()
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
