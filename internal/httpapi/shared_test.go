package httpapi_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/http2"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

// shared is a response of our own HTTP/2.
type shared interface {
	http.ResponseWriter
	SetWriteTimeout(d time.Duration)
	Connection() any
	FlushError() error
	TryWrite(p []byte) (ok, full bool)
}

// spy counts the deliveries of a watch for another one and for itself, and the failed ones.
type spy struct {
	shared
	delivered, declined *atomic.Int64
}

// TryWrite implements shared.
func (s spy) TryWrite(p []byte) (ok, full bool) {
	if ok, full = s.shared.TryWrite(p); ok {
		s.delivered.Add(1)
	} else {
		s.declined.Add(1)
	}
	return ok, full
}

// startShared starts a server with HTTP/2 of our own, and a client with one connection,
// which takes so many bytes of each response ahead. It returns how often something was
// delivered, and declined.
func startShared(t *testing.T, ahead int) (s *server, delivered, declined *atomic.Int64) {
	delivered, declined = new(atomic.Int64), new(atomic.Int64)
	s = startHTTP2(t, ahead, func(w shared) http.ResponseWriter { return spy{w, delivered, declined} })
	return s, delivered, declined
}

// startHTTP2 is startShared with responses that are wrapped.
func startHTTP2(t *testing.T, ahead int, wrap func(shared) http.ResponseWriter) *server {
	s := start(t, wiring{
		http2: &http2.Server{
			MaxStreams: 250, HeaderBytes: 64 << 10, UploadBytes: 256 << 10, IdleTimeout: time.Minute, WriteTimeout: time.Minute,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		},
		config: func(c *httpapi.Config) { c.Limits.WriteTimeout = 10 * time.Minute }, // for clients that do not read for a while
		wrap:   func(w http.ResponseWriter) http.ResponseWriter { return wrap(w.(shared)) },
	})
	s.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: s.client.Transport.(*http.Transport).TLSClientConfig.RootCAs},
		ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: ahead},
	}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// TestFirstOfATable: only the first event of a Table watch has column definitions, no matter
// which goroutine writes it and whether it has to wait for the client.
func TestFirstOfATable(t *testing.T) {
	s, _, _ := startShared(t, 100)
	resp := s.open(t, t.Context(), "GET", maps+"?watch=1", nil, "Accept: application/json;as=Table;g=meta.k8s.io;v=v1")
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		s.create(t, "default", fmt.Sprintf("m-%d", i), 10)
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if told, want := strings.Contains(line, `"columnDefinitions":[{`), i == 0; told != want {
			t.Errorf("event %d: columns: %v, want %v: %s", i, told, want, line)
		}
	}
}

// panicky is a response whose TryWrite panics while panics is set.
type panicky struct {
	shared
	panics *atomic.Bool
}

// TryWrite implements shared.
func (p panicky) TryWrite(b []byte) (ok, full bool) {
	if p.panics.Load() {
		panic("it is broken")
	}
	return p.shared.TryWrite(b)
}

// TestPanicOfOneWatch: a panic while events of a watch are delivered ends that watch, and no
// other one of its connection.
func TestPanicOfOneWatch(t *testing.T) {
	var responses atomic.Int32
	var panics [4]atomic.Bool
	s := startHTTP2(t, 64<<10, func(w shared) http.ResponseWriter {
		return panicky{w, &panics[min(responses.Add(1), int32(len(panics)))-1]}
	})
	var watches [3]*http.Response
	for i := range watches {
		watches[i] = s.open(t, t.Context(), "GET", maps+"?watch=1", nil)
		defer watches[i].Body.Close()
	}
	panics[1].Store(true)
	const writes = 3
	for i := range writes {
		s.create(t, "default", fmt.Sprintf("m-%d", i), 10)
	}
	broken := 0
	for i, resp := range watches {
		lines := bufio.NewReader(resp.Body)
		for n := range writes {
			if _, err := lines.ReadString('\n'); err != nil {
				if i != 1 || n > 0 {
					t.Errorf("watch %d, event %d: %v", i, n, err)
				}
				broken++
				break
			}
		}
	}
	if broken != 1 {
		t.Errorf("%d watches were broken off, want 1", broken)
	}
}

