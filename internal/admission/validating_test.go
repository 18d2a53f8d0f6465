package admission_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-dev/tidemark/internal/admission/policy"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/policytest"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/validating"
	"github.com/tidemark-dev/tidemark/internal/builtin"
)

const (
	validatingPolicies = "validatingadmissionpolicies.admissionregistration.k8s.io"
	validatingBindings = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
)

// installValidating stores a policy with a binding, both named p.
func installValidating(t *testing.T, s *policytest.Server, spec, actions string) {
	t.Helper()
	s.Must(t, validatingPolicies, "", `{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},`+spec+`}}`)
	s.Must(t, validatingBindings, "", fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":[%s]}}`, actions))
}

func TestPolicyDecisions(t *testing.T) {
	s := policytest.New(t, validating.Plugin(policy.Config{Catalog: builtin.Catalog}))
	const denied = `configmaps "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: `
	for _, test := range []struct {
		name, spec, actions string
		code                int32  // 0: the request is admitted
		message             string // of the denial, or the warning
	}{
		{"admit", `"validations":[{"expression":"object.data.k == 'v'"}]`, `"Deny"`, 0, ""},
		{"deny", `"validations":[{"expression":"object.data.k != 'v'"}]`, `"Deny"`, 422, denied + "failed expression: object.data.k != 'v'"},
		{"message", `"validations":[{"expression":"false","message":" m "}]`, `"Deny"`, 422, denied + "m"},
		{"messageExpression", `"validations":[{"expression":"false","message":"m","messageExpression":"'got ' + object.data.k"}]`, `"Deny"`, 422, denied + "got v"},
		{"messageExpression that fails", `"validations":[{"expression":"false","message":"m","messageExpression":"string(object.data.nope)"}]`, `"Deny"`, 422, denied + "m"},
		{"reason", `"validations":[{"expression":"false","message":"m","reason":"Forbidden"}]`, `"Deny"`, 403, denied + "m"},
		{"the first one counts", `"validations":[{"expression":"true"},{"expression":"false","message":"one"},{"expression":"false","message":"two"}]`, `"Deny"`, 422, denied + "one"},
		{"error", `"validations":[{"expression":"object.data.nope == 'v'"}]`, `"Deny"`, 422, denied + "expression 'object.data.nope == 'v'' resulted in error: no such key: nope"},
		{"ignored error", `"failurePolicy":"Ignore","validations":[{"expression":"object.data.nope == 'v'"}]`, `"Deny"`, 0, ""},
		{"variables", `"variables":[{"name":"k","expression":"object.data.k"}],"validations":[{"expression":"variables.k == 'x'","message":"m"}]`, `"Deny"`, 422, denied + "m"},
		{"match condition", `"matchConditions":[{"name":"c","expression":"object.data.k == 'x'"}],"validations":[{"expression":"false"}]`, `"Deny"`, 0, ""},
		{"warn", `"validations":[{"expression":"false","message":"m"}]`, `"Warn"`, 0, "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': m"},
	} {
		t.Run(test.name, func(t *testing.T) {
			installValidating(t, s, test.spec, test.actions)
			defer s.Delete(t, validatingPolicies, "p")
			defer s.Delete(t, validatingBindings, "p")
			got, err := s.DryRun("configmaps", `{"metadata":{"name":"c"},"data":{"k":"v"}}`)
			if test.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if want := test.message; strings.Join(got.Warnings, ", ") != want {
					t.Errorf("got warnings %q, want %q", got.Warnings, want)
				}
				return
			}
			if status := policytest.Status(t, err); status.Code != test.code || status.Message != test.message {
				t.Errorf("got %d %s\nwant %d %s", status.Code, status.Message, test.code, test.message)
			}
		})
	}
}

func TestPolicyAudit(t *testing.T) {
	m := validating.NewMetrics()
	s := policytest.New(t, validating.Plugin(policy.Config{Catalog: builtin.Catalog, Metrics: m}))
	installValidating(t, s, `"validations":[{"expression":"false","message":"m"}],"auditAnnotations":[{"key":"a","valueExpression":"'k is ' + object.data.k"}]`, `"Audit"`)
	got, err := s.DryRun("configmaps", `{"metadata":{"name":"c"},"data":{"k":"v"}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"p/a": "k is v",
		"validation.policy.admission.k8s.io/validation_failure": `[{"message":"m","policy":"p","binding":"p","expressionIndex":0,"validationActions":["Audit"]}]`,
	}
	for key, value := range want {
		if got.Annotations[key] != value {
			t.Errorf("%s: got %s, want %s", key, got.Annotations[key], value)
		}
	}
	text := "# HELP apiserver_validating_admission_policy_check_total Validations that failed, by policy, binding and action.\n# TYPE apiserver_validating_admission_policy_check_total counter\n" +
		`apiserver_validating_admission_policy_check_total{enforcement_action="audit",error_type="invalid_error",policy="p",policy_binding="p"} 1` + "\n"
	if err := testutil.CollectAndCompare(m.Collectors()[0], strings.NewReader(text)); err != nil {
		t.Error(err)
	}
}

// TestPolicyAuditOfMany: the audit event has each failed validation, up to 50.
func TestPolicyAuditOfMany(t *testing.T) {
	for _, n := range []int{2, 60} {
		s := policytest.New(t, validating.Plugin(policy.Config{Catalog: builtin.Catalog}))
		installValidating(t, s, `"validations":[`+strings.TrimSuffix(strings.Repeat(`{"expression":"false","message":"m"},`, n), ",")+`]`, `"Audit"`)
		got, err := s.DryRun("configmaps", `{"metadata":{"name":"c"}}`)
		if err != nil {
			t.Fatal(err)
		}
		var failures []struct{ ExpressionIndex int }
		if err := json.Unmarshal([]byte(got.Annotations["validation.policy.admission.k8s.io/validation_failure"]), &failures); err != nil {
			t.Fatal(err)
		}
		if len(failures) != min(n, 50) || failures[len(failures)-1].ExpressionIndex != min(n, 50)-1 {
			t.Errorf("%d validations: the event has %v", n, failures)
		}
	}
}

func TestAnnotationThatFailsDenies(t *testing.T) {
	s := policytest.New(t, validating.Plugin(policy.Config{Catalog: builtin.Catalog}))
	installValidating(t, s, `"auditAnnotations":[{"key":"a","valueExpression":"string(object.data.nope)"}]`, `"Warn"`)
	_, err := s.DryRun("configmaps", `{"metadata":{"name":"c"},"data":{"k":"v"}}`)
	status := policytest.Status(t, err)
	if want := "string(object.data.nope)' resulted in error: no such key: nope"; status.Code != http.StatusUnprocessableEntity || !strings.HasSuffix(status.Message, want) {
		t.Errorf("got %d %s, want %d and a message that ends with %s", status.Code, status.Message, http.StatusUnprocessableEntity, want)
	}
}
