package match

import (
	"context"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/series"
)

// Owner is the webhook or policy that conditions belong to.
type Owner struct {
	Kind string // "webhook" or "policy"
	Type string // "admit", "validate" or "validating", as the metrics of kube-apiserver have it
	Name string
	// Ignore is the failure policy: conditions that fail exclude the request. Otherwise they
	// refuse it.
	Ignore bool
	// Metrics counts; nil: nothing does.
	Metrics *Metrics
}

// Conditions are compiled match conditions. They are immutable, and safe for concurrent use.
type Conditions struct {
	owner       Owner
	programs    []*expression.Program
	composition *expression.Composition
}

// NewConditions compiles match conditions. Those of webhooks see the variable authorizer; v is for
// those of policies. One that does not compile fails for each request. Without conditions, the
// result is nil.
func NewConditions(o Owner, all []admissionregistrationv1.MatchCondition, v expression.Variables) *Conditions {
	if len(all) == 0 {
		return nil
	}
	c := &Conditions{owner: o, composition: v.Composited}
	for i := range all {
		p, _ := expression.Compile(all[i].Expression, v, expression.Stored, cel.BoolType)
		c.programs = append(c.programs, p)
	}
	return c
}

// Match reports whether all conditions hold. One that is false decides, even if others fail. The
// error is that of the conditions that fail; its text is for the client.
func (c *Conditions) Match(ctx context.Context, a *registry.Attributes, in *Input) (bool, error) {
	if c == nil {
		return true, nil
	}
	start := time.Now()
	e := expression.NewEvaluation(ctx, &in.conditions, c.composition, expression.MatchConditionsBudget)
	var errs []error
	for _, p := range c.programs {
		value, err := e.Eval(p)
		switch {
		case err == nil && value != types.False:
		case err == nil:
			c.failed(a, len(errs))
			return false, c.end(a, start, nil)
		case expression.Fatal(err):
			return false, c.end(a, start, err)
		default:
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return true, nil
	}
	c.failed(a, len(errs))
	return false, c.end(a, start, utilerrors.NewAggregate(errs))
}

// failed counts n conditions that fail.
func (c *Conditions) failed(a *registry.Attributes, n int) {
	for range n {
		c.owner.Metrics.failed(&c.owner, a)
	}
}

// end counts a request that does not match, and returns the error that refuses it.
func (c *Conditions) end(a *registry.Attributes, start time.Time, err error) error {
	c.owner.Metrics.took(&c.owner, a, time.Since(start))
	if err != nil && !c.owner.Ignore {
		return err
	}
	if c.owner.Kind == "webhook" {
		c.owner.Metrics.excluded(&c.owner, a)
	}
	return nil
}

// Metrics count match conditions. All webhooks and policies of a server share one.
type Metrics struct {
	errors, exclusions *series.Vector[prometheus.Counter]
	seconds            *series.Vector[prometheus.Observer]
}

// NewMetrics makes Metrics.
func NewMetrics() *Metrics {
	labels := []string{"name", "kind", "type", "operation"}
	const prefix = "apiserver_admission_match_condition_"
	return &Metrics{
		errors: series.Counters(prometheus.CounterOpts{
			Name: prefix + "evaluation_errors_total", Help: "Errors of match conditions of webhooks and policies."}, labels),
		exclusions: series.Counters(prometheus.CounterOpts{
			Name: prefix + "exclusions_total", Help: "Requests that a match condition kept from a webhook."}, labels),
		seconds: series.Histograms(prometheus.HistogramOpts{
			Name: prefix + "evaluation_seconds", Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25},
			Help: "Time to evaluate the match conditions of a webhook or policy, for requests that they exclude or refuse."}, labels),
	}
}

// Collectors returns the collectors of the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.errors, m.exclusions, m.seconds}
}

func (m *Metrics) failed(o *Owner, a *registry.Attributes) {
	if m != nil {
		m.errors.With(o.Name, o.Kind, o.Type, string(a.Operation)).Inc()
	}
}

func (m *Metrics) excluded(o *Owner, a *registry.Attributes) {
	if m != nil {
		phase := o.Type
		if phase == "validating" { // kube-apiserver has another word in this metric
			phase = "validate"
		}
		m.exclusions.With(o.Name, o.Kind, phase, string(a.Operation)).Inc()
	}
}

func (m *Metrics) took(o *Owner, a *registry.Attributes, d time.Duration) {
	if m != nil {
		m.seconds.With(o.Name, o.Kind, o.Type, string(a.Operation)).Observe(d.Seconds())
	}
}
