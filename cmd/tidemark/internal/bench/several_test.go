package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
)

// several are the scenarios of several servers on one etcd.
var several = []string{"idle-etcd", "list-fresh", "crd-other-server", "outage"}

// measure measures scenarios on a server, and returns its report.
func measure(t *testing.T, s Server, scenarios ...string) (ServerReport, *Report) {
	t.Helper()
	o := tiny(scenarios...)
	o.MaxOps = 1_000_000 // an outage takes as many writes as it takes
	r, err := Run(t.Context(), o, []Server{s}, progress.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Servers[0], r
}

// TestSeveralSkipped: without their flags the scenarios are skipped, and the reason names
// the flag.
func TestSeveralSkipped(t *testing.T) {
	report, _ := measure(t, serve(t), several...)
	for i, want := range []string{"--etcd-metrics", "", "--other-kubeconfig", "--outage-command"} {
		x := report.Results[i]
		if !strings.Contains(x.Skipped, want) || (want == "") != (x.Skipped == "") || x.Failed != "" {
			t.Errorf("%s: skipped %q, failed %q, want %q", x.Name, x.Skipped, x.Failed, want)
		}
	}
}

func TestOtherServer(t *testing.T) {
	s := serve(t)
	s.OtherKubeconfig = s.Kubeconfig
	report, r := measure(t, s, "list-fresh", "crd-other-server")
	if len(r.Failures()) > 0 || report.OtherURL != report.URL {
		t.Fatalf("%v, the other server is %q", r.Failures(), report.OtherURL)
	}
	for _, x := range report.Results {
		if len(x.Rounds) != 1 || x.Rounds[0].Ops == 0 || x.Rounds[0].Latency == nil {
			t.Errorf("%+v", x)
		}
	}
	if left := objectsLeft(t, s); len(left) > 0 {
		t.Errorf("objects are left behind: %v", left)
	}
}

// TestStale: a list that does not have the write before it fails the scenario.
func TestStale(t *testing.T) {
	s := serve(t)
	s.OtherKubeconfig = liar(t, s, func(r *http.Request, b []byte) []byte {
		if r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/configmaps") {
			return bytes.ReplaceAll(b, sentKey, []byte(`"sent":"0`))
		}
		return b
	}).Kubeconfig
	_, r := measure(t, s, "list-fresh")
	if got := strings.Join(r.Failures(), "\n"); !strings.Contains(got, "does not have what was written") {
		t.Errorf("the failures are %q", got)
	}
}

func TestGapOf(t *testing.T) {
	at := func(millis int) time.Time { return time.UnixMilli(1e12 + int64(millis)) }
	for _, test := range []struct {
		acks       []int
		begin, end int
		want       int
	}{
		{nil, 100, 130, 30},
		{[]int{110, 125}, 100, 130, 15},
		{[]int{125, 110}, 100, 130, 15},           // of several clients
		{[]int{10, 80, 95, 104}, 100, 110, 6},     // gaps before the outage do not count
		{[]int{10, 150}, 100, 160, 50},            // nor does the part of a gap before it
		{[]int{101, 102, 190, 191}, 100, 200, 88}, //
		{[]int{101, 102}, 100, 200, 98},           // up to the end
		{[]int{101, 250}, 100, 200, 99},           // a response after the end is not seen
		{[]int{100, 200}, 100, 200, 100},
	} {
		var acks []time.Time
		for _, a := range test.acks {
			acks = append(acks, at(a))
		}
		if got := gapOf(acks, at(test.begin), at(test.end)); got != time.Duration(test.want)*time.Millisecond {
			t.Errorf("acknowledged at %v, from %d to %d: %v, want %d ms", test.acks, test.begin, test.end, got, test.want)
		}
	}
}

// needsShell skips a test where commands do not run.
func needsShell(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no /bin/sh")
	}
}

