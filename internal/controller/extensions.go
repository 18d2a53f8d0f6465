package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Namespaces have objects of extension servers, too. They are deleted with the content of a namespace, through the
// aggregator. A group version whose kinds are not known holds up the deletion of each namespace, as in
// kube-controller-manager: its objects could be there.

// extensionPace is the time between two looks for the objects of extension servers that are left in a namespace: nothing
// announces their end.
const extensionPace = 5 * time.Second

// deleteExtensions deletes the objects of extension servers in a namespace, and adds what remains.
func (n *namespaces) deleteExtensions(ctx context.Context, namespace string, left *remains) {
	x := n.l.c.Extensions
	if x == nil {
		return
	}
	kinds, stale := x.Namespaced()
	left.stale = stale
	for _, k := range kinds {
		remaining, err := x.Clear(ctx, k, namespace)
		if err != nil {
			left.failures = append(left.failures, fmt.Errorf("%s: %w", k.Resource(), err))
			continue
		}
		if remaining.Objects == 0 {
			continue
		}
		left.elsewhere = true
		if left.objects == nil {
			left.objects = map[string]int{}
		}
		left.objects[k.Resource()] = remaining.Objects
		for name, count := range remaining.Finalizers {
			if left.finalizers == nil {
				left.finalizers = map[string]int{}
			}
			left.finalizers[name] += count
		}
	}
}

// discoveryFailure is the message about group versions whose kinds are not known.
func discoveryFailure(stale []string) string {
	stale = slices.Sorted(slices.Values(stale))
	var all []string
	for _, gv := range stale {
		all = append(all, gv+": stale GroupVersion discovery: "+gv)
	}
	return fmt.Sprintf("Discovery failed for some groups, %d failing: unable to retrieve the complete list of server APIs: %s", len(stale), strings.Join(all, ", "))
}
