package serving_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/serving"
)

// fixture is a server whose handler knows /quick, /watch (streams until drained)
// and /stuck (streams until its connection is cut).
type fixture struct {
	*serving.Server
	t         *testing.T
	authority *pki.Authority
	address   string
	dial      func() (net.Conn, error)
	drained   chan struct{}
	log       lockedText
	handshake chan struct{} // a value after one or more have failed
}

// start starts a server; edit may change its configuration, and be nil.
func start(t *testing.T, edit func(*serving.Config)) *fixture {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := startOn(t, l, edit)
	f.dial = func() (net.Conn, error) { return net.Dial("tcp", f.address) }
	t.Cleanup(f.Stop)
	return f
}

// startInBubble is start without a network, so that time may be synthetic. The server must stop within a second.
func startInBubble(t *testing.T, edit func(*serving.Config)) *fixture {
	t.Helper()
	l := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	f := startOn(t, l, edit)
	f.dial = l.dial
	t.Cleanup(f.stopInTime)
	return f
}

// stopInTime stops the server, and checks that it takes at most a second. It is for bubbles.
func (f *fixture) stopInTime() {
	f.t.Helper()
	begin := time.Now()
	f.Stop()
	if took := time.Since(begin); took > time.Second {
		f.t.Errorf("stopping took %v", took)
	}
}

// pipes is a listener without a network.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// dial waits until the connection is accepted.
func (l *pipes) dial() (net.Conn, error) {
	far, near := net.Pipe()
	select {
	case l.accept <- far:
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	}
	c := &ahead{Conn: near, pieces: make(chan []byte, 64), closed: make(chan struct{})}
	go c.receive()
	return c, nil
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// ahead is a connection that receives up to 256 KiB before they are read, as the kernel does.
type ahead struct {
	net.Conn
	pieces chan []byte
	rest   []byte // of a piece
	closed chan struct{}
	once   sync.Once
}

func (c *ahead) receive() {
	defer close(c.pieces)
	for {
		piece := make([]byte, 4<<10)
		n, err := c.Conn.Read(piece)
		if err != nil {
			return
		}
		select {
		case c.pieces <- piece[:n]:
		case <-c.closed:
			return
		}
	}
}

func (c *ahead) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		c.rest = <-c.pieces
	}
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *ahead) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func startOn(t *testing.T, l net.Listener, edit func(*serving.Config)) *fixture {
	t.Helper()
	a, err := pki.Open(pki.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, authority: a, address: l.Addr().String(), drained: make(chan struct{}), handshake: make(chan struct{}, 1)}
	c := serving.Config{
		Listeners: []net.Listener{l}, Handler: f, Drain: sync.OnceFunc(func() { close(f.drained) }), GetCertificate: a.GetCertificate,
		HandshakeFailed: func() {
			select {
			case f.handshake <- struct{}{}:
			default:
			}
		},
		Limits: serving.Limits{
			HeaderBytes: 1 << 20, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute, WriteTimeout: time.Minute,
			Streams: 77, UploadBytes: 256 << 10,
		},
		Log: slog.New(slog.NewTextHandler(&f.log, nil)),
	}
	if edit != nil {
		edit(&c)
	}
	f.Server = serving.New(c)
	f.Start()
	return f
}

// credentials are those that the handler knows; it refuses no others.
var credentials = authn.Credentials{Tokens: []authn.Tokens{authn.OneToken("right", &authn.User{Name: "ann"})}}

func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	credentials.Authenticate(r)
	fmt.Fprintln(w, r.Proto)
	flush := http.NewResponseController(w).Flush
	flush()
	switch r.URL.Path {
	case "/watch":
		<-f.drained
		fmt.Fprintln(w, "the end")
	case "/stuck":
		block := bytes.Repeat([]byte("x"), 64<<10)
		for {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
}

func (f *fixture) tls(protocols ...string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(f.authority.CertificatePEM())
	return &tls.Config{RootCAs: pool, NextProtos: protocols, ServerName: "localhost"}
}

// client speaks HTTP/2 or HTTP/1.1.
func (f *fixture) client(http2 bool) *http.Client {
	t := &http.Transport{TLSClientConfig: f.tls(), ForceAttemptHTTP2: http2, DialContext: func(context.Context, string, string) (net.Conn, error) { return f.dial() }}
	f.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: time.Minute}
}

// get starts a GET and reads its first line.
func (f *fixture) get(c *http.Client, path string) (*http.Response, *bufio.Reader, string) {
	f.t.Helper()
	return f.getAs(c, path, "")
}

