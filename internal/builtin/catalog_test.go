package builtin_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// every is how testdata writes the eight verbs that most kinds have.
const every = "create,delete,deletecollection,get,list,patch,update,watch"

func lines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// TestResources compares the discovered resources and their order with those of kube-apiserver
// v1.36.3 in testdata/resources.txt.
func TestResources(t *testing.T) {
	var got []string
	for x := range shared().Types() {
		scope, verbs := "cluster", strings.Join(x.Verbs, ",")
		if x.Namespaced {
			scope = "namespaced"
		}
		if verbs == every {
			verbs = "every"
		}
		line := []string{x.GroupVersion().String(), x.Resource, x.Singular, x.Kind, scope, verbs}
		if len(x.ShortNames) > 0 {
			line = append(line, "short="+strings.Join(x.ShortNames, ","))
		}
		if len(x.Categories) > 0 {
			line = append(line, "in="+strings.Join(x.Categories, ","))
		}
		got = append(got, strings.Join(line, " "))
		for _, s := range x.Subresources {
			kind := s.Kind.Kind
			if s.Kind.GroupVersion() != x.GroupVersion() {
				kind = s.Kind.GroupVersion().String() + "/" + kind
			}
			got = append(got, fmt.Sprintf("  /%s %s %s", s.Name, kind, strings.Join(s.Verbs, ",")))
		}
	}
	if d := cmp.Diff(got, lines(t, "testdata/resources.txt")); d != "" {
		t.Errorf("resources (-got +want):\n%s", d)
	}
}

// TestRules compares the rules for updates and deletions of each kind with those of kube-apiserver
// v1.36.3 in testdata/rules.txt. All versions of a resource follow the same rules.
func TestRules(t *testing.T) {
	want := map[string]string{}
	for _, l := range lines(t, "testdata/rules.txt") {
		name, rules, _ := strings.Cut(l, " ")
		want[name] = rules
	}
	for x := range builtin.Catalog().Types() {
		if x.Collection == "" {
			continue
		}
		var got []string
		for _, r := range []struct {
			name string
			set  bool
		}{
			{"create-on-update", x.Strategy.AllowCreateOnUpdate},
			{"unconditional", x.Strategy.AllowUnconditionalUpdate},
			{"generation", x.Strategy.Generation.Initial != 0},
			{"counts-labels", x.Strategy.Generation.CountMetadata.Has(resource.Labels)},
			{"counts-annotations", x.Strategy.Generation.CountMetadata.Has(resource.Annotations)},
			{"keeps-labels", x.Strategy.Status.Fixed.Has(resource.Labels)},
			{"keeps-annotations", x.Strategy.Status.Fixed.Has(resource.Annotations)},
			{"keeps-finalizers", x.Strategy.Status.Fixed.Has(resource.Finalizers)},
			{"keeps-ownerReferences", x.Strategy.Status.Fixed.Has(resource.OwnerReferences)},
			{"returns-object", x.Strategy.Deletion.ReturnsObject},
		} {
			if r.set {
				got = append(got, r.name)
			}
		}
		w, ok := want[x.Collection]
		if !ok {
			t.Errorf("%s: no facts in testdata", x.Collection)
		}
		if g := strings.Join(got, " "); g != w {
			t.Errorf("%s %s:\n got %s\nwant %s", x.GroupVersion(), x.Resource, g, w)
		}
	}
}

// TestShape checks each type for the fields that the other packages rely on.
func TestShape(t *testing.T) {
	collections := map[string]*resource.Type{}
	for x := range builtin.Catalog().Types() {
		name := x.GroupVersion().String() + " " + x.Resource
		if x.Strategy.Metadata.ValidateName == nil {
			t.Errorf("%s: no ValidateName", name)
		}
		if !slices.IsSorted(x.Verbs) {
			t.Errorf("%s: verbs %v are not sorted", name, x.Verbs)
		}
		if !slices.IsSortedFunc(x.Subresources, func(a, b resource.Subresource) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: subresources are not sorted", name)
		}
		for _, s := range x.Subresources {
			if !slices.IsSorted(s.Verbs) {
				t.Errorf("%s/%s: verbs %v are not sorted", name, s.Name, s.Verbs)
			}
		}
		if x.Display.FieldError != "" {
			if s := fmt.Sprintf(x.Display.FieldError, "LABEL"); !strings.Contains(s, "LABEL") || strings.Contains(s, "%!") {
				t.Errorf("%s: FieldError %q does not take one string", name, x.Display.FieldError)
			}
		}
		if (x.Display.FieldError == "") != (len(x.Display.Fields) == 0) {
			t.Errorf("%s: a kind has fields of its own and words for others, or neither", name)
		}
		if x.Strategy.Generation.CountMetadata != 0 && !x.Strategy.Generation.CountChanges {
			t.Errorf("%s: CountMetadata without CountChanges", name)
		}
		if x.Strategy.Status.Fixed != 0 && x.Subresource("status") == nil {
			t.Errorf("%s: fixed metadata without a status subresource", name)
		}
		if stored := x.Collection != ""; stored != x.Allows("watch") && x.Group != "tidemark.dev" {
			t.Errorf("%s: stored: %v, can be watched: %v", name, stored, x.Allows("watch"))
		}
		if got := builtin.Catalog().Lookup(x.Group, x.Version, x.Resource); got != x {
			t.Errorf("%s: Lookup gives %v", name, got)
		}
		checkStored(t, name, x, collections)
	}
}

