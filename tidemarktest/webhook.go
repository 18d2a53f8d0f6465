package tidemarktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Webhooks are the webhooks under test: configurations that name a Service, and conversions of
// definitions that do. In each Env they call a port of this machine instead. The fields are named as
// in envtest.WebhookInstallOptions.
type Webhooks struct {
	// Paths are files and directories with MutatingWebhookConfigurations and
	// ValidatingWebhookConfigurations. Other objects, and the files of a kustomization, are skipped.
	// A path that does not exist is an error, and so are paths without any of these configurations unless
	// Conversion is set.
	Paths []string
	// IgnoreErrorIfPathMissing skips paths that do not exist.
	IgnoreErrorIfPathMissing bool
	// Configurations are further MutatingWebhookConfigurations and ValidatingWebhookConfigurations, as YAML or JSON.
	Configurations []string
	// Conversion redirects the conversion webhooks of World.CRDDirectoryPaths. With Paths or
	// Configurations it is implied. Without definitions that have one, it only reserves the address.
	Conversion bool
	// LocalServingHost is the IP address on which the webhooks are served, or localhost; empty: 127.0.0.1.
	LocalServingHost string
	// LocalServingPort is their port; zero: a free one for each Env.
	LocalServingPort int
}

func (w *Webhooks) used() bool { return len(w.Paths)+len(w.Configurations) > 0 || w.Conversion }

// manifests returns the webhook configurations. It reports whether there must be one.
func (w *Webhooks) manifests() (all []manifest, wanted bool, err error) {
	all, missing, err := readPaths(w.Paths, !w.IgnoreErrorIfPathMissing)
	wanted = len(w.Paths)+len(w.Configurations) > len(missing) && !w.Conversion
	for i, text := range w.Configurations {
		all = append(all, manifest{Name: fmt.Sprintf("Configurations[%d]", i), Content: text})
	}
	for i := range all {
		all[i].WebhooksOnly = true
	}
	return all, wanted, err
}

// isWebhook reports whether an object is a webhook configuration.
func (a applied) isWebhook() bool {
	return a.Kind == "MutatingWebhookConfiguration" || a.Kind == "ValidatingWebhookConfiguration"
}

// WebhookServer is where the webhooks of an Env are called. Package nethttp serves them with an http.Handler.
type WebhookServer struct {
	// Host and Port are the address to listen on.
	Host string
	Port int
	// CAData is the certificate to serve with, as PEM. It signs itself: the API server trusts it.
	CAData []byte
	// KeyData is the key of the certificate, as PEM.
	KeyData []byte

	listener *net.TCPListener // holds the port until Listen or Release
	taken    atomic.Bool      // by one of them
	released atomic.Bool      // by Release

	watch struct { // for calls before Listen or Release
		sync.Mutex
		called context.Context // ends with the first of them; nil: no search has asked
		ended  chan struct{}   // when the listener is free again
	}
}

// server reserves a port, and lets the control API make a certificate for its host.
func (w *Webhooks) server(ctx context.Context, c control) (*WebhookServer, error) {
	host := cmp.Or(w.LocalServingHost, "127.0.0.1")
	ip := net.ParseIP(host)
	if host == "localhost" {
		ip = net.IPv4(127, 0, 0, 1)
	}
	if ip == nil { // net.Listen would find other names, at the price of 400 KB in each test binary
		return nil, fmt.Errorf("webhooks cannot be served on LocalServingHost %q: want an IP address or localhost", host)
	}
	var made struct{ Certificate, Key string }
	if err := c.call(ctx, "POST", "certificates", map[string][]string{"hosts": {host}}, &made); err != nil {
		return nil, err
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: w.LocalServingPort})
	if err != nil && w.LocalServingPort != 0 {
		return nil, fmt.Errorf("webhooks cannot be served on LocalServingPort %d: %w. With zero, each Env has a free one", w.LocalServingPort, err)
	}
	if err != nil {
		return nil, err
	}
	return &WebhookServer{
		Host: host, Port: listener.Addr().(*net.TCPAddr).Port, CAData: []byte(made.Certificate), KeyData: []byte(made.Key), listener: listener,
	}, nil
}

// URL is the base of the webhooks' addresses.
func (s *WebhookServer) URL() string {
	return "https://" + net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

// CertDir writes the certificate and its key to a temporary directory of the test, as tls.crt and
// tls.key, for servers that read them there.
func (s *WebhookServer) CertDir(t TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := s.WriteCertDir(dir); err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
	return dir
}

// WriteCertDir writes the certificate and its key to a directory, as tls.crt and tls.key.
func (s *WebhookServer) WriteCertDir(dir string) error {
	for name, content := range map[string][]byte{"tls.crt": s.CAData, "tls.key": s.KeyData} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Listen returns the listener of the address. It is called once, by callers that serve themselves;
// those that only take a host and a port, as controller-runtime does, call Release.
func (s *WebhookServer) Listen() net.Listener {
	s.watch.Lock()
	defer s.watch.Unlock()
	s.taken.Store(true)
	if s.watch.called != nil {
		// An error is that of a closed listener, which Accept returns too.
		_ = s.listener.SetDeadline(time.Unix(1, 0))
		<-s.watch.ended
		_ = s.listener.SetDeadline(time.Time{})
	}
	return s.listener
}

// Release gives up the port, so that another server can listen on it.
func (s *WebhookServer) Release() error {
	s.taken.Store(true)
	s.released.Store(true)
	return s.close()
}

// unserved reports whether nothing serves the webhooks: calls then wait until their timeout. The receiver may be nil.
func (s *WebhookServer) unserved() bool { return s != nil && !s.taken.Load() }

// unservedCall returns a context that ends when a webhook is called which nothing serves; the cause is the error to report.
// From then on such calls fail at once, and do not wait until their timeout. The receiver may be nil.
func (s *WebhookServer) unservedCall() context.Context {
	if s == nil {
		return context.Background()
	}
	s.watch.Lock()
	defer s.watch.Unlock()
	if s.watch.called != nil || s.taken.Load() {
		return cmp.Or(s.watch.called, context.Background())
	}
	called, cancel := context.WithCancelCause(context.Background())
	s.watch.called, s.watch.ended = called, make(chan struct{})
	go func() {
		defer close(s.watch.ended)
		for {
			connection, err := s.listener.Accept()
			if err != nil {
				return
			}
			cancel(errors.New("a write has called a webhook, but " + s.unservedText()))
			connection.Close()
		}
	}()
	return called
}

// unservedText is the error if nothing serves the webhooks, with the remedy.
func (s *WebhookServer) unservedText() string {
	return fmt.Sprintf("nothing serves the webhooks of World.Webhooks at %s: call nethttp.Serve(t, env.Webhooks(), handler), or serve at kube.WebhookAddress with controller-runtime", s.URL())
}

// refuses reports whether the port is free because no server has begun to listen after Release. The receiver may be nil.
func (s *WebhookServer) refuses() bool {
	if s == nil || !s.released.Load() { // a server of Listen would log the connection
		return false
	}
	// net.Dial would find names, too, at the price of 400 KB in each test binary. The address is one of this machine.
	connection, err := net.DialTCP("tcp", nil, s.listener.Addr().(*net.TCPAddr))
	if err == nil {
		connection.Close()
	}
	return err != nil
}

// close closes the listener. The receiver may be nil.
func (s *WebhookServer) close() error {
	if s == nil {
		return nil
	}
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