// getAs is get with a bearer token.
func (f *fixture) getAs(c *http.Client, path, token string) (*http.Response, *bufio.Reader, string) {
	f.t.Helper()
	req, err := http.NewRequest("GET", "https://"+f.address+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	r := bufio.NewReader(resp.Body)
	line, err := r.ReadString('\n')
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, r, strings.TrimSpace(line)
}

func TestProtocols(t *testing.T) {
	f := start(t, nil)
	for want, http2 := range map[string]bool{"HTTP/2.0": true, "HTTP/1.1": false} {
		resp, _, got := f.get(f.client(http2), "/quick")
		if got != want || resp.TLS.Version < tls.VersionTLS12 {
			t.Errorf("%s over TLS %x, want %s", got, resp.TLS.Version, want)
		}
	}
	old := f.tls()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if c, err := tls.Dial("tcp", f.address, old); err == nil {
		c.Close()
		t.Error("TLS 1.1 was accepted")
	}
}

// TestStopEndsWatches: both protocols get the end of the stream, not a broken
// connection.
func TestStopEndsWatches(t *testing.T) {
	f := start(t, nil)
	var watches []*bufio.Reader
	for _, http2 := range []bool{true, false} {
		c := f.client(http2)
		for range 5 {
			_, r, _ := f.get(c, "/watch")
			watches = append(watches, r)
		}
	}
	f.Stop()
	for _, r := range watches {
		if rest, err := io.ReadAll(r); err != nil || string(rest) != "the end\n" {
			t.Errorf("the watch ended with %q, %v", rest, err)
		}
	}
	if c, err := net.Dial("tcp", f.address); err == nil {
		c.Close()
		t.Error("a connection was accepted after the stop")
	}
}

// TestStopRefuses: with Config.Refuse, connections are accepted after the handler began to refuse requests.
func TestStopRefuses(t *testing.T) {
	var f *fixture
	var responded bool
	f = start(t, func(c *serving.Config) {
		c.Refuse = sync.OnceFunc(func() {
			response, _, _ := f.get(f.client(true), "/quick")
			responded = response != nil && response.StatusCode == http.StatusOK
		})
	})
	f.Stop()
	if !responded {
		t.Error("no connection was accepted while the server refused requests")
	}
	if c, err := net.Dial("tcp", f.address); err == nil {
		c.Close()
		t.Error("a connection was accepted after the stop")
	}
}

// TestStopCutsOff: neither clients that do not read, nor connections that say
// nothing, hold the stop up.
func TestStopCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startInBubble(t, nil)
		for _, http2 := range []bool{true, false} {
			f.get(f.client(http2), "/stuck")
		}
		for range 20 {
			c, err := f.dial()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		f.stopInTime()
		f.stopInTime() // idempotent
	})
}

// TestGoAway looks at the frames that an HTTP/2 client gets when the server
// stops: GOAWAY, and the end of its stream; no reset.
func TestGoAway(t *testing.T) {
	f := start(t, nil)
	c, err := tls.Dial("tcp", f.address, f.tls("h2"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, http2.ClientPreface)
	framer := http2.NewFramer(c, c)
	framer.WriteSettings()
	var headers bytes.Buffer
	e := hpack.NewEncoder(&headers)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", "/watch"}} {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndStream: true, EndHeaders: true})

	stopped := make(chan struct{})
	var streams uint32
	var ended, away bool
	for !ended || !away {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("the connection broke: %v; stream ended: %v, GOAWAY: %v", err, ended, away)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := frame.Value(http2.SettingMaxConcurrentStreams); ok {
				streams = n
			}
		case *http2.HeadersFrame: // the watch runs
			go func() { f.Stop(); close(stopped) }()
		case *http2.DataFrame:
			ended = frame.StreamEnded()
		case *http2.GoAwayFrame:
			away = frame.ErrCode == http2.ErrCodeNo
		case *http2.RSTStreamFrame:
			t.Errorf("the stream was reset: %v", frame.ErrCode)
		}
	}
	if streams != 77 {
		t.Errorf("%d streams at once are allowed", streams)
	}
	c.Close()
	<-stopped
}

// TestSilentConnections: a silent connection is closed after a while.
func TestSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startInBubble(t, func(c *serving.Config) { c.Limits.ReadHeaderTimeout = 20 * time.Second })
		c, err := f.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		begin := time.Now()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the server spoke first")
		}
		if took := time.Since(begin); took != 20*time.Second {
			t.Errorf("it was closed after %v", took)
		}
		<-f.handshake
	})
}

// TestBoundedConnections: connections over the limit wait, and are served later.
func TestBoundedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startInBubble(t, func(c *serving.Config) { c.Connections = 2 })
		first, second := f.client(true), f.client(true)
		f.getAs(first, "/quick", "right") // an authenticated connection is not closed for others
		f.getAs(second, "/quick", "right")
		served := make(chan error, 1)
		go func() {
			resp, err := f.client(true).Get("https://" + f.address + "/quick")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			served <- err
		}()
		time.Sleep(30 * time.Second)
		if len(served) > 0 {
			t.Fatalf("a third connection is open: %v", <-served)
		}
		first.CloseIdleConnections()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestStrangersMakeRoom: unauthenticated connections, however far they get and however
