package tidemarktest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// socketHost is the server of a control socket. It speaks HTTP/1.1 itself, because package net/http would add
// 2 MB to each test binary. Each request has a connection of its own: a connection to a unix socket takes
// microseconds, and no request meets one that the server has just closed.
type socketHost struct{ path string }

// maxHeadBytes limits the status line and the header of a response, and each line of a chunked body's frame.
const maxHeadBytes = 64 << 10

// Control implements Host. The context ends the request, also while the response is read.
func (h socketHost) Control(ctx context.Context, method, path string, body []byte) (int, io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: h.path, Net: "unix"})
	if err != nil {
		return 0, nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	a := &socketResponse{ctx: ctx, conn: c, stop: stop}
	status, err := a.exchange(method, path, body)
	if err != nil {
		return 0, nil, errors.Join(a.reason(err), a.Close())
	}
	return status, a, nil
}

// socketResponse is the body of a response, and its connection.
type socketResponse struct {
	ctx  context.Context
	conn *net.UnixConn
	stop func() bool // ends the watch of ctx
	body io.Reader
}

// Read implements io.Reader.
func (a *socketResponse) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if err != nil && err != io.EOF {
		err = a.reason(err)
	}
	return n, err
}

// Close implements io.Closer.
func (a *socketResponse) Close() error {
	a.stop()
	return a.conn.Close()
}

// reason returns the error of the context if it has ended the connection.
func (a *socketResponse) reason(err error) error {
	if ended := a.ctx.Err(); ended != nil {
		return ended
	}
	return err
}

// exchange sends a request, and reads the response up to its body.
func (a *socketResponse) exchange(method, path string, body []byte) (status int, err error) {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: control\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, len(body))
	_, sent := a.conn.Write(append([]byte(head), body...))
	r := bufio.NewReaderSize(a.conn, maxHeadBytes)
	for {
		if status, a.body, err = readResponse(r); err != nil {
			return 0, errors.Join(sent, err) // a server may respond before it has read the whole request
		}
		if status >= 200 {
			return status, nil
		} // 100 to 199 are followed by the response
	}
}

// readResponse reads the status line and the header of a response, and returns its status code and its body.
func readResponse(r *bufio.Reader) (status int, body io.Reader, err error) {
	line, err := readLine(r)
	if err != nil {
		return 0, nil, err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err = strconv.Atoi(code)
	if err != nil || len(code) != 3 || status < 100 || !strings.HasPrefix(version, "HTTP/1.") {
		return 0, nil, fmt.Errorf("the response begins with %.100q, which is not HTTP/1.1", line)
	}
	length, chunked, err := readHeader(r)
	switch {
	case err != nil:
		return 0, nil, err
	case status < 200, status == 204, status == 304:
		return status, eof{}, nil
	case chunked:
		return status, &chunkedBody{r: r}, nil
	case length >= 0:
		return status, &fixedBody{r, length}, nil
	}
	return status, r, nil // up to the end of the connection
}

// readHeader reads a header, and returns the length and the encoding of the body. The length is -1
// if it is absent.
func readHeader(r *bufio.Reader) (length int64, chunked bool, err error) {
	length = -1
	for total := 0; ; {
		line, err := readLine(r)
		if err != nil || line == "" {
			return length, chunked, err
		}
		if total += len(line); total > maxHeadBytes {
			return 0, false, fmt.Errorf("the header of the response has more than %d bytes", maxHeadBytes)
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok:
			return 0, false, fmt.Errorf("the header of the response has the line %.100q", line)
		case strings.EqualFold(name, "Transfer-Encoding"):
			if chunked = strings.EqualFold(value, "chunked"); !chunked {
				return 0, false, fmt.Errorf("the transfer encoding %.100q of the response is unknown", value)
			}
		case strings.EqualFold(name, "Content-Length"):
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil {
				return 0, false, fmt.Errorf("the response has the length %.100q", value)
			}
			length = int64(n)
		}
	}
}

// readLine reads a line of at most maxHeadBytes and returns it without its end.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", fmt.Errorf("the response has a line of more than %d bytes", maxHeadBytes)
	case err == io.EOF:
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	}
	return strings.TrimSuffix(string(line[:len(line)-1]), "\r"), nil
}

// eof is an empty body.
type eof struct{}

// Read implements io.Reader.
func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// fixedBody is a body whose length is known.
type fixedBody struct {
	r    io.Reader
	rest int64
}

// Read implements io.Reader.
func (b *fixedBody) Read(p []byte) (int, error) {
	if b.rest == 0 {
		return 0, io.EOF
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.rest)])
	if b.rest -= int64(n); err == io.EOF && b.rest > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// chunkedBody is a body in chunks. One without its last chunk is an error: the server broke the connection.
type chunkedBody struct {
	r     *bufio.Reader
	chunk fixedBody
	begun bool
	err   error
}

// Read implements io.Reader.
func (b *chunkedBody) Read(p []byte) (int, error) {
	for b.err == nil && b.chunk.rest == 0 {
		b.next()
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.chunk.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, b.err
}

// next begins the next chunk. After the last one, it sets io.EOF.
func (b *chunkedBody) next() {
	if b.begun {
		var end string
		if end, b.err = readLine(b.r); b.err == nil && end != "" {
			b.err = fmt.Errorf("a chunk of the response is followed by %.100q", end)
		}
	}
	if b.err != nil {
		return
	}
	line, err := readLine(b.r)
	if err != nil {
		b.err = err
		return
	}
	size, _, _ := strings.Cut(line, ";")
	n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 63)
	if err != nil {
		b.err = fmt.Errorf("a chunk of the response has the size %.100q", line)
		return
	}
	b.begun, b.chunk = true, fixedBody{b.r, int64(n)}
	if n == 0 {
		if _, _, b.err = readHeader(b.r); b.err == nil { // the trailer
			b.err = io.EOF
		}
	}
}
