package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/fault"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// controlled is a World as the control API knows it.
type controlled struct {
	*World
	forks *forks
}

// Describe implements control.World.
func (c *controlled) Describe() (control.Description, error) {
	name, parent := control.Root, ""
	if c.fork != nil {
		name, parent = c.Name(), cmp.Or(c.fork.parent, control.Root)
	}
	token, err := c.adminToken()
	if err != nil {
		return control.Description{}, fmt.Errorf("%w: %w", control.ErrLimit, err)
	}
	file := c.kubeconfig()
	file.Token = token
	return control.Description{
		Name: name, Parent: parent, Revision: c.Revision(), Seed: c.seed.number, URL: c.URL(), ServerName: c.process.serverName,
		CA: string(c.process.authority.CertificatePEM()), Token: token, Kubeconfig: string(file.YAML()),
	}, nil
}

// adminToken returns the token of the administrator. That of a fork is not valid in its parent: kubectl leaves out the
// path of a server's URL with --raw and proxy, and the request of such a client must not reach the parent. That of a
// kept fork has to be valid after a restart.
func (c *controlled) adminToken() (token string, err error) {
	f := c.fork
	if f == nil || f.kept != nil {
		return c.process.authority.AdminToken(), nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.adminToken == "" {
		f.adminToken, err = c.issued[0].Issue(administrator())
	}
	return f.adminToken, err
}

// Handler implements control.World.
func (c *controlled) Handler() http.Handler { return httpapi.WithoutFaults(c.World.Handler()) }

// AddUser implements control.World.
func (c *controlled) AddUser(u control.User) (control.Credentials, error) {
	token, err := c.issued[0].Issue(&authn.User{Name: u.Name, Groups: u.Groups})
	if err != nil {
		return control.Credentials{}, fmt.Errorf("%w: %w", control.ErrLimit, err)
	}
	certificate, key, err := c.process.authority.IssueClient(u.Name, u.Groups)
	if err != nil {
		return control.Credentials{}, err
	}
	file := c.kubeconfig()
	file.User, file.Token = u.Name, token
	return control.Credentials{User: u, Token: token, Certificate: string(certificate), Key: string(key), Kubeconfig: string(file.YAML())}, nil
}

// Objects implements control.World.
func (c *controlled) Objects(ctx context.Context, revision uint64) iter.Seq2[control.Object, error] {
	return func(yield func(control.Object, error) bool) {
		state := c.store.Any()
		at := store.Revision(revision)
		if at == 0 {
			at = state.Revision()
		}
		for collection := range state.Collections() {
			view, err := c.store.Exact(ctx, collection, at, 0)
			if err != nil {
				yield(control.Object{}, controlError(err))
				return
			}
			if !yieldObjects(view, collection, yield) {
				return
			}
		}
	}
}

// yieldObjects yields the objects of a view, and closes it. It returns false if the caller must
// stop.
func yieldObjects(view *store.View, collection string, yield func(control.Object, error) bool) bool {
	defer view.Close()
	for o, err := range view.Scan("", "") {
		if err != nil {
			yield(control.Object{}, controlError(err))
			return false
		}
		if !yield(control.Object{Collection: collection, Key: o.Key, JSON: o.Bytes()}, nil) {
			return false
		}
	}
	return true
}

// Changes implements control.World.
func (c *controlled) Changes(ctx context.Context, after, upTo uint64) iter.Seq2[control.Change, error] {
	return func(yield func(control.Change, error) bool) {
		floor, head := c.store.Bounds()
		if after == 0 {
			after = uint64(floor)
		}
		if upTo == 0 {
			upTo = uint64(head)
		}
		if after > uint64(head) {
			yield(control.Change{}, controlError(&store.TooLargeError{Revision: store.Revision(after), Current: head}))
			return
		}
		feed, err := c.store.Feed(store.Revision(after))
		if err != nil {
			yield(control.Change{}, controlError(err))
			return
		}
		defer feed.Close()
		buf := make([]store.CollectionChange, 256)
		for uint64(feed.Revision()) < upTo {
			n, err := feed.TryNext(ctx, buf)
			if err != nil {
				yield(control.Change{}, controlError(err))
				return
			}
			if n == 0 {
				return // upTo is in the future
			}
			for _, change := range buf[:n] {
				if uint64(change.Revision) > upTo || !yield(controlChange(change), nil) {
					return
				}
			}
		}
	}
}

// AddReplica implements control.World.
func (c *controlled) AddReplica(o control.ReplicaOptions) (control.Replica, error) {
	r, err := c.Replica(ReplicaOptions(o))
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, ErrReplicaExists):
		return nil, fmt.Errorf("the replica %q %w", o.Name, control.ErrExists)
	case errors.Is(err, ErrTooManyReplicas):
		return nil, fmt.Errorf("%w: %w", control.ErrLimit, err)
	case errors.Is(err, ErrNoResource):
		return nil, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	case errors.Is(err, ErrForkClosed):
		return nil, fmt.Errorf("the world %q: %w: %w", c.Name(), control.ErrNotFound, err)
	}
	return nil, controlError(err)
}

