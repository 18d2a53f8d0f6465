package etcdlog

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Space
//
// A member whose database has reached its quota raises the alarm NOSPACE. From then on all members refuse
// writes that need space, also when there is space again, until an operator disarms the alarm.

// fullInterval is the longest pause between polls while the alarm is raised.
const fullInterval = 5 * time.Second

// space has the sizes of the database of the member that responded last.
type space struct {
	bytes, quota atomic.Int64
	full         atomic.Bool  // the alarm NOSPACE is raised
	refused      atomic.Int64 // requests that etcd refused because of the alarm
	// denied: only users with etcd's role root may ask for the size, and this client is not one.
	denied atomic.Bool
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
	refused := l.space.refused.Load()
	status, err := try(ctx, quick.each, func(ctx context.Context) (*pb.StatusResponse, error) {
		return l.care.Status(ctx, &pb.StatusRequest{})
	})
	if is(err, rpctypes.ErrGRPCPermissionDenied) {
		if !l.space.denied.Swap(true) {
			l.log.Info("the size of etcd's database is unknown: etcd reports it to users with its role root alone", "servers", l.servers())
		}
		l.pollAlarm(ctx)
		return
	}
	if err != nil {
		return
	}
	l.space.denied.Store(false)
	l.space.bytes.Store(status.DbSize)
	l.space.quota.Store(status.DbSizeQuota)
	l.polled(strings.Contains(strings.Join(status.Errors, " "), pb.AlarmType_NOSPACE.String()), refused)
}

// pollAlarm asks whether the alarm is still raised: any user may do so. Writes notice when it is raised. The request
// passes through raft, so it is made only while the alarm is raised.
func (l *Log) pollAlarm(ctx context.Context) {
	if !l.space.full.Load() {
		return
	}
	refused := l.space.refused.Load()
	response, err := try(ctx, quick.each, func(ctx context.Context) (*pb.AlarmResponse, error) {
		return l.care.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	})
	if err == nil {
		l.polled(slices.ContainsFunc(response.Alarms, func(a *pb.AlarmMember) bool { return a.Alarm == pb.AlarmType_NOSPACE }), refused)
	}
}

// polled records the result of a poll that began after so many refused requests. If etcd has refused another one
// since, the response may be older than the alarm.
func (l *Log) polled(full bool, refused int64) {
	if full || l.space.refused.Load() == refused {
		l.setFull(full)
	}
}

// refused notes that etcd has refused a request because of the alarm.
func (l *Log) refused() {
	l.space.refused.Add(1)
	l.setFull(true)
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
