package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// The admission scenarios measure the cost of policies and webhooks: create of a pod without any,
// under three validating policies of ten expressions each, and with a call of a webhook; and create
// beside writes whose webhook does not respond. Each has a namespace of its own, which the policies
// and webhooks select. The webhook runs in the process of the benchmark, so the CPU of the server
// does not include it.

const admissionAPI = "/apis/admissionregistration.k8s.io/v1/"

// policiesOfPod is how many policies decide on a pod.
const policiesOfPod = 3

// podExpressions are the checks of pods by policies. With the label of the last one, a policy
// denies, which shows that it is in effect.
var podExpressions = []string{
	"object.metadata.name.size() <= 63",
	"has(object.metadata.labels) && object.metadata.labels.size() < 50",
	"object.spec.containers.size() < 20",
	"object.spec.containers.all(c, c.image != '' && !c.image.contains('@@'))",
	"!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
	"!has(object.spec.hostPID) || !object.spec.hostPID",
	"!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
	"object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",
	"object.spec.containers.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort)))",
	"!has(object.metadata.labels) || !('bench-deny' in object.metadata.labels) || object.metadata.labels['bench-deny'] != '%d'",
}

// hungWrites wait for a webhook that does not respond.
const hungWrites = 50

var admissionVariants = []variant{{name: "pod", round: admissionPods}, {name: "hung", round: admissionHung}}

// admissionPods creates pods under each of the set-ups, in an order that changes with each round.
func admissionPods(ctx context.Context, b *bed) (rows []row, err error) {
	hook, err := newHook()
	if err != nil {
		return nil, err
	}
	defer hook.close()
	none := func(context.Context, *installed) error { return nil }
	setups := []struct {
		name, role string
		install    func(context.Context, *installed) error
	}{
		{"without", "made", none},
		{"3 policies", "policies", func(ctx context.Context, i *installed) error { return i.policies(ctx) }},
		{"webhook", "webhook", func(ctx context.Context, i *installed) error { return i.webhook(ctx, hook, "allow") }},
	}
	rows = make([]row, len(setups))
	b.admissionRounds++
	for i := range setups {
		k := (i + b.admissionRounds) % len(setups)
		w, err := b.underAdmission(ctx, setups[k].role, setups[k].install, func(w *crew) (Measurements, error) { return w.measure(ctx) })
		if err != nil {
			return nil, err
		}
		w.name = setups[k].name
		rows[k] = w
	}
	return rows, nil
}

// admissionHung creates pods alone, and while other writes wait for a webhook.
func admissionHung(ctx context.Context, b *bed) ([]row, error) {
	hook, err := newHook()
	if err != nil {
		return nil, err
	}
	defer hook.close()
	var rows []row
	for _, beside := range []int{0, hungWrites} {
		r, err := b.underAdmission(ctx, "made", func(context.Context, *installed) error { return nil }, func(w *crew) (m Measurements, err error) {
			err = b.besideHung(ctx, hook, beside, func() error {
				m, err = w.measure(ctx)
				return err
			})
			return m, err
		})
		if err != nil {
			return nil, err
		}
		r.name = fmt.Sprintf("beside %d", beside)
		rows = append(rows, r)
	}
	return rows, nil
}

// besideHung calls work while writes in another namespace wait for a webhook.
func (b *bed) besideHung(ctx context.Context, hook *hook, writes int, work func() error) (err error) {
	if writes == 0 {
		return work()
	}
	ns, err := b.namespace(ctx, "hung")
	if err != nil {
		return err
	}
	in := &installed{bed: b, namespace: ns}
	defer func() { err = errors.Join(err, in.remove(context.WithoutCancel(ctx))) }()
	if err := in.webhook(ctx, hook, "hang"); err != nil {
		return err
	}
	conn, err := b.target.dial(nil)
	if err != nil {
		return err
	}
	defer conn.close()
	waiting, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	before := hook.calls.Load()
	for i := range writes {
		wg.Go(func() { // it fails in the end
			newClient(conn, i, b.json).small(waiting, http.MethodPost, b.collection(ns, podsOf, ""), b.objects.pod(fmt.Sprint("hung-", i), i))
		})
	}
	err = until50(ctx, func() (bool, error) { return hook.calls.Load()-before >= int64(writes), nil })
	if err != nil {
		return err
	}
	return work()
}

