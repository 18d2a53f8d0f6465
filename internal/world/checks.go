package world

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// longestSync is how long the log may write a group of writes until the server is not ready.
const longestSync = 10 * time.Second

// checks are the checks of /readyz, by the names that probes use. The server
// accepts connections only once all parts have started, so only the log can fail later.
// For clients of kube-apiserver its name is "etcd".
func (p *process) checks() []httpapi.Check {
	fine := func() error { return nil }
	live, ready := p.usable, p.usable
	if log := p.storage.Shared; log != nil {
		if !p.follows() { // a restart of a follower does not bring its server back
			live = (&sharedCheck{failed: p.Failure.Err, log: log, timeout: p.storage.HealthTimeout}).probe
		}
		ready = (&sharedCheck{failed: p.Failure.Err, log: log, timeout: p.storage.ReadyTimeout}).probe
	}
	return []httpapi.Check{
		{Name: "log", Live: true, Probe: fine},
		{Name: "etcd", Live: true, Probe: live},
		{Name: "etcd-readiness", Probe: ready},
		{Name: "informer-sync", Probe: fine},
		{Name: "poststarthook/start-system-namespaces-controller", Live: true, Probe: fine},
	}
}

// usable returns why the server cannot write to its storage. A directory that was replaced ends the server, also if there are
// no writes: see pebblelog.Options.Held.
func (p *process) usable() error {
	if err := p.Failure.Err(); err != nil || p.storage.Usable == nil {
		return err
	}
	return p.storage.Usable()
}

// sharedCheck fails when the log of a shared storage does not respond in time. It calls the log once in
// that time at most, however many probes there are.
type sharedCheck struct {
	failed  func() error // why the server cannot go on
	log     store.Shared
	timeout time.Duration

	mu    sync.Mutex // held while the log is asked
	asked time.Time
	err   error
}

func (c *sharedCheck) probe() error {
	if err := c.failed(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked.IsZero() && time.Since(c.asked) < c.timeout {
		return c.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	_, c.err = c.log.Head(ctx)
	c.asked = time.Now()
	return c.err
}

// storageChecks are those of the memory, the disk and the log. A server that refuses writes because its objects use
// too much memory is ready: it serves reads, and deletions make room. The detail follows the check's name.
func storageChecks(objects *store.Store) []httpapi.Check {
	fine := func() error { return nil }
	return []httpapi.Check{
		{Name: "storage-quota", Probe: fine, Note: func() string {
			t := objects.Stats()
			switch {
			case t.QuotaBytes > 0 && t.ObjectBytes >= t.QuotaBytes:
				return fmt.Sprintf(", full: objects use %d of %d bytes, and writes that grow them are refused", t.ObjectBytes, t.QuotaBytes)
			case t.QuotaBytes > 0 && t.ObjectBytes >= t.QuotaBytes/5*4:
				return fmt.Sprintf(", nearly full: objects use %d of %d bytes", t.ObjectBytes, t.QuotaBytes)
			}
			return ""
		}},
		{Name: "log-sync", Probe: func() error {
			if t := objects.Stats().Appending; t > longestSync {
				return fmt.Errorf("the log has been writing for %v", t.Round(time.Second))
			}
			return nil
		}},
		{Name: "disk-space", Probe: func() error {
			if u := objects.Stats().Log; u.FreeBytes < u.NeededBytes {
				return fmt.Errorf("%d bytes are free, and writes need %d", u.FreeBytes, u.NeededBytes)
			}
			return nil
		}, Note: func() string {
			u := objects.Stats().Log
			switch {
			case u.Full: // All servers are full alike, and still serve reads and deletions: the check passes.
				return fmt.Sprintf(", full: etcd refuses writes, its database of %d bytes has reached its quota", u.TotalBytes)
			case u.LimitBytes > 0 && u.TotalBytes >= u.LimitBytes/5*4:
				return fmt.Sprintf(", nearly full: etcd's database has %d of %d bytes", u.TotalBytes, u.LimitBytes)
			case u.FreeBytes < 2*u.NeededBytes:
				return fmt.Sprintf(", nearly full: %d bytes are free, writes need %d, and history is given up below %d", u.FreeBytes, u.NeededBytes, 2*u.NeededBytes)
			}
			return ""
		}},
	}
}
