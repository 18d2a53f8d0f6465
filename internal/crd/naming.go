package crd

import (
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Naming decides which names definitions get, so that no two have the same. Its methods
// are safe for concurrent use.
//
// A definition gets its names by the catalog, in the transaction that stores it, which claims
// each name that is new to it (Acquired). Of two definitions that want the same name by the
// same state, the second one is named again by the state that has the first.
type Naming struct {
	set  *Set
	now  func() time.Time
	room room
}

// NewNaming makes one for the definitions of a set. Now is the wall clock; nil:
// time.Now. MaxBytes is the limit for all definitions together, as Reserve counts them; 0 is none.
func NewNaming(s *Set, now func() time.Time, maxBytes int64) *Naming {
	if now == nil {
		now = time.Now
	}
	return &Naming{set: s, now: now, room: room{most: maxBytes}}
}

// Named returns a copy of a definition, without its versions, whose status reports which
// names it has by the newest catalog; nil if its status reports that already.
func (n *Naming) Named(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	next := *d
	next.Spec.Versions = nil
	d.Status.DeepCopyInto(&next.Status)
	if n.setStatus(&next); reflect.DeepEqual(&d.Status, &next.Status) {
		return nil
	}
	return &next
}

// Acquired returns the claims of a definition: a bucket of its group for each accepted name that
// the old definition did not have. Old is nil for a new definition. Buckets limit the claims of a
// definition with many names; two names in one bucket only mean that a request is decided again.
func Acquired(d, old *apiextensionsv1.CustomResourceDefinition) []string {
	had := map[string]bool{}
	if old != nil {
		for _, name := range claimed(old) {
			had[name] = true
		}
	}
	var buckets []string
	seen := map[uint64]bool{}
	for _, name := range claimed(d) {
		hash := fnv.New64a()
		hash.Write([]byte(name))
		if n := hash.Sum64() % nameBuckets; !had[name] && !seen[n] {
			seen[n] = true
			buckets = append(buckets, fmt.Sprintf("definitions/%s/%d", d.Spec.Group, n))
		}
	}
	return buckets
}

// nameBuckets is how many buckets a group has.
const nameBuckets = 256

// claimed returns the accepted names of a definition. Names of resources and of kinds do not
// conflict with each other.
func claimed(d *apiextensionsv1.CustomResourceDefinition) (all []string) {
	resources, kinds := taken(&d.Status.AcceptedNames)
	for _, name := range resources {
		if name != "" {
			all = append(all, "resource/"+name)
		}
	}
	for _, name := range kinds {
		if name != "" {
			all = append(all, "kind/"+name)
		}
	}
	return all
}

// taken returns the names that no other definition of the group can have.
func taken(names *apiextensionsv1.CustomResourceDefinitionNames) (resources, kinds []string) {
	return append([]string{names.Plural, names.Singular}, names.ShortNames...), []string{names.Kind, names.ListKind}
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

// setApproval sets the condition of the API approval for definitions in protected groups.
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
	resources, kinds := n.inGroup(d)
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

// inGroup returns the names that the other definitions of the group have.
func (n *Naming) inGroup(d *apiextensionsv1.CustomResourceDefinition) (resources, kinds map[string]bool) {
	resources, kinds = map[string]bool{}, map[string]bool{}
	for key, e := range n.set.now().byGroup[d.Spec.Group] {
		if key == d.Name {
			continue
		}
		r, k := taken(&e.head.Status.AcceptedNames)
		for _, name := range r {
			resources[name] = name != ""
		}
		for _, name := range k {
			kinds[name] = name != ""
		}
	}
	return resources, kinds
}

// namesAccepted reports whether the definition has all of its names.
func (d *definition) namesAccepted() bool {
	for i := range d.head.Status.Conditions {
		if c := &d.head.Status.Conditions[i]; c.Type == apiextensionsv1.NamesAccepted {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
