package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// Whether an extension server is available is checked as kube-apiserver does it: when its APIService, its Service or the
// EndpointSlices of that change, and every 30 seconds; after a failed discovery check, again after 5 ms, and then after
// twice as long each time.

const (
	checkEvery    = 30 * time.Second
	firstRetry    = 5 * time.Millisecond
	checkTimeout  = 5 * time.Second
	checkRequests = 5 // at once; one success is enough
)

// failedDiscovery is the reason of an extension server that did not respond as it should.
const failedDiscovery = "FailedDiscoveryCheck"

// watch checks the backend until it is closed.
func (b *Backend) watch() {
	repeat(b.ctx, b.changed, firstRetry, checkEvery, func() (again bool) {
		turn := b.of.checks
		if b.condition().reason == failedDiscovery {
			turn = b.of.rechecks
		}
		select {
		case turn <- struct{}{}:
		case <-b.ctx.Done():
			return false
		}
		c, again := b.check()
		<-turn
		if b.ctx.Err() != nil {
			return false
		}
		return b.set(c) || again
	})
}

// repeat calls f every interval until the context ends. While f reports that it failed, it waits less: first, and then twice as
// long each time. A receive from wake ends a wait.
func repeat(ctx context.Context, wake <-chan struct{}, first, interval time.Duration, f func() (failed bool)) {
	retry := first
	for ctx.Err() == nil {
		wait := interval
		if f() {
			wait, retry = retry, min(2*retry, interval)
		} else {
			retry = first
		}
		sleep(ctx, wake, wait)
	}
}

// sleep waits until the time is over, wake has a value, or the context ends.
func sleep(ctx context.Context, wake <-chan struct{}, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// check returns the condition of the backend. Again reports that it is checked again soon.
func (b *Backend) check() (_ condition, again bool) {
	if c := b.checkService(); c != nil {
		return *c, false
	}
	if err := b.checkDiscovery(); err != nil {
		return condition{apiregistrationv1.ConditionFalse, failedDiscovery, webhook.Cut(err.Error())}, true
	}
	return condition{apiregistrationv1.ConditionTrue, "Passed", "all checks passed"}, false
}

// checkService checks the Service and its endpoints; nil: they are there.
func (b *Backend) checkService() *condition {
	missing := func(reason, format string, args ...any) *condition {
		return &condition{apiregistrationv1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
	}
	k, s := b.service, b.of.c.Store.Any()
	service, err := readStored(s, k)
	switch {
	case err != nil:
		return &condition{apiregistrationv1.ConditionUnknown, "ServiceAccessError", fmt.Sprintf("service/%s in %q cannot be checked due to: %v", k.name, k.namespace, err)}
	case service == nil:
		return missing("ServiceNotFound", "service/%s in %q is not present", k.name, k.namespace)
	case service.Spec.Type != corev1.ServiceTypeClusterIP && service.Spec.Type != "":
		return nil
	}
	i := portOf(service, k.port)
	if i < 0 {
		return missing("ServicePortError", "service/%s in %q is not listening on port %d", k.name, k.namespace, k.port)
	}
	port, found := service.Spec.Ports[i].Name, false
	for slice := range slicesOf(s, k) {
		if found = true; hasReady(slice) && hasPort(slice, port) != nil {
			return nil
		}
	}
	if !found {
		return missing("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", k.name, k.namespace)
	}
	return missing("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", k.name, k.namespace, port)
}

// hasReady reports whether an EndpointSlice has a ready endpoint.
func hasReady(s *discoveryv1.EndpointSlice) bool {
	for i := range s.Endpoints {
		if isReady(&s.Endpoints[i]) {
			return true
		}
	}
	return false
}

// checkDiscovery requests the discovery document of the group and version, several times at once. With endpoint routing,
// these are different endpoints.
func (b *Backend) checkDiscovery() error {
	if b.broken != nil {
		return b.broken
	}
	ctx, cancel := context.WithTimeout(b.ctx, checkTimeout)
	defer cancel()
	results := make(chan error, checkRequests)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel() // the others are not needed then
	for range checkRequests {
		all.Go(func() { results <- b.probe(ctx) })
	}
	var err error
	for range checkRequests {
		if err = <-results; err == nil {
			return nil
		}
	}
	b.transport.CloseIdleConnections()
	return err
}

// probe requests the discovery document once.
func (b *Backend) probe(ctx context.Context) error {
	host, err := b.address()
	if err != nil {
		return err
	}
	url := "https://" + host + "/apis/" + b.group + "/" + b.version
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	b.of.sign(r)
	transport.SetAuthProxyHeaders(r, aggregatorUser, "", []string{masters}, nil)
	response, err := b.transport.RoundTrip(r)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = errSlow
		}
		return fmt.Errorf("failing or missing response from %s: Get %q: %w", url, url, webhook.Quoteless(err))
	}
	response.Body.Close()
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("failing or missing response from %s: bad status from %s: %d", url, url, response.StatusCode)
	}
	return nil
}

