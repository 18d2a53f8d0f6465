package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
)

const (
	// runningPods is how many pods are updated and patched in turn.
	runningPods = 1000
	// patchClients is how many clients patch.
	patchClients = 16
)

// running returns the namespace with n pods as they are in a cluster, and their JSON: a controller
// made them, a kubelet set their status, and the managed fields have both.
func (b *bed) running(ctx context.Context, n int) (ns string, known [][]byte, err error) {
	if ns, err = b.fillRunning(ctx, "running", n); err != nil {
		return "", nil, err
	}
	known = make([][]byte, n)
	err = b.each(ctx, n, func(c *client, i int) error {
		c.revision = 0 // another pod's says nothing of this one's
		response, err := c.response(ctx, http.MethodGet, b.object(ns, podsOf, podName(i)), nil, false)
		known[i] = bytes.Clone(response)
		return err
	})
	return ns, known, err
}

// fillRunning returns the namespace of a role with n such pods or more; it makes those
// that are not there.
func (b *bed) fillRunning(ctx context.Context, role string, n int) (string, error) {
	ns, err := b.namespace(ctx, role)
	if err != nil {
		return "", err
	}
	have := b.filled[ns]
	controller, kubelet := b.header(controllerAgent, "application/json"), b.header(kubeletAgent, strategicPatch)
	err = b.each(ctx, n-min(have, n), func(c *client, i int) error {
		i += have
		c.json = controller
		made, err := c.response(ctx, http.MethodPost, b.collection(ns, podsOf, ""), b.objects.pod(podName(i), i), true)
		if err != nil {
			return err
		}
		c.json = kubelet
		p := podPatch{uid: uidIn(made)}
		_, err = c.change(ctx, http.MethodPatch, b.status(ns, i), p.first(), p.wrote())
		return err
	})
	if err == nil {
		b.filled[ns] = max(have, n)
	}
	return ns, err
}

// updatePodsRound updates pods as a controller does: it sends the whole object that it has read
// last, with its managed fields and resource version, and one annotation changed.
func updatePodsRound(ctx context.Context, b *bed, clients int) ([]row, error) {
	t := b.turns(clients, runningPods)
	ns, known, err := b.running(ctx, t.objects)
	if err != nil {
		return nil, err
	}
	w := b.crew(clients, func(ctx context.Context, c *client, _ op) error {
		i := t.next(c)
		const updates = 1 << 63 // no pod was created with one of them
		checksum, err := annotated(known[i], b.objects.random(updates|b.serial.Add(1), checksumBytes))
		if err != nil {
			return err
		}
		response, err := c.change(ctx, http.MethodPut, b.object(ns, podsOf, podName(i)), known[i], checksum)
		known[i] = bytes.Clone(response)
		return err
	})
	return w.rows(w.measure(ctx))
}

var checksumKey = []byte(`"checksum/config":"`)

// annotated writes a checksum into a pod, and returns the member that it is then.
func annotated(pod, checksum []byte) (string, error) {
	at := bytes.Index(pod, checksumKey)
	if at < 0 || len(pod) < at+len(checksumKey)+len(checksum) {
		return "", fmt.Errorf("a pod has lost its annotation: %.200s", pod)
	}
	n := copy(pod[at+len(checksumKey):], checksum)
	return string(pod[at : at+len(checksumKey)+n]), nil
}

var patchPodsVariants = []variant{
	{name: "status-strategic", round: patchPodsRound(kubeletAgent, strategicPatch, podPatch.strategic)},
	{name: "status-merge", round: patchPodsRound(kubeletAgent, mergePatch, podPatch.merge)},
	{name: "label-merge", round: patchPodsRound("kubectl/v1.36.3 (linux/amd64) kubernetes/bench", mergePatch, nil)},
}

// patchPodsRound patches the status of pods, or a label of them when there is no
// patch of the status.
func patchPodsRound(agent, contentType string, statusPatch func(podPatch) []byte) func(ctx context.Context, b *bed) ([]row, error) {
	return func(ctx context.Context, b *bed) ([]row, error) {
		t := b.turns(patchClients, runningPods)
		ns, known, err := b.running(ctx, t.objects)
		if err != nil {
			return nil, err
		}
		w := b.crew(patchClients, func(ctx context.Context, c *client, _ op) error {
			i := t.next(c)
			serial := b.serial.Add(1)
			if statusPatch == nil {
				label := fmt.Sprintf(`"revision":"r%d"`, serial)
				u := b.object(ns, podsOf, podName(i))
				u.RawQuery = "fieldManager=kubectl-label"
				_, err := c.change(ctx, http.MethodPatch, u, []byte(`{"metadata":{"labels":{`+label+`}}}`), label)
				return err
			}
			p := podPatch{serial, uidIn(known[i])}
			_, err := c.change(ctx, http.MethodPatch, b.status(ns, i), statusPatch(p), p.wrote())
			return err
		}).as(b.header(agent, contentType))
		return w.rows(w.measure(ctx))
	}
}
