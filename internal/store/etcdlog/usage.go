package etcdlog

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Space
//
// A member whose database has reached its quota raises the alarm NOSPACE. From then on all members refuse
// writes that need space, also when there is space again, until an operator disarms the alarm.

// fullInterval is the longest pause between polls while the alarm is raised.
const fullInterval = 5 * time.Second

// space is what is known of the database of the member that was asked last.
type space struct {
	bytes, quota atomic.Int64
	full         atomic.Bool // the alarm NOSPACE is raised
}

// usageLoop polls the size of the database and the alarm.
func (l *Log) usageLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			return
		}
		l.poll(l.ctx)
		pause := l.o.UsageInterval
		if l.space.full.Load() {
			pause = min(pause, fullInterval)
		}
		timer.Reset(pause)
	}
}

// poll asks a member for the size of its database and the alarm.
func (l *Log) poll(ctx context.Context) {
	status, err := try(ctx, quick.each, func(ctx context.Context) (*pb.StatusResponse, error) {
		return l.care.Status(ctx, &pb.StatusRequest{})
	})
	if err != nil {
		return
	}
	l.space.bytes.Store(status.DbSize)
	l.space.quota.Store(status.DbSizeQuota)
	l.setFull(strings.Contains(strings.Join(status.Errors, " "), pb.AlarmType_NOSPACE.String()))
}

// setFull notes whether the alarm NOSPACE is raised. It logs a change.
func (l *Log) setFull(full bool) {
	switch {
	case l.space.full.Swap(full) == full:
	case full:
		l.log.Error("etcd refuses writes: its database has reached its quota. Compact and defragment it, then disarm the alarm",
			"servers", l.servers(), "bytes", l.space.bytes.Load(), "quota", l.space.quota.Load())
	default:
		l.log.Info("etcd accepts writes again: the alarm NOSPACE was disarmed", "servers", l.servers())
	}
}

// Usage implements store.Shared: that of the member that was asked last.
func (l *Log) Usage() store.Usage {
	u := store.Usage{TotalBytes: l.space.bytes.Load(), LimitBytes: l.space.quota.Load(), Full: l.space.full.Load()}
	if u.LimitBytes > 0 {
		u.FreeBytes = max(0, u.LimitBytes-u.TotalBytes)
	}
	return u
}
