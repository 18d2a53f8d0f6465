package crd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilversion "k8s.io/apimachinery/pkg/version"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// everyVerb is in the order in which kube-apiserver names those of custom resources.
var everyVerb = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}

var statusVerbs = []string{"get", "patch", "update"}

// parts access objects of the version. Without the subresource "status" the status is a
// part of the desired state. The stored version gives new objects their status.
func (v *version) parts() resource.Parts {
	p := resource.Parts{ClearStatus: clearStatus, CopyStatus: copyStatus, SameDesired: sameMembers}
	if !v.hasStatus() {
		return p
	}
	if p.SameDesired = sameButStatus; v.Storage {
		p.ClearStatus = v.newStatus
	}
	return p
}

// makeTypes makes the types of a definition: those of its served versions, and the one
// in which the server itself reaches its objects, whatever is served. Fresh: all that
// is stored was written in the stored version by the schema that it has now.
func (d *definition) makeTypes(fresh bool) (served []*resource.Type, own *resource.Type) {
	stored := d.storage()
	if stored == nil {
		return nil, nil
	}
	raw := d.newType(stored) // as it is stored
	all := make([]*resource.Type, 0, len(d.versions))
	for _, v := range d.versions {
		t := d.newType(v)
		all = append(all, t)
		if v != stored || !fresh {
			begin := v.begin()
			t.Conversion = &resource.Conversion{
				Stored: raw, ToStored: stored.take, FromStored: v.from, PerRequest: true,
				AlreadyCurrent: func(value []byte) bool { return v.alreadyCurrent(begin, value) },
			}
			if d.asks() {
				t.Conversion.FromStoredAll = v.fromAll
			}
		}
		if v.Served {
			served = append(served, t)
		}
		if v == stored {
			own = t
		}
	}
	if len(all) > 1 {
		for _, t := range all {
			t.Versions = all
		}
	}
	return served, own
}

// newType makes the type of a version, as if it were the stored one.
func (d *definition) newType(v *version) *resource.Type {
	names, spec := &d.head.Status.AcceptedNames, &d.head.Spec
	t := &resource.Type{
		Names: resource.Names{
			Group: spec.Group, Version: v.Name, Kind: names.Kind, ListKind: names.ListKind,
			Resource: names.Plural, Singular: names.Singular, ShortNames: names.ShortNames, Categories: names.Categories,
		},
		Namespaced: spec.Scope == apiextensionsv1.NamespaceScoped,
		Verbs:      everyVerb,
		Deprecated: d.deprecation(v),
		Collection: names.Plural + "." + spec.Group,
		New:        func() runtime.Object { return new(Object) },
		Strategy:   v.strategy(),
		Display:    resource.Display{Fields: v.fields(), FieldError: "field label not supported: %s", Columns: v.columns()},
		Custom: &resource.Custom{
			Decode: v.decode, OpenAPI: v.openAPI, Structural: v.managed, Parts: v.parts(),
			Stamp:    fmt.Sprintf("%s/%d/%s", d.head.Metadata.UID, d.head.Metadata.Generation, names.ListKind),
			Outdated: d.outdated, Terminating: d.head.Metadata.DeletionTimestamp != "",
		},
	}
	if v.hasStatus() {
		t.Subresources = append(t.Subresources, resource.Subresource{
			Name: "status", Kind: t.GroupVersionKind(), Verbs: statusVerbs,
			Validate: func(ctx context.Context, o, old runtime.Object) field.ErrorList {
				return v.validateUpdate(ctx, o.(*Object), old.(*Object), true)
			},
		})
	}
	if v.Subresources != nil && v.Subresources.Scale != nil {
		t.Subresources = append(t.Subresources, scaleOf(v))
	}
	return t
}

// strategy is how objects of the version are written.
func (v *version) strategy() resource.Strategy {
	return resource.Strategy{
		Metadata:   resource.MetadataRules{ValidateName: validation.NameIsDNSSubdomain, AnyFinalizer: true, Recheck: resource.RecheckUpdate},
		Status:     resource.StatusRules{KeepOnCreate: !v.hasStatus(), Fixed: resource.AllMetadata},
		Generation: resource.Generation{Initial: 1, CountChanges: true},
		Default:    v.setDefaults,
		Validate:   func(ctx context.Context, o runtime.Object) field.ErrorList { return v.validate(ctx, o.(*Object)) },
		ValidateUpdate: func(ctx context.Context, o, old runtime.Object) field.ErrorList {
			return v.validateUpdate(ctx, o.(*Object), old.(*Object), false)
		},
		Warnings:  warn,
		Tolerated: tolerated,
	}
}

