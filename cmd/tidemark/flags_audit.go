package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark"
)

// auditFlags are the flags of the audit log that a Server has in another form: there zero means
// the default.
type auditFlags struct {
	maxAge, maxBackups, maxSize int
	logVersion, webhookVersion  string
	throttleLog, throttleHook   bool
	logQPS, hookQPS             float32
}

const auditVersion = "audit.k8s.io/v1"

// registerAudit registers the flags of the audit log.
func (f *serveFlags) registerAudit(flags *pflag.FlagSet) {
	a, own := &f.server.Audit, &f.audit
	flags.StringVar(&a.PolicyFile, "audit-policy-file", "", "file with the audit policy; without one, nothing is recorded")

	l := &a.Log
	flags.StringVar(&l.Path, "audit-log-path", "", "file to write audit events to; - is the standard output")
	flags.IntVar(&own.maxAge, "audit-log-maxage", 366, "days to keep old audit log files, by the time in their names; 0 is forever")
	flags.IntVar(&own.maxBackups, "audit-log-maxbackup", 100, "old audit log files to keep; 0 is all")
	flags.IntVar(&own.maxSize, "audit-log-maxsize", 100, "size in MiB from which on an audit log file is renamed and a new one begun; 0 is never")
	flags.BoolVar(&l.Compress, "audit-log-compress", false, "compress old audit log files with gzip")
	flags.StringVar(&l.Format, "audit-log-format", "json", "format of the audit log: json, or legacy for a line of text for each event")
	flags.StringVar(&own.logVersion, "audit-log-version", auditVersion, "API version of the events in the audit log; there is one")
	registerAuditBackend(flags, "log", &l.Mode, "blocking", &l.Batch, &l.Truncate)
	flags.IntVar(&l.Batch.MaxSize, "audit-log-batch-max-size", 1, "events in a batch, with the mode batch; a batch of 1 is written together with others that wait")
	flags.BoolVar(&own.throttleLog, "audit-log-batch-throttle-enable", false, "limit the batches per second, with the mode batch")
	flags.Float32Var(&own.logQPS, "audit-log-batch-throttle-qps", 0, "batches per second on average, with the mode batch")
	flags.IntVar(&l.Batch.ThrottleBurst, "audit-log-batch-throttle-burst", 0, "batches at once after a pause, with the mode batch")
	flags.DurationVar(&l.Batch.MaxWait, "audit-log-batch-max-wait", 0, "time that an event waits for more events, with the mode batch")

	w := &a.Webhook
	flags.StringVar(&w.ConfigFile, "audit-webhook-config-file", "", "kubeconfig that names the server to send audit events to")
	flags.DurationVar(&w.InitialBackoff, "audit-webhook-initial-backoff", defaultAuditBackoff, "time before the second attempt to send audit events; later ones wait longer")
	flags.DurationVar(&w.InitialBackoff, "audit-webhook-batch-initial-backoff", defaultAuditBackoff, "old name of --audit-webhook-initial-backoff")
	flags.StringVar(&own.webhookVersion, "audit-webhook-version", auditVersion, "API version of the events that are sent; there is one")
	registerAuditBackend(flags, "webhook", &w.Mode, "batch", &w.Batch, &w.Truncate)
	flags.IntVar(&w.Batch.MaxSize, "audit-webhook-batch-max-size", 400, "events in a batch, with the mode batch")
	flags.BoolVar(&own.throttleHook, "audit-webhook-batch-throttle-enable", true, "limit the batches per second, with the mode batch")
	flags.Float32Var(&own.hookQPS, "audit-webhook-batch-throttle-qps", 10, "batches per second on average, with the mode batch")
	flags.IntVar(&w.Batch.ThrottleBurst, "audit-webhook-batch-throttle-burst", 15, "batches at once after a pause, with the mode batch")
	flags.DurationVar(&w.Batch.MaxWait, "audit-webhook-batch-max-wait", defaultAuditWait, "time that an event waits for more events, with the mode batch")
}

// registerAuditBackend registers the flags whose defaults both back ends share.
func registerAuditBackend(flags *pflag.FlagSet, name string, mode *string, byDefault string, b *tidemark.AuditBatch, t *tidemark.AuditTruncate) {
	prefix := "audit-" + name + "-"
	flags.StringVar(mode, prefix+"mode", byDefault, "when audit events are written: batch (later, in a goroutine), blocking (before the request continues), blocking-strict (the request is refused if its first event cannot be written)")
	flags.IntVar(&b.BufferSize, prefix+"batch-buffer-size", 10_000, "audit events that wait at most, with the mode batch; further ones are dropped and counted")
	flags.BoolVar(&t.Enabled, prefix+"truncate-enabled", false, "remove the objects of audit events that are too large, and drop events that still are")
	flags.Int64Var(&t.MaxBatchSize, prefix+"truncate-max-batch-size", 10<<20, "bytes of a batch of audit events")
	flags.Int64Var(&t.MaxEventSize, prefix+"truncate-max-event-size", 100<<10, "bytes of an audit event")
}

// checkAudit reports invalid values, and copies the others to the server.
func (f *serveFlags) checkAudit() error {
	own, l, w := &f.audit, &f.server.Audit.Log, &f.server.Audit.Webhook
	for _, n := range []struct {
		flag  string
		value int
		to    *int
	}{{"audit-log-maxage", own.maxAge, &l.MaxAge}, {"audit-log-maxbackup", own.maxBackups, &l.MaxBackups}, {"audit-log-maxsize", own.maxSize, &l.MaxSize}} {
		if n.value < 0 {
			return fmt.Errorf("--%s %v can't be a negative number", n.flag, n.value)
		}
		if *n.to = n.value; n.value == 0 {
			*n.to = -1
		}
	}
	if own.logVersion != auditVersion || own.webhookVersion != auditVersion {
		return fmt.Errorf("invalid group version, allowed versions are [%q]", auditVersion)
	}
	l.Batch.Throttle, l.Batch.ThrottleQPS = own.throttleLog, float64(own.logQPS)
	w.Batch.NoThrottle, w.Batch.ThrottleQPS = !own.throttleHook, float64(own.hookQPS)
	// In a Server, zero is the default. Here it is a value like any other, which is refused.
	for _, n := range []*int{&l.Batch.BufferSize, &l.Batch.MaxSize, &w.Batch.BufferSize, &w.Batch.MaxSize, &w.Batch.ThrottleBurst} {
		if *n == 0 {
			*n = -1
		}
	}
	for _, n := range []*int64{&l.Truncate.MaxEventSize, &l.Truncate.MaxBatchSize, &w.Truncate.MaxEventSize, &w.Truncate.MaxBatchSize} {
		if *n == 0 {
			*n = -1
		}
	}
	if w.Batch.ThrottleQPS == 0 {
		w.Batch.ThrottleQPS = -1
	}
	return f.server.Audit.Check()
}
