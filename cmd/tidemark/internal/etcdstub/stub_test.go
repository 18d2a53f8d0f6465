package etcdstub_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/etcdstub"
	"github.com/tidemark-dev/tidemark/internal/freeport"
)

// TestRun: it runs with the flags of kwokctl until the context ends, and Check recognizes it. Check
// may begin before it listens.
func TestRun(t *testing.T) {
	base := "http://" + freeport.Address(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	checked, ended := make(chan error, 1), make(chan error, 1)
	go func() { checked <- etcdstub.Check(ctx, base) }()
	go func() {
		ended <- etcdstub.Run(ctx, []string{
			"--name=node0", "--auto-compaction-retention=1", "--quota-backend-bytes=8589934592", "--initial-cluster=node0=http://127.0.0.1:1", "-force-new-cluster", "--peer-cert-file", "", "--log-level=warn",
			"--data-dir", t.TempDir(), "--advertise-client-urls=" + base, "--listen-client-urls=" + base + "," + base, "--listen-metrics-urls=" + base,
		}, io.Discard, io.Discard)
	}()
	if err := <-checked; err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/health": `{"health":"true","reason":""}`, "/version": `"etcdserver":"3.6.`} {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s %q %v", path, resp.Status, body, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCheckOther checks that another program is recognized at once, whatever its protocol.
func TestCheckOther(t *testing.T) {
	etcd := httptest.NewServer(http.NotFoundHandler())
	defer etcd.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"health":"true"}`)) }))
	defer other.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	for _, base := range []string{etcd.URL, other.URL, secure.URL, "http://" + secure.Listener.Addr().String(), "unix:///tmp/etcd", "nonsense"} {
		if err := etcdstub.Check(t.Context(), base); !errors.Is(err, etcdstub.ErrOther) {
			t.Errorf("%s: %v", base, err)
		}
	}
}

// TestCheckWaits: nothing listens until the context ends.
func TestCheckWaits(t *testing.T) {
	base := "http://" + freeport.Address(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		if err := etcdstub.Check(ctx, base); err == nil || errors.Is(err, etcdstub.ErrOther) || ctx.Err() == nil {
			t.Errorf("%v", err)
		}
	})
}

func TestWrongFlags(t *testing.T) {
	for line, want := range map[string]string{
		"--nope": "-nope", "gateway": `unexpected argument "gateway"`, "--unsafe-no-fsync=perhaps": "perhaps", "--data-dir": "needs an argument",
	} {
		err := etcdstub.Run(t.Context(), strings.Fields(line), io.Discard, io.Discard)
		if !errors.Is(err, etcdstub.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	var help bytes.Buffer
	err := etcdstub.Run(t.Context(), []string{"-h"}, &help, io.Discard)
	for _, flag := range []string{"  --listen-client-urls VALUE\n", "  --unsafe-no-fsync\n", "  --backend-batch-interval VALUE\n"} {
		if err != nil || !strings.Contains(help.String(), flag) {
			t.Errorf("the help lacks %q, %v", flag, err)
		}
	}
}
