package resource_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

func TestCatalog(t *testing.T) {
	pods := &resource.Type{
		Names:        resource.Names{Version: "v1", Resource: "pods", Kind: "Pod"},
		Verbs:        []string{"get", "list"},
		Subresources: []resource.Subresource{{Name: "log"}, {Name: "status"}},
	}
	v2 := &resource.Type{Names: resource.Names{Group: "example.com", Version: "v2", Resource: "foos", Kind: "Foo"}}
	v1 := &resource.Type{
		Names:      resource.Names{Group: "example.com", Version: "v1", Resource: "foos", Kind: "Foo"},
		Conversion: &resource.Conversion{Stored: v2},
	}
	c := resource.NewCatalog([]resource.Group{
		{Versions: []resource.Version{{Name: "v1", Types: []*resource.Type{pods}}}},
		{Name: "example.com", Versions: []resource.Version{
			{Name: "v2", Types: []*resource.Type{v2}},
			{Name: "v1", Types: []*resource.Type{v1}},
		}},
	})

	for _, x := range []struct {
		group, version, resource string
		want                     *resource.Type
	}{
		{"", "v1", "pods", pods},
		{"example.com", "v1", "foos", v1},
		{"example.com", "v2", "foos", v2},
		{"", "v1", "foos", nil},
		{"", "v2", "pods", nil},
		{"example.com", "v1", "pods", nil},
		{"", "v1", "pods/log", nil},
		{"", "", "", nil},
	} {
		if got := c.Lookup(x.group, x.version, x.resource); got != x.want {
			t.Errorf("Lookup(%q, %q, %q) = %v, want %v", x.group, x.version, x.resource, got, x.want)
		}
	}

	if g := c.Group("example.com"); g == nil || g.Versions[0].Name != "v2" {
		t.Errorf("Group(example.com) = %+v, want its preferred version first", g)
	}
	if g := c.Group(""); g == nil || g.Name != "" {
		t.Errorf("the core group is %+v", g)
	}
	if g := c.Group("nope"); g != nil {
		t.Errorf("Group(nope) = %+v", g)
	}
	if n := len(c.Groups()); n != 2 {
		t.Errorf("%d groups, want 2", n)
	}

	if !pods.Allows("list") || pods.Allows("watch") || pods.Allows("") {
		t.Error("Allows does not follow Verbs")
	}
	if s := pods.Subresource("status"); s != &pods.Subresources[1] {
		t.Errorf("Subresource(status) = %v", s)
	}
	if s := pods.Subresource(""); s != nil {
		t.Errorf("Subresource of no name = %v", s)
	}
	if got, want := v1.GroupVersionKind(), (schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Foo"}); got != want {
		t.Errorf("GroupVersionKind = %v, want %v", got, want)
	}
	if got := v1.GroupResource().String(); got != "foos.example.com" {
		t.Errorf("GroupResource = %s", got)
	}
}

func TestMetadata(t *testing.T) {
	s := resource.Labels | resource.Finalizers
	for _, c := range []struct {
		m    resource.MetadataFields
		want bool
	}{
		{resource.Labels, true},
		{resource.Finalizers, true},
		{resource.Labels | resource.Finalizers, true},
		{resource.Annotations, false},
		{resource.Labels | resource.Annotations, false},
		{0, true},
	} {
		if got := s.Has(c.m); got != c.want {
			t.Errorf("%b.Has(%b) = %v", s, c.m, got)
		}
	}
}
