package upgrade

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// headerBytes bounds the headers with which a backend responds to an upgrade.
	headerBytes = 64 << 10
	// refusalBytes bounds the response of a backend that refuses an upgrade, and refusalTimeout its time.
	refusalBytes   = 1 << 20
	refusalTimeout = 10 * time.Second
	// firstBuffer is the buffer of a direction in which little is sent. It grows to a whole buffer.
	firstBuffer = 1 << 10
)

// errNoUpgrade is the error for clients whose connection cannot be upgraded: that of HTTP/2, or within the process.
var errNoUpgrade = errors.New("the connection cannot be upgraded: use HTTP/1.1")

// upgrade forwards a request for an upgrade.
func (p *Proxy) upgrade(w http.ResponseWriter, r *http.Request) error {
	if p.Dial == nil {
		return errNoUpgrade
	}
	backend, err := p.Connect(r)
	if err != nil {
		w.Header()["Connection"] = []string{"close"}
		return err
	}
	defer backend.Close()
	if backend.Response.StatusCode != http.StatusSwitchingProtocols {
		return backend.Refuse(w)
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return errNoUpgrade
	}
	defer client.Close()
	if client.SetDeadline(time.Time{}) != nil {
		return nil
	}
	if _, err := client.Write(backend.head); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	Pipe(r.Context(), &bufferedConn{client, buffered.Reader}, backend)
	return nil
}

// Backend is a connection to a backend after its response to a request for an upgrade. The code of the response is 101, or
// 400 and more. Reads return what follows the headers of the response.
type Backend struct {
	net.Conn
	// Response has the headers of the response. Its body is part of the connection.
	Response *http.Response

	head []byte // the headers as they were sent
	from *bufio.Reader
	stop func() bool
}

// Read implements net.Conn.
func (b *Backend) Read(to []byte) (int, error) { return readBuffered(b.Conn, b.from, to) }

// Close implements net.Conn.
func (b *Backend) Close() error {
	b.stop()
	return b.Conn.Close()
}

// Refuse forwards the response of a backend that refuses the upgrade, and ends the connection of the client: if
// the backend took the request for an upgrade nevertheless, the client must not use its connection.
func (b *Backend) Refuse(w http.ResponseWriter) error {
	_ = b.SetReadDeadline(time.Now().Add(refusalTimeout))
	resp := b.Response
	body := resp.Body
	defer body.Close()
	removeHop(resp.Header)
	for _, name := range cors {
		delete(resp.Header, name)
	}
	w.Header()["Connection"] = []string{"close"}
	resp.Body, resp.Trailer = io.NopCloser(io.LimitReader(body, refusalBytes)), nil
	respond(w, resp)
	return nil
}

// Connect dials the backend, sends it the request for an upgrade, and reads the headers of its response. The
// connection ends with the context of the request. The caller closes it. An error of the backend is not an error of Connect.
func (p *Proxy) Connect(r *http.Request) (*Backend, error) {
	conn, err := p.Dial(r.Context(), p.Target)
	if err != nil {
		return nil, fmt.Errorf("error dialing backend: %w", err)
	}
	b := &Backend{Conn: conn, stop: context.AfterFunc(r.Context(), func() { conn.Close() })}
	out := p.outgoing(r)
	out.Header["Connection"], out.Header["Upgrade"] = []string{"Upgrade"}, []string{protocol(r.Header)}
	if err := out.Write(conn); err != nil {
		b.Close()
		return nil, fmt.Errorf("error sending request: %w", err)
	}
	if err := b.readHead(out); err != nil {
		b.Close()
		return nil, err
	}
	if code := b.Response.StatusCode; code != http.StatusSwitchingProtocols && code < 400 {
		b.Close()
		return nil, fmt.Errorf("invalid upgrade response: status code %d", code)
	}
	return b, nil
}

// readHead reads the headers of the response, and keeps them as they were sent.
func (b *Backend) readHead(out *http.Request) (err error) {
	limited := &limitedHead{conn: b.Conn, left: headerBytes}
	b.from = bufio.NewReaderSize(limited, firstBuffer)
	if b.Response, err = http.ReadResponse(b.from, out); err != nil {
		if limited.left <= 0 {
			err = fmt.Errorf("the backend sent more than %d bytes of headers", headerBytes)
		}
		return fmt.Errorf("error reading the response of the backend: %w", err)
	}
	b.head = limited.seen[:len(limited.seen)-b.from.Buffered()]
	limited.headEnded = true
	return nil
}

// limitedHead reads from a connection: up to a limit until the headers have ended, and keeps that.
type limitedHead struct {
	conn      net.Conn
	left      int
	seen      []byte
	headEnded bool
}

// Read implements io.Reader.
func (l *limitedHead) Read(to []byte) (int, error) {
	if l.headEnded {
		return l.conn.Read(to)
	}
	if l.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := l.conn.Read(to[:min(len(to), l.left)])
	l.left -= n
	l.seen = append(l.seen, to[:n]...)
	return n, err
}

// bufferedConn is a connection with bytes that were read ahead.
type bufferedConn struct {
	net.Conn
	from *bufio.Reader
}

// Read implements net.Conn.
func (c *bufferedConn) Read(to []byte) (int, error) { return readBuffered(c.Conn, c.from, to) }

func readBuffered(from net.Conn, first *bufio.Reader, to []byte) (int, error) {
	if first != nil && first.Buffered() > 0 {
		return first.Read(to[:min(len(to), first.Buffered())])
	}
	return from.Read(to)
}

// Pipe copies in both directions until one of them ends, or the context is done. Then it closes both connections. It starts one
// goroutine, which has ended when Pipe returns.
func Pipe(ctx context.Context, a, b net.Conn) {
	both := func() {
		a.Close()
		b.Close()
	}
	stop := context.AfterFunc(ctx, both)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer both()
		copyBytes(b, a)
	}()
	copyBytes(a, b)
	both()
	<-done
}

// copyBytes copies until a read or a write fails. The buffer begins small: most connections are idle.
func copyBytes(to io.Writer, from io.Reader) {
	room := make([]byte, firstBuffer)
	for {
		n, err := from.Read(room)
		if n > 0 {
			if _, failed := to.Write(room[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
		if n == len(room) && n < buffer {
			room = make([]byte, min(4*n, buffer))
		}
	}
}

// Dial connects to a URL with HTTP/1.1, for an upgrade. dial makes the connection of TCP; nil: one of the system. config is
// for https, and gets the name of the host unless it has one.
func Dial(ctx context.Context, target *url.URL, dial func(ctx context.Context, network, address string) (net.Conn, error), config *tls.Config) (net.Conn, error) {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	host, port := target.Hostname(), target.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[target.Scheme == "https"]
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil || target.Scheme != "https" {
		return conn, err
	}
	c := &tls.Config{}
	if config != nil {
		c = config.Clone()
	}
	if c.ServerName == "" {
		c.ServerName = strings.TrimSuffix(host, ".")
	}
	c.NextProtos = []string{"http/1.1"}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secured := tls.Client(conn, c)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// handshakeTimeout is the time for a handshake of TLS.
const handshakeTimeout = 10 * time.Second