// formReader reads a watch in some form.
type formReader struct {
	form int
	body io.ReadCloser
	got  bytes.Buffer
}

// until reads up to some text, and a little more.
func (r *formReader) until(t *testing.T, text []byte) {
	buf := make([]byte, 2000)
	for seen := 0; !bytes.Contains(r.got.Bytes()[max(0, seen-len(text)):], text); {
		seen = r.got.Len()
		n, err := r.body.Read(buf)
		if err != nil {
			t.Error(err)
			return
		}
		r.got.Write(buf[:n])
	}
}

// ages are the ages in Tables.
var ages = regexp.MustCompile(`"\d+s"`)

// TestWatchesOfOneConnection: watches whose events leave together get all of them, in
// order, in their own form, whatever the others of the connection do: some do not read,
// one ends, some events are large.
func TestWatchesOfOneConnection(t *testing.T) {
	s, delivered, declined := startShared(t, 64<<10)
	forms := []string{
		"application/json",
		"application/vnd.kubernetes.protobuf;stream=watch",
		"application/json;as=Table;g=meta.k8s.io;v=v1",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	}
	const watches, writers, writes = 40, 3, 30
	last := []byte("the-last-one")
	all := make([]*formReader, watches)
	for i := range all {
		resp := s.open(t, t.Context(), "GET", maps+"?watch=1", nil, "Accept: "+forms[i%len(forms)])
		if resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode)
		}
		all[i] = &formReader{form: i % len(forms), body: resp.Body}
		defer resp.Body.Close()
	}
	ends := s.open(t, t.Context(), "GET", maps+"?watch=1&labelSelector=a", nil)
	slow, quick := all[:3], all[3:]

	var reading, writing sync.WaitGroup
	for _, r := range quick {
		reading.Go(func() { r.until(t, last) })
	}
	for w := range writers {
		writing.Go(func() {
			for i := range writes {
				size := 10
				switch {
				case w == 0 && i%10 == 5:
					size = 100 << 10
				case w == 1:
					size = 3 << 10
				}
				s.create(t, "default", fmt.Sprintf("m-%d-%d", w, i), size)
				if w == 2 && i == writes/2 {
					ends.Body.Close()
				}
			}
		})
	}
	writing.Wait()
	s.create(t, "default", string(last), 1)
	reading.Wait()
	for _, r := range slow {
		reading.Go(func() { r.until(t, last) })
	}
	reading.Wait()
	s.handler.Drain()
	for _, r := range all {
		if _, err := io.Copy(&r.got, r.body); err != nil {
			t.Errorf("the end: %v", err)
		}
	}
	for i, r := range all {
		first := all[len(all)-len(forms)+r.form]
		if !bytes.Equal(ages.ReplaceAll(r.got.Bytes(), nil), ages.ReplaceAll(first.got.Bytes(), nil)) {
			t.Errorf("watch %d, as %s: %d bytes, another one got %d", i, forms[r.form], r.got.Len(), first.got.Len())
		}
	}
	var before uint64
	events := regexp.MustCompile(`{"type":"ADDED".*?"resourceVersion":"(\d+)"`).FindAllStringSubmatch(all[0].got.String(), -1)
	for _, e := range events {
		v, err := strconv.ParseUint(e[1], 10, 64)
		if err != nil || v <= before {
			t.Errorf("version %s after %d, %v", e[1], before, err)
		}
		before = v
	}
	if len(events) != writers*writes+1 {
		t.Errorf("%d events, want %d", len(events), writers*writes+1)
	}
	if d := delivered.Load(); d < watches {
		t.Errorf("%d deliveries, %d declined: watches do not deliver to each other", d, declined.Load())
	}
	metric := fmt.Sprintf(`apiserver_watch_events_total{group="",resource="configmaps",version="v1"} %d`, watches*(writers*writes+1))
	if a := s.do(t, "GET", "/metrics", ""); !strings.Contains(a.body, metric) {
		t.Errorf("no %s in the metrics", metric)
	}
}
