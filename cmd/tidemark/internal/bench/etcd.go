package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Measurements of the scenario idle-etcd. Requests include the messages of clients in
// streams, such as renewals of leases, if etcd counts them.
const (
	etcdRequests = "etcdRequestsPerSecond"
	etcdUnary    = "etcdUnaryRequestsPerSecond"
	etcdWatches  = "etcdWatches"
)

// Metrics of etcd. Its clients' requests are counted by the first one, or else by the
// second one, which counts a stream once.
const (
	etcdMessagesMetric = "grpc_server_msg_received_total"
	etcdStartedMetric  = "grpc_server_started_total"
	etcdWatchersMetric = "etcd_debugging_mvcc_watcher_total"
)

// idleEtcdRound measures the requests of the servers to etcd while they have no clients. The load
// of other clients of the same etcd counts as well.
func idleEtcdRound(ctx context.Context, b *bed) ([]row, error) {
	if len(b.server.EtcdMetrics) == 0 {
		return nil, &skipError{"no --etcd-metrics are given"}
	}
	f, err := b.measured(func() (Measurements, error) {
		before, err := readEtcd(ctx, b.server.EtcdMetrics)
		if err != nil {
			return Measurements{}, err
		}
		begin := time.Now()
		sleepUntil(ctx, begin.Add(b.options.Duration))
		after, err := readEtcd(ctx, b.server.EtcdMetrics)
		if err != nil {
			return Measurements{}, err
		}
		seconds := time.Since(begin).Seconds()
		requests := after.requests - before.requests
		return Measurements{Ops: int64(requests), Seconds: seconds, Extra: map[string]float64{
			etcdRequests: requests / seconds,
			etcdUnary:    (after.unary - before.unary) / seconds,
			etcdWatches:  after.watches,
		}}, nil
	})
	if err != nil {
		return nil, err
	}
	if f.ServerCPU != nil {
		// The CPU of an idle server does not depend on its requests.
		f.Extra["serverCPUPercent"] = 100 * *f.ServerCPU / f.Seconds
	}
	f.ServerCPU, f.OwnCPU = nil, nil
	return []row{{loop: "none", Measurements: f}}, nil
}

// etcdCounts are the counters of all members of an etcd, and the watches that are open.
type etcdCounts struct{ requests, unary, watches float64 }

// etcdReadTimeout bounds one read of the metrics.
const etcdReadTimeout = 10 * time.Second

// readEtcd sums up the metrics of the members.
func readEtcd(ctx context.Context, urls []string) (etcdCounts, error) {
	var sum etcdCounts
	for _, u := range urls {
		one, err := readMember(ctx, u)
		if err != nil {
			return sum, fmt.Errorf("the metrics of etcd at %s: %w", u, err)
		}
		sum.requests += one.requests
		sum.unary += one.unary
		sum.watches += one.watches
	}
	return sum, nil
}

// readMember reads the metrics of a member.
func readMember(ctx context.Context, url string) (etcdCounts, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdReadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return etcdCounts{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return etcdCounts{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return etcdCounts{}, refusal(req, resp)
	}
	defer resp.Body.Close()
	return parseEtcd(resp.Body)
}

// parseEtcd reads metrics in the text format of Prometheus.
func parseEtcd(text io.Reader) (etcdCounts, error) {
	type counter struct {
		found      bool
		all, unary float64
	}
	counters := map[string]*counter{etcdMessagesMetric: {}, etcdStartedMetric: {}, etcdWatchersMetric: {}}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// The labels of these metrics have no spaces.
		sample, number, _ := strings.Cut(lines.Text(), " ")
		name, labels, _ := strings.Cut(sample, "{")
		c := counters[name]
		value, err := strconv.ParseFloat(number, 64)
		if c == nil || err != nil {
			continue
		}
		c.found = true
		c.all += value
		if strings.Contains(labels, `grpc_type="unary"`) {
			c.unary += value
		}
	}
	if err := lines.Err(); err != nil {
		return etcdCounts{}, err
	}
	requests, watchers := counters[etcdMessagesMetric], counters[etcdWatchersMetric]
	if !requests.found {
		requests = counters[etcdStartedMetric]
	}
	switch {
	case !requests.found:
		return etcdCounts{}, errors.New("neither " + etcdMessagesMetric + " nor " + etcdStartedMetric + " is there: want the URL of a member of etcd")
	case !watchers.found:
		return etcdCounts{}, errors.New(etcdWatchersMetric + " is not there: want the URL of a member of etcd")
	}
	return etcdCounts{requests.all, requests.unary, watchers.all}, nil
}
