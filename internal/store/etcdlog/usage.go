package etcdlog

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// usageLoop polls the size of the database.
func (l *Log) usageLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			return
		}
		timer.Reset(l.o.UsageInterval)
		status, err := try(l.ctx, quick.each, func(ctx context.Context) (*pb.StatusResponse, error) {
			return l.care.Status(ctx, &pb.StatusRequest{})
		})
		if err == nil {
			l.space.Store(status.DbSize)
		}
	}
}

// Usage implements store.Shared: the size of the database of the member that was asked last.
func (l *Log) Usage() store.Usage { return store.Usage{TotalBytes: l.space.Load()} }
