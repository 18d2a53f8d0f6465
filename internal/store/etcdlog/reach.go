package etcdlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Outages
//
// A leader election or a member that restarts takes a second or two, some more on a busy machine, and
// requests wait for it. An outage is longer: then each request would wait for 10 s, and fail. So while etcd has not responded
// for lostAfter, a request makes one try alone. Probes, one in a second, and all other requests
// find out when etcd is back.

const (
	// lostAfter is how long etcd may fail to respond before it counts as lost.
	lostAfter = 10 * time.Second
	// slowStart is how long etcd may fail to give the first response until the log of the process has a line.
	slowStart = 2 * time.Second
	// probeEvery is the pause between two looks at the connection, and idleProbe how long nothing
	// has to be asked until a look becomes a request.
	probeEvery = time.Second
	idleProbe  = 4 * time.Second
)

// reach is whether the cluster responds.
type reach struct {
	lost atomic.Bool
	ever atomic.Bool // it has responded

	mu        sync.Mutex
	responded time.Time // when the last response came
	failing   time.Time // when the first request failed since then; zero: none has
	last      error     // of the last request that failed
}

// note records the outcome of a request.
func (r *reach) note(err error) {
	failed := false
	switch status.Code(err) {
	case codes.Canceled: // by the caller
		return
	case codes.Unavailable, codes.DeadlineExceeded:
		failed = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !failed {
		r.ever.Store(true)
		r.responded, r.failing, r.last = time.Now(), time.Time{}, nil
		return
	}
	if r.last = err; r.failing.IsZero() {
		r.failing = time.Now()
	}
}

// state returns for how long requests have failed, zero if they do not, for how long there has been no
// response, and the error of the last request if it failed.
func (r *reach) state() (failing, silent time.Duration, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failing.IsZero() {
		failing = time.Since(r.failing)
	}
	return failing, time.Since(r.responded), r.last
}

// intercept records the outcomes of all requests that need a leader.
func (l *Log) intercept(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := invoke(ctx, method, request, reply, conn, options...)
	if !strings.Contains(method, "Maintenance") {
		l.reach.note(err)
	}
	return err
}

// reachLoop detects that etcd is lost, and that it is back.
func (l *Log) reachLoop() {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	var since time.Time // when it was lost
	waited := false     // for the first response
	for {
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
		if failing, silent, _ := l.reach.state(); failing > 0 || silent >= idleProbe {
			l.probe()
		}
		failing, _, why := l.reach.state()
		if !waited && failing >= slowStart && !l.reach.ever.Load() {
			waited = true
			l.log.Warn("etcd does not respond; waiting", "servers", l.servers(), "err", message(why)+l.hint(why))
		}
		switch lost := l.reach.lost.Load(); {
		case l.ctx.Err() != nil:
			return
		case !lost && failing >= lostAfter:
			since = time.Now().Add(-failing)
			l.reach.lost.Store(true)
			l.log.Error("etcd is lost: writes and reads of the newest state fail until it is back", "servers", l.servers(), "for", failing.Round(time.Second), "err", message(why))
		case lost && failing == 0:
			l.reach.lost.Store(false)
			l.log.Info("etcd is back", "servers", l.servers(), "after", time.Since(since).Round(time.Second))
		}
	}
}

// probe makes one linearizable read.
func (l *Log) probe() {
	_, _ = try(l.ctx, quick.each, func(ctx context.Context) (*pb.RangeResponse, error) {
		return l.kv.Range(withLeader(ctx), &pb.RangeRequest{Key: []byte(l.o.Prefix + "/"), CountOnly: true})
	})
}

// late reports whether a request that began at a time and failed is not tried again.
func (l *Log) late(began time.Time, a attempts) bool {
	return l.reach.lost.Load() || time.Since(began)+a.each > a.all
}

func (l *Log) servers() string { return strings.Join(l.o.Servers, ",") }

// unavailable returns the error of a request to which etcd did not respond, or that it refused. RetryAfter zero:
// not known.
func unavailable(err error, retryAfter time.Duration) *store.UnavailableError {
	return &store.UnavailableError{Err: &failure{err}, RetryAfter: retryAfter}
}

// overloaded returns the error of a request that etcd refused because it has too many: before it did anything, so a
// transaction was not made.
func overloaded(err error) error { return fmt.Errorf("%w: %w", store.ErrOverloaded, &failure{err}) }

// failure is the error of a request to etcd.
type failure struct{ err error }

func (f *failure) Error() string { return "etcd: " + message(f.err) }
func (f *failure) Unwrap() error { return f.err }

// message returns the text of an error, without the name of its code if it is one of gRPC.
func message(err error) string {
	s, ok := status.FromError(err)
	switch {
	case err == nil:
		return "it did not respond in time"
	case ok && s.Message() == "":
		return s.Code().String()
	case is(err, rpctypes.ErrGRPCPermissionDenied):
		return s.Message() + ": the etcd user that the client certificate names needs a role with readwrite on the prefix of the keys"
	case is(err, rpctypes.ErrGRPCUserEmpty):
		return s.Message() + ": etcd has authentication, and needs the flag --client-cert-auth, and a client certificate whose common name is an etcd user"
	case ok:
		return s.Message()
	}
	return err.Error()
}

// hint returns the setting that the configuration may lack, if the error of a first connection suggests something.
func (l *Log) hint(err error) string {
	text := err.Error()
	says := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}
	secure := slices.ContainsFunc(l.o.Servers, func(url string) bool { return strings.HasPrefix(url, "https:") })
	switch ended := says("EOF", "broken pipe", "connection reset", "certificate required", "bad certificate"); {
	case says("unknown authority"):
		return "; name the certificate authority of etcd with --etcd-cafile"
	case !secure && ended:
		return "; if etcd serves TLS, its URL begins with https://"
	case says("tls: unknown certificate authority", "tls: bad certificate"):
		return "; the members do not know the authority of the client certificate, --etcd-certfile"
	case says("looked like an HTTP/1.1 header"):
		return "; this may be the port of members among each other: clients have 2379 by default"
	case secure && says("handshake failed: EOF", "does not look like a TLS handshake"):
		return "; if etcd does not serve TLS, its URL begins with http://"
	case secure && ended && l.o.CertFile == "":
		return "; if etcd wants a client certificate, name it with --etcd-certfile and --etcd-keyfile"
	}
	return ""
}
