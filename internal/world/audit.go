package world

import (
	"fmt"

	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
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

// auditMetrics are the metrics of the audit log, by kube-apiserver's names.
func (p *process) auditMetrics() []httpapi.Metric {
	if p.audit == nil {
		return nil
	}
	c := p.audit.Counters()
	all := []httpapi.Metric{
		{Name: "apiserver_audit_event_total", Counter: true, Value: float64(c.Events), Help: "Audit events that were made for the back ends."},
		{Name: "apiserver_audit_requests_rejected_total", Counter: true, Value: float64(c.Rejected), Help: "Requests that were refused because their audit event could not be stored."},
	}
	for level, n := range c.Levels {
		all = append(all, httpapi.Metric{Name: "apiserver_audit_level_total", Counter: true, Value: float64(n), Labels: map[string]string{"level": level}, Help: "Requests, by the audit level that the policy gives them."})
	}
	for plugin, n := range c.Errors {
		all = append(all, httpapi.Metric{Name: "apiserver_audit_error_total", Counter: true, Value: float64(n), Labels: map[string]string{"plugin": plugin}, Help: "Audit events that were lost, by the part that lost them: log, webhook, buffered, truncate."})
	}
	return all
}