// checkStored checks that the types with one collection have one stored version, and that the
// others convert to it.
func checkStored(t *testing.T, name string, x *resource.Type, collections map[string]*resource.Type) {
	if x.Collection == "" {
		return
	}
	stored := x.StoredVersion()
	if c := x.Conversion; c != nil {
		if c.ToStored == nil || c.FromStored == nil {
			t.Errorf("%s: Stored without conversions", name)
		}
		if stored.Collection != x.Collection || stored.Conversion != nil {
			t.Errorf("%s: its stored type is %+v", name, stored.GroupVersionKind())
		}
		if builtin.Catalog().Lookup(stored.Group, stored.Version, stored.Resource) != stored {
			t.Errorf("%s: its stored type is not in the catalog", name)
		}
	}
	if first := collections[x.Collection]; first != nil && first != stored {
		t.Errorf("%s: %s is stored as %s and as %s", name, x.Collection, first.GroupVersion(), stored.GroupVersion())
	}
	collections[x.Collection] = stored
}

// TestNew: every kind makes empty objects of its own, each time a new one.
func TestNew(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgo.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for x := range shared().Types() {
		want := x.GroupVersionKind()
		o := x.New()
		kinds, _, err := scheme.ObjectKinds(o)
		if err != nil || !slices.Contains(kinds, want) {
			t.Errorf("%s: New gives a %T, which is %v (%v)", want, o, kinds, err)
		}
		if x.New() == o {
			t.Errorf("%s: New gives the same object twice", want)
		}
	}
}

// TestFields: every path of a selectable field is that of a string, number or
// boolean in the stored version.
func TestFields(t *testing.T) {
	for x := range builtin.Catalog().Types() {
		stored := x.StoredVersion()
		for _, f := range x.Display.Fields {
			paths := f.Paths
			if paths == nil {
				paths = [][]string{strings.Split(f.Name, ".")}
			}
			for _, p := range paths {
				leaf, err := fieldAt(reflect.TypeOf(stored.New()), p)
				if err != nil {
					t.Errorf("%s, field %s: %v", x.GroupVersionKind(), f.Name, err)
					continue
				}
				var zero string
				switch leaf.Kind() {
				case reflect.String:
				case reflect.Bool:
					zero = "false"
				case reflect.Int32, reflect.Int64:
					zero = "0"
				default:
					t.Errorf("%s, field %s: %s cannot be selected by", x.GroupVersionKind(), f.Name, leaf)
				}
				if zero != "" && f.Default != zero {
					t.Errorf("%s, field %s: default %q, want %q", x.GroupVersionKind(), f.Name, f.Default, zero)
				}
			}
		}
	}
}

// fieldAt follows the names of JSON members into a type.
func fieldAt(t reflect.Type, path []string) (reflect.Type, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(path) == 0 {
		return t, nil
	}
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s has no member %q", t, path[0])
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == path[0] {
			return fieldAt(f.Type, path[1:])
		}
		if name == "" && strings.Contains(options, "inline") {
			if leaf, err := fieldAt(f.Type, path); err == nil {
				return leaf, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has no member %q", t, path[0])
}

func TestDeprecated(t *testing.T) {
	want := map[string]string{
		"endpoints":         "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		"componentstatuses": "v1 ComponentStatus is deprecated in v1.19+",
	}
	for x := range builtin.Catalog().Types() {
		if x.Deprecated != want[x.Resource] {
			t.Errorf("%s: %q, want %q", x.Resource, x.Deprecated, want[x.Resource])
		}
	}
}

func TestCatalogIsShared(t *testing.T) {
	if a, b := builtin.Catalog(), builtin.Catalog(); a != b {
		t.Error("two calls made two catalogs")
	}
}
