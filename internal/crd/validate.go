package crd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/warning"
	kjson "sigs.k8s.io/json"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// decodeMerged reads the result of an apply. Nulls stay, also those that the apply left of lists and maps that it emptied:
// validation rejects them where the schema does.
func (v *version) decodeMerged(body []byte) (runtime.Object, error) {
	o, _, err := v.read(body, true)
	return o, err
}

// decode reads a body. It drops unknown members, and returns a complaint for each.
func (v *version) decode(body []byte) (runtime.Object, []string, error) { return v.read(body, false) }

func (v *version) read(body []byte, keepNulls bool) (runtime.Object, []string, error) {
	s, err := v.schema()
	if err != nil {
		return nil, nil, err
	}
	var all map[string]any
	twice, err := kjson.UnmarshalStrict(body, &all)
	if err != nil {
		return nil, nil, err
	}
	var complaints []string
	for _, err := range twice {
		complaints = append(complaints, err.Error())
	}
	o := new(Object)
	metadata, _, unknown, err := objectmeta.GetObjectMetaWithOptions(all, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, nil, err
	}
	if metadata == nil {
		metadata = &metav1.ObjectMeta{}
	}
	if err := o.take(all, *metadata); err != nil {
		return nil, nil, err
	}
	if !keepNulls {
		s.dropNulls(o)
	}
	more, err := s.coerce(o, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, nil, err
	}
	for _, path := range append(unknown, more...) {
		complaints = append(complaints, fmt.Sprintf("unknown field %q", path))
	}
	return o, complaints, nil
}

// dropNulls drops nulls that the schema does not allow.
func (c *compiled) dropNulls(o *Object) {
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(o.Members, c.structural)
}

// coerce drops unknown members. With
// ReturnUnknownFieldPaths it returns the paths of unknown members.
func (c *compiled) coerce(o *Object, how objectmeta.CoerceOptions) (unknown []string, err error) {
	unknown = pruning.PruneWithOptions(o.Members, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: how.ReturnUnknownFieldPaths})
	wrong, more := objectmeta.CoerceWithOptions(nil, o.Members, c.structural, false, how)
	if wrong != nil {
		return nil, wrong
	}
	return append(unknown, more...), nil
}

// setDefaults sets the defaults of missing members. If they are too large, it sets none, and
// validation rejects the object.
func (v *version) setDefaults(o runtime.Object) {
	if s, err := v.schema(); err == nil { // decode or read has returned the error
		made := o.(*Object)
		made.overgrown = !s.defaults.fill(made.Members)
	}
}

// newStatus replaces the status by its default.
func (v *version) newStatus(o runtime.Object) {
	clearStatus(o)
	s, err := v.schema()
	if err != nil || s.defaults == nil { // decode has returned the error
		return
	}
	if status := s.defaults.members["status"]; status != nil && status.value != nil && status.bytes <= maxDefaults {
		made := runtime.DeepCopyJSONValue(status.value)
		status.visit(made, new(int), true)
		o.(*Object).Members["status"] = made
	}
}

// copyStatus copies the status. If the object has no status, a null that the schema does not allow leaves it without one, as
// in kube-apiserver. Only an apply can send such a null: decoding drops it from other bodies.
func (v *version) copyStatus(to, from runtime.Object) {
	_, had := to.(*Object).Members["status"]
	copyStatus(to, from)
	status, has := to.(*Object).Members["status"]
	if had || !has || status != nil {
		return
	}
	if s, err := v.schema(); err == nil { // decode has returned the error
		only := &Object{Members: map[string]any{"status": nil}}
		if s.dropNulls(only); len(only.Members) == 0 {
			clearStatus(to)
		}
	}
}

// recent prunes and defaults a stored object by the current schema. It drops invalid metadata
// of embedded objects. If later defaults of the schema are too large for the object, it sets none.
func (v *version) recent(o *Object) error {
	s, err := v.schema()
	if err != nil {
		return err
	}
	s.dropNulls(o)
	if _, err := s.coerce(o, objectmeta.CoerceOptions{DropInvalidFields: true}); err != nil {
		return err
	}
	s.defaults.fill(o.Members)
	return nil
}

// validate checks a new object.
func (v *version) validate(ctx context.Context, o *Object) field.ErrorList {
	s, err := v.schema()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if o.overgrown {
		return field.ErrorList{errOvergrown()}
	}
	if errs := v.checkKind(o); len(errs) > 0 {
		return errs
	}
	all := o.tree()
	if v.hasStatus() {
		delete(all, "status") // the default
	}
	var errs field.ErrorList
	if s.structural == nil || !s.fits(*s.structural, all) {
		errs = s.checkSchema(ctx, nil, all, s.whole, nil)
	}
	errs = append(errs, v.checkScale(all, true)...)
	errs = append(errs, checkEmbedded(ctx, all, s.structural)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, all)...)
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	return append(errs, s.checkRules(ctx, errs, all, nil, &notes{})...)
}

// checkEmbedded checks the types and metadata of objects in the object.
func checkEmbedded(ctx context.Context, all map[string]any, s *structuralschema.Structural) field.ErrorList {
	return objectmeta.Validate(ctx, nil, all, s, false)
}

// rulesTimeout limits the evaluation of CEL rules for an object to the default timeout of a
// write. The cost budget of the library is not enough: for long lists, the time grows faster
// than the cost.
const rulesTimeout = 34 * time.Second