// underAdmission creates pods in a namespace, after install.
func (b *bed) underAdmission(ctx context.Context, role string, install func(context.Context, *installed) error, measure func(*crew) (Measurements, error)) (r row, err error) {
	ns, err := b.namespace(ctx, role)
	if err != nil {
		return row{}, err
	}
	in := &installed{bed: b, namespace: ns}
	defer func() { err = errors.Join(err, in.remove(context.WithoutCancel(ctx))) }()
	if err := install(ctx, in); err != nil {
		if notServed(err) {
			err = &skipError{err.Error()}
		}
		return row{}, err
	}
	u := b.collection(ns, podsOf, "")
	w := b.crew(accessClients, func(ctx context.Context, c *client, o op) error {
		return c.object(ctx, http.MethodPost, u, b.objects.pod(fmt.Sprintf("made-%09d", b.serial.Add(1)), int(o.number)), true)
	})
	m, err := measure(w)
	if err != nil {
		return row{}, err
	}
	return row{loop: w.loop(), Measurements: m}, b.empty(ctx, ns, podsOf)
}

// installed are the configurations of a namespace.
type installed struct {
	bed       *bed
	namespace string
	made      []*url.URL
}

// selector selects the namespace.
func (i *installed) selector() string {
	return fmt.Sprintf(`{"matchLabels":{"kubernetes.io/metadata.name":%q}}`, i.namespace)
}

func (i *installed) store(ctx context.Context, resource, name, rest string) error {
	u := i.bed.target.url(admissionAPI+resource, "")
	if _, err := i.bed.admin.small(ctx, http.MethodPost, u, fmt.Appendf(nil, `{"metadata":{"name":%q},%s}`, name, rest)); err != nil {
		return err
	}
	i.made = append(i.made, i.bed.target.url(admissionAPI+resource+"/"+name, ""))
	return nil
}

// remove deletes the stored objects, the last one first.
func (i *installed) remove(ctx context.Context) error {
	var errs []error
	for k := len(i.made) - 1; k >= 0; k-- {
		_, err := i.bed.admin.small(ctx, http.MethodDelete, i.made[k], nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

const podRules = `[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["pods"]}]`

// policies stores the policies, and waits until all are in effect.
func (i *installed) policies(ctx context.Context) error {
	for n := range policiesOfPod {
		name := fmt.Sprintf("%s-%d", i.namespace, n)
		var all []map[string]string
		for _, text := range podExpressions {
			if strings.Contains(text, "%d") {
				text = fmt.Sprintf(text, n)
			}
			all = append(all, map[string]string{"expression": text})
		}
		validations, err := json.Marshal(all)
		if err != nil {
			return err
		}
		err = i.store(ctx, "validatingadmissionpolicies", name, fmt.Sprintf(`"spec":{"matchConstraints":{"resourceRules":%s},"validations":%s}`, podRules, validations))
		if err != nil {
			return err
		}
		err = i.store(ctx, "validatingadmissionpolicybindings", name, fmt.Sprintf(`"spec":{"policyName":%q,"validationActions":["Deny"],"matchResources":{"namespaceSelector":%s}}`, name, i.selector()))
		if err != nil {
			return err
		}
	}
	for n := range policiesOfPod {
		label := fmt.Sprintf(`"labels":{"bench-deny":"%d",`, n)
		err := until50(ctx, func() (bool, error) {
			err := i.probe(ctx, strings.Replace(string(i.bed.objects.pod("probe", 0)), `"labels":{`, label, 1))
			if hasCode(err, http.StatusUnprocessableEntity) {
				return true, nil
			}
			return false, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// webhook stores a webhook, and waits until it is called.
func (i *installed) webhook(ctx context.Context, hook *hook, path string) error {
	name := i.namespace
	err := i.store(ctx, "validatingwebhookconfigurations", name, fmt.Sprintf(
		`"webhooks":[{"name":"bench.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","timeoutSeconds":30,"rules":%s,"namespaceSelector":%s,
		"clientConfig":{"url":"%s/%s","caBundle":%q}}]`,
		podRules, i.selector(), hook.url, path, hook.bundle))
	if err != nil {
		return err
	}
	before := hook.probes.Load()
	return until50(ctx, func() (bool, error) {
		err := i.probe(ctx, string(i.bed.objects.pod("probe", 0)))
		return hook.probes.Load() > before, err
	})
}

// probe sends a dry-run.
func (i *installed) probe(ctx context.Context, pod string) error {
	u := i.bed.collection(i.namespace, podsOf, "dryRun=All")
	_, err := i.bed.admin.small(ctx, http.MethodPost, u, []byte(pod))
	return err
}

// until50 repeats a check every 50 ms until it holds, for up to half a minute.
func until50(ctx context.Context, check func() (bool, error)) error {
	for end := time.Now().Add(30 * time.Second); ; {
		if done, err := check(); done || err != nil {
			return err
		}
		if time.Now().After(end) {
			return errors.New("a configuration of admission is not in effect after 30 s")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
