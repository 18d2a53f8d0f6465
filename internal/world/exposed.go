package world

import (
	"encoding/json"
	"strings"
	"sync"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// exposed are the metrics of a world with a series for each collection, controller or object.
type exposed struct {
	store  *store.Store
	custom *crd.Set
	loops  *controller.Loops

	mu       sync.Mutex            // guards the rest; it is not held while a client reads
	services map[string]apiService // by name
	catalog  *resource.Catalog     // of collections
	all      []served
}

// apiService is an APIService, and whether its condition Available is not true.
type apiService struct {
	object      *store.Object
	unavailable bool
}

// Expose implements exposition.Source.
func (e *exposed) Expose(w *exposition.Writer) {
	e.objects(w)
	e.writes(w)
	e.queues(w)
	e.unavailable(w)
}

// served is a collection that is served now.
type served struct {
	collection string
	labels     string    // of its objects
	writes     [3]string // of its writes, by store.Operation
}

// served returns the collections of the catalog, each once. The caller does not change them.
func (e *exposed) served() []served {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.custom.Catalog()
	if e.catalog == now {
		return e.all
	}
	var all []served
	seen := map[string]bool{}
	for t := range now.Types() {
		if t.Collection == "" || seen[t.Collection] {
			continue
		}
		seen[t.Collection] = true
		name, group, _ := strings.Cut(t.Collection, ".")
		c := served{collection: t.Collection, labels: exposition.Labels("group", group, "resource", name)}
		for o := range c.writes {
			c.writes[o] = exposition.Labels("group", group, "operation", store.Operation(o).String(), "resource", name)
		}
		all = append(all, c)
	}
	e.catalog, e.all = now, all
	return all
}

// objects writes how many objects the collections have.
func (e *exposed) objects(w *exposition.Writer) {
	all, state := e.served(), e.store.Any()
	counts := make([]uint64, len(all))
	for i := range all {
		counts[i] = uint64(state.Snapshot(all[i].collection).Len())
	}
	w.Family("apiserver_resource_objects", exposition.GaugeKind, "Stored objects, by group and resource.")
	for i := range all {
		w.Uint(all[i].labels, counts[i])
	}
}

// writes writes how long writes took, for dashboards of etcd.
func (e *exposed) writes(w *exposition.Writer) {
	all := e.served()
	each := func(f func(labels string, h *exposition.Histogram)) {
		for i := range all {
			for o, h := range e.store.Durations(all[i].collection) {
				f(all[i].writes[o], h)
			}
		}
	}
	w.Family("etcd_request_duration_seconds", exposition.HistogramKind, "Time until a write was durable. Reads are from memory, and not in it.")
	each(w.Histogram)
	w.Family("etcd_requests_total", exposition.CounterKind, "Durable writes.")
	each(func(labels string, h *exposition.Histogram) { w.Uint(labels, h.Count()) })
}

// queues writes the metrics of controllers.
func (e *exposed) queues(w *exposition.Writer) {
	all := e.loops.Metrics()
	labels := make([]string, len(all))
	for i := range all {
		labels[i] = exposition.Labels("name", all[i].Name)
	}
	w.Family("workqueue_depth", exposition.GaugeKind, "Objects that a controller has to look at.")
	for i := range all {
		w.Float(labels[i], all[i].Depth())
	}
	w.Family("workqueue_adds_total", exposition.CounterKind, "Objects that a controller had to look at.")
	for i := range all {
		w.Float(labels[i], all[i].Adds())
	}
	w.Family("workqueue_retries_total", exposition.CounterKind, "Failures of a controller; it retries each.")
	for i := range all {
		w.Float(labels[i], all[i].Retries())
	}
	w.Family("workqueue_queue_duration_seconds", exposition.HistogramKind, "Time for which an object waited for a controller.")
	for i := range all {
		w.Histogram(labels[i], all[i].Waits)
	}
	w.Family("workqueue_work_duration_seconds", exposition.HistogramKind, "Time that a controller took for an object.")
	for i := range all {
		w.Histogram(labels[i], all[i].Works)
	}
	w.Family("workqueue_unfinished_work_seconds", exposition.GaugeKind, "Time that a controller has spent on objects that it still works on.")
	for i := range all {
		w.Float(labels[i], all[i].Unfinished())
	}
	w.Family("workqueue_longest_running_processor_seconds", exposition.GaugeKind, "Time that a controller has spent on the object that it has worked on for the longest time.")
	for i := range all {
		w.Float(labels[i], all[i].Longest())
	}
	w.Family("tidemark_controller_paused", exposition.GaugeKind, "1 while a kube-controller-manager holds its lease and does the work.")
	for i := range all {
		w.Float(labels[i], all[i].Paused())
	}
}

// apiServices is the collection of APIServices.
const apiServices = "apiservices.apiregistration.k8s.io"

// unavailable writes which APIServices are not available.
func (e *exposed) unavailable(w *exposition.Writer) {
	w.Family("aggregator_unavailable_apiservice", exposition.GaugeKind, "1 if an APIService is not available.")
	for _, s := range e.apiServices() {
		value := uint64(0)
		if s.unavailable {
			value = 1
		}
		w.Uint(exposition.Labels("name", s.object.Key), value)
	}
}

// apiServices returns the APIServices, ordered by name. It decodes each version of an object once.
func (e *exposed) apiServices() (all []apiService) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := map[string]apiService{}
	for o := range e.store.Any().Snapshot(apiServices).Scan("", "") {
		s := e.services[o.Key]
		if s.object != o {
			s = apiService{o, !available(o)}
		}
		next[o.Key] = s
		all = append(all, s)
	}
	e.services = next
	return all
}

func available(o *store.Object) bool {
	var s struct {
		Status apiregistrationv1.APIServiceStatus `json:"status"`
	}
	if json.Unmarshal(o.Bytes(), &s) != nil {
		return false
	}
	for _, c := range s.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return c.Status == apiregistrationv1.ConditionTrue
		}
	}
	return false
}
