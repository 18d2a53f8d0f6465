package admission_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/policy"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/policytest"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// recorder is a plugin that notes the policies which apply to creates of ConfigMaps.
type recorder struct {
	policies *policy.Policies[int]
	compiled int
	seen     []string // of the last create
	params   []map[string]any
}

func newRecorder() *recorder {
	r := &recorder{}
	r.policies = policy.New(policy.Kind[int]{Policies: validatingPolicies, Bindings: validatingBindings, Catalog: builtin.Catalog,
		Policy: func(o *store.Object) (policy.Definition, func() int, error) {
			v, err := registry.Decode[admissionregistrationv1.ValidatingAdmissionPolicy](o)
			if err != nil {
				return policy.Definition{}, nil, err
			}
			return policy.Definition{Name: v.Name, ParamKind: v.Spec.ParamKind, Constraints: v.Spec.MatchConstraints}, func() int { r.compiled++; return r.compiled }, nil
		},
		Binding: func(o *store.Object) (*policy.Binding, error) {
			v, err := registry.Decode[admissionregistrationv1.ValidatingAdmissionPolicyBinding](o)
			if err == nil && v.Name == "unreadable" {
				err = errors.New("it is damaged")
			}
			if err != nil {
				return nil, err
			}
			return &policy.Binding{Name: v.Name, Policy: v.Spec.PolicyName, Params: v.Spec.ParamRef, Resources: v.Spec.MatchResources}, nil
		},
	})
	return r
}

func (r *recorder) plugin() registry.Plugin {
	return registry.Plugin{Handles: r.policies.Handles, Validate: func(ctx context.Context, a *registry.Attributes) error {
		if a.Type.Resource != "configmaps" {
			return errors.New("a policy matches " + a.Type.Resource)
		}
		for i, err := range r.policies.Each(ctx, a) {
			text := i.Policy.Name
			if i.Binding != nil {
				text += "/" + i.Binding.Name
			}
			params, wrong := i.Param.Value(ctx)
			if of, ok := params.(map[string]any); ok {
				r.params = append(r.params, of)
				if data, _ := of["data"].(map[string]any); len(data) < 10 {
					text += fmt.Sprint(" ", data)
				}
			}
			if err = cmp.Or(err, wrong); err != nil {
				text += ": " + err.Error()
			} else {
				i.Policy.Compiled()
			}
			r.seen = append(r.seen, text)
		}
		return nil
	}}
}

// create returns the policies and bindings that apply to the create of a ConfigMap.
func (r *recorder) create(t *testing.T, s *policytest.Server, body string) []string {
	t.Helper()
	r.seen = nil
	if _, err := s.DryRun("configmaps", body); err != nil {
		t.Fatal(err)
	}
	return r.seen
}

func document(name, spec string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE"],"resources":["configmaps","validatingadmissionpolicies"]}]},
		"validations":[{"expression":"true"}]%s}}`, name, spec)
}

func binding(name, of, spec string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"policyName":%q,"validationActions":["Deny"]%s}}`, name, of, spec)
}

