package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	ar "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/series"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// onlyLists allows the verb list, and counts the checks.
type onlyLists struct{ checks []authz.Attributes }

func (o *onlyLists) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	o.checks = append(o.checks, *a)
	if a.Verb == "list" {
		return authz.Allow, "lists are allowed", nil
	}
	return authz.NoOpinion, "no", nil
}

// creating calls see with the attributes of the create of a ConfigMap.
func creating(t *testing.T, see func(ctx context.Context, a *registry.Attributes)) {
	t.Helper()
	s, err := stores.Open(context.Background(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	seen := false
	r := &registry.Registry{Store: s, Plugins: []registry.Plugin{{Validate: func(ctx context.Context, a *registry.Attributes) error {
		if a.Type.Resource == "configmaps" {
			seen = true
			see(ctx, a)
		}
		return nil
	}}}}
	create := func(resource, namespace, body string) {
		o := registry.WriteOptions{By: &authn.User{Name: "jane", Groups: []string{"devs"}, Extra: map[string][]string{"k": {"v"}}}}
		target := registry.Target{Type: typeOf(t, "", "v1", resource), Namespace: namespace}
		if _, err := r.Create(context.Background(), target, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, o); err != nil {
			t.Fatal(err)
		}
	}
	create("namespaces", "", `{"metadata":{"name":"n","labels":{"team":"a"}}}`)
	create("configmaps", "n", `{"metadata":{"name":"c","labels":{"x":"y"}},"data":{"k":"v"}}`)
	if !seen {
		t.Fatal("the plugin was not called")
	}
}

func conditions(o match.Owner, texts ...string) *match.Conditions {
	var all []ar.MatchCondition
	for i, text := range texts {
		all = append(all, ar.MatchCondition{Name: fmt.Sprint(i), Expression: text})
	}
	return match.NewConditions(o, all, expression.Variables{Authorizer: true})
}

func TestConditions(t *testing.T) {
	tests := []struct {
		texts []string
		want  string // true, false or the error
	}{
		{[]string{"object.data.k == 'v' && oldObject == null"}, "true"},
		{[]string{"object.metadata.name == 'c' && object.kind == 'ConfigMap' && object.apiVersion == 'v1'"}, "true"},
		{[]string{"request.userInfo.username == 'jane' && 'devs' in request.userInfo.groups && request.userInfo.extra.k == ['v']"}, "true"},
		{[]string{"request.operation == 'CREATE' && request.name == 'c' && request.namespace == 'n' && !request.dryRun"}, "true"},
		{[]string{"request.kind.kind == 'ConfigMap' && request.requestResource.resource == 'configmaps' && request.kind == request.requestKind"}, "true"},
		{[]string{"request.options.kind == 'CreateOptions'"}, "true"},
		{[]string{"namespaceObject == null"}, "true"},
		{[]string{"authorizer.group('').resource('pods').namespace('n').check('list').allowed()"}, "true"},
		{[]string{"authorizer.requestResource.check('get').allowed()"}, "false"},
		{[]string{"authorizer.requestResource.check('list').reason() == 'lists are allowed'"}, "true"},
		{[]string{"true", "object.nope == 1", "false"}, "false"},
		{[]string{"object.nope == 1", "true"}, "expression 'object.nope == 1' resulted in error: no such key: nope"},
		{[]string{"object.a == 1", "object.b == 1"}, "[expression 'object.a == 1' resulted in error: no such key: a, expression 'object.b == 1' resulted in error: no such key: b]"},
		{[]string{"object."}, "compilation error: compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.'"},
	}
	creating(t, func(ctx context.Context, a *registry.Attributes) {
		v, err := a.In(ctx, a.Forms()[0])
		if err != nil {
			t.Fatal(err)
		}
		in := match.NewInput(ctx, a, v, &onlyLists{})
		for _, test := range tests {
			ok, err := conditions(match.Owner{Kind: "webhook"}, test.texts...).Match(ctx, a, in)
			got := fmt.Sprint(ok)
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, test.want) {
				t.Errorf("%q: got %s, want %s", test.texts, got, test.want)
			}
		}
		if in.Namespace == nil {
			t.Error("there is no namespaceObject")
		}
		e := expression.NewEvaluation(ctx, &in.Input, nil, expression.Budget)
		p, _ := expression.Compile("namespaceObject.metadata.labels.team == 'a' && namespaceObject.metadata.name == 'n'", expression.Variables{}, expression.Stored)
		if value, err := e.Eval(p); err != nil || value.Value() != true {
			t.Errorf("namespaceObject: got %v, %v", value, err)
		}
	})
}

func TestConditionsFailurePolicyAndMetrics(t *testing.T) {
	creating(t, func(ctx context.Context, a *registry.Attributes) {
		v, err := a.In(ctx, a.Forms()[0])
		if err != nil {
			t.Fatal(err)
		}
		in, m := match.NewInput(ctx, a, v, nil), match.NewMetrics()
		o := match.Owner{Kind: "webhook", Type: "validating", Name: "w", Metrics: m, Ignore: true}
		if ok, err := conditions(o, "object.nope == 1").Match(ctx, a, in); ok || err != nil {
			t.Errorf("got %v, %v, want that a failing condition excludes the request", ok, err)
		}
		if ok, err := conditions(o, "true").Match(ctx, a, in); !ok || err != nil {
			t.Errorf("got %v, %v, want true", ok, err)
		}
		if ok, err := conditions(o, "object.nope == 1", "false", "object.nope == 2").Match(ctx, a, in); ok || err != nil {
			t.Errorf("got %v, %v, want that a false condition excludes the request", ok, err)
		}
		want := strings.NewReader(`
# HELP apiserver_admission_match_condition_evaluation_errors_total Errors of match conditions of webhooks and policies.
# TYPE apiserver_admission_match_condition_evaluation_errors_total counter
apiserver_admission_match_condition_evaluation_errors_total{kind="webhook",name="w",operation="CREATE",type="validating"} 2
`)
		if err := testutil.CollectAndCompare(m.Collectors()[0], want); err != nil {
			t.Error(err)
		}
		want = strings.NewReader(`
# HELP apiserver_admission_match_condition_exclusions_total Requests that a match condition kept from a webhook.
# TYPE apiserver_admission_match_condition_exclusions_total counter
apiserver_admission_match_condition_exclusions_total{kind="webhook",name="w",operation="CREATE",type="validate"} 2
`)
		if err := testutil.CollectAndCompare(m.Collectors()[1], want); err != nil {
			t.Error(err)
		}
	})
}

// TestManyOwners: clients that create webhooks and policies with new names again and again do not let the
// metrics grow.
func TestManyOwners(t *testing.T) {
	creating(t, func(ctx context.Context, a *registry.Attributes) {
		v, err := a.In(ctx, a.Forms()[0])
		if err != nil {
			t.Fatal(err)
		}
		in, m := match.NewInput(ctx, a, v, nil), match.NewMetrics()
		for i := range 2 * series.Most {
			o := match.Owner{Kind: "webhook", Type: "validating", Name: fmt.Sprint("w", i), Metrics: m, Ignore: true}
			if ok, err := conditions(o, "object.nope == 1").Match(ctx, a, in); ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		for _, c := range m.Collectors() {
			if n := testutil.CollectAndCount(c); n == 0 || n > series.Most {
				t.Errorf("%d series", n)
			}
		}
	})
}

func TestChecksAreRemembered(t *testing.T) {
	creating(t, func(ctx context.Context, a *registry.Attributes) {
		v, err := a.In(ctx, a.Forms()[0])
		if err != nil {
			t.Fatal(err)
		}
		az := &onlyLists{}
		in := match.NewInput(ctx, a, v, az)
		const text = "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=n').labelSelector('a in (b,c)').check('list').allowed()"
		c := conditions(match.Owner{Kind: "webhook"}, text, text+" && true", "authorizer.serviceAccount('n', 'robot').path('/x').check('get').allowed() || true")
		if ok, err := c.Match(ctx, a, in); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if len(az.checks) != 2 {
			t.Fatalf("the authorizer was asked %d times, want 2", len(az.checks))
		}
		if got := az.checks[0]; got.User.Name != "jane" || got.FieldSelector != "spec.nodeName=n" || got.LabelSelector != "a in (b,c)" || got.Version != "*" {
			t.Errorf("got %+v", got)
		}
		if got := az.checks[1]; got.User.Name != "system:serviceaccount:n:robot" || got.Path != "/x" || got.IsResource || len(got.User.Groups) == 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// busy is an authorizer that is too busy with other requests to decide.
type busy struct{}

func (busy) Authorize(context.Context, *authz.Attributes) (authz.Decision, string, error) {
	return authz.Deny, "", fmt.Errorf("the webhook: %w", authz.ErrBusy)
}

// TestBusyConditions checks that a request is rejected if the authorizer is too busy to decide,
// whatever the conditions and the failure policy are. Otherwise allowed() is false, and could
// disable a webhook or a policy.
func TestBusyConditions(t *testing.T) {
	const check = "authorizer.group('').resource('pods').check('list')"
	for _, text := range []string{check + ".allowed()", "!" + check + ".allowed()", check + ".errored()", check + ".reason() == 'x' || " + check + ".allowed()"} {
		creating(t, func(ctx context.Context, a *registry.Attributes) {
			v, err := a.Lean(ctx, a.Forms()[0])
			if err != nil {
				t.Fatal(err)
			}
			in := match.NewInput(ctx, a, v, busy{})
			_, err = conditions(match.Owner{Ignore: true}, text).Match(ctx, a, in)
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			if err := in.Undecided(false); !apierrors.IsTooManyRequests(err) {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
}
