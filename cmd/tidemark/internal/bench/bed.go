package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// bed is one server under test, with the namespaces and objects that the benchmark created on it.
type bed struct {
	target  *target
	server  Server
	options Options
	objects objects
	// suffix is part of the name of every namespace, the same for both servers.
	suffix string
	// epoch is the zero of the times in objects. They are measured on the monotonic clock.
	epoch time.Time
	// note prints a line to the user.
	note func(format string, args ...any)

	// other is the same through the other server of the cluster, with its own connections. It lacks
	// the namespaces, definitions and memory of bed. Nil: there is no other server.
	other *bed

	conns []*conn
	json  http.Header
	admin *client  // for preparation only, never for measured requests
	made  []string // namespaces, in order
	// filled is the number of objects that a namespace holds in all rounds.
	filled map[string]int
	serial atomic.Uint64
	// vanishes reports whether a deleted namespace was seen to go away.
	vanishes bool
	// defined holds the definitions that are served in all rounds, roles the roles that
	// have definitions.
	defined, roles map[string]bool
	// bound are the namespaces with roles and bindings. accessRounds counts the rounds that used them.
	bound        map[string]bool
	accessRounds int
	// admissionRounds counts the rounds of admission/pod.
	admissionRounds int
	// before is the memory before the first definitions: nil until then.
	before *Memory
	// idle is the memory before the first idle watches: nil until then.
	idle *Memory
	// silent means that the server does not expose metrics of its Go runtime.
	silent bool
}

// The resources of the objects that the benchmark creates.
const (
	podsOf        = "pods"
	configMapsOf  = "configmaps"
	deploymentsOf = "deployments"
	servicesOf    = "services"
	eventsOf      = "events"
	leasesOf      = "leases"
)

func newBed(t *target, s Server, o Options, suffix string, note func(string, ...any)) (*bed, error) {
	b := &bed{
		target: t, server: s, options: o, objects: objects{seed: o.Seed, pad: s.Pad},
		suffix: suffix, epoch: time.Now(), filled: map[string]int{}, defined: map[string]bool{}, roles: map[string]bool{}, bound: map[string]bool{}, note: note, json: t.header(acceptJSON, "identity"),
	}
	for range o.Connections {
		c, err := t.dial(nil)
		if err != nil {
			return nil, err
		}
		b.conns = append(b.conns, c)
	}
	admin, err := t.dial(nil)
	if err != nil {
		return nil, err
	}
	b.admin = newClient(admin, 0, b.json)
	return b, nil
}

// connect opens the connections with one request on each. Two concurrent requests on a
// new one would open a second connection.
func (b *bed) connect(ctx context.Context) error {
	for _, c := range b.conns {
		if _, err := newClient(c, 0, b.json).small(ctx, http.MethodGet, b.target.url("/version", ""), nil); err != nil {
			return err
		}
	}
	return nil
}

// openOther connects to the other server of the cluster, if the options have one.
func (b *bed) openOther(ctx context.Context) error {
	if b.server.OtherKubeconfig == "" {
		return nil
	}
	s := Server{Kubeconfig: b.server.OtherKubeconfig}
	t, err := loadTarget(s)
	if err != nil {
		return err
	}
	if b.other, err = newBed(t, s, b.options, b.suffix, b.note); err != nil {
		return err
	}
	return b.other.connect(ctx)
}

// elsewhere returns the other server of the cluster, or the server itself if there is none.
func (b *bed) elsewhere() *bed {
	if b.other != nil {
		return b.other
	}
	return b
}

// reachable reports whether the server responds.
func (b *bed) reachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reachTimeout)
	defer cancel()
	_, err := b.admin.small(ctx, http.MethodGet, b.target.url("/version", ""), nil)
	var refused *responseError
	return err == nil || errors.As(err, &refused)
}

// close closes the connections.
func (b *bed) close() {
	if b.other != nil {
		b.other.close()
	}
	for _, c := range append(b.conns, b.admin.conn) {
		c.close()
	}
}

