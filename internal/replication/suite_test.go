package replication_test

import (
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// faults are those of the connection of a follower, as chances.
type faults struct {
	// cut ends a stream at each read, lost drops the response to a transaction that was made, and refused responds with 503.
	cut, lost, refused float64
}

// TestSuite runs the suite of stores on a Shared.
func TestSuite(t *testing.T) {
	for name, f := range map[string]faults{"none": {}, "cut": {cut: 0.02}} {
		t.Run(name, func(t *testing.T) {
			storetest.RunShared(t, func(t *testing.T) storetest.SharedMedium { return medium(t, f) }, nil)
		})
	}
}

// TestUnknown leaves the outcome of many writes unknown.
func TestUnknown(t *testing.T) {
	storetest.RunSharedModel(t, medium(t, faults{cut: 0.02, lost: 0.1, refused: 0.05}))
}

// medium is a store whose followers share its log.
func medium(t *testing.T, f faults) storetest.SharedMedium {
	server := httptest.NewServer(handler(storetest.Open(t, store.Options{Log: emptyLog(t)})))
	t.Cleanup(server.Close)
	chance := testrand.New(t)
	return storetest.SharedMedium{
		Separate: true,
		Open: func(t testing.TB) store.Shared {
			line := &faulty{faults: f, chance: rand.New(rand.NewPCG(chance.Uint64(), 1))}
			client := &serverclient.Client{HTTP: &http.Client{Transport: line}, URL: server.URL}
			return replication.NewLog(client, emptyLog(t), 0, slog.New(slog.DiscardHandler))
		},
	}
}

func emptyLog(t testing.TB) store.Log {
	t.Helper()
	log, err := pebblelog.Open(t.Context(), pebblelog.Options{Dir: "/log", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// handler serves followers of a store.
func handler(s *store.Store) http.Handler {
	server, mux := replication.NewServer(s), http.NewServeMux()
	mux.HandleFunc(replication.Path+"/head", server.ServeHead)
	mux.HandleFunc(replication.Path+"/changes", server.ServeChanges)
	mux.HandleFunc(replication.Path+"/transactions", server.ServeTransaction)
	return mux
}

// faulty is a connection with faults.
type faulty struct {
	faults
	mu     sync.Mutex
	chance *rand.Rand
}

func (f *faulty) happens(chance float64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chance.Float64() < chance
}

var errLost = errors.New("the connection was lost")

func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && f.happens(f.refused) {
		w := httptest.NewRecorder()
		w.WriteHeader(http.StatusServiceUnavailable)
		return w.Result(), nil
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case r.Method == http.MethodPost && f.happens(f.lost):
		response.Body.Close()
		return nil, errLost
	case r.URL.Path == replication.Path+"/changes":
		response.Body = &faultyBody{response.Body, f}
	}
	return response, nil
}

// faultyBody is a stream that may be cut within a message.
type faultyBody struct {
	io.ReadCloser
	f *faulty
}

func (b *faultyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil && b.f.happens(b.f.cut) {
		return n / 2, errLost
	}
	return n, err
}
