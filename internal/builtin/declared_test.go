package builtin_test

import (
	"context"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

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
			code: field.ErrorList{field.Invalid(at, "a", "code"), field.Invalid(at, "b", "code"), field.Invalid(at, "a", "code")},
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
		for _, err := range declared.Join(context.Background(), c.code, c.o, c.old, "") {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%q, want\n%q", c.name, got, c.want)
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
	for _, err := range declared.Join(context.Background(), nil, k.New(), nil, subresource) {
		if err.Type == field.ErrorTypeInternal {
			t.Errorf("%s %q: %v", k.Kind, subresource, err)
		}
	}
}

// TestDeclaredCost: rules do not run for an object that has more errors than a response shows.
func TestDeclaredCost(t *testing.T) {
	role := &rbacv1.Role{Rules: make([]rbacv1.PolicyRule, 100_000)}
	k := builtin.Catalog().Lookup("rbac.authorization.k8s.io", "v1", "roles")
	errs := k.Strategy.Declared(context.Background(), k.Strategy.Validate(context.Background(), role), role, nil, "")
	distinct := map[*field.Error]bool{}
	for _, err := range errs {
		distinct[err] = true
	}
	if len(distinct) > 2*resource.MaxErrors {
		t.Errorf("%d errors were made", len(distinct))
	}
}