// many are opened, do not keep out a client that has credentials, and do not have its
// connection closed.
func TestStrangersMakeRoom(t *testing.T) {
	for name, open := range map[string]func(f *fixture) (net.Conn, error){
		"they say nothing": func(f *fixture) (net.Conn, error) { return f.dial() },
		"they say a byte": func(f *fixture) (net.Conn, error) {
			c, err := f.dial()
			if err == nil {
				_, err = c.Write([]byte{22})
			}
			return c, err
		},
		"they shake hands": func(f *fixture) (net.Conn, error) { return f.dialTLS("h2") },
		"they speak HTTP/2": func(f *fixture) (net.Conn, error) {
			c, err := f.dialTLS("h2")
			if err == nil {
				_, err = io.WriteString(c, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
			}
			return c, err
		},
		"they have a request, HTTP/1.1": func(f *fixture) (net.Conn, error) {
			c, err := f.dialTLS("http/1.1")
			if err == nil {
				_, err = io.WriteString(c, "GET /watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n")
			}
			return c, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const connections = 16
				f := startInBubble(t, func(c *serving.Config) { c.Connections = connections })
				all := make(chan net.Conn, 10_000)
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range connections {
					wg.Go(func() {
						for ctx.Err() == nil && len(all) < cap(all)/2 {
							if c, err := open(f); err == nil {
								all <- c
							}
							select {
							case <-ctx.Done():
							case <-time.After(300 * time.Millisecond): // 50 a second of all
							}
						}
					})
				}
				wantOpened := func(n int) {
					t.Helper()
					if time.Sleep(5 * time.Second); len(all) < n {
						t.Fatalf("%d connections were opened, want %d", len(all), n)
					}
				}
				wantOpened(connections)
				client := f.client(true)
				f.getAs(client, "/quick", "right")
				client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
					return nil, errors.New("it needs another connection")
				}
				wantOpened(10 * connections)
				f.getAs(client, "/quick", "")
				cancel()
				f.stopInTime() // dials that wait end
				wg.Wait()
				for close(all); len(all) > 0; {
					(<-all).Close()
				}
			})
		})
	}
}

// dialTLS opens a connection and shakes hands.
func (f *fixture) dialTLS(protocol string) (net.Conn, error) {
	c, err := f.dial()
	if err != nil {
		return nil, err
	}
	t := tls.Client(c, f.tls(protocol))
	return t, t.Handshake()
}

// TestLargeCertificates: a client cannot have the server keep certificates without end.
func TestLargeCertificates(t *testing.T) {
	f := start(t, nil)
	cert, key, err := f.authority.IssueClient("ann", nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for copies, want := range map[int]bool{3: true, 100: false} {
		c := f.client(false)
		pair := pair
		for range copies - 1 {
			pair.Certificate = append(pair.Certificate, pair.Certificate[0])
		}
		c.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
		resp, err := c.Get("https://" + f.address + "/quick")
		if err == nil {
			resp.Body.Close()
		}
		if got := err == nil; got != want {
			t.Errorf("%d certificates: %v", copies, err)
		}
	}
	<-f.handshake
}

// noDescriptors is a listener of a process that has no descriptors left for a
// while.
type noDescriptors struct {
	net.Listener
	fail int
}

func (l *noDescriptors) Accept() (net.Conn, error) {
	if l.fail--; l.fail >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestNoDescriptors(t *testing.T) {
	f := start(t, func(c *serving.Config) { c.Listeners[0] = &noDescriptors{c.Listeners[0], 3} })
	f.get(f.client(true), "/quick")
	if !strings.Contains(f.log.String(), "too many open files") {
		t.Errorf("the log has no warning:\n%s", f.log.String())
	}
}

// TestHandshakeErrors: they are counted, and do not fill the log.
func TestHandshakeErrors(t *testing.T) {
	f := start(t, nil)
	resp, err := http.Get("http://" + f.address + "/quick")
	if err == nil {
		resp.Body.Close()
	}
	<-f.handshake
	if f.log.String() != "" {
		t.Errorf("the log:\n%s", f.log.String())
	}
}

// TestForeignCertificate: the handshake takes any client certificate; refusing it
// is for the response to the request.
func TestForeignCertificate(t *testing.T) {
	f := start(t, nil)
	other, err := pki.Open(pki.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := other.IssueClient("mallory", nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	c := f.client(true)
	c.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
	f.get(c, "/quick")
}

// lockedText keeps a log that is read while it is written. servertest.Buffer is the same, and links a whole server.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
