package validating

import (
	"context"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// compiled is a compiled policy. It is immutable.
type compiled struct {
	ignore      bool // the failure policy
	composition *expression.Composition
	conditions  *match.Conditions
	validations []validation
	messages    bool // a validation has a message expression
	annotations []annotationExpression
}

type validation struct {
	program *expression.Program
	// messageProgram makes the message; nil: message, or else the expression, is the message.
	messageProgram *expression.Program
	message        string
	reason         metav1.StatusReason
}

type annotationExpression struct {
	key     string
	program *expression.Program
}

// compile compiles a policy. Expressions that do not compile fail when they are evaluated.
func compile(name string, s *admissionregistrationv1.ValidatingAdmissionPolicySpec, m *match.Metrics) *compiled {
	c := &compiled{ignore: s.FailurePolicy != nil && *s.FailurePolicy == admissionregistrationv1.Ignore}
	v := expression.Variables{Params: s.ParamKind != nil, Authorizer: true, Composited: new(expression.Composition)}
	for i := range s.Variables {
		v.Composited, _ = v.Composited.With(s.Variables[i].Name, s.Variables[i].Expression, v, expression.Stored)
	}
	c.composition = v.Composited
	owner := match.Owner{Kind: "policy", Type: "validate", Name: name, Ignore: c.ignore, Metrics: m}
	c.conditions = match.NewConditions(owner, s.MatchConditions, v)
	// Messages see no authorizer.
	messages := v
	messages.Authorizer = false
	for i := range s.Validations {
		c.validations = append(c.validations, compileValidation(&s.Validations[i], v, messages))
		c.messages = c.messages || s.Validations[i].MessageExpression != ""
	}
	for _, a := range s.AuditAnnotations {
		p, _ := expression.Compile(a.ValueExpression, v, expression.Stored, cel.StringType, cel.NullType)
		c.annotations = append(c.annotations, annotationExpression{a.Key, p})
	}
	return c
}

func compileValidation(s *admissionregistrationv1.Validation, v, messages expression.Variables) validation {
	one := validation{message: strings.TrimSpace(s.Message), reason: metav1.StatusReasonInvalid}
	one.program, _ = expression.Compile(s.Expression, v, expression.Stored, cel.BoolType)
	if s.Reason != nil {
		one.reason = *s.Reason
	}
	if one.message == "" {
		one.message = "failed expression: " + strings.TrimSpace(s.Expression)
	}
	if s.MessageExpression != "" {
		one.messageProgram, _ = expression.Compile(s.MessageExpression, messages, expression.Stored, cel.StringType)
	}
	return one
}

// result is the result of a policy. It has no decisions of validations that admit the request without an
// error.
type result struct {
	decisions   []decision
	annotations []annotation
}

// decision is the result of a validation that failed.
type decision struct {
	index    int // of the validation
	admitted bool
	failed   bool // an error, not false
	message  string
	reason   metav1.StatusReason
	// took is the time from the policy's first validation on: a clock read for each validation
	// would cost a fifth of it.
	took time.Duration
}

// evaluate evaluates the policy for an input.
func (c *compiled) evaluate(ctx context.Context, a *registry.Attributes, in *match.Input, r *result) {
	matches, err := c.conditions.Match(ctx, a, in)
	if err != nil {
		c.fail(r, err)
		return
	}
	if !matches {
		return
	}
	e := expression.NewEvaluation(ctx, &in.Input, c.composition, expression.Budget)
	denied, start := false, time.Now()
	for i := range c.validations {
		v := &c.validations[i]
		value, err := e.Eval(v.program)
		switch {
		case err == nil && value == types.True:
		case expression.Fatal(err):
			c.fail(r, err)
			return
		case err != nil:
			r.decisions = append(r.decisions, decision{index: i, admitted: c.ignore, failed: true, message: err.Error(), took: time.Since(start)})
		default:
			denied = true
			r.decisions = append(r.decisions, decision{index: i, message: v.message, reason: v.reason, took: time.Since(start)})
		}
	}
	if denied && c.messages {
		c.makeMessages(ctx, in, e.Budget(), r)
	}
	if len(c.annotations) > 0 {
		c.annotate(ctx, in, r)
	}
}

// fail makes an error the only decision.
func (c *compiled) fail(r *result, err error) {
	r.decisions = []decision{{admitted: c.ignore, failed: true, message: err.Error()}}
	r.annotations = nil
}

// makeMessages evaluates the message expressions within the budget that the validations left. It is called
// only for a denial, since nothing else shows a message.
func (c *compiled) makeMessages(ctx context.Context, in *match.Input, budget int64, r *result) {
	without := in.Input
	without.Authorizer, without.RequestResource = nil, nil
	e := expression.NewEvaluation(ctx, &without, c.composition, budget)
	made := make([]string, len(c.validations))
	for i := range c.validations {
		p := c.validations[i].messageProgram
		if p == nil {
			continue
		}
		value, err := e.Eval(p)
		switch {
		case expression.Fatal(err):
			c.failMessages(r, err)
			return
		case err == nil:
			made[i] = usable(value.Value())
		}
	}
	for i := range r.decisions {
		if d := &r.decisions[i]; !d.failed && made[d.index] != "" {
			d.message = made[d.index]
		}
	}
}

// failMessages turns every validation without an error into an error: the messages exceed the budget.
func (c *compiled) failMessages(r *result, err error) {
	failed := map[int]decision{}
	for _, d := range r.decisions {
		if d.failed {
			failed[d.index] = d
		}
	}
	r.decisions = r.decisions[:0]
	for i := range c.validations {
		d, ok := failed[i]
		if !ok {
			d = decision{index: i, admitted: c.ignore, failed: true, message: "failed messageExpression: " + err.Error()}
		}
		r.decisions = append(r.decisions, d)
	}
}

// usable returns the result of a message expression, empty if it is no message: blank, of several
// lines, or too long.
func usable(value any) string {
	text, _ := value.(string)
	text = strings.TrimSpace(text)
	if len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(text, "\n") {
		return ""
	}
	return text
}

// annotate evaluates the audit annotations, within a budget of their own. They cannot use the
// authorizer.
func (c *compiled) annotate(ctx context.Context, in *match.Input, r *result) {
	without := in.Input
	without.Authorizer, without.RequestResource = nil, nil
	e := expression.NewEvaluation(ctx, &without, c.composition, expression.Budget)
	for i := range c.annotations {
		start := time.Now()
		value, err := e.Eval(c.annotations[i].program)
		switch {
		case expression.Fatal(err):
			c.fail(r, err)
			return
		case err != nil && c.ignore:
		case err != nil:
			r.annotations = append(r.annotations, annotation{key: c.annotations[i].key, err: err.Error(), took: time.Since(start)})
		default:
			if text, ok := value.Value().(string); ok && strings.TrimSpace(text) != "" {
				r.annotations = append(r.annotations, annotation{key: c.annotations[i].key, value: strings.TrimSpace(text)})
			}
		}
	}
}
