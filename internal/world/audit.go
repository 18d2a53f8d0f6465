package world

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/exposition"
)

// openAudit opens the audit log, if requests are recorded.
func (p *process) openAudit() error {
	a, log := &p.Audit, p.logOf(logAudit)
	if a.PolicyFile == "" {
		if a.Log != nil || a.Webhook != nil {
			log.Warn("nothing is audited: there is no audit policy")
		}
		return nil
	}
	policy, err := audit.ReadPolicy(a.PolicyFile, log)
	if err != nil {
		return fmt.Errorf("loading audit policy file: %w", err)
	}
	if a.Log == nil && a.Webhook == nil {
		log.Warn("nothing is audited: there is an audit policy, and no file and no webhook to write events to")
		return nil
	}
	p.audit, err = audit.New(audit.Config{Policy: policy, Log: a.Log, Webhook: a.Webhook, Logger: log, Now: p.Now})
	return err
}

// closeAudit writes the events that wait, and closes the back ends.
func (p *process) closeAudit() error {
	if p.audit == nil {
		return nil
	}
	return p.audit.Close()
}

// exposeAudit writes the metrics of the audit log, by kube-apiserver's names.
func (p *process) exposeAudit(w *exposition.Writer) {
	if p.audit == nil {
		return
	}
	c := p.audit.Counters()
	w.Counter("apiserver_audit_event_total", float64(c.Events), "Audit events that were made for the back ends.")
	w.Counter("apiserver_audit_requests_rejected_total", float64(c.Rejected), "Requests that were refused because their audit event could not be stored.")
	w.Family("apiserver_audit_level_total", exposition.CounterKind, "Requests, by the audit level that the policy gives them.")
	for _, level := range slices.Sorted(maps.Keys(c.Levels)) {
		w.Float(exposition.Labels("level", level), float64(c.Levels[level]))
	}
	w.Family("apiserver_audit_error_total", exposition.CounterKind, "Audit events that were lost, by the part that lost them: log, webhook, buffered, truncate.")
	for _, plugin := range slices.Sorted(maps.Keys(c.Errors)) {
		w.Float(exposition.Labels("plugin", plugin), float64(c.Errors[plugin]))
	}
}
