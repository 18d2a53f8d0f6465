package world

import (
	"context"
	"fmt"

	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

// standIns selects the values that a start on a data directory replaces by stand-ins if they cannot be decrypted.
func (p *process) standIns() encryption.StandIns {
	if p.Kubernetes.WasSet(features.UnsafeDeletion) {
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

// exposeEncryption writes the metrics of kube-apiserver's reloads, and how much was encrypted.
func (p *process) exposeEncryption(w *exposition.Writer) {
	hash := p.encrypted.ConfigHash()
	if hash == "" {
		return
	}
	encrypted, opened, failed := p.encrypted.Counts()
	w.Family("apiserver_encryption_config_controller_last_config_info", exposition.GaugeKind,
		"The encryption configuration in effect, by the hash of its file.")
	w.Float(exposition.Labels("hash", hash), 1)
	w.Family("tidemark_encryption_values_total", exposition.CounterKind,
		"Values that were encrypted (to_storage) and decrypted (from_storage), and those that could not be decrypted (failed).")
	w.Uint(exposition.Labels("transformation", "failed"), uint64(failed))
	w.Uint(exposition.Labels("transformation", "from_storage"), uint64(opened))
	w.Uint(exposition.Labels("transformation", "to_storage"), uint64(encrypted))
	reloads := p.encrypted.Reloads()
	failure, success := exposition.Labels("status", "failure"), exposition.Labels("status", "success")
	w.Family("apiserver_encryption_config_controller_automatic_reloads_total", exposition.CounterKind,
		"Reloads of the encryption configuration that succeeded or failed.")
	w.Uint(failure, uint64(reloads.Failed))
	w.Uint(success, uint64(reloads.Succeeded))
	w.Family("apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds", exposition.GaugeKind,
		"When the last reload of the encryption configuration succeeded or failed.")
	if at := reloads.LastFailure; !at.IsZero() {
		w.Float(failure, float64(at.UnixNano())/1e9)
	}
	if at := reloads.LastSuccess; !at.IsZero() {
		w.Float(success, float64(at.UnixNano())/1e9)
	}
}
