// Package etcdlog is a log with several writers: the keys of an etcd cluster, laid out as
// kube-apiserver lays them out, so that both can serve the same data at the same time.
//
// # Revisions
//
// A revision of the store is a revision of etcd. etcd gives one to each transaction, and all
// changes of the transaction share it. The end of a lease deletes all keys of the lease in one
// revision.
//
// # Keys
//
//	<prefix>/...                          objects; a Codec knows their keys and values
//	<prefix>/tidemark.dev/guards/<name>   the last claim of a store.Guard
//	<prefix>/tidemark.dev/guards/.fences/<n>   fences, for repeated transactions, see fence.go
//	compact_rev_key                       the clock of compactions, see compact.go
//
// # Connections
//
// One connection to all members carries requests, another one watches of the past. Each goes to the
// next member that is connected. The watch of Follow has a connection of its own to one member, because a stream with
// many events would delay requests, and moves to the next member when it fails.
package etcdlog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Options configure a log. Servers and Codec are required; the rest has defaults.
type Options struct {
	// Servers are the client URLs of the members: http://host:port, or https://host:port for TLS.
	Servers []string
	// Prefix is the prefix of all keys of the log, without the slash at the end; empty:
	// /registry.
	Prefix string
	// CAFile verifies the members; empty: the roots of the system. CertFile and KeyFile
	// authenticate the client; empty: it has no certificate. They are read for each connection.
	CAFile, CertFile, KeyFile string

	// Codec translates objects.
	Codec Codec

	// TTL returns how long an object of a collection stays after its last write; zero or nil: for
	// ever. Each write of the object renews the time.
	TTL func(collection string) time.Duration
	// LeaseReuse is how long one lease is given to new writes. Objects stay that much longer
	// than TTL. Zero: a minute.
	LeaseReuse time.Duration

	// CompactionInterval is the pause between compactions; zero: 5 minutes; negative: the log
	// compacts nothing.
	CompactionInterval time.Duration
	// UsageInterval is the pause between polls of Usage; zero: 30 seconds.
	UsageInterval time.Duration

	// Copy is a file in which Keep leaves the objects for the next start; empty: it leaves none. One log at a time has
	// the file.
	Copy string

	// MaxTxnOps is the limit of etcd's --max-txn-ops; zero: 128, which is etcd's default.
	MaxTxnOps int

	// Logger gets messages about connections and compactions; nil: they are discarded.
	Logger *slog.Logger
}

// The defaults of Options.
const (
	DefaultPrefix             = "/registry"
	DefaultLeaseReuse         = time.Minute
	DefaultCompactionInterval = 5 * time.Minute
	DefaultUsageInterval      = 30 * time.Second
	DefaultMaxTxnOps          = 128
)

// Log is a store.Shared. All methods but Close are safe for concurrent use.
type Log struct {
	o       Options
	log     *slog.Logger
	members *members

	conn   *grpc.ClientConn // to all members, for requests
	scans  *grpc.ClientConn // to all members, for watches of the past
	kv     pb.KVClient
	leases pb.LeaseClient
	care   pb.MaintenanceClient

	seen     seen
	fences   fences
	movedTo  atomic.Pointer[string] // where the objects were moved to; nil: they were not
	pending  pending
	outdated outdated
	leaser   leaser
	reach    reach
	space    space
	blocks   blocks
	oldest   atomic.Int64 // the oldest revision that can be read, as far as it is known

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup
}

// Check returns an error if no log can be opened with the options. It opens files, and no connection.
func (o *Options) Check() error {
	_, err := newMembers(o)
	return err
}

// Open returns the log of a cluster. It waits for no connection: the first method that needs one
// does.
func Open(o Options) (*Log, error) {
	o.Prefix = "/" + strings.Trim(cmp.Or(o.Prefix, DefaultPrefix), "/")
	o.LeaseReuse = cmp.Or(o.LeaseReuse, DefaultLeaseReuse)
	o.CompactionInterval = cmp.Or(o.CompactionInterval, DefaultCompactionInterval)
	o.UsageInterval = cmp.Or(o.UsageInterval, DefaultUsageInterval)
	o.MaxTxnOps = cmp.Or(o.MaxTxnOps, DefaultMaxTxnOps)
	if o.Copy != "" {
		program()
	}
	if o.Prefix == "/" {
		return nil, errors.New("etcd: the prefix of keys is empty")
	}
	m, err := newMembers(&o)
	if err != nil {
		return nil, err
	}
	l := &Log{o: o, log: o.Logger, members: m}
	m.options = append(m.options, grpc.WithUnaryInterceptor(l.intercept))
	conn, err := m.dialAll()
	if err != nil {
		return nil, err
	}
	scans, err := m.dialAll()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l.conn, l.scans = conn, scans
	l.kv, l.leases, l.care = pb.NewKVClient(conn), pb.NewLeaseClient(conn), pb.NewMaintenanceClient(conn)
	l.reach.responded = time.Now()
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	if o.CompactionInterval > 0 {
		l.work.Go(l.compactLoop)
	}
	l.work.Go(l.usageLoop)
	l.work.Go(l.reachLoop)
	return l, nil
}

// Close implements store.Shared. Leases end by themselves.
func (l *Log) Close() error {
	l.stop()
	l.work.Wait()
	return errors.Join(l.conn.Close(), l.scans.Close())
}

// Writable implements store.Encryption: Propose itself returns why a value cannot be encoded.
func (l *Log) Writable(*store.Write) error { return nil }

var (
	_ store.Shared     = (*Log)(nil)
	_ store.Encryption = (*Log)(nil)
)
