package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// fakeOutput keeps batches. It fails while err is set, and waits while stalled is not closed.
type fakeOutput struct {
	mu      sync.Mutex
	batches []string
	err     error
	stalled chan struct{}
	hurried bool
}

func (f *fakeOutput) write(ctx context.Context, b *batch) error {
	if f.stalled != nil {
		select {
		case <-f.stalled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.batches = append(f.batches, string(b.data))
	}
	return f.err
}

func (f *fakeOutput) hurry()       { f.hurried = true }
func (f *fakeOutput) close() error { return nil }

func (f *fakeOutput) written() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.batches, "|")
}

// lostEvents counts lost events by plugin.
type lostEvents struct {
	mu sync.Mutex
	of map[string]int
}

func (l *lostEvents) add(plugin string, n int, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]int{}
	}
	l.of[plugin] += n
}

func webhookBatches() BatchConfig {
	return BatchConfig{BufferSize: 10, MaxSize: 3, MaxWait: 30 * time.Second, maxBytes: maxBatchBytes}
}

// TestBatches: a batch is written when it is full, and when its first event has waited.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fakeOutput
		var lost lostEvents
		b := newBuffered(webhookBatches(), &f, 4, pluginWebhook, lost.add)
		for i := range 4 {
			if err := b.put(&Event{}, fmt.Appendf(nil, "%d", i)); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if got := f.written(); got != "012" {
			t.Errorf("%q was written at once", got)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := f.written(); got != "012|3" {
			t.Errorf("%q was written after the wait", got)
		}
		_ = b.put(&Event{}, []byte("4"))
		if err := b.close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := f.written(); got != "012|3|4" || len(lost.of) > 0 {
			t.Errorf("%q was written after close; lost: %v", got, lost.of)
		}
		if err := b.put(&Event{}, []byte("5")); !errors.Is(err, errClosed) || lost.of[pluginBuffered] != 1 {
			t.Errorf("after close: %v, lost: %v", err, lost.of)
		}
	})
}

// TestBatchesOfStalledOutput checks that a webhook that does not respond delays no put, that the
// buffer is bounded, and that dropped events are counted. Close does not wait longer than its
// context.
func TestBatchesOfStalledOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeOutput{stalled: make(chan struct{})}
		var lost lostEvents
		b := newBuffered(webhookBatches(), &f, 2, pluginWebhook, lost.add)
		begin := time.Now()
		for range 100 {
			_ = b.put(&Event{}, []byte("x"))
			synctest.Wait()
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the puts took %v", took)
		}
		// Two senders have three events each, the next batch waits for a sender.
		if lost.of[pluginBuffered] != 100-2*3-3-10 {
			t.Errorf("lost: %v", lost.of)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_ = b.close(ctx)
		if took := time.Since(begin); took != 5*time.Second || !f.hurried {
			t.Errorf("close took %v, hurried: %v", took, f.hurried)
		}
		if lost.of[pluginBuffered]+lost.of[pluginWebhook] != 100 {
			t.Errorf("lost: %v", lost.of)
		}
	})
}

// TestBatchBytes: large events count by their size.
func TestBatchBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakeOutput{stalled: make(chan struct{})}
		var lost lostEvents
		c := webhookBatches()
		c.BufferSize, c.MaxSize, c.maxBytes = 1000, 1000, 30<<20
		b := newBuffered(c, &f, 2, pluginWebhook, lost.add)
		large := make([]byte, 20<<20)
		for range 10 {
			_ = b.put(&Event{}, large)
		}
		if want := 10 - maxBufferBytes/(20<<20); lost.of[pluginBuffered] != want {
			t.Errorf("lost: %v, want %d", lost.of, want)
		}
		close(f.stalled)
		_ = b.close(t.Context())
		if n := len(f.batches); n != 6 {
			t.Errorf("%d batches of at most 30 MiB", n)
		}
	})
}

