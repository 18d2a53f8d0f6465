package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// charge is the amount that a write adds to the used resources of quotas.
type charge struct {
	kind        *kind
	object, old runtime.Object // old is nil for a new object
	free        bool           // the write is charged and never rejected
	now         time.Time
	fail        func(format string, args ...any) error

	use, more corev1.ResourceList // of the object, and how much more than of old
}

// measure sets the resources that the object uses.
func (c *charge) measure() {
	c.use, _ = c.kind.usage(c.object, c.now)
	c.more = c.use
	if c.old == nil {
		return
	}
	before, _ := c.kind.usage(c.old, c.now)
	c.more = corev1.ResourceList{}
	for name, q := range c.use {
		if have, ok := before[name]; ok {
			q = q.DeepCopy()
			q.Sub(have)
		}
		if q.Sign() > 0 {
			c.more[name] = q
		}
	}
}

// restricted returns the resources of a quota that the object counts for; nil: the quota does not
// count it. An error refuses the write.
func (c *charge) restricted(q *corev1.ResourceQuota) ([]corev1.ResourceName, error) {
	names := c.kind.matching(q.Status.Hard)
	if len(names) == 0 || !c.kind.selected(selectorsOf(q), c.object) {
		return nil, nil
	}
	if c.kind.lacking != nil {
		if text := c.kind.lacking(names, c.object); text != "" {
			return nil, c.fail("failed quota: %s: %s", q.Name, text)
		}
	}
	for _, name := range names {
		if _, ok := q.Status.Used[name]; !ok {
			return nil, c.fail("status unknown for quota: %s, resources: %s", q.Name, joined(names))
		}
	}
	return names, nil
}

func (c *charge) negative(names []corev1.ResourceName) error {
	return c.fail("quota usage is negative for resource(s): %s", joined(names))
}

// on returns the usage that the charge adds to a quota, nil for none, or the error that refuses the
// write.
func (c *charge) on(q *corev1.ResourceQuota) (corev1.ResourceList, error) {
	names, err := c.restricted(q)
	if err != nil || names == nil {
		return nil, err
	}
	selectors := selectorsOf(q)
	if c.use == nil {
		c.measure()
	}
	if negative := belowZero(c.use); len(negative) > 0 {
		return nil, c.negative(negative)
	}
	all := c.use
	if c.old != nil && c.kind.selected(selectors, c.old) {
		all = c.more
	}
	added := corev1.ResourceList{}
	for name, amount := range all {
		if _, ok := q.Status.Hard[name]; ok && !amount.IsZero() {
			added[name] = amount
		}
	}
	if len(added) == 0 {
		return nil, nil
	}
	return added, c.fits(q, added)
}

// fits returns an error if the quota would be exceeded.
func (c *charge) fits(q *corev1.ResourceQuota, added corev1.ResourceList) error {
	if c.free {
		return nil
	}
	var over []corev1.ResourceName
	for name, amount := range added {
		sum := q.Status.Used[name].DeepCopy()
		sum.Add(amount)
		if sum.Cmp(q.Status.Hard[name]) > 0 {
			over = append(over, name)
		}
	}
	if len(over) == 0 {
		return nil
	}
	return c.fail("exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name, shown(added, over), shown(q.Status.Used, over), shown(q.Status.Hard, over))
}

// add adds amounts to the used resources of a quota.
func add(q *corev1.ResourceQuota, amounts corev1.ResourceList) {
	used := maps.Clone(q.Status.Used)
	if used == nil {
		used = corev1.ResourceList{}
	}
	for name, amount := range amounts {
		addTo(used, name, amount)
	}
	q.Status.Used = used
}

func belowZero(list corev1.ResourceList) (names []corev1.ResourceName) {
	for name, q := range list {
		if q.Sign() < 0 {
			names = append(names, name)
		}
	}
	return names
}

func joined(names []corev1.ResourceName) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = string(name)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// shown formats some amounts of a list for an error.
func shown(list corev1.ResourceList, names []corev1.ResourceName) string {
	var parts []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		q, ok := list[name]
		if !ok {
			q = resource.Quantity{}
		}
		parts = append(parts, fmt.Sprintf("%s=%s", name, q.String()))
	}
	return strings.Join(parts, ",")
}
