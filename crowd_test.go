package tidemark_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/replication"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// hanging is a log whose newest revision is not had while it hangs.
type hanging struct {
	servertest.OnLog
	hang chan (<-chan struct{}) // has the channel that ends the hang
}

func (h *hanging) Open(ctx context.Context, with storage.Options) (*storage.Opened, error) {
	o, err := h.OnLog.Open(ctx, with)
	o.Shared = &hangingMember{h.Member, h}
	return o, err
}

type hangingMember struct {
	*sharedmem.Member
	h *hanging
}

func (m *hangingMember) Head(ctx context.Context) (store.Revision, error) {
	select {
	case end := <-m.h.hang:
		m.h.hang <- end
		select {
		case <-end:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	default:
	}
	return m.Member.Head(ctx)
}

// hangingCopy is one whose server decides by a copy.
type hangingCopy struct{ hanging }

func (h *hangingCopy) Open(ctx context.Context, with storage.Options) (*storage.Opened, error) {
	o, err := h.hanging.Open(ctx, with)
	o.Followed = &storage.Followed{
		URL:    "https://followed",
		Lag:    func() replication.Lag { return replication.Lag{Connected: true} },
		Facts:  func(context.Context) (map[string]string, error) { return nil, nil },
		Unread: func() error { return nil },
	}
	return o, err
}

// TestCrowd: while the newest revision cannot be had, a bounded number of requests without credentials wait for it, and
// those of known users are not refused because of them.
func TestCrowd(t *testing.T) {
	t.Parallel()
	for name, copied := range map[string]bool{"log": false, "copy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hanging{OnLog: servertest.OnLog{Log: sharedmem.New(testrand.New(t), 95, sharedmem.Faults{}), Dir: t.TempDir()}, hang: make(chan (<-chan struct{}), 1)}
			first := servertest.Start(t, &tidemark.Server{InProcess: true, Storage: &h.OnLog, Controllers: []string{"-*"}})
			servertest.Stop(t, first) // it has made the objects that every server has
			c := &hangingCopy{h}
			s := &tidemark.Server{InProcess: true, Storage: c, Controllers: []string{"-*"}}
			if !copied {
				s.Storage = &c.hanging
			}
			servertest.Start(t, s)
			end := make(chan struct{})
			c.hang <- end
			const waiting, more = 256, 44
			codes := make(chan int)
			for range waiting + more {
				go func() {
					resp, err := servertest.Client(t, servertest.Anonymous(s)).Get(s.URL() + "/api/v1/secrets")
					if err != nil {
						t.Error(err)
						codes <- 0
						return
					}
					resp.Body.Close()
					codes <- resp.StatusCode
				}()
			}
			for range more {
				if code := <-codes; code != http.StatusTooManyRequests {
					t.Errorf("a request beyond those that may wait: %d, want 429", code)
				}
			}
			admin := make(chan int)
			go func() {
				code, _ := call(t, s, "GET", "/api/v1/secrets", "")
				admin <- code
			}()
			close(end)
			for range waiting {
				if code := <-codes; code != http.StatusForbidden {
					t.Errorf("a request that waited: %d, want 403", code)
				}
			}
			if code := <-admin; code != http.StatusOK {
				t.Errorf("the request of an administrator: %d, want 200", code)
			}
		})
	}
}