// errSlow is the error of a probe that takes too long, in the words of net/http's Client.
var errSlow = fmt.Errorf("%w (Client.Timeout exceeded while awaiting headers)", context.DeadlineExceeded)

// The users as whom the server itself sends requests.
const (
	aggregatorUser = "system:kube-aggregator"
	openAPIUser    = "system:aggregator"
	masters        = "system:masters"
)

// set makes c the condition, and writes it to the APIService if this server writes them. It reports whether the write
// failed.
func (b *Backend) set(c condition) (failed bool) {
	before := b.condition()
	b.current.Store(&c)
	if before != c {
		b.of.c.Log.Info("the availability of an APIService changed", "name", b.name, "status", c.status, "reason", c.reason, "message", c.message)
		b.source.refresh()
		if c.status != apiregistrationv1.ConditionTrue && (before.status == apiregistrationv1.ConditionTrue || before.reason != c.reason) {
			b.of.failures.count(b.name, c.reason)
		}
	}
	if b.of.c.Writes != nil && !b.of.c.Writes() {
		return false
	}
	if s, ok := b.of.table.Load().services[b.name]; ok && s.condition == c {
		return false // nothing to write; a stale table costs one more look
	}
	err := b.of.c.EditStatus(b.ctx, b.name, func(s *apiregistrationv1.APIService) bool {
		if e := entryOf(s); !sameSpec(&e, &b.entry) {
			return false
		}
		return setCondition(s, c, b.of.c.Now())
	})
	if err != nil && b.ctx.Err() == nil {
		b.of.c.Log.Warn("the condition of an APIService cannot be written", "name", b.name, "err", err)
	}
	return err != nil
}

// setCondition sets the condition Available, and reports whether it changed. Its time is that of the last change of the
// status.
func setCondition(s *apiregistrationv1.APIService, c condition, now time.Time) bool {
	made := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: c.status, Reason: c.reason, Message: c.message,
		LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
	}
	for i := range s.Status.Conditions {
		old := &s.Status.Conditions[i]
		if old.Type != made.Type {
			continue
		}
		if old.Status == made.Status {
			made.LastTransitionTime = old.LastTransitionTime
		}
		changed := condition{old.Status, old.Reason, old.Message} != c
		*old = made
		return changed
	}
	s.Status.Conditions = append(s.Status.Conditions, made)
	return true
}

// SetLocal sets the condition of an APIService without a Service. It reports whether it changed.
func SetLocal(s *apiregistrationv1.APIService, now time.Time) bool {
	return s.Spec.Service == nil && setCondition(s, condition{apiregistrationv1.ConditionTrue, "Local", "Local APIServices are always available"}, now)
}

// failures count how often APIServices became unavailable.
type failures struct {
	mu sync.Mutex
	of map[string]map[string]uint64 // by name and reason; guarded by mu
}

func (f *failures) count(name, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]map[string]uint64{}
	}
	if f.of[name] == nil {
		f.of[name] = map[string]uint64{}
	}
	f.of[name][reason]++
}

// forget drops the counts of an APIService that is gone.
func (f *failures) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, name)
}

// Expose implements exposition.Source.
func (a *Aggregator) Expose(w *exposition.Writer) {
	w.Family("aggregator_unavailable_apiservice_total", exposition.CounterKind, "How often an APIService became unavailable, by name and reason.")
	f := &a.failures
	f.mu.Lock()
	lines := map[string]uint64{}
	for name, reasons := range f.of {
		for reason, n := range reasons {
			lines[exposition.Labels("name", name, "reason", reason)] = n
		}
	}
	f.mu.Unlock()
	for _, labels := range sortedKeys(lines) {
		w.Uint(labels, lines[labels])
	}
}
