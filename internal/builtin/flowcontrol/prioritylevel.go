package flowcontrol

import (
	"fmt"
	"math"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

const (
	defaultShares   = 30
	defaultHandSize = 8
	defaultQueues   = 64
	defaultLength   = 50
	mostQueues      = 10_000_000
	mostEntropyBits = 60 // of the hash for shuffle sharding
)

// DefaultPriorityLevel sets the default shares and queues.
func DefaultPriorityLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	if e := l.Spec.Exempt; e != nil {
		fill(&e.NominalConcurrencyShares, 0)
		fill(&e.LendablePercent, 0)
	}
	if l := l.Spec.Limited; l != nil {
		fill(&l.NominalConcurrencyShares, defaultShares)
		fill(&l.LendablePercent, 0)
		if q := l.LimitResponse.Queuing; q != nil {
			orElse(&q.HandSize, defaultHandSize)
			orElse(&q.Queues, defaultQueues)
			orElse(&q.QueueLengthLimit, defaultLength)
		}
	}
}

func fill(p **int32, value int32) {
	if *p == nil {
		*p = &value
	}
}

func orElse(p *int32, value int32) {
	if *p == 0 {
		*p = value
	}
}

// ValidatePriorityLevel checks a level. The mandatory priority levels are immutable, except for the
// field spec.exempt of "exempt".
func ValidatePriorityLevel(l *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateLevel(l.Name, &l.Spec, path)
	if fixed, ok := fixedLevels[l.Name]; ok {
		have, words := l.Spec, ""
		if l.Name == exempt {
			have.Exempt, words = fixed.Exempt, " except the 'spec.exempt' field"
		}
		if !equality.Semantic.DeepEqual(have, fixed) {
			errs = append(errs, field.Invalid(path, check.Bare(internalLevel(l.Spec)), fmt.Sprintf("spec of '%s'%s must equal the fixed value", l.Name, words)))
		}
	}
	return append(errs, validateLevelStatus(l)...)
}

// internalLevel converts a level to the form of kube-apiserver's errors, which has its fields in
// another order and the shares as a number.
func internalLevel(s flowcontrolv1.PriorityLevelConfigurationSpec) any {
	type limited struct {
		NominalConcurrencyShares int32
		LimitResponse            flowcontrolv1.LimitResponse
		LendablePercent          *int32
		BorrowingLimitPercent    *int32
	}
	var l *limited
	if s.Limited != nil {
		l = &limited{LimitResponse: s.Limited.LimitResponse, LendablePercent: s.Limited.LendablePercent, BorrowingLimitPercent: s.Limited.BorrowingLimitPercent}
		if n := s.Limited.NominalConcurrencyShares; n != nil {
			l.NominalConcurrencyShares = *n
		}
	}
	return struct {
		Type    flowcontrolv1.PriorityLevelEnablement
		Limited *limited
		Exempt  *flowcontrolv1.ExemptPriorityLevelConfiguration
	}{s.Type, l, s.Exempt}
}

// ValidatePriorityLevelUpdate checks the new object like a created one.
func ValidatePriorityLevelUpdate(l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	return ValidatePriorityLevel(l)
}

// ValidatePriorityLevelStatus checks the status.
func ValidatePriorityLevelStatus(l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	return validateLevelStatus(l)
}

func validateLevelStatus(l *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	return validateTypes(len(l.Status.Conditions), func(i int) string { return string(l.Status.Conditions[i].Type) })
}

var (
	levelTypes = []flowcontrolv1.PriorityLevelEnablement{flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited}
	responses  = []flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}
)

func validateLevel(name string, s *flowcontrolv1.PriorityLevelConfigurationSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("type")
	if (name == exempt) != (s.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(at, s.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	switch s.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if s.Limited != nil {
			errs = append(errs, field.Forbidden(path.Child("limited"), "must be nil if the type is not Limited"))
		}
		if e := s.Exempt; e != nil {
			errs = append(errs, validateShares(e.NominalConcurrencyShares, path.Child("exempt"))...)
			errs = append(errs, validatePercent(e.LendablePercent, path.Child("exempt"))...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if s.Exempt != nil {
			errs = append(errs, field.Forbidden(path.Child("exempt"), "must be nil if the type is Limited"))
		}
		if s.Limited == nil {
			errs = append(errs, field.Required(path.Child("limited"), "must not be empty when type is Limited"))
		} else {
			errs = append(errs, validateLimited(s.Limited, path.Child("limited"))...)
		}
	case "":
		errs = append(errs, field.Required(at, ""))
	default:
		errs = append(errs, field.NotSupported(at, s.Type, levelTypes))
	}
	return errs
}

func validateShares(n *int32, path *field.Path) field.ErrorList {
	if n != nil && *n < 0 {
		return field.ErrorList{field.Invalid(path.Child("nominalConcurrencyShares"), *n, "must be a non-negative integer")}
	}
	return nil
}

func validatePercent(n *int32, path *field.Path) field.ErrorList {
	if n != nil && (*n < 0 || *n > 100) {
		return field.ErrorList{field.Invalid(path.Child("lendablePercent"), *n, "must be between 0 and 100, inclusive")}
	}
	return nil
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) field.ErrorList {
	errs := validateShares(l.NominalConcurrencyShares, path)
	errs = append(errs, validateResponse(&l.LimitResponse, path.Child("limitResponse"))...)
	errs = append(errs, validatePercent(l.LendablePercent, path)...)
	if n := l.BorrowingLimitPercent; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("borrowingLimitPercent"), *n, "if specified, must be a non-negative integer"))
	}
	return errs
}

func validateResponse(r *flowcontrolv1.LimitResponse, path *field.Path) field.ErrorList {
	at := path.Child("queuing")
	switch r.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if r.Queuing != nil {
			return field.ErrorList{field.Forbidden(at, "must be nil if limited.limitResponse.type is not Limited")}
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if r.Queuing == nil {
			return field.ErrorList{field.Required(at, "must not be empty if limited.limitResponse.type is Limited")}
		}
		return validateQueues(r.Queuing, at)
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "")}
	default:
		return field.ErrorList{field.NotSupported(path.Child("type"), r.Type, responses)}
	}
	return nil
}

func validateQueues(q *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	switch at := path.Child("queues"); {
	case q.Queues <= 0:
		errs = append(errs, field.Invalid(at, q.Queues, "must be positive"))
	case q.Queues > mostQueues:
		errs = append(errs, field.Invalid(at, q.Queues, fmt.Sprintf("must not be greater than %d", mostQueues)))
	}
	switch at := path.Child("handSize"); {
	case q.HandSize <= 0:
		errs = append(errs, field.Invalid(at, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(at, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	case math.Ceil(math.Log2(float64(q.Queues))*float64(q.HandSize)) > mostEntropyBits:
		errs = append(errs, field.Invalid(at, q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, mostEntropyBits)))
	}
	return errs
}
