package builtin_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// rules are those of the newest version.
var rules = declared.Rules{ScaleToZero: true}

// TestDeclared: errors of declared rules come after those of code, and take the place of those that say the same.
func TestDeclared(t *testing.T) {
	at := field.NewPath("spec")
	role := rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "a"}
	for _, c := range []struct {
		name   string
		code   field.ErrorList
		o, old runtime.Object
		want   []string
	}{
		{
			name: "a rule comes last, for the error of code",
			code: field.ErrorList{field.Required(at.Child("schedule"), "code"), field.Invalid(at.Child("timeZone"), "x", "code")},
			o:    &batchv1.CronJob{},
			want: []string{`spec.timeZone: Invalid value: "x": code`, "spec.schedule: Required value"},
		}, {
			name: "an error of code is reported once",
			code: field.ErrorList{field.Invalid(at, "a", "code"), field.Invalid(at, "b", "code"), field.Invalid(at, "a", "code"), field.Invalid(at, "b", "code")},
			o:    &corev1.ConfigMap{},
			want: []string{`spec: Invalid value: "a": code`, `spec: Invalid value: "b": code`},
		}, {
			name: "another fault of the same field stays",
			code: field.ErrorList{field.Invalid(field.NewPath("handler"), "b", "code")},
			o:    &nodev1.RuntimeClass{Handler: "b"}, old: &nodev1.RuntimeClass{Handler: "a"},
			want: []string{`handler: Invalid value: "b": code`, `handler: Invalid value: null: field is immutable`},
		}, {
			name: "an update that leaves a value is not checked",
			o:    &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, old: &batchv1.CronJob{},
		}, {
			name: "a rule that is not enforced ends the validation of its field",
			o:    &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role"}}, old: &rbacv1.RoleBinding{RoleRef: role},
		},
	} {
		var got []string
		for _, err := range rules.Join(context.Background(), c.code, c.o, c.old, "") {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%q, want\n%q", c.name, got, c.want)
		}
	}
}

// TestDeclaredWords: a fault that code and a rule find is reported once, in the words of the rule.
func TestDeclaredWords(t *testing.T) {
	const (
		driver = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'Example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
		key    = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
		values = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
		claim  = "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}\n"
		result = "status: {allocation: {devices: {results: [{request: r, driver: a.b, pool: p, device: d}]}}}\n"
		slice  = "spec: {driver: a.b, pool: {name: p, resourceSliceCount: 1}, allNodes: true, devices: [{name: d, attributes: {a: "
	)
	for _, c := range []struct {
		kind, subresource, o, old string
		want                      []string
	}{
		{"deviceclasses", "", `spec: {config: [{opaque: {driver: a b}}], extendedResourceName: x}`, "", []string{
			"spec.config[0].opaque.parameters: Required value",
			`spec.config[0].opaque.driver: Invalid value: "a b": ` + driver,
			`spec.extendedResourceName: Invalid value: "x": a name must be a domain-prefixed path, such as 'example.com/my-prop'`,
		}},
		{"deviceclasses", "", `spec: {extendedResourceName: ""}`, "", []string{
			`spec.extendedResourceName: Invalid value: "": a name must be a domain-prefixed path, such as 'example.com/my-prop'`,
			`spec.extendedResourceName: Invalid value: "": ` + key,
		}},
		{"deviceclasses", "", `spec: {extendedResourceName: requests.a/b}`, "spec: {}", []string{
			`spec.extendedResourceName: Invalid value: "requests.a/b": must not have "requests." prefix`,
		}},
		{"deviceclasses", "", `spec: {extendedResourceName: kubernetes.io/x}`, "", []string{
			`spec.extendedResourceName: Invalid value: "kubernetes.io/x": must not have "kubernetes.io/" domain`,
		}},
		{"resourceclaims", "status", claim + strings.Replace(result, "a.b", "a b", 1), claim, []string{
			`status.allocation.devices.results[0].driver: Invalid value: "a b": ` + driver,
		}},
		{"resourceclaims", "status", claim + strings.Replace(result, "pool: p", "pool: p/", 1), claim, []string{
			`status.allocation.devices.results[0].pool: Invalid value: "p/": segment 1: must not be empty`,
		}},
		{"resourceclaims", "status", claim + strings.Replace(result, "device: d", "device: d, shareID: x", 1), claim, []string{
			`status.allocation.devices.results[0].shareID: Invalid value: "x": must be a lowercase UUID in 8-4-4-4-12 format`,
		}},
		{"resourceclaims", "status", claim + strings.Replace(result, "device: d", "device: d, tolerations: [{key: k, operator: Exists, value: v}]", 1), claim, []string{
			"status.allocation.devices.results[0].tolerations[0].value: Invalid value: \"v\": must be empty for operator `Exists`",
		}},
		{"resourceclaims", "status", claim + strings.Replace(result, "device: d", "device: e", 1), claim + result, []string{
			"status.allocation: Invalid value: null: field cannot be modified once set",
		}},
		{"resourceclaims", "", "spec: {devices: {constraints: [{matchAttribute: /x}]}}", "", []string{
			`spec.devices.constraints[0].matchAttribute: Invalid value: "": prefix must not be empty`,
		}},
		{"resourceslices", "", slice + "{}}}]}", "", []string{
			`spec.devices[0].attributes[a]: Invalid value: "": must specify one of: ` + values,
		}},
		{"resourceslices", "", slice + "{int: 1, bool: true}}}]}", "", []string{
			`spec.devices[0].attributes[a]: Invalid value: "{int, bool}": must specify exactly one of: ` + values,
		}},
		{"runtimeclasses", "", "handler: " + strings.Repeat("x", 64), "", []string{
			`handler: Invalid value: "` + strings.Repeat("x", 64) + `": must be no more than 63 bytes`,
		}},
		{"certificatesigningrequests", "approval", `status: {conditions: [{type: Approved, status: "True"}, {type: Denied, status: "True"}]}`, "status: {}", []string{
			`status.conditions: Invalid value: "{conditions[{\"type\": \"Approved\"}], conditions[{\"type\": \"Denied\"}]}": must specify at most one of: ` + "`conditions[{\"type\": \"Approved\"}]`, `conditions[{\"type\": \"Denied\"}]`",
		}},
		{"volumeattachments", "", "spec: {attacher: a/b, nodeName: n, source: {persistentVolumeName: v}}", "", []string{
			`spec.attacher: Invalid value: "a/b": ` + driver,
		}},
	} {
		group := map[string]string{"runtimeclasses": "node.k8s.io", "volumeattachments": "storage.k8s.io", "certificatesigningrequests": "certificates.k8s.io"}[c.kind]
		if group == "" {
			group = "resource.k8s.io"
		}
		k := builtin.Catalog().Lookup(group, "v1", c.kind)
		object := func(text string) runtime.Object {
			if text == "" {
				return nil
			}
			o := k.New()
			if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
				t.Fatal(err)
			}
			return o
		}
		ctx, o, old := context.Background(), object(c.o), object(c.old)
		var errs field.ErrorList
		switch {
		case c.subresource != "":
			errs = k.Subresources[slices.IndexFunc(k.Subresources, func(s resource.Subresource) bool { return s.Name == c.subresource })].Validate(ctx, o, old)
		case old != nil:
			errs = k.Strategy.ValidateUpdate(ctx, o, old)
		default:
			errs = k.Strategy.Validate(ctx, o)
		}
		var got []string
		for _, err := range k.Strategy.Declared(ctx, errs, o, old, c.subresource) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %s: got\n%q, want\n%q", c.kind, c.o, got, c.want)
		}
	}
}

