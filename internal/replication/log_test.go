package replication_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/inprocess"
	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// stored returns a store with an object.
func stored(t *testing.T) *store.Store {
	t.Helper()
	s := storetest.Open(t, store.Options{Log: emptyLog(t)})
	write(t, s, "ns/a")
	return s
}

func write(t *testing.T, s *store.Store, key string) {
	t.Helper()
	if _, err := s.Commit(t.Context(), store.Write{Collection: "pods", Key: key, Value: []byte(`""`), RevisionAt: 1}); err != nil {
		t.Fatal(err)
	}
}

// follow returns a log that follows a handler, and has the copy.
func follow(t *testing.T, h http.Handler, copied store.Log, log *slog.Logger) *replication.Log {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	l := replication.NewLog(&serverclient.Client{HTTP: server.Client(), URL: server.URL}, copied, 0, log)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// fullLog is a log without space.
type fullLog struct{ store.Log }

func (fullLog) Append(context.Context, []store.Entry, *store.Mark) error { return store.ErrNoSpace }

// TestFullDisk: a follower whose copy cannot grow ends with that reason.
func TestFullDisk(t *testing.T) {
	l := follow(t, handler(stored(t)), fullLog{emptyLog(t)}, slog.New(slog.DiscardHandler))
	for b, err := range l.Follow(t.Context(), 0) {
		if err == nil && len(b.Entries) == 0 {
			continue
		}
		if !errors.Is(err, store.ErrNoSpace) || errors.Is(err, store.ErrReset) {
			t.Errorf("got %v, want %v alone", err, store.ErrNoSpace)
		}
		return
	}
}

// failingLog is a log that cannot encrypt some times.
type failingLog struct {
	store.Log
	failures *int
}

func (l failingLog) Append(ctx context.Context, entries []store.Entry, mark *store.Mark) error {
	if *l.failures--; *l.failures >= 0 {
		return fmt.Errorf("pods ns/a: %w: the plugin does not respond", store.ErrEncrypt)
	}
	return l.Log.Append(ctx, entries, mark)
}

// TestNotEncrypted checks that a follower whose copy cannot be encrypted for a while continues when it
// can.
func TestNotEncrypted(t *testing.T) {
	failures := 2
	l := follow(t, handler(stored(t)), failingLog{emptyLog(t), &failures}, slog.New(slog.DiscardHandler))
	for b, err := range l.Follow(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Entries) > 0 {
			break
		}
	}
	if failures >= 0 {
		t.Errorf("the log was asked %d times less than it fails", failures+1)
	}
}

// TestResponses checks the results of responses to a transaction that are not decisions. The outcome
// is unknown unless it is certain that nothing was written.
func TestResponses(t *testing.T) {
	var code atomic.Int64
	l := follow(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/changes") { // the server can be reached
			w.Header().Set("Tidemark-Run", "run")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"revision":1,"run":"run"}`)
			return
		}
		if own := code.Load(); own < 0 { // as the server itself responds
			reason, message := metav1.StatusReasonServiceUnavailable, "m"
			if own == -500 {
				reason, message = metav1.StatusReasonInternalError, fmt.Sprintf("%v: m", store.ErrUnknown)
			}
			w.WriteHeader(int(-own))
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, -own)
			return
		}
		w.WriteHeader(int(code.Load()))
	}), emptyLog(t), slog.New(slog.DiscardHandler))
	following := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(following)
		for range l.Follow(ctx, 0) {
		}
	}()
	defer func() { cancel(); <-following }()
	for response, unknown := range map[int]bool{
		400: false, 401: false, 403: false, 404: false, 405: false, 413: false, -503: false, -500: true,
		200: true, 500: true, 502: true, 503: true, 504: true, 507: true, 520: true,
	} {
		code.Store(int64(response))
		_, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{{Collection: "pods", Key: "ns/b", Value: []byte(`""`), RevisionAt: 1}}})
		if down := (*store.UnavailableError)(nil); errors.Is(err, store.ErrUnknown) != unknown || errors.As(err, &down) == unknown {
			t.Errorf("%d: %v", response, err)
		}
		if text := fmt.Sprint(store.ErrUnknown); unknown && strings.Count(err.Error(), text) != 1 {
			t.Errorf("%d says more than once that the outcome is unknown: %v", response, err)
		}
	}
}

// inProcess returns a client of a handler without sockets, for bubbles.
func inProcess(t *testing.T, h http.Handler) *serverclient.Client {
	t.Helper()
	s := &inprocess.Server{Handler: h}
	t.Cleanup(s.Stop)
	return &serverclient.Client{HTTP: &http.Client{Transport: s.Transport(t.Context(), nil)}, URL: "https://server"}
}

// TestAway: a follower that has never reached its server says why, and does not wait for a stream.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &inprocess.Server{Handler: http.NotFoundHandler()}
		s.Stop()
		client := &serverclient.Client{HTTP: &http.Client{Transport: s.Transport(t.Context(), nil)}, URL: "https://server"}
		l := replication.NewLog(client, emptyLog(t), 0, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() {
			for range l.Follow(ctx, 0) {
			}
		})
		synctest.Wait() // it has tried
		began := time.Now()
		_, err := l.Head(t.Context())
		if down := (*store.UnavailableError)(nil); !errors.As(err, &down) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("got %v", err)
		}
		if _, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{{Collection: "pods", Key: "ns/b", Value: []byte(`""`), RevisionAt: 1}}}); errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("a transaction: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the requests waited for %v", took)
		}
		cancel()
		following.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestNoStream: a follower that gets no changes loads its copy as it is, and its log has the reason.
func TestNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stored(t)
		all := handler(s)
		client := inProcess(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/changes") {
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as many followers as it may have","reason":"TooManyRequests","code":429}`)
				return
			}
			all.ServeHTTP(w, r)
		}))
		copied := emptyLog(t)
		if err := copied.Append(t.Context(), []store.Entry{{Collection: "pods", Key: "ns/a", Revision: 1, Object: &store.Object{Key: "ns/a", Held: []byte(`"1"`), Created: 1, Modified: 1, RevisionAt: 1}}}, nil); err != nil {
			t.Fatal(err)
		}
		write(t, s, "ns/later")
		var text bytes.Buffer
		l := replication.NewLog(client, copied, 1, slog.New(slog.NewTextHandler(&text, nil)))
		var loaded []string
		if _, err := l.Load(t.Context(), func(collection string, o *store.Object) error {
			loaded = append(loaded, collection+" "+o.Key)
			return nil
		}); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(loaded); got != "[pods ns/a]" {
			t.Errorf("loaded %s", got)
		}
		if !strings.Contains(text.String(), "as many followers as it may have") {
			t.Errorf("the log has no reason:\n%s", &text)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowLink: a message that takes longer than the longest silence arrives.
func TestSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stored(t)
		client := inProcess(t, handler(s))
		client.HTTP.Transport = changed{client.HTTP.Transport, func(from io.Reader, p []byte) (int, error) {
			n, err := from.Read(p)
			time.Sleep(time.Duration(n) * time.Second / (75 << 10)) // 75 KiB/s
			return n, err
		}}
		l := replication.NewLog(client, emptyLog(t), 0, slog.New(slog.DiscardHandler))
		var began time.Time
		var large store.Revision
		for b, err := range l.Follow(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if large > 0 && b.Through >= large {
				break
			}
			if large == 0 {
				began = time.Now()
				made, err := s.Commit(t.Context(), store.Write{Collection: "pods", Key: "ns/large", Value: []byte(`"` + strings.Repeat(" ", 1_000_000) + `"`), RevisionAt: 1})
				if err != nil {
					t.Fatal(err)
				}
				large = made.Modified
			}
		}
		if took := time.Since(began); took < 12*time.Second || took > 15*time.Second {
			t.Errorf("the message took %v, want about 13 s", took)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A changed transport changes the bodies of responses.
type changed struct {
	http.RoundTripper
	read func(from io.Reader, p []byte) (int, error)
}

func (c changed) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = changedBody{response.Body, c}
	}
	return response, err
}

