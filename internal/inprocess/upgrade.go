package inprocess

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// Hijack implements http.Hijacker for a handler that has accepted an upgrade with 101. The exchange
// then goes on until one of both closes its end; the client's end is the response's Body, an
// io.ReadWriteCloser. The client's context does not end it once the client has the response.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case w.hijacked:
		return nil, nil, http.ErrHijacked
	case !w.upgrade:
		return nil, nil, http.ErrNotSupported
	case w.status != http.StatusSwitchingProtocols:
		return nil, nil, errors.New("inprocess: Hijack is for upgrades: want status 101 to be set before")
	}
	if err := w.send(); err != nil {
		return nil, nil, err
	}
	w.hijacked = true
	w.x.upload.setDeadline(&w.x.upload.readUntil, time.Time{})
	w.x.download.setDeadline(&w.x.download.writeUntil, time.Time{})
	w.x.download.setLimit(0)
	c := &conn{w.x}
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

// conn is the handler's end of a hijacked exchange.
type conn struct{ x *exchange }

func (c *conn) Read(p []byte) (int, error)  { return c.x.upload.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.x.download.write(p) }

// Close lets the client read the bytes written so far.
func (c *conn) Close() error {
	c.x.upload.cut(net.ErrClosed, io.ErrClosedPipe)
	c.x.download.finish(io.EOF)
	c.x.leave()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return address(c.x.t.s.Host) }
func (c *conn) RemoteAddr() net.Addr { return address(clientAddress) }

func (c *conn) SetDeadline(at time.Time) error {
	return errors.Join(c.SetReadDeadline(at), c.SetWriteDeadline(at))
}

func (c *conn) SetReadDeadline(at time.Time) error {
	c.x.upload.setDeadline(&c.x.upload.readUntil, at)
	return nil
}

func (c *conn) SetWriteDeadline(at time.Time) error {
	c.x.download.setDeadline(&c.x.download.writeUntil, at)
	return nil
}

// upgraded is the client's end of a hijacked exchange.
type upgraded struct{ x *exchange }

func (u *upgraded) Read(p []byte) (int, error)  { return u.x.download.read(p) }
func (u *upgraded) Write(p []byte) (int, error) { return u.x.upload.write(p) }

// Close lets the handler read the bytes written so far.
func (u *upgraded) Close() error {
	u.x.upload.finish(io.EOF)
	u.x.download.cut(net.ErrClosed, io.ErrClosedPipe)
	return nil
}
