// Package declared validates objects by the rules that the types of k8s.io/api declare. The packages below it are generated
// from those types: a new version of k8s.io/api changes rules and messages by
//
//	go generate ./internal/builtin/declared
//
// kube-apiserver runs the declared rules after the code that validates a kind, and drops the errors of that code that say
// the same. Most rules that are declared are also in code, here as there. The code also validates unchanged parts on update,
// and counts errors beyond check.MaxErrors.
package declared

//go:generate go run ../../../tools/gen/declared

import (
	"context"
	"slices"
	"sync"

	asv1 "k8s.io/api/autoscaling/v1"
	asv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/admissionregistrationv1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/autoscalingv1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/autoscalingv2"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/batchv1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/certificatesv1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/corev1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/discoveryv1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/flowcontrolv1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/networkingv1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/nodev1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/rbacv1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/resourcev1"
	"github.com/tidemark-dev/tidemark/internal/builtin/declared/storagev1"
)

// Rules are the declared rules with the feature gates that they depend on.
type Rules struct {
	// ScaleToZero: a HorizontalPodAutoscaler may have no replicas.
	ScaleToZero bool
}

// The options of the rules, by the gates that they name.
var (
	scaleToZero = map[string]bool{"HPAScaleToZero": true}
	atLeastOne  = map[string]bool{"HPAScaleToZero": false}
)

// options returns the options for an object. An autoscaler that may scale to zero keeps that.
func (r Rules) options(old runtime.Object) map[string]bool {
	if r.ScaleToZero {
		return scaleToZero
	}
	switch a := old.(type) {
	case *asv1.HorizontalPodAutoscaler:
		if n := a.Spec.MinReplicas; n != nil && *n == 0 {
			return scaleToZero
		}
	case *asv2.HorizontalPodAutoscaler:
		if n := a.Spec.MinReplicas; n != nil && *n == 0 {
			return scaleToZero
		}
	}
	return atLeastOne
}

// rules has the generated functions by Go type.
var rules = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, register := range []func(*runtime.Scheme) error{
		admissionregistrationv1.RegisterValidations, autoscalingv1.RegisterValidations,
		autoscalingv2.RegisterValidations, batchv1.RegisterValidations, certificatesv1.RegisterValidations, corev1.RegisterValidations,
		discoveryv1.RegisterValidations, flowcontrolv1.RegisterValidations, networkingv1.RegisterValidations, nodev1.RegisterValidations,
		rbacv1.RegisterValidations, resourcev1.RegisterValidations, storagev1.RegisterValidations,
	} {
		if err := register(s); err != nil {
			panic("declared rules: " + err.Error())
		}
	}
	return s
})

// Join returns the errors of the code that validated an object, each once, and those of the rules of its type. Old is nil
// for a new object; subresource is "" for the object itself.
//
// The rules are not run when the code found as many errors as a response shows, or a list with more items: a rule makes an
// error for each item that breaks it, however many there are, and some rules compare all items with each other.
func (r Rules) Join(ctx context.Context, errs field.ErrorList, o, old runtime.Object, subresource string) field.ErrorList {
	if len(errs) >= check.MaxErrors || slices.ContainsFunc(errs, tooLong) {
		return errs
	}
	if len(errs) > 1 {
		errs = once(errs)
	}
	var path []string
	if subresource != "" {
		path = []string{subresource}
	}
	more, options := field.ErrorList(nil), r.options(old)
	if old == nil {
		more = rules().Validate(ctx, options, o, path...)
	} else {
		more = rules().ValidateUpdate(ctx, options, o, old, path...)
	}
	more = slices.DeleteFunc(more, (*field.Error).IsAlpha) // not enforced
	if len(more) == 0 {
		return errs
	}
	errs = slices.DeleteFunc(errs, func(e *field.Error) bool {
		return slices.ContainsFunc(more, func(m *field.Error) bool { return same(e, m) })
	})
	return append(errs, more...)
}

// tooLong reports whether an error is that of a list with more items than a response shows errors.
func tooLong(e *field.Error) bool {
	n, ok := e.BadValue.(int)
	return ok && e.Type == field.ErrorTypeTooMany && n > check.MaxErrors
}

// once returns the errors, each once. Texts are made only for errors of one kind and field: the value in an error can be a
// whole object.
func once(errs field.ErrorList) field.ErrorList {
	type kind struct {
		of            field.ErrorType
		field, detail string
	}
	first := make(map[kind]*field.Error, len(errs))
	texts := map[kind]map[string]bool{} // of kinds that have several errors
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		k := kind{e.Type, e.Field, e.Detail}
		f, again := first[k]
		if !again {
			first[k] = e
			return false
		}
		if texts[k] == nil {
			texts[k] = map[string]bool{f.Error(): true}
		}
		text := e.Error()
		said := texts[k][text]
		texts[k][text] = true
		return said
	})
}

// same reports whether an error of code says the same as one of a rule. There can be several invalid values for a field,
// so those have to agree in their origin, or in their message.
func same(code, rule *field.Error) bool {
	if code.Type != rule.Type || code.Field != rule.Field {
		return false
	}
	return code.Type != field.ErrorTypeInvalid || code.Detail == rule.Detail || code.Origin != "" && code.Origin == rule.Origin
}