// Replicas implements control.World.
func (c *controlled) Replicas() []control.Replica {
	var all []control.Replica
	for _, r := range c.World.Replicas() {
		all = append(all, r)
	}
	return all
}

// controlChange returns a change as the control API knows it.
func controlChange(c store.CollectionChange) control.Change {
	out := control.Change{Revision: uint64(c.Revision), Collection: c.Collection, Key: c.Key()}
	if c.Before != nil {
		out.Before = c.Before.Bytes()
	}
	if c.After != nil {
		out.After = c.After.Bytes()
	}
	origin := c.Origin()
	if origin.Verb == store.VerbCreate && c.Before != nil { // of the same request, such as the status of a definition
		origin.Verb = store.VerbUpdate
	}
	out.Time, out.Verb = origin.Time, origin.Verb.String()
	if a := origin.Actor; a != nil {
		out.Actor = &control.Actor{
			User: a.User, UserAgent: a.UserAgent, FieldManager: a.FieldManager, Subresource: a.Subresource, Loop: a.Loop, Impersonator: a.Impersonator,
			AuditID: origin.AuditID.String(),
		}
	}
	return out
}

// RecordRequests implements control.World.
func (c *controlled) RecordRequests() { c.faults.Record() }

// RecordedRequests implements control.World.
func (c *controlled) RecordedRequests() ([]fault.Request, uint64) { return c.faults.Recorded() }

// Now implements control.World.
func (c *controlled) Now() time.Time {
	if c.now != nil {
		return c.now()
	}
	return time.Now()
}

// lastYear is the last one that the clock of a world reaches.
const lastYear = 2200

// Advance implements control.World.
func (c *controlled) Advance(d time.Duration) (time.Time, error) {
	switch {
	case c.process.Config.Clock != nil:
		return time.Time{}, fmt.Errorf("moving the clock of one world is %w: the server has a clock for all worlds, Server.Clock", control.ErrForbidden)
	case c.clock == nil && c.fork == nil:
		return time.Time{}, fmt.Errorf("moving the clock of the world %q is %w: only forks have clocks of their own", control.Root, control.ErrForbidden)
	case c.clock == nil:
		return time.Time{}, fmt.Errorf("moving the clock of a kept fork is %w: its time would go back after a restart", control.ErrForbidden)
	case c.Now().Add(d).Year() > lastYear:
		return time.Time{}, fmt.Errorf("%w: the clock of a world ends with the year %d", control.ErrInvalid, lastYear)
	}
	c.clock.Advance(d)
	return c.Now(), nil
}

// Watches implements control.World.
func (c *controlled) Watches() ([]fault.Request, error) {
	if err := c.use(); err != nil {
		return nil, err
	}
	return c.handler.Watches(), nil
}

// SettleFor implements control.World.
func (c *controlled) SettleFor(ctx context.Context, quiet time.Duration) (control.Settled, error) {
	end, err := c.settle(ctx, quiet)
	return control.Settled{Revision: uint64(end.revision), Requests: end.begun}, err
}

// controlError returns an error of the store as the control API knows it.
func controlError(err error) error {
	var expired *store.ExpiredError
	var large *store.TooLargeError
	switch {
	case errors.As(err, &expired):
		return fmt.Errorf("%w: %w", control.ErrExpired, err)
	case errors.As(err, &large), errors.Is(err, store.ErrClosed):
		return fmt.Errorf("%w: %w", control.ErrNotFound, err)
	}
	return err
}

var _ control.World = (*controlled)(nil)
