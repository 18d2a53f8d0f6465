package tidemarktest

import (
	"context"
	"strings"
)

// moment is where a copy of a world begins. The zero value is now.
type moment struct {
	at    uint64 // the revision of the state; zero: the newest
	since uint64 // the revision that the history reaches back to; zero: that of the state
}

// forkAt returns a copy of the world at a moment. Its controllers run when it is settled.
// It is seen by the same user and has the same users and webhooks. The caller discards it.
func (e *Env) forkAt(ctx context.Context, m moment) (*Env, error) {
	f := &Env{session: e.session, token: e.token, webhook: e.webhook, controllers: e.controllers, seed: e.seed}
	body := createRequest{Parent: e.world.Name, Revision: m.at, Since: m.since, Controllers: e.controllers, Lease: e.session.lease, Seed: e.seed}
	if err := e.session.control.call(ctx, "POST", "worlds", body, &f.world); err != nil {
		return nil, err
	}
	if m.at != 0 {
		f.world.Revision = m.at
	}
	moved := func(kubeconfig string) string {
		return strings.ReplaceAll(kubeconfig, e.world.URL, f.world.URL)
	}
	f.kubeconfig, f.users = moved(e.kubeconfig), map[string]*Env{}
	for name, u := range e.users {
		f.users[name] = f.seenBy(u.token, moved(u.kubeconfig))
	}
	return f, nil
}

// discard deletes a copy of forkAt. The webhooks stay: they are those of the original.
func (e *Env) discard() error {
	e.webhook = nil
	return e.Close()
}
