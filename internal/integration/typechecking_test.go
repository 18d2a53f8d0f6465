package integration_test

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const validatingPolicies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

// TestManyTypeWarnings checks that the warnings of a policy that has many for many kinds are
// bounded. All of them would not fit into an object, and the check would be repeated for ever.
func TestManyTypeWarnings(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	var rules, validations []string
	for _, names := range []string{"pods services configmaps secrets endpoints events nodes namespaces limitranges", "persistentvolumes persistentvolumeclaims podtemplates replicationcontrollers resourcequotas serviceaccounts"} {
		rules = append(rules, rule("", "v1", strings.ReplaceAll(names, " ", `","`)))
	}
	for i := range 600 {
		validations = append(validations, fmt.Sprintf(`{"expression":"object.nope%d == 1 && object.more%d == 2 && object.others%d == '%s'"}`, i, i, i, strings.Repeat("x", 200)))
	}
	if code, b := post(t, c, validatingPolicies, `{"metadata":{"name":"many"},"spec":{"matchConstraints":{"resourceRules":[`+strings.Join(rules, ",")+`]},"validations":[`+strings.Join(validations, ",")+`]}}`); code != 201 {
		t.Fatalf("%d %.500s", code, b)
	}
	settle(t, c)
	p := object[admissionregistrationv1.ValidatingAdmissionPolicy](t, c, validatingPolicies+"/many")
	if p.Status.ObservedGeneration != 1 || p.Status.TypeChecking == nil {
		t.Fatalf("the status is %+v", p.Status)
	}
	size := 0
	for _, w := range p.Status.TypeChecking.ExpressionWarnings {
		size += len(w.Warning)
	}
	if size < 128<<10 || size > 512<<10 {
		t.Errorf("%d bytes of warnings", size)
	}
}