// TestOutage: a server breaks off all requests from the command on, until the other command
// repairs it, if there is one. The clients go on at the other server.
func TestOutage(t *testing.T) {
	needsShell(t)
	honest := serve(t)
	for _, repair := range []string{"", "rm "} {
		broken := filepath.Join(t.TempDir(), "broken")
		s := proxy(t, honest, func(http.ResponseWriter, *http.Request) bool {
			if _, err := os.Stat(broken); err == nil {
				panic(http.ErrAbortHandler)
			}
			return false
		}, func(_ *http.Request, b []byte) []byte { return b })
		s.OtherKubeconfig, s.OutageCommand = honest.Kubeconfig, "touch "+broken
		if repair != "" {
			s.RepairCommand = repair + broken
		}
		report, r := measure(t, s, "outage")
		if len(r.Failures()) > 0 {
			t.Fatal(r.Failures())
		}
		f := report.Results[0].Rounds[0]
		// Half of the writers were there, and each of them had to get a response again.
		if f.Ops < outageWriters || f.Extra[failedRequests] < outageWriters/2 || f.Extra[httpErrors] != 0 || f.Extra[relistedWatches] != 0 ||
			f.Extra[longestGap] <= 0 || f.Extra[longestClientGap] < f.Extra[longestGap] || f.Extra["watches"] != 5 {
			t.Errorf("%+v", f)
		}
		var table bytes.Buffer
		if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "gap ms") || !strings.Contains(table.String(), "relists") {
			t.Errorf("%v\n%s", err, &table)
		}
		if left := objectsLeft(t, honest); len(left) > 0 {
			t.Errorf("%d objects are left behind: %.3q", len(left), left)
		}
		if _, err := os.Stat(broken); (err == nil) != (repair == "") {
			t.Errorf("repaired: %v, with the command %q", err, s.RepairCommand)
		}
	}
}

// TestOutageHTTPErrors: requests that a server refuses are counted.
func TestOutageHTTPErrors(t *testing.T) {
	needsShell(t)
	var refused atomic.Int64
	s := proxy(t, serve(t), func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != "POST" || !strings.HasSuffix(r.URL.Path, "-outage/configmaps") || refused.Add(1) > 3 {
			return false
		}
		http.Error(w, "no leader", http.StatusServiceUnavailable)
		return true
	}, func(_ *http.Request, b []byte) []byte { return b })
	s.OutageCommand = "true"
	report, r := measure(t, s, "outage")
	if len(r.Failures()) > 0 {
		t.Fatal(r.Failures())
	}
	if f := report.Results[0].Rounds[0]; f.Extra[failedRequests] != 3 || f.Extra[httpErrors] != 3 || f.Extra[timedOutRequests] != 0 {
		t.Errorf("%+v", f)
	}
}

// TestOutageLost: acknowledged writes that are lost are found, and so are wrong events.
func TestOutageLost(t *testing.T) {
	needsShell(t)
	honest := serve(t)
	first := []byte(`"` + outageName(1) + `"`)
	isEvent := func(r *http.Request, b []byte) bool {
		return strings.Contains(r.URL.RawQuery, "watch=1") && bytes.Contains(b, first)
	}
	for want, change := range map[string]func(r *http.Request, b []byte) []byte{
		"are not in the list, such as " + outageName(1): func(r *http.Request, b []byte) []byte {
			if r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/configmaps") && !strings.Contains(r.URL.RawQuery, "watch=1") {
				return bytes.Replace(b, []byte(sentMember(1)), []byte(sentMember(0)), 1)
			}
			return b
		},
		"are not seen by watch 0": func(r *http.Request, b []byte) []byte {
			if isEvent(r, b) {
				return nil
			}
			return b
		},
		"an event at": func(r *http.Request, b []byte) []byte { // twice
			if isEvent(r, b) {
				return append(bytes.Clone(b), b...)
			}
			return b
		},
	} {
		s := liar(t, honest, change)
		s.OutageCommand = "true"
		if _, r := measure(t, s, "outage"); !strings.Contains(strings.Join(r.Failures(), "\n"), want) {
			t.Errorf("the failures are %q, want %q", r.Failures(), want)
		}
	}
}

// TestOutageRelists: watches that cannot be continued list again, which is no loss.
func TestOutageRelists(t *testing.T) {
	needsShell(t)
	s := liar(t, serve(t), func(r *http.Request, b []byte) []byte {
		if strings.Contains(r.URL.RawQuery, "watch=1") && bytes.Contains(b, []byte(`"`+outageName(1)+`"`)) {
			return []byte(`{"type":"ERROR","object":{"kind":"Status","code":410}}` + "\n")
		}
		return b
	})
	s.OutageCommand = "true"
	report, r := measure(t, s, "outage")
	if len(r.Failures()) > 0 {
		t.Fatal(r.Failures())
	}
	if f := report.Results[0].Rounds[0]; f.Extra[relistedWatches] != outageWatches {
		t.Errorf("%+v", f)
	}
}

