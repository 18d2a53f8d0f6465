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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilversion "k8s.io/apimachinery/pkg/version"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// everyVerb has the verbs of custom resources in the order of kube-apiserver's discovery.
var everyVerb = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}

var statusVerbs = []string{"get", "patch", "update"}

// parts returns the functions that access objects of the version. Without the subresource
// "status", the status is a part of the desired state. Only the stored version sets the
// defaults of an empty status.
func (v *version) parts() resource.Parts {
	p := resource.Parts{ClearStatus: clearStatus, CopyStatus: copyStatus, SameDesired: sameMembers}
	if !v.hasStatus() {
		return p
	}
	p.CopyStatus, p.SameStatus = v.copyStatus, sameStatus
	if p.SameDesired = sameButStatus; v.Storage {
		p.ClearStatus = v.newStatus
	}
	return p
}

// makeTypes returns the types of the served versions, and the type of the stored version,
// which the server itself uses even if it is not served. Fresh: all stored objects were
// written in the stored version with its current schema, and need no conversion.
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
			if d.hasWebhook() {
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

// newType returns the type of a version, without conversion.
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
			Decode: v.decode, DecodeMerged: v.decodeMerged, OpenAPI: v.openAPI, Structural: v.managed, Parts: v.parts(),
			Stamp: fmt.Sprintf("%s/%d/%s", d.head.Metadata.UID, d.head.Metadata.Generation, names.ListKind),
			UID:   d.head.Metadata.UID, Outdated: d.outdated, Terminating: d.head.Metadata.DeletionTimestamp != "",
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

// strategy returns the strategy of the version.
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

// from converts a stored object to this version.
func (v *version) from(ctx context.Context, o runtime.Object) (runtime.Object, error) {
	made, err := v.written(o)
	if err != nil {
		return nil, err
	}
	return v.convert(ctx, made)
}

// fromAll is from for several objects, which the webhook converts in one call. If that
// fails, it converts them one by one, as kube-apiserver does, so that the error names the
// object.
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
	made, err := v.of.convertAll(ctx, others, to)
	if err != nil && responded(err) {
		return v.oneByOne(ctx, all)
	}
	if err != nil {
		return nil, err
	}
	for i, o := range made {
		all[at[i]] = o
		if err := v.prune(o); err != nil {
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

// written prunes and defaults a stored object by the current schema of the version that it
// is stored in, which may not be the current stored version.
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

// take converts an object of another version to this one, the stored version, and sets its
// defaults: an object in the stored version is read without defaulting.
func (v *version) take(ctx context.Context, o runtime.Object) (runtime.Object, error) {
	made, err := v.convert(ctx, o)
	if err != nil {
		return nil, err
	}
	if v.setDefaults(made); made.(*Object).overgrown {
		return nil, apierrors.NewInvalid(made.GetObjectKind().GroupVersionKind().GroupKind(), made.(*Object).Name, field.ErrorList{errOvergrown()})
	}
	return made, nil
}

// convert converts an object of any version to this one.
func (v *version) convert(ctx context.Context, o runtime.Object) (runtime.Object, error) {
	made, ok := o.(*Object)
	if !ok {
		return nil, errNotCustom
	}
	to := v.of.head.Spec.Group + "/" + v.Name
	if made.APIVersion == to {
		return made, nil
	}
	made, err := v.of.convert(ctx, made, to)
	if err != nil {
		return nil, err
	}
	return made, v.prune(made)
}

// prune drops unknown members.
func (v *version) prune(o *Object) error {
	s, err := v.schema()
	if err != nil {
		return err
	}
	s.dropNulls(o)
	_, err = s.coerce(o, objectmeta.CoerceOptions{})
	return err
}

// begin returns the first bytes of every object that is stored in this version.
func (v *version) begin() []byte {
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":"%s/%s",`, v.of.head.Status.AcceptedNames.Kind, v.of.head.Spec.Group, v.Name)
}

// fields returns the selectable fields.
func (v *version) fields() []resource.Field {
	var all []resource.Field
	for _, f := range v.SelectableFields {
		all = append(all, resource.Field{Name: strings.TrimPrefix(f.JSONPath, "."), Paths: [][]string{steps(f.JSONPath)}})
	}
	return all
}

// deprecation returns the warning for a deprecated version, empty for others.
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

// newer compares versions as discovery orders them: the preferred one first.
func newer(a, b string) int { return utilversion.CompareKubeAwareVersionStrings(b, a) }

func sorted(names []string) []string {
	all := slices.Clone(names)
	slices.Sort(all)
	return all
}

// byResource compares types as discovery orders them.
func byResource(a, b *resource.Type) int { return cmp.Compare(a.Resource, b.Resource) }

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // plain data
		panic(err)
	}
	return b
}
