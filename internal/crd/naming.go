package crd

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Naming decides which names definitions get. Its methods are safe for concurrent use.
type Naming struct {
	set *Set
	now func() time.Time
	// mu is held by each write of a definition, from before its names are looked at
	// until it is stored or not: no two get the same ones.
	mu sync.Mutex
}

// NewNaming makes one for the definitions of a set. Now is the wall clock; nil:
// time.Now.
func NewNaming(s *Set, now func() time.Time) *Naming {
	if now == nil {
		now = time.Now
	}
	return &Naming{set: s, now: now}
}

// Reserve has the writes of definitions wait for each other: registry.Reserve.
func (n *Naming) Reserve(_, _ runtime.Object, _ bool) (release func(), err error) {
	n.mu.Lock()
	return n.mu.Unlock, nil
}

// Follow says in the status of a definition, which is about to be stored, what is to be
// said of its names: registry.Follow.
func (n *Naming) Follow(o runtime.Object) (changed bool) {
	d := o.(*apiextensionsv1.CustomResourceDefinition)
	before := d.Status.DeepCopy()
	n.setStatus(d)
	return !reflect.DeepEqual(before, &d.Status)
}

// Recheck has an edit of the status of a definition that is stored already, in which
// it calls what it is given, wait for the writes of others.
func (n *Naming) Recheck(edit func(name func(*apiextensionsv1.CustomResourceDefinition) bool) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return edit(func(d *apiextensionsv1.CustomResourceDefinition) bool { return n.Follow(d) })
}

func (n *Naming) setStatus(d *apiextensionsv1.CustomResourceDefinition) {
	n.setApproval(d)
	names, accepted := n.accept(d)
	established := apihelpers.FindCRDCondition(d, apiextensionsv1.Established)
	d.Status.AcceptedNames = names
	n.condition(d, accepted)
	switch {
	case established != nil && established.Status == apiextensionsv1.ConditionTrue:
	case accepted.Status == apiextensionsv1.ConditionTrue:
		n.condition(d, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
			Reason: "InitialNamesAccepted", Message: "the initial names have been accepted"})
	case established == nil:
		n.condition(d, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
			Reason: "NotAccepted", Message: "not all names are accepted"})
	}
}

func (n *Naming) condition(d *apiextensionsv1.CustomResourceDefinition, c apiextensionsv1.CustomResourceDefinitionCondition) {
	if old := apihelpers.FindCRDCondition(d, c.Type); old != nil && apihelpers.IsCRDConditionEquivalent(old, &c) {
		return
	}
	c.LastTransitionTime = metav1.NewTime(n.now().UTC().Truncate(time.Second))
	apihelpers.SetCRDCondition(d, c)
}

// setApproval says of definitions in groups of the community whether they were
// approved.
func (n *Naming) setApproval(d *apiextensionsv1.CustomResourceDefinition) {
	if !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		return
	}
	c := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant}
	state, reason := apihelpers.GetAPIApprovalState(d.Annotations)
	switch c.Message = reason; state {
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalInvalid:
		c.Status, c.Reason = apiextensionsv1.ConditionFalse, "InvalidAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Status, c.Reason = apiextensionsv1.ConditionFalse, "MissingAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Status, c.Reason = apiextensionsv1.ConditionFalse, "UnapprovedAnnotation"
	}
	n.condition(d, c)
}

// accept gives a definition the names that no other one of its group has.
func (n *Naming) accept(d *apiextensionsv1.CustomResourceDefinition) (apiextensionsv1.CustomResourceDefinitionNames, apiextensionsv1.CustomResourceDefinitionCondition) {
	resources, kinds := n.taken(d)
	wanted, names := &d.Spec.Names, *d.Status.AcceptedNames.DeepCopy()
	condition := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue,
		Reason: "NoConflicts", Message: "no conflicts found"}
	conflict := func(reason string, err error) {
		condition.Status, condition.Reason, condition.Message = apiextensionsv1.ConditionFalse, reason, err.Error()
	}
	one := func(reason string, taken map[string]bool, wanted string, has *string) {
		if taken[wanted] && wanted != *has {
			conflict(reason, inUse(wanted))
			return
		}
		*has = wanted
	}
	one("PluralConflict", resources, wanted.Plural, &names.Plural)
	one("SingularConflict", resources, wanted.Singular, &names.Singular)
	if err := shortNamesInUse(wanted.ShortNames, names.ShortNames, resources); err != nil {
		conflict("ShortNamesConflict", err)
	} else {
		names.ShortNames = wanted.ShortNames
	}
	one("KindConflict", kinds, wanted.Kind, &names.Kind)
	one("ListKindConflict", kinds, wanted.ListKind, &names.ListKind)
	names.Categories = wanted.Categories
	return names, condition
}

func inUse(name string) error { return fmt.Errorf("%q is already in use", name) }

func shortNamesInUse(wanted, has []string, taken map[string]bool) error {
	had := map[string]bool{}
	for _, name := range has {
		had[name] = true
	}
	var errs []error
	for _, name := range wanted {
		if taken[name] && !had[name] {
			errs = append(errs, inUse(name))
		}
	}
	return errors.Join(errs...)
}

// taken are the names that the other definitions of the group have.
func (n *Naming) taken(d *apiextensionsv1.CustomResourceDefinition) (resources, kinds map[string]bool) {
	n.set.Catalog()
	resources, kinds = map[string]bool{}, map[string]bool{}
	for key, e := range n.set.served.Load().byKey {
		if key == d.Name || e.head.Spec.Group != d.Spec.Group {
			continue
		}
		names := &e.head.Status.AcceptedNames
		for _, name := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
			resources[name] = name != ""
		}
		kinds[names.Kind], kinds[names.ListKind] = names.Kind != "", names.ListKind != ""
	}
	return resources, kinds
}

// namesAccepted tells whether the definition has all of its names.
func (d *definition) namesAccepted() bool {
	for i := range d.head.Status.Conditions {
		if c := &d.head.Status.Conditions[i]; c.Type == apiextensionsv1.NamesAccepted {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