// TestTypeChecking checks the warnings in the status of policies.
func TestTypeChecking(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	if code, b := post(t, c, definitions, `{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"}}}}}}}]}}`); code != 201 {
		t.Fatalf("%d %s", code, b)
	}
	settle(t, c)
	deployments := rule("apps", "v1", "deployments")
	for i, test := range []struct {
		what, rules, spec string
		want              []string // "FIELD: a part of the warning"
	}{
		{"right", deployments, `"validations":[{"expression":"object.spec.replicas > 1 && object.metadata.name != 'x' && object.kind == 'Deployment'"}]`, nil},
		{"an undefined field", deployments, `"validations":[{"expression":"object.foo == 'bar'"}]`,
			[]string{"spec.validations[0].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'foo'\n | object.foo == 'bar'\n | ......^\n"}},
		{"another type", deployments, `"validations":[{"expression":"true"},{"expression":"object.spec.replicas == 'x'"}]`,
			[]string{"spec.validations[1].expression: found no matching overload for '_==_' applied to '(int, string)'"}},
		{"a message", deployments, `"validations":[{"expression":"object.foo == 'bar'","messageExpression":"object.foo + 'x'"}]`,
			[]string{"spec.validations[0].expression: undefined field 'foo'", "spec.validations[0].messageExpression: undefined field 'foo'"}},
		{"params", deployments, `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"object.metadata.name == params.bar"},{"expression":"params.data['a'] == 'b'"}]`,
			[]string{"spec.validations[0].expression: undefined field 'bar'"}},
		{"params of the same kind", rule("", "v1", "configmaps"), `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"object.data == params.data"}]`, nil},
		{"params of an unknown kind", deployments, `"paramKind":{"apiVersion":"nope.io/v1","kind":"Nope"},"validations":[{"expression":"params.bar == 'x'"}]`, nil},
		{"the authorizer", deployments, `"validations":[{"expression":"authorizer.group('').resource('endpoints').check('create').allowed()"}]`, nil},
		{"variables", deployments, `"variables":[{"name":"r","expression":"object.spec.replicas"},{"name":"s","expression":"object.spec.nope"}],"validations":[{"expression":"variables.r == 'x'"},{"expression":"variables.s == 'x'"}]`,
			[]string{"spec.validations[0].expression: found no matching overload"}},
		{"an unknown resource", rule("apps", "v1", "nopes"), `"validations":[{"expression":"object.foo == 'bar'"}]`, nil},
		{"a wildcard", rule("*", "v1", "deployments"), `"validations":[{"expression":"object.foo == 'bar'"}]`, nil},
		{"a subresource", rule("apps", "v1", "deployments/scale"), `"validations":[{"expression":"object.foo == 'bar'"}]`, nil},
		{"a custom resource", rule("example.com", "v1", "things"), `"validations":[{"expression":"object.spec.size > 1"},{"expression":"object.spec.sizes > 1"}]`,
			[]string{"spec.validations[1].expression: example.com/v1, Kind=Thing: ERROR: <input>:1:12: undefined field 'sizes'"}},
		{"several kinds", rule("apps", "v1", `statefulsets","deployments`), `"validations":[{"expression":"object.spec.serviceName == 'x'"},{"expression":"object.spec.x == 1"}]`,
			[]string{"spec.validations[0].expression: apps/v1, Kind=Deployment: ERROR", "spec.validations[1].expression: ...........^\n\napps/v1, Kind=StatefulSet: ERROR"}},
		{"a schema that contains itself", rule("apiextensions.k8s.io", "v1", "customresourcedefinitions"), `"validations":[{"expression":"object.spec.versions.all(v, v.schema.openAPIV3Schema.type == 'object')"}]`, nil},
		{"quantities and times", rule("", "v1", "pods"), `"validations":[{"expression":"object.spec.containers.all(c, c.resources.limits['cpu'] != c.image) && object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z') && object.spec.containers[0].ports[0].containerPort > 1"}]`, nil},
	} {
		name := fmt.Sprintf("p%d", i)
		if code, b := post(t, c, validatingPolicies, `{"metadata":{"name":"`+name+`"},"spec":{"matchConstraints":{"resourceRules":[`+test.rules+`]},`+test.spec+`}}`); code != 201 {
			t.Fatalf("%s: %d %s", test.what, code, b)
		}
		settle(t, c)
		p := object[admissionregistrationv1.ValidatingAdmissionPolicy](t, c, validatingPolicies+"/"+name)
		if p.Status.ObservedGeneration != 1 || p.Status.TypeChecking == nil {
			t.Fatalf("%s: the status is %+v", test.what, p.Status)
		}
		got := p.Status.TypeChecking.ExpressionWarnings
		if len(got) != len(test.want) {
			t.Errorf("%s: %+v", test.what, got)
			continue
		}
		for i, want := range test.want {
			field, words, _ := strings.Cut(want, ": ")
			if got[i].FieldRef != field || !strings.Contains(got[i].Warning, words) {
				t.Errorf("%s: %s: %s\nwant %s", test.what, got[i].FieldRef, got[i].Warning, want)
			}
		}
	}
	// A change of the spec is checked again, by the owner of the status.
	if code, _, b := exchange(t, c, "MERGE", validatingPolicies+"/p1", `{"spec":{"validations":[{"expression":"true"}]}}`); code != 200 {
		t.Fatalf("%d %s", code, b)
	}
	settle(t, c)
	p := object[admissionregistrationv1.ValidatingAdmissionPolicy](t, c, validatingPolicies+"/p1")
	if p.Status.ObservedGeneration != 2 || p.Status.TypeChecking != nil && len(p.Status.TypeChecking.ExpressionWarnings) != 0 {
		t.Errorf("after a change: %+v", p.Status)
	}
}

func rule(group, version, resource string) string {
	return `{"apiGroups":["` + group + `"],"apiVersions":["` + version + `"],"resources":["` + resource + `"],"operations":["CREATE"]}`
}
