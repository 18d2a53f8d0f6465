package admission

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/admission/policy"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/mutating"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/validating"
)

// Metrics count the decisions of plugins. Make them with NewMetrics. Webhooks have metrics of their
// own.
type Metrics struct {
	// Conditions count the match conditions of webhooks and policies.
	Conditions *match.Metrics
	validating *policy.Metrics
	mutating   *policy.Metrics
	security   *securityMetrics
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	return &Metrics{match.NewMetrics(), validating.NewMetrics(), mutating.NewMetrics(), newSecurityMetrics()}
}

// Collectors returns the collectors of the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return slices.Concat(m.Conditions.Collectors(), m.validating.Collectors(), m.mutating.Collectors(), m.security.collectors())
}
