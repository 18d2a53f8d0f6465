package tidemark_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestHundred starts a hundred servers, uses them, and checks that they leave no goroutine, open file or file behind.
// TestBubble does that for the goroutines of a server in process.
func TestHundred(t *testing.T) {
	tier.Full(t) // other tests of the process have goroutines
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	startMany(t, 100)
	await.Nil(t, "the end of the servers", func() error {
		if now, open := runtime.NumGoroutine(), openFiles(t); now > goroutines || open > files {
			stacks := make([]byte, 1<<20)
			return fmt.Errorf("%d goroutines and %d open files, before it were %d and %d\n%s", now, open, goroutines, files, stacks[:runtime.Stack(stacks, true)])
		}
		return nil
	})
}

// TestSeveralAtOnce: servers of one process do not share files, and leave none.
func TestSeveralAtOnce(t *testing.T) { startMany(t, 5) }

// startMany starts servers at the same time, uses and closes them.
func startMany(t *testing.T, n int) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			var s tidemark.Server
			if err := s.Start(context.Background()); err != nil {
				t.Error(err)
				return
			}
			if err := use(&s); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("files left behind: %v %v", left, err)
	}
}

// use sends a request with a client that keeps its connection open, and leaves a
// watch running.
func use(s *tidemark.Server) error {
	c := s.RESTConfig()
	transport := &http.Transport{TLSClientConfig: trusting(c), ForceAttemptHTTP2: true}
	for _, path := range []string{defaultNamespace, "/api/v1/namespaces?watch=1"} {
		req, err := http.NewRequest("GET", c.Host+path, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+c.BearerToken)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", path, resp.Status)
		}
	}
	return nil
}

// openFiles returns the number of open files of the process, or zero if the system
// does not show them.
func openFiles(t *testing.T) int {
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// failing is a storage whose log fails on demand.
type failing struct {
	store.Log
	fail chan error // a value fails the next append
}

var _ tidemark.Storage = (*failing)(nil)

func (f *failing) Open(context.Context, storage.Options) (*storage.Opened, error) {
	return &storage.Opened{Log: f}, nil
}

func (f *failing) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	select {
	case err := <-f.fail:
		return err
	default:
		return f.Log.Append(ctx, group, mark)
	}
}

// TestLogFails checks that a failed log closes Done, and that the write is not
// acknowledged.
func TestLogFails(t *testing.T) {
	f := &failing{Log: memlog.New(), fail: make(chan error, 1)}
	s := &tidemark.Server{Storage: f}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	select {
	case <-s.Done():
		t.Fatal("done at once")
	default:
	}
	broken := errors.New("the disk is gone")
	f.fail <- broken
	resp, err := servertest.Client(t, s.RESTConfig()).Post(s.URL()+"/api/v1/namespaces", "application/json",
		strings.NewReader(`{"metadata":{"name":"lost"}}`))
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode < 500 {
			t.Errorf("a write that is lost got %s", resp.Status)
		}
	}
	await.Value(t, "the end of the server whose log failed", s.Done())
	if !errors.Is(s.Err(), broken) {
		t.Errorf("Err says %v", s.Err())
	}
	servertest.WantCode(t, servertest.Anonymous(s), "/readyz", http.StatusInternalServerError, "")
}
