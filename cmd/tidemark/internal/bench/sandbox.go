package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// sandboxClients is how many sandboxes are made at once.
const sandboxClients = 16

// Programs that work on a sandbox, beside the controller and the kubelet.
const (
	sandboxAgent   = "agent-sandbox-controller/v0.1.0 (linux/amd64) kubernetes/bench"
	schedulerAgent = "kube-scheduler/v1.36.3 (linux/amd64) kubernetes/bench/scheduler"
)

// sandboxRound makes, runs and deletes sandboxes of agents: a Pod and a headless Service that live for a moment, with all
// requests that a controller, the scheduler, a kubelet and a client send for one.
func sandboxRound(ctx context.Context, b *bed) ([]row, error) {
	ns, err := b.namespace(ctx, "sandboxes")
	if err != nil {
		return nil, err
	}
	made, err := b.makesSandboxes(ctx, ns)
	if err != nil {
		return nil, err
	}
	w := b.crew(sandboxClients, made.live)
	rows, err := w.rows(w.measure(ctx))
	if err != nil {
		return nil, err
	}
	return rows, b.empty(ctx, ns, eventsOf)
}

// sandboxes has the requests of sandboxes in a namespace.
type sandboxes struct {
	*bed
	ns                                             string
	controller, scheduler, kubelet, patches, lease http.Header
}

// makesSandboxes makes the Lease of the kubelet.
func (b *bed) makesSandboxes(ctx context.Context, ns string) (*sandboxes, error) {
	const plain = "application/json"
	s := &sandboxes{
		bed: b, ns: ns, controller: b.header(sandboxAgent, plain), scheduler: b.header(schedulerAgent, plain),
		kubelet: b.header(kubeletAgent, plain), patches: b.header(kubeletAgent, strategicPatch), lease: b.header(kubeletAgent, mergePatch),
	}
	body := []byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"node-0"},"spec":{"holderIdentity":"node-0","leaseDurationSeconds":40}}`)
	_, err := b.admin.small(ctx, http.MethodPost, b.collection(ns, leasesOf, ""), body)
	switch {
	case notServed(err):
		return nil, &skipError{err.Error()}
	case err != nil && !hasCode(err, http.StatusConflict):
		return nil, err
	}
	return s, nil
}

// live is the life of one sandbox.
func (s *sandboxes) live(ctx context.Context, c *client, o op) error {
	number := s.serial.Add(1)
	name := fmt.Sprintf("sandbox-%09d", number)
	uid, err := s.begin(ctx, c, name, int(o.number))
	if err == nil {
		err = s.run(ctx, c, name, uid, number)
	}
	if err == nil {
		err = s.end(ctx, c, name, uid, number)
	}
	return err
}

// begin has the controller make the Service and the Pod, and the scheduler assign the Pod to a node.
func (s *sandboxes) begin(ctx context.Context, c *client, name string, number int) (uid string, err error) {
	c.json = s.controller
	service := fmt.Appendf(nil, `{"kind":"Service","apiVersion":"v1","metadata":{"name":%q,"annotations":{"bench.tidemark.dev/mark":%q}},"spec":{"clusterIP":"None","selector":{"sandbox":%q}}}`, name, mark, name)
	if err := c.object(ctx, http.MethodPost, s.collection(s.ns, servicesOf, ""), service, true); err != nil {
		return "", err
	}
	pod, err := c.response(ctx, http.MethodPost, s.collection(s.ns, podsOf, ""), s.objects.pod(name, number), true)
	if err != nil {
		return "", err
	}
	uid = uidIn(pod)
	c.json = s.scheduler
	binding := fmt.Appendf(nil, `{"kind":"Binding","apiVersion":"v1","metadata":{"name":%q,"uid":%q},"target":{"kind":"Node","name":"node-0"}}`, name, uid)
	if _, err := c.small(ctx, http.MethodPost, s.pod(name, "/binding"), binding); err != nil {
		return "", err
	}
	return uid, s.event(ctx, c, name, uid, "Scheduled", "default-scheduler")
}

// run has the kubelet start the Pod, and the client see that it is ready.
func (s *sandboxes) run(ctx context.Context, c *client, name, uid string, number uint64) error {
	for _, reason := range []string{"Pulled", "Created", "Started"} {
		c.json = s.kubelet
		if err := s.event(ctx, c, name, uid, reason, "kubelet"); err != nil {
			return err
		}
	}
	c.json = s.patches
	p := podPatch{number &^ 1, uid} // ready
	if _, err := c.change(ctx, http.MethodPatch, s.pod(name, "/status"), p.first(), `"phase":"Running"`); err != nil {
		return err
	}
	c.json = s.lease
	renewed := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	if _, err := c.small(ctx, http.MethodPatch, s.object(s.ns, leasesOf, "node-0"), []byte(renewed)); err != nil {
		return err
	}
	c.json = s.controller
	pod, err := c.response(ctx, http.MethodGet, s.pod(name, ""), nil, false)
	if err == nil {
		err = holds(pod, `"nodeName":"node-0"`)
	}
	return err
}

// end has the client delete the Pod, the kubelet stop it and remove it, and the controller delete the Service.
func (s *sandboxes) end(ctx context.Context, c *client, name, uid string, number uint64) error {
	c.json = s.controller
	pod, err := c.response(ctx, http.MethodDelete, s.pod(name, ""), nil, true)
	if err == nil {
		err = holds(pod, `"deletionTimestamp":"`)
	}
	if err != nil {
		return err
	}
	c.json = s.kubelet
	if err := s.event(ctx, c, name, uid, "Killing", "kubelet"); err != nil {
		return err
	}
	c.json = s.patches
	p := podPatch{number | 1, uid} // not ready
	if _, err := c.change(ctx, http.MethodPatch, s.pod(name, "/status"), p.strategic(), p.wrote()); err != nil {
		return err
	}
	c.json = s.kubelet
	now := fmt.Appendf(nil, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":%q}}`, uid)
	if _, err := c.small(ctx, http.MethodDelete, s.pod(name, ""), now); err != nil {
		return err
	}
	c.json = s.controller
	_, err = c.small(ctx, http.MethodDelete, s.object(s.ns, servicesOf, name), nil)
	return err
}

func (s *sandboxes) pod(name, subresource string) *url.URL {
	u := s.object(s.ns, podsOf, name)
	u.Path += subresource
	return u
}

// event creates an Event of a Pod.
func (s *sandboxes) event(ctx context.Context, c *client, name, uid, reason, component string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"kind":"Event","apiVersion":"v1","metadata":{"name":"%s.%016x"},"involvedObject":{"kind":"Pod","apiVersion":"v1","namespace":%q,"name":%q,"uid":%q},`,
		name, s.serial.Add(1), s.ns, name, uid)
	fmt.Fprintf(&b, `"reason":%q,"message":"The sandbox %s is %s.","source":{"component":%q,"host":"node-0"},"firstTimestamp":%q,"lastTimestamp":%q,"count":1,"type":"Normal"}`,
		reason, name, reason, component, now, now)
	_, err := c.small(ctx, http.MethodPost, s.collection(s.ns, eventsOf, ""), b.Bytes())
	return err
}