// TestThrottle: after the burst, batches are written at their rate, and at once on close.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fakeOutput
		c := webhookBatches()
		c.MaxSize, c.BufferSize, c.Throttle, c.QPS, c.Burst = 1, 100, true, 10, 5
		b := newBuffered(c, &f, 4, pluginWebhook, new(lostEvents).add)
		for range 30 {
			_ = b.put(&Event{}, []byte("x"))
		}
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		if n := len(f.batches); n != 15 {
			t.Errorf("%d batches in the first second, want 15", n)
		}
		begin := time.Now()
		_ = b.close(t.Context())
		if n := len(f.batches); n != 30 || time.Since(begin) > 200*time.Millisecond {
			t.Errorf("%d batches after close, which took %v", n, time.Since(begin))
		}
	})
}

// TestCommitter: put returns when its event is written, events that arrive meanwhile are written
// together, and each put gets the error of its own batch.
func TestCommitter(t *testing.T) {
	var f fakeOutput
	var lost lostEvents
	c := newCommitter(&f, pluginLog, lost.add)
	c.turn.Lock() // as a write under way does
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := c.put(&Event{}, []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	await.True(t, "events that wait", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.open.ends) >= 50
	})
	c.turn.Unlock()
	wg.Wait()
	if want := strings.Repeat("x", 50); f.written() != want {
		t.Errorf("%q was written, want %q", f.written(), want)
	}
	f.err = errors.New("full")
	if err := c.put(&Event{}, []byte("y")); !errors.Is(err, f.err) || lost.of[pluginLog] != 1 {
		t.Errorf("%v, lost: %v", err, lost.of)
	}
	f.err = nil
	if err := c.put(&Event{}, []byte("z")); err != nil {
		t.Error(err)
	}
	_ = c.close(t.Context())
	if err := c.put(&Event{}, []byte("x")); !errors.Is(err, errClosed) {
		t.Errorf("after close: %v", err)
	}
}

func event(id string) *Event {
	return &Event{Decision: Decision{Level: Request}, AuditID: id, RequestObject: []byte(`"` + strings.Repeat("x", 1000) + `"`), Received: time.Unix(1, 0)}
}

// logged are the audit IDs in log files.
func logged(t *testing.T, paths ...string) (ids []string) {
	t.Helper()
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var r io.Reader = f
		if strings.HasSuffix(path, ".gz") {
			if r, err = gzip.NewReader(f); err != nil {
				t.Fatal(err)
			}
		}
		for d := json.NewDecoder(r); ; {
			var e auditv1.Event
			if err := d.Decode(&e); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, string(e.AuditID))
		}
	}
	return ids
}

