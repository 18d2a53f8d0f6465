package migrate

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Servers are the Leases of servers.
type Servers struct {
	// Collection has the Leases, and Prefix is what their keys begin with. Other objects have it too.
	Collection, Prefix string
	// Name returns the name of the server of a Lease at a time; empty: the object is none of a server that may live.
	Name func(*store.Object, time.Time) string
	// Renewal is how long it takes a server to renew its Lease.
	Renewal time.Duration
}

// idlePause is the pause between two looks at the Leases of servers.
const idlePause = 500 * time.Millisecond

// InUseError reports that a server uses etcd.
type InUseError struct {
	// Server is its name and address, and Lease the key of the Lease that it has renewed.
	Server, Lease string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s uses etcd: its Lease %s was renewed", e.Server, e.Lease)
}

// Idle returns an *InUseError if a server uses etcd. A server renews its Lease, and deletes it when it stops; a
// kube-apiserver leaves it. So Idle waits for a renewal while there are Leases of servers.
func (d *Directory) Idle(ctx context.Context, s *Servers) error {
	const step = "waiting in case a server renews its Lease, seconds"
	var before map[string]store.Revision
	begin, most := time.Now(), int(s.Renewal.Seconds())
	for {
		now, servers, err := d.servers(ctx, s)
		if err != nil || len(now) == 0 {
			return err
		}
		for key, modified := range now {
			if was, ok := before[key]; before != nil && (!ok || was != modified) {
				return &InUseError{Server: servers[key], Lease: key}
			}
		}
		before = now
		past := time.Since(begin)
		d.step(step, min(int(past.Seconds()), most), most)
		if past > s.Renewal {
			return nil
		}
		select {
		case <-time.After(idlePause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// servers returns the revisions of the Leases of servers, and the names of the servers.
func (d *Directory) servers(ctx context.Context, s *Servers) (modified map[string]store.Revision, names map[string]string, err error) {
	head, err := d.Export.Head(ctx)
	if err != nil {
		return nil, nil, err
	}
	modified, names = map[string]store.Revision{}, map[string]string{}
	for i, err := range d.Export.Objects(ctx, s.Collection, s.Prefix, head) {
		if err != nil {
			return nil, nil, err
		}
		if i.Object == nil {
			continue
		}
		if name := s.Name(i.Object, time.Now()); name != "" {
			modified[i.Object.Key], names[i.Object.Key] = i.Object.Modified, name
		}
	}
	return modified, names, nil
}
