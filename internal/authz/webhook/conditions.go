package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/interpreter"
	authorizationv1 "k8s.io/api/authorization/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tidemark-dev/tidemark/internal/celenv"
	"github.com/tidemark-dev/tidemark/internal/expression"
)

// maxConditions bounds the match conditions of a webhook.
const maxConditions = 64

// Conditions are compiled match conditions. They are immutable, and safe for concurrent use.
type Conditions struct{ all []condition }

type condition struct {
	text    string
	program *expression.Planned
}

// Compile compiles match conditions: CEL expressions of the variable request, the spec of a
// SubjectAccessReview. path is that of the webhook, for errors. Without expressions, the result is
// nil.
func Compile(path *field.Path, expressions []string) (*Conditions, field.ErrorList) {
	if len(expressions) == 0 {
		return nil, nil
	}
	if len(expressions) > maxConditions {
		return nil, field.ErrorList{field.TooMany(path.Child("matchConditions"), len(expressions), maxConditions)}
	}
	var errs field.ErrorList
	env, err := newEnvironment()
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path.Child("matchConditions"), err)}
	}
	planner := expression.NewPlanner(env)
	c, seen := &Conditions{}, map[string]bool{}
	for i, text := range expressions {
		path := path.Child("matchConditions").Index(i).Child("expression")
		switch {
		case strings.TrimSpace(text) == "":
			errs = append(errs, field.Required(path, ""))
			continue
		case seen[text]:
			errs = append(errs, field.Duplicate(path, text))
			continue
		}
		seen[text] = true
		program, err := compile(env, planner, text)
		if err != nil {
			errs = append(errs, field.Invalid(path, text, err.Error()))
			continue
		}
		c.all = append(c.all, condition{text, program})
	}
	return c, errs
}

func compile(env *cel.Env, planner *expression.Planner, text string) (*expression.Planned, error) {
	ast, _, issues := celenv.Compile(env, text, celenv.Deepest(requestType()))
	if issues != nil {
		return nil, fmt.Errorf("compilation failed: %s", celenv.Text(issues))
	}
	if ast.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("must evaluate to bool but got %v", ast.OutputType())
	}
	program, err := planner.Plan(ast)
	if err != nil {
		return nil, fmt.Errorf("program instantiation failed: %w", err)
	}
	return program, nil
}

// errTooExpensive means that the conditions cost too much for a request. That depends on the
// request, so the failure policy, which might bypass the authorizer, does not apply.
var errTooExpensive = errors.New("the match conditions cost too much for this request")

// match reports whether all conditions hold. One that is false decides, even if others fail. Conditions that exceed their
// costs, each or together, are errTooExpensive.
func (c *Conditions) match(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec, name string, m *Metrics) (ok bool, err error) {
	if c == nil {
		return true, nil
	}
	const kind = "Webhook"
	start := time.Now()
	defer func() {
		m.conditionTook.WithLabelValues(kind, name).Observe(time.Since(start).Seconds())
		if err != nil {
			m.conditionErrors.WithLabelValues(kind, name).Inc()
		}
	}()
	input, err := interpreter.NewActivation(map[string]any{"request": variable(spec)})
	if err != nil {
		return false, err
	}
	var errs []error
	budget := uint64(celconfig.RuntimeCELCostBudgetMatchConditions)
	for i := range c.all {
		value, cost, err := c.all[i].program.Eval(ctx, input)
		if canceled := new(interpreter.EvalCancelledError); errors.As(err, canceled) && canceled.Cause == interpreter.CostLimitExceeded {
			return false, errTooExpensive
		}
		if cost > budget {
			return false, errTooExpensive
		}
		budget -= cost
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cel evaluation error: expression '%v' resulted in error: %w", c.all[i].text, err))
			continue
		}
		if holds, isBool := value.Value().(bool); !isBool {
			errs = append(errs, fmt.Errorf("cel evaluation error: expression '%v' eval result value should be bool but got %v", c.all[i].text, value.Type()))
		} else if !holds {
			m.excluded.WithLabelValues(kind, name).Inc()
			return false, nil
		}
	}
	if len(errs) > 0 {
		return false, utilerrors.NewAggregate(errs)
	}
	return true, nil
}

// newEnvironment returns an environment with the variable request.
func newEnvironment() (*cel.Env, error) {
	request := requestType()
	set, err := celenv.Base().Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("request", request.CelType())},
		DeclTypes:         []*apiservercel.DeclType{request},
	})
	if err != nil {
		return nil, err
	}
	return set.Env(environment.StoredExpressions)
}

// requestType is the type of the variable request.
func requestType() *apiservercel.DeclType {
	object := func(name string, fields map[string]*apiservercel.DeclType) *apiservercel.DeclType {
		all := map[string]*apiservercel.DeclField{}
		for name, t := range fields {
			all[name] = apiservercel.NewDeclField(name, t, false, nil, nil)
		}
		return apiservercel.NewObjectType("kubernetes."+name, all)
	}
	text := apiservercel.StringType
	texts := apiservercel.NewListType(text, -1)
	requirement := object("SelectorRequirement", map[string]*apiservercel.DeclType{"key": text, "operator": text, "values": texts})
	selector := map[string]*apiservercel.DeclType{"rawSelector": text, "requirements": apiservercel.NewListType(requirement, -1)}
	return object("SubjectAccessReviewSpec", map[string]*apiservercel.DeclType{
		"user": text, "uid": text, "groups": texts, "extra": apiservercel.NewMapType(text, texts, -1),
		"resourceAttributes": object("ResourceAttributes", map[string]*apiservercel.DeclType{
			"namespace": text, "verb": text, "group": text, "version": text, "resource": text, "subresource": text, "name": text,
			"fieldSelector": object("FieldSelectorAttributes", selector),
			"labelSelector": object("LabelSelectorAttributes", selector),
		}),
		"nonResourceAttributes": object("NonResourceAttributes", map[string]*apiservercel.DeclType{"path": text, "verb": text}),
	})
}

// variable is the value of the variable request. Empty texts are there; selectors only if the
// request has them.
func variable(s *authorizationv1.SubjectAccessReviewSpec) map[string]any {
	extra := map[string][]string{}
	for name, values := range s.Extra {
		extra[name] = values
	}
	all := map[string]any{"user": s.User, "uid": s.UID, "groups": s.Groups, "extra": extra}
	if p := s.NonResourceAttributes; p != nil {
		all["nonResourceAttributes"] = map[string]string{"verb": p.Verb, "path": p.Path}
	}
	r := s.ResourceAttributes
	if r == nil {
		return all
	}
	resource := map[string]any{
		"namespace": r.Namespace, "verb": r.Verb, "group": r.Group, "version": r.Version,
		"resource": r.Resource, "subresource": r.Subresource, "name": r.Name,
	}
	requirement := func(key, operator string, values []string) map[string]any {
		return map[string]any{"key": key, "operator": operator, "values": values}
	}
	if r.FieldSelector != nil {
		var list []map[string]any
		for _, one := range r.FieldSelector.Requirements {
			list = append(list, requirement(one.Key, string(one.Operator), one.Values))
		}
		resource["fieldSelector"] = map[string]any{"requirements": list}
	}
	if r.LabelSelector != nil {
		var list []map[string]any
		for _, one := range r.LabelSelector.Requirements {
			list = append(list, requirement(one.Key, string(one.Operator), one.Values))
		}
		resource["labelSelector"] = map[string]any{"requirements": list}
	}
	all["resourceAttributes"] = resource
	return all
}
