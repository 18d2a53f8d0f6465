package tidemark

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/statusapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// statusReads is how long the status waits for what is not in memory: an old change, and members of etcd.
const statusReads = 2 * time.Second

// serveStatus serves a description of the server. The user may get it.
func (r *running) serveStatus(rw http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet || q.URL.Path != statusapi.Path {
		fail(rw, http.StatusMethodNotAllowed, "the status is read with GET "+statusapi.Path)
		return
	}
	answer(rw, http.StatusOK, r.status(q.Context()))
}

// status describes the server.
func (r *running) status(ctx context.Context) statusapi.Status {
	ctx, cancel := context.WithTimeout(ctx, statusReads)
	defer cancel()
	w := r.root
	s, stats := w.server, w.store.Stats()
	revision, _ := commit()
	out := statusapi.Status{
		Role: r.role(), Addresses: r.addresses(), Version: s.version(), Kubernetes: kubernetes, Commit: revision, Started: r.started,
		Objects: statusapi.Objects{MemoryBytes: stats.ObjectBytes, LimitBytes: stats.QuotaBytes},
		History: statusapi.History{
			Oldest:           statusapi.Revision{ResourceVersion: uint64(stats.Floor), Time: w.changedAfter(ctx, stats.Floor)},
			Newest:           statusapi.Revision{ResourceVersion: uint64(stats.Head)},
			RetentionSeconds: cmp.Or(s.History.Retention, store.DefaultRetention).Seconds(),
		},
		Storage: r.storageStatus(ctx, stats.Log), Follows: r.followsStatus(), Backups: r.backupStatus(), Forks: r.forks.describe(),
	}
	if stats.Head > stats.Floor {
		out.History.Newest.Time = w.changedAfter(ctx, stats.Head-1)
	}
	state := w.store.Any()
	for name := range state.Collections() {
		if n := state.Snapshot(name).Len(); n > 0 {
			out.Objects.Count += n
			out.Objects.Resources++
		}
	}
	if w.peers != nil {
		out.Servers = w.peers.Servers(state, r.leader())
	}
	return out
}

// role is what the server is among others.
func (r *running) role() string {
	switch {
	case r.follows():
		return statusapi.Follower
	case r.identity == "":
		return statusapi.Single
	case r.leader() == r.identity:
		return statusapi.Leader
	}
	return statusapi.Standby
}

// leader is the identity of the server that leads; empty: none does.
func (r *running) leader() string {
	o := r.root.store.Any().Get(controller.LeaderLease())
	if o == nil {
		return ""
	}
	lease, err := registry.Decode[coordinationv1.Lease](o)
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// addresses are the URLs of the server.
func (r *running) addresses() []string {
	all := []string{r.url}
	for _, l := range r.listeners[min(1, len(r.listeners)):] {
		a := l.Addr()
		if a.Network() == "unix" {
			all = append(all, "unix:"+a.String())
		} else {
			all = append(all, "https://"+a.String())
		}
	}
	return all
}

// changedAfter returns when the first change after a revision was made; zero: it is not known.
func (w *World) changedAfter(ctx context.Context, after store.Revision) time.Time {
	feed, err := w.store.Feed(after)
	if err != nil {
		return time.Time{}
	}
	defer feed.Close()
	var first [1]store.CollectionChange
	if n, err := feed.TryNext(ctx, first[:]); err != nil || n == 0 {
		return time.Time{}
	}
	return first[0].Origin().Time
}

func (r *running) storageStatus(ctx context.Context, u store.Usage) statusapi.Storage {
	out := statusapi.Storage{
		Kind: statusapi.Memory, LogBytes: u.TotalBytes, LimitBytes: u.LimitBytes, FreeBytes: max(u.FreeBytes, 0), NeededBytes: u.NeededBytes,
	}
	switch {
	case r.storage.Shared != nil && !r.follows():
		out.Kind = statusapi.Etcd
	case r.storage.Dir != "":
		out.Kind, out.Path = statusapi.Directory, r.storage.Dir
	}
	if r.storage.Members != nil {
		for _, m := range r.storage.Members(ctx) {
			one := statusapi.Member{URL: m.URL, Version: m.Version, Leader: m.Leader, Bytes: m.Bytes}
			if m.Err != nil {
				one.Error = m.Err.Error()
			}
			out.Members = append(out.Members, one)
		}
	}
	return out
}

func (r *running) followsStatus() *statusapi.Follows {
	followed := r.storage.Followed
	if followed == nil {
		return nil
	}
	lag := followed.Lag()
	return &statusapi.Follows{
		URL: followed.URL, Connected: lag.Connected,
		LagSeconds: lag.Time.Seconds(), LagRevisions: uint64(lag.Revisions),
	}
}

func (r *running) backupStatus() *statusapi.Backups {
	if r.backups == nil {
		return nil
	}
	b, s := &r.root.server.Backups, r.backups.Status()
	out := &statusapi.Backups{Schedule: b.Schedule, Place: b.Place.String(), Running: s.Running, Next: s.Next, Kept: s.Kept, KeptBytes: s.KeptBytes}
	if s.Last.Name != "" {
		out.Last = &statusapi.Backup{Name: s.Last.Name, Time: s.LastAt, Bytes: s.Last.Bytes, Seconds: s.Took.Seconds()}
	}
	if s.Failure != nil {
		out.Failure = &statusapi.Failure{Time: s.FailureAt, Error: strings.TrimSpace(s.Failure.Error())}
	}
	return out
}
