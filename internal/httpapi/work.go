package httpapi

import (
	"math"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tidemark-dev/tidemark/internal/flowschema"
)

// This file estimates the work of a request for its priority level. The rules are those of
// kube-apiserver. Where it estimates the number of objects from a count that is up to a minute old,
// the number here is exact, and counts the objects of one namespace for a request in a namespace.

// work returns the estimated work of the request, and counts the watches of a write for the metrics.
// Exempt requests need no estimate.
func (q *request) work() flowschema.Work {
	if q.typ == nil || q.typ.Collection == "" {
		return flowschema.Small
	}
	watches := q.countWatches()
	if q.flow.Level.Exempt {
		return flowschema.Small
	}
	switch q.info.Verb {
	case verbList, verbDeleteCollection:
		return q.listWork()
	case verbWatch:
		if q.wantsInitialEvents() {
			return q.listWork()
		}
	case verbCreate, verbUpdate, verbPatch, verbDelete:
		return q.flow.Level.Write(q.changedBytes(), watches)
	}
	return flowschema.Small
}

// changedBytes returns the size of the object that an update or a patch changes; zero if there is none.
func (q *request) changedBytes() int {
	if q.info.Verb != verbUpdate && q.info.Verb != verbPatch {
		return 0
	}
	o := q.target().Stored(q.h.c.Registry.Store.Any())
	if o == nil {
		return 0
	}
	return o.Len()
}

// countWatches returns the number of watches that may see the write of the request; zero if it is no
// write.
func (q *request) countWatches() int {
	switch q.info.Verb {
	case verbCreate, verbUpdate, verbPatch, verbDelete:
		if q.info.Resource == "serviceaccounts" && q.info.Subresource == "token" {
			return 0 // it changes nothing
		}
		n := q.h.interest.count(&q.info)
		q.flow.Metrics.Watchers(n)
		return n
	}
	return 0
}

// wantsInitialEvents reports whether a watch begins with the objects that exist.
func (q *request) wantsInitialEvents() bool {
	v := q.query()
	switch v.Get("resourceVersion") {
	case "", "0":
		return true
	}
	return boolean(v, "sendInitialEvents")
}

// sampled is how many objects of a list are measured to estimate the size of all.
const sampled = 16

// listWork estimates a list by the bytes of its objects.
func (q *request) listWork() flowschema.Work {
	if q.info.Name != "" { // one object
		return flowschema.Small
	}
	prefix := ""
	if q.info.Namespace != "" && q.typ.Namespaced {
		prefix = q.info.Namespace + "/"
	}
	all := q.h.c.Registry.Store.Any().Snapshot(q.typ.Collection)
	measured, bytes := int64(0), int64(0)
	for o := range all.Scan(prefix, "") {
		measured++
		if bytes += int64(o.Len()); measured == sampled {
			break
		}
	}
	if measured < sampled {
		return q.flow.Level.List(bytes, true)
	}
	count, limit, streamed := int64(all.Count(prefix, "")), int64(math.MaxInt64), true
	if q.r.URL.RawQuery != "" {
		v := q.query()
		if n, err := strconv.ParseInt(v.Get("limit"), 10, 64); err == nil && n > 0 {
			limit = n
		}
		watch := q.info.Verb == verbWatch
		if streamed = watch || streams(v.Get("resourceVersionMatch"), v.Get("resourceVersion"), v.Get("continue") != "", limit < math.MaxInt64); !streamed &&
			(v.Get("labelSelector") != "" || v.Get("fieldSelector") != "") {
			limit = max(limit, count/2)
		}
	}
	return q.flow.Level.List(min(count, limit)*(bytes/measured), streamed)
}

// streams reports whether a list is read from the current state.
func streams(match, version string, continues, limited bool) bool {
	switch metav1.ResourceVersionMatch(match) {
	case metav1.ResourceVersionMatchNotOlderThan:
		return true
	case "":
		return !continues && !(limited && version != "" && version != "0")
	}
	return false
}

// interest counts the open watches by their objects, so that the work of a write includes the
// events that it causes. The zero value is ready.
type interest struct {
	mu     sync.RWMutex
	counts map[watched]int
}

// watched identifies the objects of a watch. Selectors are ignored: to evaluate them is work, too.
type watched struct{ group, resource, namespace, name string }

// add counts a watch that begins, and returns the function that is called at its end; nil if the
// watch is for the Pods of one node, because such a watch gets few events.
func (i *interest) add(q *request) (end func()) {
	if q.info.Resource == "pods" && ofOneNode(q.query().Get("fieldSelector")) {
		return nil
	}
	w := watched{q.info.Group, q.info.Resource, q.info.Namespace, q.info.Name}
	i.change(w, 1)
	return func() { i.change(w, -1) }
}

// ofOneNode reports whether a field selector selects the Pods of one node.
func ofOneNode(text string) bool {
	if text == "" {
		return false
	}
	s, err := fields.ParseSelector(text)
	if err != nil {
		return false
	}
	node, ok := s.RequiresExactMatch("spec.nodeName")
	return ok && node != ""
}

func (i *interest) change(w watched, by int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.counts == nil {
		i.counts = map[watched]int{}
	}
	if i.counts[w] += by; i.counts[w] == 0 {
		delete(i.counts, w)
	}
}

// count returns how many watches may get the event of a write.
func (i *interest) count(r *requestInfo) int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if len(i.counts) == 0 {
		return 0
	}
	w := watched{group: r.Group, resource: r.Resource}
	n := i.counts[w]
	if w.namespace = r.Namespace; w.namespace != "" {
		n += i.counts[w]
	}
	if w.name = r.Name; w.name != "" {
		n += i.counts[w]
	}
	return n
}