// from makes a stored object one of this version.
func (v *version) from(ctx context.Context, o runtime.Object) (runtime.Object, error) {
	made, err := v.written(o)
	if err != nil {
		return nil, err
	}
	return v.convert(ctx, made)
}

// fromAll is from of several objects, of which the webhook is asked at once. When it
// does not make all of them it is asked for one after the other, as kube-apiserver does
// it: the answer is about the object that something is wrong with.
func (v *version) fromAll(ctx context.Context, all []runtime.Object) ([]runtime.Object, error) {
	to := v.of.head.Spec.Group + "/" + v.Name
	var others []*Object
	var at []int
	for i, o := range all {
		made, err := v.written(o)
		if err != nil {
			return nil, err
		}
		if made.APIVersion != to {
			others, at = append(others, made), append(at, i)
		}
	}
	made, err := v.of.others(ctx, others, to)
	if err != nil && reached(err) {
		return v.oneByOne(ctx, all)
	}
	if err != nil {
		return nil, err
	}
	for i, o := range made {
		all[at[i]] = o
		if err := v.drop(o); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (v *version) oneByOne(ctx context.Context, all []runtime.Object) (_ []runtime.Object, err error) {
	for i, o := range all {
		if all[i], err = v.convert(ctx, o); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// written is a stored object as it would be stored by now, in the version that was the
// stored one when it was written.
func (v *version) written(o runtime.Object) (*Object, error) {
	made, ok := o.(*Object)
	if !ok {
		return nil, errNotCustom
	}
	written := v.of.version(made.APIVersion)
	if written == nil {
		return nil, fmt.Errorf("the object %s is stored as %s, which the definition %s does not have any more", made.Name, made.APIVersion, v.of.head.Metadata.Name)
	}
	return made, written.recent(made)
}

// take makes an object of another version one of this, the stored one, with its
// defaults: what is stored in it is read as it is.
func (v *version) take(ctx context.Context, o runtime.Object) (runtime.Object, error) {
	made, err := v.convert(ctx, o)
	if err != nil {
		return nil, err
	}
	v.setDefaults(made)
	return made, nil
}

// convert makes an object of another version one of this.
func (v *version) convert(ctx context.Context, o runtime.Object) (runtime.Object, error) {
	made, ok := o.(*Object)
	if !ok {
		return nil, errNotCustom
	}
	to := v.of.head.Spec.Group + "/" + v.Name
	if made.APIVersion == to {
		return made, nil
	}
	made, err := v.of.another(ctx, made, to)
	if err != nil {
		return nil, err
	}
	return made, v.drop(made)
}

// drop drops what the schema does not know.
func (v *version) drop(o *Object) error {
	s, err := v.schema()
	if err != nil {
		return err
	}
	_, err = s.coerce(o, objectmeta.CoerceOptions{})
	return err
}

// begin is what every object that is stored in this version begins with.
func (v *version) begin() []byte {
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":"%s/%s",`, v.of.head.Status.AcceptedNames.Kind, v.of.head.Spec.Group, v.Name)
}

// fields are those that objects can be selected by.
func (v *version) fields() []resource.Field {
	var all []resource.Field
	for _, f := range v.SelectableFields {
		all = append(all, resource.Field{Name: strings.TrimPrefix(f.JSONPath, "."), Paths: [][]string{steps(f.JSONPath)}})
	}
	return all
}

// deprecation is the warning of a version that should not be used any more.
func (d *definition) deprecation(v *version) string {
	if !v.Deprecated {
		return ""
	}
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	kind, better := d.head.Status.AcceptedNames.Kind, ""
	for _, other := range d.versions {
		if other.Served && !other.Deprecated && utilversion.CompareKubeAwareVersionStrings(v.Name, other.Name) < 0 &&
			(better == "" || utilversion.CompareKubeAwareVersionStrings(better, other.Name) < 0) {
			better = other.Name
		}
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", d.head.Spec.Group, v.Name, kind)
	if better != "" {
		text += fmt.Sprintf("; use %s/%s %s", d.head.Spec.Group, better, kind)
	}
	return text
}

// newer orders versions as discovery does: the preferred one first.
func newer(a, b string) int { return utilversion.CompareKubeAwareVersionStrings(b, a) }

func sorted(names []string) []string {
	all := slices.Clone(names)
	slices.Sort(all)
	return all
}

// byResource orders types as discovery does.
func byResource(a, b *resource.Type) int { return cmp.Compare(a.Resource, b.Resource) }

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // plain data
		panic(err)
	}
	return b
}
