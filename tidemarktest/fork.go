package tidemarktest

import (
	"context"
	"net/http"
	"strings"
)

// marker is a write that makes the controllers of a fork start, which sleep until its first write.
// Leases do not count in histories and ends.
const marker = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"kube-system","name":"tidemarktest-started"},"spec":{"holderIdentity":"tidemarktest"}}`

// forkAt returns a copy of the world at a revision, whose controllers run; zero: the newest revision.
// It is seen by the same user and has the same users and webhooks. The caller discards it.
func (e *Env) forkAt(ctx context.Context, revision uint64) (*Env, error) {
	f := &Env{session: e.session, token: e.token, webhook: e.webhook, controllers: e.controllers, seed: e.seed}
	body := createRequest{Parent: e.world.Name, Revision: revision, Controllers: e.controllers, Lease: e.session.lease, Seed: e.seed}
	if err := e.session.control.call(ctx, http.MethodPost, "worlds", body, &f.world); err != nil {
		return nil, err
	}
	if revision != 0 {
		f.world.Revision = revision
	}
	moved := func(kubeconfig string) string {
		return strings.ReplaceAll(kubeconfig, e.world.URL, f.world.URL)
	}
	f.kubeconfig, f.users = moved(e.kubeconfig), map[string]*Env{}
	for name, u := range e.users {
		f.users[name] = &Env{session: e.session, world: f.world, token: u.token, kubeconfig: moved(u.kubeconfig), webhook: e.webhook, owner: f}
	}
	if err := f.apply(ctx, []manifest{{"marker", marker}}, nil); err != nil {
		f.discard()
		return nil, err
	}
	return f, nil
}

// discard deletes a copy of forkAt. The webhooks stay: they are those of the original.
func (e *Env) discard() error {
	e.webhook = nil
	return e.Close()
}