// TestRotation: a full file is renamed and compressed; the oldest ones are removed.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "audit.log")
	now := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	a, err := New(Config{Policy: parse(t, "rules: [{level: Request}]"), Now: func() time.Time { return now }, Log: &LogConfig{
		Backend: Backend{Mode: BlockingStrict}, Path: path, File: FileConfig{MaxBytes: 3000, MaxBackups: 2, Compress: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		if !a.Process(event(fmt.Sprint(i)), ResponseComplete, now) {
			t.Error("an event was not written")
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "a", "*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "a", "audit-2026-01-31T15-04-05.002.log.gz"), filepath.Join(dir, "a", "audit-2026-01-31T15-04-05.003.log.gz"), path}
	if len(files) != 3 || files[0] != want[0] || files[1] != want[1] || files[2] != want[2] {
		t.Errorf("the files are %q, want %q", files, want)
	}
	if got := strings.Join(logged(t, files...), ""); got != "45678" {
		t.Errorf("the events are %s", got)
	}
	if about, err := os.Stat(path); err != nil || about.Mode() != 0o600 {
		t.Errorf("%v, %v", about.Mode(), err)
	}

	now = now.Add(48 * time.Hour)
	a, err = New(Config{Policy: a.policy, Now: func() time.Time { return now }, Log: &LogConfig{Backend: Backend{Mode: Blocking}, Path: path, File: FileConfig{MaxAge: 24 * time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "a", "*")); len(files) != 1 {
		t.Errorf("after two days: %q", files)
	}
}

// TestRotationNames: the name of a removed file is not used again while the clock stands still; the new file
// would be the oldest.
func TestRotationNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	now := time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC)
	a, err := New(Config{Policy: parse(t, "rules: [{level: Request}]"), Now: func() time.Time { return now }, Log: &LogConfig{
		Backend: Backend{Mode: BlockingStrict}, Path: path, File: FileConfig{MaxBytes: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	old := func(n int) string { return filepath.Join(dir, fmt.Sprintf("audit-2026-01-31T15-04-05.%03d.log", n)) }
	for i := range 5 {
		if !a.Process(event(fmt.Sprint(i)), ResponseComplete, now) {
			t.Error("an event was not written")
		}
		if i > 0 && i < 4 {
			if err := os.Remove(old(i - 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(logged(t, old(3), path), ""); got != "34" {
		t.Errorf("the events are %s", got)
	}
}

// TestFullDisk: events are counted as lost; only blocking-strict refuses.
func TestFullDisk(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("there is no /dev/full")
	}
	for _, mode := range []Mode{Batch, Blocking, BlockingStrict} {
		a, err := New(Config{Policy: parse(t, "rules: [{level: Request}]"), Log: &LogConfig{Backend: Backend{Mode: mode, Batch: BatchConfig{BufferSize: 10, MaxSize: 1}}, Path: full}})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Process(event("x"), RequestReceived, time.Now()); got != (mode != BlockingStrict) {
			t.Errorf("%s: the request may continue: %v", mode, got)
		}
		_ = a.Close()
		if c := a.Counters(); c.Errors[pluginLog] != 1 || c.Events != 1 {
			t.Errorf("%s: %+v", mode, c)
		}
	}
}

// TestTruncation checks that objects are removed from large events, and that events that are still
// too large are dropped.
func TestTruncation(t *testing.T) {
	var out strings.Builder
	a, err := New(Config{Policy: parse(t, "rules: [{level: Request}]"), Log: &LogConfig{Path: "-", Stdout: &out, Backend: Backend{Mode: BlockingStrict, Truncate: true, MaxEventBytes: 500, MaxBatchBytes: 1000}}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Process(event("large"), ResponseComplete, time.Unix(1, 0))
	var e auditv1.Event
	if err := json.Unmarshal([]byte(out.String()), &e); err != nil || e.RequestObject != nil || e.Annotations["audit.k8s.io/truncated"] != "true" {
		t.Errorf("%v: %s", err, &out)
	}
	if !a.Process(event(strings.Repeat("x", 600)), ResponseComplete, time.Unix(1, 0)) || a.Counters().Errors[pluginTruncate] != 1 {
		t.Errorf("%+v", a.Counters())
	}
}

// TestLegacy: the line of text is kube-apiserver's.
func TestLegacy(t *testing.T) {
	e := event("id")
	e.Verb, e.RequestURI, e.UserAgent = "get", "/x", `a"b`
	const want = `1970-01-01T00:00:01Z AUDIT: id="id" stage="Panic" ip="<unknown>" method="get" user="<none>" groups="<none>" as="<self>" asgroups="<lookup>" user-agent="a\"b" namespace="<none>" uri="/x" response="<deferred>"` + "\n"
	e.Received = e.Received.UTC()
	if got := string(e.appendLegacy(nil, Panic)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// TestWebhook: events are sent as a list, again after an error, and all of them by Close.
func TestWebhook(t *testing.T) {
	var mu sync.Mutex
	var got []auditv1.EventList
	failures := 2
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if failures--; failures >= 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var l auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&l); err != nil || r.URL.String() != "/sink?timeout=30s" || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		got = append(got, l)
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":"` + server.URL + `/sink"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{Policy: parse(t, "rules: [{level: Request}]"), Webhook: &WebhookConfig{
		ConfigFile: config, InitialBackoff: time.Millisecond,
		Backend: Backend{Mode: Batch, Batch: BatchConfig{BufferSize: 100, MaxSize: 400, MaxWait: time.Hour}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		a.Process(event(fmt.Sprint(i)), ResponseComplete, time.Now())
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || len(got[0].Items) != 5 || got[0].Kind != "EventList" || got[0].Items[4].AuditID != "4" || got[0].Items[0].Kind != "" {
		t.Errorf("%+v", got)
	}
	if c := a.Counters(); c.Errors[pluginWebhook] != 0 {
		t.Errorf("%+v", c)
	}
}

// TestWithoutManagedFields: objects, lists and tables lose them, and nothing else.
func TestWithoutManagedFields(t *testing.T) {
	for value, want := range map[string]string{
		`{"metadata":{"name":"a","managedFields":[{}]},"x":{"managedFields":1}}`: `{"metadata":{"name":"a"},"x":{"managedFields":1}}`,
		`{"items":[{"metadata":{"managedFields":[]}},{"metadata":{}}]}`:          `{"items":[{"metadata":{}},{"metadata":{}}]}`,
		`{"rows":[{"cells":[1],"object":{"metadata":{"managedFields":[]}}}]}`:    `{"rows":[{"cells":[1],"object":{"metadata":{}}}]}`,
		`{"items":"managedFields"}`: `{"items":"managedFields"}`,
		`"managedFields"`:           `"managedFields"`,
		`["managedFields"`:          `["managedFields"`,
	} {
		if got := string(WithoutManagedFields([]byte(value))); got != want {
			t.Errorf("%s: got %s", value, got)
		}
	}
}

// typicalEvent is the event of a GET at the level Metadata.
func typicalEvent() *Event {
	e := event("5b1e2d8e-5a4f-4977-8209-19d622a0aa26")
	e.Level, e.RequestObject = Metadata, nil
	e.RequestURI, e.Verb, e.UserAgent = "/api/v1/namespaces/default/pods/web-7d4b9c6f5-abcde", "get", "kubelet/v1.36.3 (linux/amd64) kubernetes/abcdef0"
	e.User = &authn.User{Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}}
	e.SourceIPs = []string{"10.0.0.17"}
	e.Object = &ObjectRef{Resource: "pods", Namespace: "default", Name: "web-7d4b9c6f5-abcde", APIVersion: "v1"}
	e.Annotations = Annotations{{"authorization.k8s.io/decision", "allow"}, {"authorization.k8s.io/reason", ""}}
	return e
}

// BenchmarkProcess measures the two events of a request, into a file.
func BenchmarkProcess(b *testing.B) {
	for _, mode := range []Mode{Batch, Blocking} {
		b.Run(string(mode), func(b *testing.B) {
			a, err := New(Config{Policy: parse(b, "rules: [{level: Metadata}]"), Log: &LogConfig{
				Backend: Backend{Mode: mode, Batch: BatchConfig{BufferSize: 1 << 30, MaxSize: 1}}, Path: filepath.Join(b.TempDir(), "audit.log"), File: FileConfig{MaxBytes: 100 << 20, MaxBackups: 1},
			}})
			if err != nil {
				b.Fatal(err)
			}
			e := typicalEvent()
			b.ReportAllocs()
			for b.Loop() {
				a.Process(e, RequestReceived, e.Received)
				a.Process(e, ResponseComplete, e.Received)
			}
			if err := a.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkEncode measures an event alone.
func BenchmarkEncode(b *testing.B) {
	e, room := typicalEvent(), make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		room = e.append(room[:0], ResponseComplete, e.Received, false)
	}
	b.SetBytes(int64(len(room)))
}

// hanging is an output that hangs until its context ends, or until it is healthy.
type hanging struct {
	well         atomic.Bool
	calls, under atomic.Int64
	most         atomic.Int64 // calls under way
	lines        atomic.Int64 // that were written
}

func (h *hanging) write(ctx context.Context, b *batch) error {
	h.calls.Add(1)
	h.most.Store(max(h.most.Load(), h.under.Add(1)))
	defer h.under.Add(-1)
	if !h.well.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	h.lines.Add(int64(len(b.ends)))
	return nil
}

func (*hanging) hurry()       {}
func (*hanging) close() error { return nil }

// TestHangingSink checks that while a blocking webhook hangs, requests wait for a limited time for
// all their events, and the later ones for a shorter time. Requests whose clients leave, and health
// checks, do not wait. The webhook has a limited number of connections. Lost events are counted,
// and waiting ones are sent when it is healthy.
func TestHangingSink(t *testing.T) {
	if tier.Detector {
		t.Skip("the race detector of Go 1.26 crashes while contexts with a timeout end in this bubble; .ci/run runs the test without it")
	}
	synctest.Test(t, func(t *testing.T) {
		var lost lostEvents
		out := &hanging{}
		d := newWaiting(out, webhookSenders, pluginWebhook, lost.add)
		defer d.close(t.Context())
		request := func(e *Event, want time.Duration, wantErr error) {
			t.Helper()
			began := time.Now()
			var first error
			for range 3 {
				if err := d.put(e, []byte("{}\n")); first == nil {
					first = err
				}
			}
			if took := time.Since(began); took != want || !errors.Is(first, wantErr) {
				t.Errorf("%v after %v, want %v after %v", first, took, wantErr, want)
			}
		}
		request(&Event{}, requestPatience, errNoTime)
		request(&Event{}, downPatience, errNoTime)
		request(&Event{}, downPatience, errNoTime)
		request(&Event{NoWait: true}, 0, nil)
		gone, leave := context.WithTimeout(t.Context(), downPatience/2)
		defer leave()
		request(&Event{Done: gone.Done()}, downPatience/2, context.Canceled)

		const requests = 1000
		var all sync.WaitGroup
		for range requests {
			all.Go(func() { request(&Event{}, downPatience, errNoTime) })
		}
		all.Wait()
		if n := out.most.Load(); n != webhookSenders {
			t.Errorf("%d calls at once", n)
		}
		time.Sleep(2 * sendPatience)
		synctest.Wait()
		events := int64(5*3 + requests*3)
		if n := lost.of[pluginWebhook]; n == 0 || int64(n) > events {
			t.Errorf("%d events are counted as lost", n)
		}

		out.well.Store(true)
		time.Sleep(sendPatience)
		request(&Event{}, 0, nil)
		events += 3
		if n := out.lines.Load() + int64(lost.of[pluginWebhook]); n != events {
			t.Errorf("%d events were sent or counted as lost, of %d", n, events)
		}
		out.well.Store(false)
		request(&Event{}, requestPatience, errNoTime)
	})
}

// TestHangingLog checks that health checks do not wait for a blocking log, whose events are written
// when it is healthy again. A limited number of them waits.
func TestHangingLog(t *testing.T) {
	var lost lostEvents
	out := &fakeOutput{stalled: make(chan struct{})}
	c := newCommitter(out, pluginLog, lost.add)
	const n = 3000
	line := bytes.Repeat([]byte("x"), 1024)
	for range n {
		_ = c.put(&Event{NoWait: true}, line) // does not return if it waits
	}
	// One group may be under way, and one waits.
	if room := 2 * (groupBytes/len(line) + 1); lost.of[pluginBuffered] < n-room {
		t.Errorf("%d of %d events were lost", lost.of[pluginBuffered], n)
	}
	close(out.stalled)
	if err := errors.Join(c.put(&Event{}, []byte("y")), c.close(t.Context())); err != nil {
		t.Error(err)
	}
	if got := out.written(); strings.Count(got, "x")/len(line)+lost.of[pluginBuffered] != n || !strings.Contains(got, "y") {
		t.Errorf("%d bytes were written, %d events were lost", len(got), lost.of[pluginBuffered])
	}
}
