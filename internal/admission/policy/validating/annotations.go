package validating

import (
	"encoding/json"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/policy"
)

const (
	// maxAnnotation bounds the value of an audit annotation for one binding and param, in bytes.
	maxAnnotation = 10 * 1024
	// maxAnnotations bounds all values of a policy for one request, in bytes. Further ones are left out.
	maxAnnotations = 256 * 1024
	// maxFailures bounds the failed validations in an audit event. Further ones are left out.
	maxFailures = 50
)

// annotation is the value of an audit annotation, or the error of its expression.
type annotation struct {
	key, value, err string
	took            time.Duration
}

// annotations are the values of a policy's audit annotations, for all of its bindings and params.
type annotations struct {
	seen   map[annotation]bool
	values map[string][]string // by key
	bytes  int
}

// annotate adds a value to the annotations of the policy. Equal values of several bindings and
// params count once.
func (r *request) annotate(a annotation) {
	if len(a.value) > maxAnnotation {
		a.value = a.value[:maxAnnotation]
	}
	all := r.annotations
	if all == nil {
		all = &annotations{seen: map[annotation]bool{}, values: map[string][]string{}}
		r.annotations = all
	}
	if !all.seen[a] && all.bytes+len(a.value) <= maxAnnotations {
		all.seen[a] = true
		all.bytes += len(a.value) + 1
		all.values[a.key] = append(all.values[a.key], a.value)
	}
}

// publish adds the annotations of an evaluated policy to the audit event.
func (r *request) publish(of *policy.Policy[*compiled]) {
	if r.annotations == nil {
		return
	}
	for key, values := range r.annotations.values {
		r.a.Annotate(of.Name+"/"+key, strings.Join(values, ", "))
	}
	r.annotations = nil
}

// failure is the form of a failed validation in an audit event.
type failure struct {
	Message         string                                     `json:"message"`
	Policy          string                                     `json:"policy"`
	Binding         string                                     `json:"binding"`
	ExpressionIndex int                                        `json:"expressionIndex"`
	Actions         []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// annotateFailure remembers a failed validation for the audit event.
func (r *request) annotateFailure(i *invocation, d *decision) {
	if len(r.failures) < maxFailures {
		r.failures = append(r.failures, failure{d.message, i.Policy.Name, i.Binding.Name, d.index, i.Binding.Actions})
	}
}

// publishFailures adds the failed validations of all policies to the audit event, in one value.
func (r *request) publishFailures() {
	if len(r.failures) == 0 {
		return
	}
	value, err := json.Marshal(r.failures)
	if err != nil {
		return // cannot happen: strings and integers
	}
	r.a.Annotate("validation.policy.admission.k8s.io/validation_failure", string(value))
}