// TestDeclaredSubresources: each kind that has declared rules has them for the object and its status.
func TestDeclaredSubresources(t *testing.T) {
	for k := range builtin.Catalog().Types() {
		checkDeclared(t, k, "")
		for i := range k.Subresources {
			if name := k.Subresources[i].Name; name == "status" || name == "approval" {
				checkDeclared(t, k, name)
			}
		}
	}
}

func checkDeclared(t *testing.T, k *resource.Type, subresource string) {
	t.Helper()
	for _, err := range rules.Join(context.Background(), nil, k.New(), nil, subresource) {
		if err.Type == field.ErrorTypeInternal {
			t.Errorf("%s %q: %v", k.Kind, subresource, err)
		}
	}
}

// TestDeclaredCost: rules do not run for an object with more errors, or longer lists, than a response shows errors.
func TestDeclaredCost(t *testing.T) {
	conditions := make([]metav1.Condition, 30_000)
	for i := range conditions {
		conditions[i] = metav1.Condition{Type: "t" + strconv.Itoa(i), Status: "True", Reason: "R", LastTransitionTime: metav1.Unix(1, 0)}
	}
	rule := &resourcev1.DeviceTaintRule{}
	many := rule.DeepCopy()
	many.Status.Conditions = conditions
	empty := rule.DeepCopy()
	empty.Status.Conditions = make([]metav1.Condition, 1_000_000)
	for _, c := range []struct {
		group, version, resource string
		o, old                   runtime.Object
	}{
		{"rbac.authorization.k8s.io", "v1", "roles", &rbacv1.Role{Rules: make([]rbacv1.PolicyRule, 100_000)}, nil},
		{"discovery.k8s.io", "v1", "endpointslices", &discoveryv1.EndpointSlice{AddressType: "IPv4", Endpoints: make([]discoveryv1.Endpoint, 1_000_000)}, nil},
		{"resource.k8s.io", "v1", "devicetaintrules", many, rule},
		{"resource.k8s.io", "v1", "devicetaintrules", empty, rule},
	} {
		k := builtin.Catalog().Lookup(c.group, c.version, c.resource)
		var errs field.ErrorList
		if c.old == nil {
			errs = k.Strategy.Declared(context.Background(), k.Strategy.Validate(context.Background(), c.o), c.o, nil, "")
		} else {
			validate := k.Subresources[slices.IndexFunc(k.Subresources, func(s resource.Subresource) bool { return s.Name == "status" })].Validate
			errs = k.Strategy.Declared(context.Background(), validate(context.Background(), c.o, c.old), c.o, c.old, "status")
		}
		distinct := map[*field.Error]bool{}
		for _, err := range errs {
			distinct[err] = true
		}
		if len(errs) == 0 || len(distinct) > 2*resource.MaxErrors {
			t.Errorf("%s: %d errors were made", c.resource, len(distinct))
		}
	}
}