// checkRules evaluates the CEL rules, unless errors of the schema prevent that. Rules that
// are still running when the context is done are reported as broken. noted gets
// the errors of unchanged values, which are tolerated.
func (c *compiled) checkRules(ctx context.Context, errs field.ErrorList, all, old any, noted *notes, options ...cel.Option) field.ErrorList {
	if c.rules == nil {
		return nil
	}
	for _, e := range errs {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
		}
	}
	rules, err := c.rules.validator(ctx)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	ctx = context.WithValue(warning.WithWarningRecorder(ctx, noted), tallyKey{}, &tally{tolerated: noted})
	found, _ := rules.Validate(ctx, nil, c.structural, all, old, celconfig.RuntimeCELCostBudget, options...)
	return found
}

// validateUpdate checks an update of the object, or of its status. Errors in unchanged values
// are tolerated.
func (v *version) validateUpdate(ctx context.Context, o, old *Object, status bool) field.ErrorList {
	s, err := v.schema()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if o.overgrown {
		return field.ErrorList{errOvergrown()}
	}
	if errs := v.checkKind(o); len(errs) > 0 {
		return errs
	}
	all, before := o.tree(), old.tree()
	if s.compares {
		all["metadata"], before["metadata"] = o.wholeMetadata(), old.wholeMetadata()
	}
	same := common.NewCorrelatedObject(all, before, &model.Structural{Structural: s.structural})
	var errs field.ErrorList
	if status {
		errs = s.validateStatus(ctx, all, same)
	} else if s.structural == nil || !s.fits(*s.structural, all) {
		errs = s.checkSchema(ctx, nil, all, s.whole, same)
	}
	errs = append(errs, v.checkScale(o.Members, !status)...)
	if !status {
		errs = append(errs, checkEmbedded(ctx, all, s.structural)...)
	}
	if wrong := listtype.ValidateListSetsAndMaps(nil, s.structural, all); len(wrong) > 0 && len(listtype.ValidateListSetsAndMaps(nil, s.structural, before)) == 0 {
		errs = append(errs, wrong...)
	}
	noted := &notes{}
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	errs = append(errs, s.checkRules(ctx, errs, all, before, noted, cel.WithRatcheting(same))...)
	o.tolerated = noted.all
	return errs
}

func (c *compiled) validateStatus(ctx context.Context, all map[string]any, same *common.CorrelatedObject) field.ErrorList {
	status, ok := all["status"]
	if !ok || c.status == nil {
		return nil
	}
	if p, ok := c.structural.Properties["status"]; ok && c.fits(p, status) {
		return nil
	}
	return c.checkSchema(ctx, field.NewPath("status"), status, c.status, same.Key("status"))
}

// notes collects the warnings of rules, and counts those that are beyond resource.MaxErrors.
type notes struct {
	all    []string
	number int
}

// AddWarning implements warning.Recorder.
func (n *notes) AddWarning(_, text string) {
	if n.number++; n.number <= resource.MaxErrors {
		n.all = append(n.all, text)
	}
}

// checkKind checks kind and apiVersion.
func (v *version) checkKind(o *Object) field.ErrorList {
	var errs field.ErrorList
	if kind := v.of.head.Status.AcceptedNames.Kind; o.Kind != kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), o.Kind, "must be "+kind))
	}
	if gv := v.of.head.Spec.Group + "/" + v.Name; o.APIVersion != gv {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), o.APIVersion, "must be "+gv))
	}
	return errs
}

// checkScale checks the members that the subresource "scale" shows.
func (v *version) checkScale(members map[string]any, spec bool) field.ErrorList {
	if v.Subresources == nil || v.Subresources.Scale == nil {
		return nil
	}
	scale := v.Subresources.Scale
	var errs field.ErrorList
	if spec {
		errs = append(errs, checkReplicas(members, scale.SpecReplicasPath)...)
	}
	errs = append(errs, checkReplicas(members, scale.StatusReplicasPath)...)
	if scale.LabelSelectorPath != nil {
		if text, _, err := unstructured.NestedString(members, steps(*scale.LabelSelectorPath)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*scale.LabelSelectorPath), text, err.Error()))
		}
	}
	return errs
}

func checkReplicas(members map[string]any, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(members, steps(path)...)
	var wrong string
	switch {
	case err != nil:
		wrong = err.Error()
	case n < 0:
		wrong = "should be a non-negative integer"
	case n > math.MaxInt32:
		wrong = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), n, wrong)}
}

// steps returns the names in a simple path.
func steps(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// tolerated returns the errors that validateUpdate tolerated.
func tolerated(o runtime.Object) []string { return o.(*Object).tolerated }

// warn returns the warnings about new finalizers.
func warn(o, old runtime.Object) []string {
	made := o.(*Object)
	had := map[string]bool{}
	if old != nil {
		for _, f := range old.(*Object).Finalizers {
			had[f] = true
		}
	}
	var warnings []string
	path := field.NewPath("metadata", "finalizers").String()
	for _, f := range sorted(made.Finalizers) {
		if had[f] {
			continue
		}
		had[f] = true
		for _, wrong := range validation.IsQualifiedName(f) {
			warnings = append(warnings, fmt.Sprintf("%s: %q: %s", path, f, wrong))
		}
		if strings.Contains(f, "/") || f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents || f == string(corev1.FinalizerKubernetes) {
			continue
		}
		prefer := "prefer a domain-qualified finalizer name"
		if strings.Contains(f, ".") {
			prefer += " including a path (/)"
		}
		warnings = append(warnings, fmt.Sprintf("%s: %q: %s to avoid accidental conflicts with other finalizer writers", path, f, prefer))
	}
	return warnings
}

// errNotCustom is the error of a conversion of anything but an Object.
var errNotCustom = errors.New("not a custom resource")
