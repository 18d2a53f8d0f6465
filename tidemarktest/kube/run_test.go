package kube_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/kube"
)

// manager is a manager that ends with its context, or with an error.
type manager struct {
	err     error
	stopped chan struct{}
}

func (m *manager) Start(ctx context.Context) error {
	defer close(m.stopped)
	if m.err == nil {
		<-ctx.Done()
	}
	return m.err
}

// errorsOf is a test that records its errors.
type errorsOf struct {
	tidemarktest.TB
	errors []string
}

func (e *errorsOf) Errorf(format string, a ...any) { e.errors = append(e.errors, format) }

// TestRunManager: a manager runs until the end of the test, or until it is stopped, and its error fails the test.
func TestRunManager(t *testing.T) {
	m := &manager{stopped: make(chan struct{})}
	t.Run("until the end", func(t *testing.T) { kube.RunManager(t, m) })
	<-m.stopped
	m = &manager{stopped: make(chan struct{})}
	stop := kube.RunManager(t, m)
	stop()
	<-m.stopped
	stop()
	wrong := &errorsOf{TB: t}
	kube.RunManager(wrong, &manager{err: errors.New("wrong"), stopped: make(chan struct{})})()
	if len(wrong.errors) != 1 || !strings.Contains(wrong.errors[0], "the manager") {
		t.Errorf("the errors are %q", wrong.errors)
	}
}

// TestWebhookAddress: the port is free, and the directory has the certificate. WaitForWebhooks waits for a server with it.
func TestWebhookAddress(t *testing.T) {
	world := &tidemarktest.World{Webhooks: tidemarktest.Webhooks{Conversion: true}}
	env := world.Fork(t)
	host, port, dir := kube.WebhookAddress(t, env)
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		listener, err := tls.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)), &tls.Config{Certificates: []tls.Certificate{certificate}})
		if err != nil {
			served <- err
			return
		}
		defer listener.Close()
		connection, err := listener.Accept()
		if err == nil {
			err = errors.Join(connection.(*tls.Conn).Handshake(), connection.Close())
		}
		served <- err
	}()
	kube.WaitForWebhooks(t, env)
	if err := <-served; err != nil {
		t.Error(err)
	}
}
