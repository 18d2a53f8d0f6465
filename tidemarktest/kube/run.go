package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strconv"
	"time"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// Manager are the methods of a manager of controller-runtime that RunManager needs.
type Manager interface {
	Start(ctx context.Context) error
}

// RunManager starts a manager and stops it at the end of the test, before the cluster is deleted. An error of the manager
// fails the test. The manager must not elect a leader, since the next test would wait for the lease, and several managers in
// one process need SkipNameValidation:
//
//	manager.Options{LeaderElection: false, Controller: config.Controller{SkipNameValidation: ptr.To(true)}}
//
// The returned function stops the manager before the end of the test and waits until it has stopped, as a restart needs it.
// It can be called twice.
func RunManager(t tidemarktest.TB, m Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := m.Start(ctx); err != nil {
			t.Errorf("tidemarktest: the manager: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// WebhookAddress returns where a server of controller-runtime serves the webhooks of an Env. It gives up the port for that
// server, and writes its certificate to a temporary directory of the test:
//
//	host, port, dir := kube.WebhookAddress(t, env)
//	manager.Options{WebhookServer: webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: dir})}
//
// WaitForWebhooks waits until that server listens.
func WebhookAddress(t tidemarktest.TB, env *tidemarktest.Env) (host string, port int, certDir string) {
	t.Helper()
	s := env.Webhooks()
	if s == nil {
		t.Fatalf("tidemarktest: the Env has no webhooks: World.Webhooks is empty")
		return "", 0, ""
	}
	certDir = s.CertDir(t)
	if err := s.Release(); err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
	return s.Host, s.Port, certDir
}

// webhookLimit is how long WaitForWebhooks waits.
const webhookLimit = 10 * time.Second

// WaitForWebhooks waits until the webhooks of an Env are served: a manager starts its server beside the test, and until then
// writes fail with "connection refused". The test fails after ten seconds.
func WaitForWebhooks(t tidemarktest.TB, env *tidemarktest.Env) {
	t.Helper()
	s := env.Webhooks()
	if s == nil {
		t.Fatalf("tidemarktest: the Env has no webhooks: World.Webhooks is empty")
		return
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(s.CAData)
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: trusted, ServerName: s.Host}}
	ctx, cancel := context.WithTimeout(context.Background(), webhookLimit)
	defer cancel()
	for {
		// With a handshake: servers log connections that end before it.
		connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(s.Host, strconv.Itoa(s.Port)))
		if err == nil {
			_ = connection.Close()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("tidemarktest: nothing serves the webhooks after %v: %v", webhookLimit, err)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