// TestOutageCommands: a command that fails is reported with its output, and the repair
// command runs nevertheless.
func TestOutageCommands(t *testing.T) {
	needsShell(t)
	s := serve(t)
	repaired := filepath.Join(t.TempDir(), "repaired")
	s.OutageCommand, s.RepairCommand = "echo it is broken; exit 3", "touch "+repaired
	_, r := measure(t, s, "outage")
	if got := strings.Join(r.Failures(), ""); !strings.Contains(got, "outage command") || !strings.Contains(got, "it is broken") {
		t.Errorf("the failures are %q", got)
	}
	if _, err := os.Stat(repaired); err != nil {
		t.Error(err)
	}
	o := tiny("outage")
	o.MaxOps, s.OutageCommand = 1, "true"
	r, err := Run(t.Context(), o, []Server{s}, progress.Progress{})
	if err != nil || !strings.Contains(strings.Join(r.Failures(), ""), "--max-ops=1") {
		t.Errorf("%v %q", err, r.Failures())
	}
}

// TestIdleEtcd reads counters that grow from one read to the next.
func TestIdleEtcd(t *testing.T) {
	var reads atomic.Int64
	mux := http.NewServeMux()
	serveText := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.ReplaceAll(text, "READS", fmt.Sprint(reads.Add(1))))
		})
	}
	const started = `# TYPE grpc_server_started_total counter
grpc_server_started_total{grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} READS00
grpc_server_started_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 4
etcd_debugging_mvcc_watcher_total 21
`
	const received = `grpc_server_msg_received_total{grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} READS0
grpc_server_msg_received_total{grpc_method="LeaseKeepAlive",grpc_service="etcdserverpb.Lease",grpc_type="bidi_stream"} READS
`
	serveText("/received", started+received)
	serveText("/started", started)
	serveText("/other", "up 1\n")
	serveText("/no-watchers", received)
	etcd := httptest.NewServer(mux)
	defer etcd.Close()
	s := serve(t)
	for _, test := range []struct {
		paths      []string
		ops        int64
		unary, all float64 // as they relate
		watches    float64
		failure    string
	}{
		{paths: []string{"/received"}, ops: 11, unary: 10, all: 11, watches: 21},
		{paths: []string{"/started"}, ops: 100, unary: 1, all: 1, watches: 21},
		{paths: []string{"/received", "/received", "/received"}, ops: 99, unary: 10, all: 11, watches: 63},
		{paths: []string{"/other"}, failure: "grpc_server_started_total is there"},
		{paths: []string{"/no-watchers"}, failure: "etcd_debugging_mvcc_watcher_total is not there"},
		{paths: []string{"/absent"}, failure: "404"},
	} {
		s.EtcdMetrics = nil
		for _, path := range test.paths {
			s.EtcdMetrics = append(s.EtcdMetrics, etcd.URL+path)
		}
		report, r := measure(t, s, "idle-etcd")
		if failures := strings.Join(r.Failures(), ""); !strings.Contains(failures, test.failure) || (test.failure == "") != (failures == "") {
			t.Errorf("%v: the failures are %q, want %q", test.paths, failures, test.failure)
			continue
		}
		if test.failure != "" {
			continue
		}
		f := report.Results[0].Rounds[0]
		requests, unary := f.Extra[etcdRequests], f.Extra[etcdUnary]
		if f.Ops != test.ops || requests != float64(test.ops)/f.Seconds || f.Extra[etcdWatches] != test.watches || int64(requests*test.unary+0.5) != int64(unary*test.all+0.5) {
			t.Errorf("%v: %+v", test.paths, f)
		}
		var table bytes.Buffer
		if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "etcd watches") || !strings.Contains(table.String(), "etcd unary/s") {
			t.Errorf("%v\n%s", err, &table)
		}
	}
}
