package admission_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-dev/tidemark/internal/admission/policy"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/mutating"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/policytest"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

const (
	mutatingPolicies = "mutatingadmissionpolicies.admissionregistration.k8s.io"
	mutatingBindings = "mutatingadmissionpolicybindings.admissionregistration.k8s.io"
)

// installMutating stores a policy for ConfigMaps with a binding, both of one name.
func installMutating(t testing.TB, s *policytest.Server, name, spec string) {
	t.Helper()
	s.Must(t, mutatingPolicies, "", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},%s}}`, name, spec))
	s.Must(t, mutatingBindings, "", fmt.Sprintf(`{"metadata":{"name":%[1]q},"spec":{"policyName":%[1]q}}`, name))
}

// apply and patch return the specs of policies with one mutation.
func apply(expression string) string {
	return fmt.Sprintf(`"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":%s}}]`, quoted(expression))
}

func patch(operations string) string {
	return fmt.Sprintf(`"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":%s}}]`, quoted("["+operations+"]"))
}

func quoted(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // cannot happen: a string
	}
	return b.String()
}

// data returns the data of a stored ConfigMap as JSON.
func data(t *testing.T, o registry.Object) string {
	t.Helper()
	var c struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(o.Stored.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	return string(c.Data)
}

func TestMutations(t *testing.T) {
	s := policytest.New(t, mutating.Plugin(policy.Config{Catalog: builtin.Catalog}))
	const denied = "policy 'p' with binding 'p' denied request: "
	for _, test := range []struct {
		name, spec string
		want       string // the data, or the message of the error
	}{
		{"apply", apply("Object{data: {'a': object.data.k + '!'}}"), `{"a":"v!","k":"v"}`},
		{"apply nothing", apply("Object{}"), `{"k":"v"}`},
		{"apply an unknown field", apply("Object{nope: 'a'}"), denied + "error applying patch: failed to convert patch object to typed object: .nope: field not declared in schema"},
		{"apply a list that a function made", apply("Object{metadata: Object.metadata{finalizers: 'a/b,c/d'.split(',')}}"), `{"k":"v"}`},
		{"apply labels", apply("Object{data: object.metadata.labels}"), `{"app":"x","k":"v"}`},
		{"add", patch("JSONPatch{op: 'add', path: '/data/a', value: object.data.k}"), `{"a":"v","k":"v"}`},
		{"remove", patch("JSONPatch{op: 'remove', path: '/data/k'}"), ``},
		{"test that fails", patch("JSONPatch{op: 'test', path: '/data/k', value: 'x'}, JSONPatch{op: 'remove', path: '/data'}"), `{"k":"v"}`},
		{"missing path", patch("JSONPatch{op: 'replace', path: '/nope/a', value: 'x'}"), denied + `JSON Patch: replace operation does not apply: doc is missing path: /nope/a: missing value`},
		{"error", apply("Object{data: {'a': object.data.nope}}"), denied + "expression 'Object{data: {'a': object.data.nope}}' resulted in error: no such key: nope"},
		{"ignored error", `"failurePolicy":"Ignore",` + apply("Object{data: {'a': object.data.nope}}"), `{"k":"v"}`},
		{"match condition", `"matchConditions":[{"name":"c","expression":"object.data.k == 'x'"}],` + apply("Object{data: {'a': 'b'}}"), `{"k":"v"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			installMutating(t, s, "p", test.spec)
			defer s.Delete(t, mutatingPolicies, "p")
			defer s.Delete(t, mutatingBindings, "p")
			o, err := s.DryRun("configmaps", `{"metadata":{"name":"c","labels":{"app":"x"}},"data":{"k":"v"}}`)
			got := ""
			if err != nil {
				got = policytest.Status(t, err).Message
			} else {
				got = data(t, o)
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestMutationOrder checks that policies apply in the order of their names, each to the result of
// the preceding ones.
func TestMutationOrder(t *testing.T) {
	m := mutating.NewMetrics()
	s := policytest.New(t, mutating.Plugin(policy.Config{Catalog: builtin.Catalog, Metrics: m}))
	installMutating(t, s, "b", apply("Object{data: {'k': object.data.k + 'b'}}"))
	installMutating(t, s, "a", apply("Object{data: {'k': object.data.k + 'a'}}"))
	o, err := s.DryRun("configmaps", `{"metadata":{"name":"c"},"data":{"k":"v"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := data(t, o), `{"k":"vab"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := testutil.CollectAndCount(m.Collectors()[0], "apiserver_mutating_admission_policy_check_total"); n != 2 {
		t.Errorf("%d counters, want one for each policy", n)
	}
}

// TestReinvocation checks that a policy is applied again to an object that a later policy changed.
func TestReinvocation(t *testing.T) {
	s := policytest.New(t, mutating.Plugin(policy.Config{Catalog: builtin.Catalog}))
	again := strings.Replace(apply("Object{data: {'copy': object.data.k}}"), "Never", "IfNeeded", 1)
	installMutating(t, s, "a", again)
	installMutating(t, s, "b", apply("Object{data: {'k': 'new'}}"))
	o, err := s.DryRun("configmaps", `{"metadata":{"name":"c"},"data":{"k":"v"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := data(t, o), `{"copy":"new","k":"new"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestGrownObjects: a request whose object a policy makes large waits for other large requests, as one with a large body
// does.
func TestGrownObjects(t *testing.T) {
	for _, test := range []struct {
		name, spec string
		large      bool
	}{
		{"patch", patch("JSONPatch{op: 'add', path: '/data/a', value: object.data.k + object.data.k}"), true},
		{"apply", apply("Object{data: {'a': object.data.k + object.data.k}}"), true},
		{"small patch", patch("JSONPatch{op: 'add', path: '/data/a', value: 'x'}"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := policytest.New(t, mutating.Plugin(policy.Config{Catalog: builtin.Catalog}))
				installMutating(t, s, "p", `"failurePolicy":"Ignore",`+test.spec)
				g := fairness.New(fairness.Config{Bytes: 64 << 20, Watches: 10, Large: 1})
				g.Configure([]fairness.Level{{Name: "l", Shares: 1, Queues: 16, HandSize: 1, QueueLength: 50}}, 100)
				other, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 1, Large: true})
				if err != nil {
					t.Fatal(err)
				}
				own, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 2, Write: true})
				if err != nil {
					t.Fatal(err)
				}
				body := `{"metadata":{"name":"c"},"data":{"k":"` + strings.Repeat("x", fairness.SeatBytes/2) + `"}}`
				done := make(chan error, 1)
				go func() {
					_, err := s.CreateWith(fairness.WithSeat(t.Context(), own), "configmaps", body)
					done <- err
				}()
				synctest.Wait()
				if waits := len(done) == 0; waits != test.large {
					t.Errorf("the write waits: %t, want %t", waits, test.large)
				}
				other.Release()
				if err := <-done; err != nil {
					t.Error(err)
				}
				own.Release()
			})
		})
	}
}

// FuzzMutations applies mutations to ConfigMaps. Whatever they do, the response is a ConfigMap with the
// name that was sent, or a Status that is no internal error of the server.
func FuzzMutations(f *testing.F) {
	for _, seed := range []struct {
		apply                  bool
		expression, key, value string
	}{
		{true, "Object{data: {'a': object.data[object.metadata.name]}}", "k", "v"},
		{true, "Object{metadata: Object.metadata{labels: object.data, finalizers: 'a,b'.split(',')}}", "k", "v"},
		{true, "object.data.k == '' ? Object{immutable: true} : Object{binaryData: {'x': b'abc'}}", "k", ""},
		{true, "Object{metadata: Object.metadata{name: 'other', ownerReferences: [Object.metadata.ownerReferences{uid: 'u', name: 'n'}]}}", "k", "v"},
		{false, "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey(object.data.k), value: 'x'}]", "k", "a/b~c"},
		{false, "[JSONPatch{op: 'copy', from: '/data', path: '/metadata/labels'}, JSONPatch{op: 'move', from: '/data/k', path: '/data/l'}]", "k", "v"},
		{false, "[JSONPatch{op: 'replace', path: '', value: {'kind': 'Secret'}}]", "k", "v"},
		{false, "[JSONPatch{op: 'add', path: '/metadata/finalizers/-', value: Object.spec{a: [1, 2]}}]", "k", "v"},
	} {
		f.Add(seed.apply, seed.expression, seed.key, seed.value)
	}
	f.Fuzz(func(t *testing.T, isApply bool, expression, key, value string) {
		spec := fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":%s}}]}}`, quoted(expression))
		if isApply {
			spec = strings.Replace(spec, `"patchType":"JSONPatch","jsonPatch"`, `"patchType":"ApplyConfiguration","applyConfiguration"`, 1)
		}
		s := policytest.New(t, mutating.Plugin(policy.Config{Catalog: builtin.Catalog}))
		if _, err := s.Create(mutatingPolicies, spec); err != nil {
			return // it does not compile
		}
		s.Must(t, mutatingBindings, "", `{"metadata":{"name":"p"},"spec":{"policyName":"p"}}`)
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "c"}, "data": map[string]string{"k": "v", key: value}})
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.DryRun("configmaps", string(body))
		if err != nil {
			if status := policytest.Status(t, err); status.Code < 400 || strings.Contains(status.Message, "runtime error") {
				t.Errorf("got %d %s", status.Code, status.Message)
			}
			return
		}
		var made struct {
			Metadata struct{ Name string }
		}
		if err := json.Unmarshal(o.Stored.Bytes(), &made); err != nil || made.Metadata.Name == "" {
			t.Errorf("the object is no ConfigMap: %v\n%s", err, o.Stored.Bytes())
		}
	})
}