func TestPoliciesApplyWithTheNextRequest(t *testing.T) {
	r := newRecorder()
	s := policytest.New(t, r.plugin())
	check := func(want ...string) {
		t.Helper()
		if got := r.create(t, s, `{"metadata":{"name":"c","labels":{"a":"b"}}}`); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check()
	s.Must(t, validatingPolicies, "", document("p2", ""))
	check() // it has no binding
	s.Must(t, validatingBindings, "", binding("b2", "p2", ""))
	s.Must(t, validatingBindings, "", binding("b1", "p2", ""))
	check("p2/b1", "p2/b2")
	s.Must(t, validatingPolicies, "", document("p1", ""))
	s.Must(t, validatingBindings, "", binding("a", "p1", `,"matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}`))
	s.Must(t, validatingBindings, "", binding("z", "p1", `,"matchResources":{"objectSelector":{"matchLabels":{"a":"c"}}}`))
	check("p1/a", "p2/b1", "p2/b2")
	if r.compiled != 2 {
		t.Errorf("policies were compiled %d times, want once each", r.compiled)
	}
	s.Delete(t, validatingBindings, "b2")
	check("p1/a", "p2/b1")
	s.Delete(t, validatingPolicies, "p1")
	check("p2/b1")
	s.Must(t, validatingBindings, "", binding("unreadable", "p2", ""))
	check("p2/b1", "unreadable: failed to configure policy: the binding unreadable cannot be read: it is damaged")
}

func TestPolicyParams(t *testing.T) {
	r := newRecorder()
	s := policytest.New(t, r.plugin())
	for i, label := range []string{"x", "x", "y"} {
		s.Must(t, "configmaps", "n", fmt.Sprintf(`{"metadata":{"name":"c%d","labels":{"l":%q}},"data":{"k":"%d"}}`, i, label, i))
	}
	s.Must(t, validatingPolicies, "", document("p", `,"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}`))
	s.Must(t, validatingPolicies, "", document("q", `,"paramKind":{"apiVersion":"v1","kind":"Nope"}`))
	s.Must(t, validatingBindings, "", binding("q", "q", ""))
	for _, test := range []struct{ ref, want string }{
		{`"name":"c1","parameterNotFoundAction":"Deny"`, "p/b map[k:1]"},
		{`"name":"c1","namespace":"n","parameterNotFoundAction":"Deny"`, "p/b map[k:1]"},
		{`"name":"c1","namespace":"default","parameterNotFoundAction":"Allow"`, ""},
		{`"name":"c9","parameterNotFoundAction":"Deny"`, "p/b: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"},
		{`"selector":{"matchLabels":{"l":"x"}},"parameterNotFoundAction":"Deny"`, "p/b map[k:0], p/b map[k:1]"},
		{`"selector":{"matchLabels":{"l":"z"}},"parameterNotFoundAction":"Allow"`, ""},
	} {
		s.Must(t, validatingBindings, "", binding("b", "p", `,"paramRef":{`+test.ref+`}`))
		want := "q: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope'"
		if test.want != "" {
			want = test.want + ", " + want
		}
		if got := strings.Join(r.create(t, s, `{"metadata":{"name":"c"}}`), ", "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", test.ref, got, want)
		}
		s.Delete(t, validatingBindings, "b")
	}
}

func TestPolicyMetrics(t *testing.T) {
	m := policy.NewMetrics(policy.MetricsOptions{Prefix: "x_", ChecksHelp: "Checks.", SecondsHelp: "Seconds.", Labels: []string{"action"}})
	m.Observe(policy.Check{Policy: "p", Binding: "b", ErrorType: policy.NoError, Labels: []string{"deny"}, Took: time.Second})
	(*policy.Metrics)(nil).Observe(policy.Check{})
	want := "# HELP x_check_total Checks.\n# TYPE x_check_total counter\n" + `x_check_total{action="deny",error_type="no_error",policy="p",policy_binding="b"} 1` + "\n"
	if err := testutil.CollectAndCompare(m.Collectors()[0], strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(m.Collectors()[1]); n != 1 {
		t.Errorf("%d histograms, want 1", n)
	}
}

func TestPolicyErrorType(t *testing.T) {
	for text, want := range map[string]string{
		"compilation error: compilation failed: x":                                                     "compile_error",
		"validation failed due to running out of cost budget, no further validation rules will be run": "out_of_budget",
		"expression 'x' resulted in error: no such key: x":                                             "invalid_error",
	} {
		if got := policy.ErrorType(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// TestManyParams checks which values of params are remembered: small ones, but not more than 32 MiB of them.
func TestManyParams(t *testing.T) {
	r := newRecorder()
	s := policytest.New(t, r.plugin())
	remembered := func() int {
		r.params = nil
		r.create(t, s, `{"metadata":{"name":"c"}}`)
		first := r.params
		r.params = nil
		r.create(t, s, `{"metadata":{"name":"c"}}`)
		n := 0
		for i := range first {
			if reflect.ValueOf(first[i]).Pointer() == reflect.ValueOf(r.params[i]).Pointer() {
				n++
			}
		}
		return n
	}
	data := func(keys int) string {
		var b strings.Builder
		for i := range keys {
			fmt.Fprintf(&b, `"%d":"",`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	s.Must(t, "configmaps", "n", `{"metadata":{"name":"small"}}`)
	s.Must(t, "configmaps", "n", `{"metadata":{"name":"large"},"data":{`+data(90_000)+`}}`)
	s.Must(t, validatingPolicies, "", document("p", `,"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}`))
	s.Must(t, validatingBindings, "", binding("b", "p", `,"paramRef":{"namespace":"n","selector":{},"parameterNotFoundAction":"Deny"}`))
	if n := remembered(); n != 1 || len(r.params) != 2 {
		t.Errorf("%d of %d values are remembered, want the small one", n, len(r.params))
	}
	s.Delete(t, validatingBindings, "b")
	for i := range 11 {
		s.Must(t, "configmaps", "n", fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{%s}}`, i, data(60_000)))
	}
	s.Must(t, validatingBindings, "", binding("b", "p", `,"paramRef":{"namespace":"n","selector":{},"parameterNotFoundAction":"Deny"}`))
	if n := remembered(); n > 10 || len(r.params) != 13 {
		t.Errorf("%d of %d values of 3 MiB are remembered", n, len(r.params))
	}
}
