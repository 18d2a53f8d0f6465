package world

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

// statusReads is how long the status waits for facts that are not in memory: an old change, and
// members of etcd.
const statusReads = 2 * time.Second

// serveStatus serves a description of the server. The user may get it.
func (s *Server) serveStatus(rw http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet || q.URL.Path != statusapi.Path {
		fail(rw, http.StatusMethodNotAllowed, "the status is read with GET "+statusapi.Path)
		return
	}
	respond(rw, http.StatusOK, s.status(q.Context()))
}

// status describes the server.
func (s *Server) status(ctx context.Context) statusapi.Status {
	ctx, cancel := context.WithTimeout(ctx, statusReads)
	defer cancel()
	p, w := s.process, s.root
	stats := w.store.Stats()
	out := statusapi.Status{
		Role: s.role(), Addresses: s.addresses(), Version: p.Version.Own, Kubernetes: p.Version.Kubernetes, Commit: p.Version.Commit, Started: p.started,
		Objects: statusapi.Objects{MemoryBytes: stats.ObjectBytes, LimitBytes: stats.QuotaBytes},
		History: statusapi.History{
			Oldest:           statusapi.Revision{ResourceVersion: uint64(stats.Floor), Time: w.changedAfter(ctx, stats.Floor)},
			Newest:           statusapi.Revision{ResourceVersion: uint64(stats.Head)},
			RetentionSeconds: cmp.Or(p.History.Retention, store.DefaultRetention).Seconds(),
		},
		Storage: s.storageStatus(ctx, stats.Log), Follows: s.followsStatus(), Backups: s.backupStatus(), Forks: s.forks.describe(),
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
		out.Servers = w.peers.Servers(state, s.leader())
	}
	return out
}

// role is the role of the server among others.
func (s *Server) role() string {
	switch {
	case s.process.follows():
		return statusapi.Follower
	case s.process.identity == "":
		return statusapi.Single
	case s.leader() == s.process.identity:
		return statusapi.Leader
	}
	return statusapi.Standby
}

// leader is the identity of the server that leads; empty: none does.
func (s *Server) leader() string {
	o := s.root.store.Any().Get(controller.LeaderLease())
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
func (s *Server) addresses() []string {
	all := []string{s.process.url}
	for _, l := range s.process.listeners[min(1, len(s.process.listeners)):] {
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

func (s *Server) storageStatus(ctx context.Context, u store.Usage) statusapi.Storage {
	out := statusapi.Storage{
		Kind: statusapi.Memory, LogBytes: u.TotalBytes, LimitBytes: u.LimitBytes, FreeBytes: max(u.FreeBytes, 0), NeededBytes: u.NeededBytes,
	}
	switch {
	case s.process.storage.Shared != nil && !s.process.follows():
		out.Kind = statusapi.Etcd
	case s.process.storage.Dir != "":
		out.Kind, out.Path = statusapi.Directory, s.process.storage.Dir
	}
	if s.process.storage.Members != nil {
		for _, m := range s.process.storage.Members(ctx) {
			one := statusapi.Member{URL: m.URL, Version: m.Version, Leader: m.Leader, Bytes: m.Bytes}
			if m.Err != nil {
				one.Error = m.Err.Error()
			}
			out.Members = append(out.Members, one)
		}
	}
	return out
}

func (s *Server) followsStatus() *statusapi.Follows {
	followed := s.process.storage.Followed
	if followed == nil {
		return nil
	}
	lag := followed.Lag()
	return &statusapi.Follows{
		URL: followed.URL, Connected: lag.Connected,
		LagSeconds: lag.Time.Seconds(), LagRevisions: uint64(lag.Revisions),
	}
}

func (s *Server) backupStatus() *statusapi.Backups {
	if s.backups == nil {
		return nil
	}
	b, now := &s.process.Backups, s.backups.Status()
	out := &statusapi.Backups{Schedule: b.Text, Place: b.Place.String(), Running: now.Running, Next: now.Next, Kept: now.Kept, KeptBytes: now.KeptBytes}
	if now.Last.Name != "" {
		out.Last = &statusapi.Backup{Name: now.Last.Name, Time: now.LastAt, Bytes: now.Last.Bytes, Seconds: now.Took.Seconds()}
	}
	if now.Failure != nil {
		out.Failure = &statusapi.Failure{Time: now.FailureAt, Error: strings.TrimSpace(now.Failure.Error())}
	}
	return out
}