// sinceEpoch returns a time as it is written into objects: nanoseconds since the epoch.
func (b *bed) sinceEpoch(t time.Time) int64 { return int64(t.Sub(b.epoch)) }

// collection returns the URL of a collection in a namespace.
func (b *bed) collection(namespace, resource, query string) *url.URL {
	version := "/api/v1"
	switch {
	case resource == deploymentsOf:
		version = "/apis/apps/v1"
	case resource == leasesOf:
		version = "/apis/coordination.k8s.io/v1"
	case resource == rolesOf || resource == roleBindingsOf:
		version = "/apis/rbac.authorization.k8s.io/v1"
	case strings.Contains(resource, "."): // a custom resource: plural.group
		plural, group, _ := strings.Cut(resource, ".")
		version, resource = "/apis/"+group+"."+b.domain()+"/v1", plural
	}
	return b.target.url(version+"/namespaces/"+namespace+"/"+resource, query)
}

// object returns the URL of an object.
func (b *bed) object(namespace, resource, name string) *url.URL {
	u := b.collection(namespace, resource, "")
	u.Path += "/" + name
	return u
}

// namespace returns the name of a role's namespace, and creates it on first use.
func (b *bed) namespace(ctx context.Context, role string) (string, error) {
	name := "bench-" + b.suffix + "-" + role
	for _, made := range b.made {
		if made == name {
			return name, nil
		}
	}
	body := fmt.Appendf(nil, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":%q,"labels":{"bench.tidemark.dev/run":%q}}}`, name, b.suffix)
	if _, err := b.admin.small(ctx, http.MethodPost, b.target.url("/api/v1/namespaces", ""), body); err != nil {
		return "", err
	}
	b.made = append(b.made, name)
	// The ServiceAccount admission plugin requires this account for pods. There may be no
	// controller that creates it, or the controller may have been faster.
	account := []byte(`{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"default"}}`)
	_, err := b.admin.small(ctx, http.MethodPost, b.collection(name, "serviceaccounts", ""), account)
	if err != nil && !notServed(err) && !hasCode(err, http.StatusConflict) {
		return "", err
	}
	return name, nil
}

// fillers is the number of clients that create and delete objects outside of measurements.
const fillers = 16

// each calls do for the numbers below n, from some clients at once, until one fails.
func (b *bed) each(ctx context.Context, n int, do func(c *client, i int) error) error {
	var clients [fillers]*client
	for k := range clients {
		clients[k] = newClient(b.conns[k%len(b.conns)], k, b.json)
	}
	return inParallel(ctx, fillers, n, func(k, i int) error { return do(clients[k], i) })
}

// inParallel calls do for the numbers i below n, from goroutines with the numbers k
// below limit, until one fails.
func inParallel(ctx context.Context, limit, n int, do func(k, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for k := range min(limit, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(k, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// podName is the name of a pod of the collection that is read.
func podName(i int) string { return fmt.Sprintf("web-5c689d88bb-%07d", i) }

// podsNamespace returns the namespace with the pods that are read; it makes them
// the first time.
func (b *bed) podsNamespace(ctx context.Context) (string, error) {
	ns, err := b.namespace(ctx, "pods")
	if err != nil || b.filled[ns] > 0 {
		return ns, err
	}
	if err := b.fill(ctx, ns, b.options.Objects); err != nil {
		return "", err
	}
	b.filled[ns] = b.options.Objects
	return ns, nil
}

// fill makes pods in a namespace.
func (b *bed) fill(ctx context.Context, ns string, n int) error {
	u := b.collection(ns, podsOf, "")
	return b.each(ctx, n, func(c *client, i int) error {
		return c.object(ctx, http.MethodPost, u, b.objects.pod(podName(i), i), true)
	})
}

// configMapName is the name of a ConfigMap that is updated.
func configMapName(i int) string { return fmt.Sprintf("config-%05d", i) }

// configMaps returns the namespace of a role with n ConfigMaps or more; it makes
// those that are not there.
func (b *bed) configMaps(ctx context.Context, role string, n int) (string, error) {
	g, err := b.configs(ctx, role, configMapsOf, n)
	return g.ns, err
}

// fillConfigMaps makes ConfigMaps in a namespace.
func (b *bed) fillConfigMaps(ctx context.Context, ns string, n int) error {
	return configs{bed: b, ns: ns, resource: configMapsOf}.fill(ctx, 0, n)
}

// revision is the most recent resource version of a collection.
func (b *bed) revision(ctx context.Context, ns, resource string) (uint64, error) {
	body, err := b.admin.small(ctx, http.MethodGet, b.collection(ns, resource, "limit=1"), nil)
	if err != nil {
		return 0, err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	// Metadata can follow the object, which has a version of its own.
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, fmt.Errorf("the list of %s: %w", resource, err)
	}
	rv, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the list of %s has no resource version: %w", resource, err)
	}
	return rv, nil
}

// empty deletes all objects of a collection, one by one if the server has no
// deletecollection.
func (b *bed) empty(ctx context.Context, ns, resource string) error {
	_, err := b.admin.small(ctx, http.MethodDelete, b.collection(ns, resource, "gracePeriodSeconds=0"), nil)
	if err == nil || !notServed(err) {
		return err
	}
	for {
		page, err := b.page(ctx, ns, resource)
		if notServed(err) {
			return nil // no such objects could be created either
		}
		if err != nil || len(page) == 0 {
			return err
		}
		err = b.each(ctx, len(page), func(c *client, i int) error {
			_, err := c.small(ctx, http.MethodDelete, b.object(ns, resource, page[i]), nil)
			if hasCode(err, http.StatusNotFound) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// page returns the names of the first objects of a collection.
func (b *bed) page(ctx context.Context, ns, resource string) ([]string, error) {
	body, err := b.admin.small(ctx, http.MethodGet, b.collection(ns, resource, "limit=500"), nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the list of %s: %w", resource, err)
	}
	names := make([]string, len(list.Items))
	for i, item := range list.Items {
		names[i] = item.Metadata.Name
	}
	return names, nil
}

// cleanupTimeout bounds the time of cleanup.
const cleanupTimeout = 5 * time.Minute

// reachTimeout bounds the time in which a server responds if it runs.
const reachTimeout = 10 * time.Second

// cleanup removes the created objects, even if the context has ended. It leaves a
// namespace that the server does not delete empty, and notes it.
func (b *bed) cleanup(ctx context.Context) error {
	if b.other != nil && !b.reachable(ctx) { // as after an outage
		b.other.made, b.other.roles = b.made, b.roles
		return b.other.cleanup(ctx)
	}
	if b.options.Keep {
		b.note("%s keeps the namespaces of the run: %s", b.target.name, strings.Join(b.made, " "))
		return nil
	}
	var errs []error
	for role := range b.roles { // their objects go with them
		errs = append(errs, b.undefine(ctx, role))
	}
	b.defined = map[string]bool{}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var left []string
	var why error
	for _, ns := range b.made {
		err := errors.Join(b.empty(ctx, ns, podsOf), b.empty(ctx, ns, configMapsOf), b.empty(ctx, ns, deploymentsOf), b.unbind(ctx, ns))
		if err != nil {
			errs = append(errs, fmt.Errorf("objects are left in the namespace %s: %w", ns, err))
			continue
		}
		// The account may not be there, and a controller may make it again.
		b.admin.small(ctx, http.MethodDelete, b.object(ns, "serviceaccounts", "default"), nil)
		_, err = b.admin.small(ctx, http.MethodDelete, b.target.url("/api/v1/namespaces/"+ns, ""), nil)
		var refused *responseError
		switch {
		case errors.As(err, &refused):
			left, why = append(left, ns), err
		case err != nil:
			errs = append(errs, err)
		}
	}
	if len(left) > 0 {
		b.note("%s does not delete namespaces; these are left, empty: %s (%v)", b.target.name, strings.Join(left, " "), why)
	}
	b.made, b.filled = nil, map[string]int{}
	return errors.Join(errs...)
}
