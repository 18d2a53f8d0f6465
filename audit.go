package tidemark

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/world"
)

// Audit configures the audit log. Requests are recorded if there are a policy and a back end.
// docs/audit.md describes policies and events.
type Audit struct {
	// PolicyFile is a file with a Policy of audit.k8s.io/v1. It is read at the start. Empty: nothing is recorded.
	PolicyFile string
	// Log is the back end that writes a file. The zero value is none.
	Log AuditLog
	// Webhook is the back end that sends events to a server. The zero value is none.
	Webhook AuditWebhook
}

// AuditLog configures the audit log in a file.
type AuditLog struct {
	// Path is the file; "-": the standard output. Empty: there is no log.
	Path string
	// MaxAge is how many days an old file is kept; zero: 366. Negative: forever.
	MaxAge int
	// MaxBackups is how many old files are kept; zero: 100. Negative: all.
	MaxBackups int
	// MaxSize is the size in MiB from which on a file is renamed and a new one begun; zero: 100.
	// Negative: there is one file, which grows.
	MaxSize int
	// Compress compresses old files with gzip. False: they stay as they are.
	Compress bool
	// Format is "json" or "legacy", a line of text for each event; empty: "json".
	Format string
	// Mode is "batch", "blocking" or "blocking-strict"; empty: "blocking".
	Mode string
	// Batch counts in the mode batch. Its MaxSize of zero means 1, and it is not throttled
	// unless Throttle is true.
	Batch AuditBatch
	// Truncate limits the size of events. The zero value does not.
	Truncate AuditTruncate
}

// AuditWebhook configures the server that gets audit events.
type AuditWebhook struct {
	// ConfigFile is a kubeconfig that names the server. Empty: there is none.
	ConfigFile string
	// InitialBackoff is the time before the second attempt to send events; zero: 10 s.
	InitialBackoff time.Duration
	// Mode is "batch", "blocking" or "blocking-strict"; empty: "batch".
	Mode string
	// Batch counts in the mode batch.
	Batch AuditBatch
	// Truncate limits the size of events. The zero value does not.
	Truncate AuditTruncate
}

// AuditBatch configures the buffer of the mode batch.
type AuditBatch struct {
	// BufferSize is how many events wait at most, further ones are dropped and counted; zero:
	// 10,000.
	BufferSize int
	// MaxSize is how many events a batch has at most; zero: 400.
	MaxSize int
	// MaxWait is how long an event waits at most for more events; zero: 30 s for a webhook, no
	// time for a log.
	MaxWait time.Duration
	// Throttle limits the batches of a log. NoThrottle lifts the limit of a webhook.
	Throttle, NoThrottle bool
	// ThrottleQPS is the limit per second; zero: 10 for a webhook. A log needs a value.
	ThrottleQPS float64
	// ThrottleBurst is how many batches may be sent at once after a pause; zero: 15 for a
	// webhook. A log needs a value.
	ThrottleBurst int
}

// AuditTruncate limits the size of audit events.
type AuditTruncate struct {
	// Enabled removes the objects of events that are too large, and drops events that still are. False: events
	// have any size.
	Enabled bool
	// MaxEventSize is the limit of an event in bytes; zero: 102,400.
	MaxEventSize int64
	// MaxBatchSize is the limit of a batch in bytes; zero: 10 MiB.
	MaxBatchSize int64
}

const (
	mebibyte = 1 << 20
	day      = 24 * time.Hour

	defaultAuditBackoff = 10 * time.Second
)

func (a *Audit) config() world.Audit {
	c := world.Audit{PolicyFile: a.PolicyFile}
	if a.Log.Path != "" {
		c.Log = a.Log.config()
	}
	if a.Webhook.ConfigFile != "" {
		c.Webhook = a.Webhook.config()
	}
	return c
}