type changedBody struct {
	io.ReadCloser
	by changed
}

func (b changedBody) Read(p []byte) (int, error) { return b.by.read(b.ReadCloser, p) }

// TestEnd: the server ends each stream some time. The follower goes on with another one, and stays connected.
func TestEnd(t *testing.T) {
	s := stored(t)
	all := handler(s)
	var streams atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/changes") {
			streams.Add(1)
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			w, r = &ending{ResponseWriter: w, end: cancel}, r.WithContext(ctx)
		}
		all.ServeHTTP(w, r)
	})
	var text bytes.Buffer
	l := follow(t, h, emptyLog(t), slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})))
	for _, err := range l.Follow(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if !l.Lag().Connected {
			t.Error("it counts as not connected")
		}
		if streams.Load() >= 3 {
			break
		}
	}
	if text.Len() > 0 {
		t.Errorf("logged %s", &text)
	}
}

// ending ends a stream after its first message.
type ending struct {
	http.ResponseWriter
	end     func()
	flushed int
}

func (e *ending) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func (e *ending) FlushError() error {
	if e.flushed++; e.flushed == 2 { // the first one is that of the header
		defer e.end()
	}
	return http.NewResponseController(e.ResponseWriter).Flush()
}

// TestWhole: a follower takes a transaction over as a whole, however large it is.
func TestWhole(t *testing.T) {
	s := stored(t)
	l := follow(t, handler(s), emptyLog(t), slog.New(slog.DiscardHandler))
	type span struct{ first, last store.Revision }
	transactions := 2
	if tier.IsFull(t) {
		transactions = 5
	}
	made := make(chan []span, 1)
	go func() {
		var all []span
		defer func() { made <- all }()
		for i := range transactions {
			txn := new(store.Txn)
			for n := range 600 + 100*i {
				txn.Writes = append(txn.Writes, store.Write{Collection: "pods", Key: fmt.Sprintf("ns/%d-%d", i, n), Value: []byte(`"` + strings.Repeat(" ", 3000) + `"`), RevisionAt: 1})
			}
			written, err := s.Apply(t.Context(), txn)
			if err != nil {
				t.Error(err)
				return
			}
			all = append(all, span{written[0].Modified, written[len(written)-1].Modified})
		}
	}()
	var all []span
	var ends []store.Revision
	for b, err := range l.Follow(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, b.Through)
		select {
		case all = <-made:
		default:
		}
		if len(all) > 0 && b.Through >= all[len(all)-1].last {
			break
		}
	}
	for _, at := range ends {
		for _, txn := range all {
			if txn.first <= at && at < txn.last {
				t.Errorf("a batch ends with %d, in a transaction from %d to %d", at, txn.first, txn.last)
			}
		}
	}
}
