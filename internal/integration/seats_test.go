package integration_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// waitingBytes returns how much memory the requests hold that wait for their clients.
func waitingBytes(t *testing.T, admin *rest.Config) int64 {
	t.Helper()
	_, metrics := servertest.Get(t, admin, "/metrics")
	_, rest, found := strings.Cut(metrics, "\ntidemark_waiting_requests_bytes ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(line, 64)
	if !found || err != nil {
		t.Fatalf("the metric: %q, %v", line, err)
	}
	return int64(n)
}

// TestBodiesTakeNoSeats checks that access reviews whose bodies do not end take no seats: a
// user may begin more of them than there are seats for writes, and later requests are served.
func TestBodiesTakeNoSeats(t *testing.T) {
	const unfinished = 250 // kube-apiserver's limit of writes is 200
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			s := servertest.Start(t, &tidemark.Server{})
			admin := s.RESTConfig()
			bob, err := s.RESTConfigFor("bob")
			if err != nil {
				t.Fatal(err)
			}
			bob.NextProtos = []string{protocol}
			begin := func(h *http.Client) {
				body, client := io.Pipe()
				t.Cleanup(func() { client.CloseWithError(io.ErrUnexpectedEOF) })
				r, err := http.NewRequest(http.MethodPost, bob.Host+selfAccess, body)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				go func() {
					if resp, err := h.Do(r); err == nil {
						resp.Body.Close()
					}
				}()
				go client.Write([]byte(`{"spec":`))
			}
			const each = 32 << 10 // the least that a waiting request counts
			for i := 0; i < unfinished; i += 50 {
				h := servertest.Client(t, bob)
				for range 50 {
					begin(h)
				}
				await.True(t, fmt.Sprintf("%d unfinished requests", i+50), func() bool { return waitingBytes(t, admin) >= int64(i+50)*each })
			}
			for who, c := range map[string]*rest.Config{"the same user": bob, "the administrator": admin} {
				if code, text := send(t, servertest.Client(t, c), http.MethodPost, c.Host+selfAccess, `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`); code != http.StatusCreated {
					t.Errorf("%s: %d %s", who, code, text)
				}
			}
		})
	}
}

// TestRefusedBeforeBodies checks that a request without credentials or without rights is
// responded before its body arrives, and that nothing is kept for it.
func TestRefusedBeforeBodies(t *testing.T) {
	t.Parallel() // the server waits for the rest of a body
	s := servertest.Start(t, &tidemark.Server{})
	bob, err := s.RESTConfigFor("bob")
	if err != nil {
		t.Fatal(err)
	}
	before := waitingBytes(t, s.RESTConfig())
	for _, row := range []struct {
		c    *rest.Config
		code int
	}{{servertest.Anonymous(s), 403}, {servertest.WithToken(s, "wrong"), 401}, {bob, 403}} {
		for _, protocol := range []string{"h2", "http/1.1"} {
			c := rest.CopyConfig(row.c)
			c.NextProtos = []string{protocol}
			body, client := io.Pipe()
			go client.Write([]byte(`{"metadata":`))
			resp, err := servertest.Client(t, c).Post(c.Host+configMaps, "application/json", body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != row.code {
				t.Errorf("%s: %s, want %d", protocol, resp.Status, row.code)
			}
			resp.Body.Close()
			client.CloseWithError(io.ErrUnexpectedEOF)
		}
	}
	if after := waitingBytes(t, s.RESTConfig()); after >= before+32<<10 { // the metrics themselves grow
		t.Errorf("%d bytes are held for refused requests, %d before", after, before)
	}
}

// TestStrangersKeepNoConnection checks that a client without credentials loses its connection
// with its first response over HTTP/2, while others keep theirs.
func TestStrangersKeepNoConnection(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	for _, row := range []struct {
		who  string
		c    *rest.Config
		same bool
	}{{"anonymous", servertest.Anonymous(s), false}, {"a wrong token", servertest.WithToken(s, "wrong"), false}, {"the administrator", s.RESTConfig(), true}} {
		h := servertest.Client(t, row.c)
		connections := map[*tls.ConnectionState]bool{}
		for range 3 {
			resp, err := h.Get(row.c.Host + "/livez")
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			connections[resp.TLS] = true
		}
		if same := len(connections) == 1; same != row.same {
			t.Errorf("%s: %d connections for 3 requests", row.who, len(connections))
		}
	}
}
