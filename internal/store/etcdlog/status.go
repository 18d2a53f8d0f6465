package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/resolver"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Members asks each member that the configuration names for its status, until the context ends.
func (l *Log) Members(ctx context.Context) []store.Member {
	all := make([]store.Member, len(l.o.Servers))
	var wg sync.WaitGroup
	for i, server := range l.o.Servers {
		wg.Go(func() { all[i] = l.member(ctx, server, l.members.addresses[i]) })
	}
	wg.Wait()
	return all
}

func (l *Log) member(ctx context.Context, url string, at resolver.Address) store.Member {
	m := store.Member{URL: url}
	conn, err := l.members.dial([]resolver.Address{at})
	if err != nil {
		m.Err = err
		return m
	}
	defer conn.Close()
	s, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		m.Err = fmt.Errorf("etcd: %w", err)
		return m
	}
	m.Version, m.Bytes = s.Version, s.DbSize
	m.Leader = s.Header != nil && s.Leader != 0 && s.Leader == s.Header.MemberId
	if len(s.Errors) > 0 {
		m.Err = errors.New(strings.Join(s.Errors, ", "))
	}
	return m
}
