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

// Naming decides which names definitions get, so that no two have the same. Its methods
// are safe for concurrent use.
//
// A new definition that gets all the names it wants, as nearly always, holds up nobody:
// until its write has ended, whoever else wants names sees what it took. All other
// writes that may change names wait for each other, and for those.
type Naming struct {
	set *Set
	now func() time.Time
	// mu is held from before names are looked at until the write has ended: shared by
	// the new definitions that got all they wanted, by one of the others alone.
	mu sync.RWMutex

	taking sync.Mutex // held while a new definition looks at names; after mu
	// taken are the names of those that are about to be stored. Guarded by taking.
	taken map[*apiextensionsv1.CustomResourceDefinition]bool
}

// NewNaming makes one for the definitions of a set. Now is the wall clock; nil:
// time.Now.
func NewNaming(s *Set, now func() time.Time) *Naming {
	if now == nil {
		now = time.Now
	}
	return &Naming{set: s, now: now, taken: map[*apiextensionsv1.CustomResourceDefinition]bool{}}
}

// Follow says in a copy of a definition, which is about to be stored, what is to be said
// of its names: registry.Follow.
func (n *Naming) Follow(o, old runtime.Object) (then runtime.Object, release func()) {
	d := o.(*apiextensionsv1.CustomResourceDefinition)
	if old == nil {
		if then, release := n.take(d); release != nil {
			return then, release
		}
	}
	n.mu.Lock()
	if next := n.named(d, nil); next != nil {
		return next, n.mu.Unlock
	}
	return nil, n.mu.Unlock
}

// take gives a new definition its names, if those are all that it wants.
func (n *Naming) take(d *apiextensionsv1.CustomResourceDefinition) (then *apiextensionsv1.CustomResourceDefinition, release func()) {
	n.mu.RLock()
	n.taking.Lock()
	defer n.taking.Unlock()
	then = n.named(d, n.taken)
	if then == nil || !apihelpers.IsCRDConditionTrue(then, apiextensionsv1.NamesAccepted) {
		n.mu.RUnlock()
		return nil, nil
	}
	n.taken[then] = true
	return then, func() {
		n.taking.Lock()
		delete(n.taken, then)
		n.taking.Unlock()
		n.mu.RUnlock()
	}
}

// named is a definition without its versions, whose status says what is to be said of
// its names; nil where it does already. Beside those that are stored, others have names.
func (n *Naming) named(d *apiextensionsv1.CustomResourceDefinition, others map[*apiextensionsv1.CustomResourceDefinition]bool) *apiextensionsv1.CustomResourceDefinition {
	next := *d
	next.Spec.Versions = nil
	d.Status.DeepCopyInto(&next.Status)
	if n.setStatus(&next, others); reflect.DeepEqual(&d.Status, &next.Status) {
		return nil
	}
	return &next
}

// Recheck has an edit of the status of a definition that is stored already, in which
// it calls what it is given, wait for the writes of others.
func (n *Naming) Recheck(edit func(name func(*apiextensionsv1.CustomResourceDefinition) bool) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return edit(func(d *apiextensionsv1.CustomResourceDefinition) bool {
		next := n.named(d, nil)
		if next == nil {
			return false
		}
		d.Status = next.Status
		return true
	})
}

func (n *Naming) setStatus(d *apiextensionsv1.CustomResourceDefinition, others map[*apiextensionsv1.CustomResourceDefinition]bool) {
	n.setApproval(d)
	names, accepted := n.accept(d, others)
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
func (n *Naming) accept(d *apiextensionsv1.CustomResourceDefinition, others map[*apiextensionsv1.CustomResourceDefinition]bool) (apiextensionsv1.CustomResourceDefinitionNames, apiextensionsv1.CustomResourceDefinitionCondition) {
	resources, kinds := n.inGroup(d, others)
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

// inGroup are the names that the other definitions of the group have.
func (n *Naming) inGroup(d *apiextensionsv1.CustomResourceDefinition, others map[*apiextensionsv1.CustomResourceDefinition]bool) (resources, kinds map[string]bool) {
	resources, kinds = map[string]bool{}, map[string]bool{}
	have := func(names *apiextensionsv1.CustomResourceDefinitionNames) {
		for _, name := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
			resources[name] = name != ""
		}
		kinds[names.Kind], kinds[names.ListKind] = names.Kind != "", names.ListKind != ""
	}
	for key, e := range n.set.now().byGroup[d.Spec.Group] {
		if key != d.Name {
			have(&e.head.Status.AcceptedNames)
		}
	}
	for other := range others {
		if other.Spec.Group == d.Spec.Group && other.Name != d.Name {
			have(&other.Status.AcceptedNames)
		}
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
