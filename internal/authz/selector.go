package authz

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// MaxSelectorTerms bounds the terms and values of a selector that authorizers read. A list or a
// watch with a longer one is refused.
const MaxSelectorTerms = 5000

var errManyTerms = errors.New("the selector has too many terms and values")

// FieldRequirements parses FieldSelector. A selector only narrows a request, so an authorizer
// that gets an error decides as if there were none.
func (a *Attributes) FieldRequirements() (fields.Requirements, error) {
	if a.FieldSelector == "" {
		return nil, nil
	}
	if strings.Count(a.FieldSelector, ",") >= MaxSelectorTerms {
		return nil, errManyTerms
	}
	s, err := fields.ParseSelector(a.FieldSelector)
	if err != nil {
		return nil, err
	}
	return s.Requirements(), nil
}

// LabelRequirements parses LabelSelector, like FieldRequirements.
func (a *Attributes) LabelRequirements() (labels.Requirements, error) {
	if a.LabelSelector == "" {
		return nil, nil
	}
	if strings.Count(a.LabelSelector, ",") >= MaxSelectorTerms {
		return nil, errManyTerms
	}
	s, err := labels.Parse(a.LabelSelector)
	if err != nil {
		return nil, err
	}
	all, _ := s.Requirements()
	return all, nil
}