func (l *AuditLog) config() *audit.LogConfig {
	return &audit.LogConfig{
		Backend: audit.Backend{
			Mode: cmp.Or(audit.Mode(l.Mode), audit.Blocking), Truncate: l.Truncate.Enabled,
			MaxEventBytes: cmp.Or(l.Truncate.MaxEventSize, 100<<10), MaxBatchBytes: cmp.Or(l.Truncate.MaxBatchSize, 10*mebibyte),
			Batch: audit.BatchConfig{
				BufferSize: cmp.Or(l.Batch.BufferSize, 10_000), MaxSize: cmp.Or(l.Batch.MaxSize, 1), MaxWait: l.Batch.MaxWait,
				Throttle: l.Batch.Throttle, QPS: l.Batch.ThrottleQPS, Burst: l.Batch.ThrottleBurst,
			},
		},
		Path: l.Path, Legacy: l.Format == "legacy",
		File: audit.FileConfig{
			MaxBytes: int64(limit(l.MaxSize, 100)) * mebibyte, MaxAge: time.Duration(limit(l.MaxAge, 366)) * day,
			MaxBackups: limit(l.MaxBackups, 100), Compress: l.Compress,
		},
	}
}

func (w *AuditWebhook) config() *audit.WebhookConfig {
	return &audit.WebhookConfig{
		Backend: audit.Backend{
			Mode: cmp.Or(audit.Mode(w.Mode), audit.Batch), Truncate: w.Truncate.Enabled,
			MaxEventBytes: cmp.Or(w.Truncate.MaxEventSize, 100<<10), MaxBatchBytes: cmp.Or(w.Truncate.MaxBatchSize, 10*mebibyte),
			Batch: audit.BatchConfig{
				BufferSize: cmp.Or(w.Batch.BufferSize, 10_000), MaxSize: cmp.Or(w.Batch.MaxSize, 400), MaxWait: cmp.Or(w.Batch.MaxWait, 30*time.Second),
				Throttle: !w.Batch.NoThrottle, QPS: cmp.Or(w.Batch.ThrottleQPS, 10), Burst: cmp.Or(w.Batch.ThrottleBurst, 15),
			},
		},
		ConfigFile: w.ConfigFile, InitialBackoff: cmp.Or(w.InitialBackoff, defaultAuditBackoff),
	}
}

// limit returns a limit: zero, for no limit, if n is negative; otherwise n, or the default for a
// zero.
func limit(n, byDefault int) int { return max(0, cmp.Or(n, byDefault)) }

// Check returns an error for values that make no sense. It reads no file.
func (a *Audit) Check() error {
	if l := &a.Log; l.Path != "" {
		c := l.config()
		switch l.Format {
		case "", "json", "legacy":
		default:
			return fmt.Errorf("invalid audit log format %s, allowed formats are %q", l.Format, "legacy,json")
		}
		if err := checkAuditBackend("log", &c.Backend); err != nil {
			return err
		}
	}
	if a.Webhook.ConfigFile != "" {
		return checkAuditBackend("webhook", &a.Webhook.config().Backend)
	}
	return nil
}

// checkAuditBackend has the words of kube-apiserver.
func checkAuditBackend(name string, b *audit.Backend) error {
	switch b.Mode {
	case audit.Batch, audit.Blocking, audit.BlockingStrict:
	default:
		return fmt.Errorf("invalid audit %s mode %s, allowed modes are %q", name, b.Mode, "batch,blocking,blocking-strict")
	}
	c := &b.Batch
	switch batched := b.Mode == audit.Batch; {
	case batched && c.BufferSize <= 0:
		return fmt.Errorf("invalid audit batch %s buffer size %v, must be a positive number", name, c.BufferSize)
	case batched && c.MaxSize <= 0:
		return fmt.Errorf("invalid audit batch %s max batch size %v, must be a positive number", name, c.MaxSize)
	case batched && c.Throttle && c.QPS <= 0:
		return fmt.Errorf("invalid audit batch %s throttle QPS %v, must be a positive number", name, c.QPS)
	case batched && c.Throttle && c.Burst <= 0:
		return fmt.Errorf("invalid audit batch %s throttle burst %v, must be a positive number", name, c.Burst)
	case b.MaxEventBytes <= 0:
		return fmt.Errorf("invalid audit truncate %s max event size %v, must be a positive number", name, b.MaxEventBytes)
	case b.MaxBatchBytes < b.MaxEventBytes:
		return fmt.Errorf("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)", name, b.MaxBatchBytes, b.MaxEventBytes)
	}
	return nil
}
