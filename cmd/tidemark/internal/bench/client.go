package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// client sends one request at a time. It is used by one goroutine.
type client struct {
	conn   *conn
	number int
	// json is the header of most requests.
	json http.Header
	buf  []byte

	// Received in the round.
	bytes, items int64
	// revision is the largest resource version that a write or a most recent read
	// returned to this client. Later ones must not be smaller.
	revision uint64
}

// readSize is how much of a body is taken at once.
const readSize = 128 << 10

func newClient(c *conn, number int, json http.Header) *client {
	return &client{conn: c, number: number, json: json}
}

// send sends a request, and returns the response if it is a success.
func (c *client) send(ctx context.Context, method string, u *url.URL, header http.Header, body []byte) (*http.Response, error) {
	req := (&http.Request{
		Method: method, URL: u, Host: u.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		// As in client-go, a request that a server has not accepted because it shuts down is
		// sent again on a new connection.
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody()
		req.ContentLength = int64(len(body))
	}
	resp, err := c.conn.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, u.RequestURI(), err)
	}
	if resp.StatusCode >= 300 {
		return nil, refusal(req, resp)
	}
	return resp, nil
}

// small sends a request, and returns the body of its response, which is valid until
// the next request.
func (c *client) small(ctx context.Context, method string, u *url.URL, body []byte) ([]byte, error) {
	resp, err := c.send(ctx, method, u, c.json, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	n := 0
	for {
		if n == len(c.buf) {
			c.buf = append(c.buf, make([]byte, max(4<<10, n))...)
		}
		k, err := resp.Body.Read(c.buf[n:])
		n += k
		if err == io.EOF {
			c.bytes += int64(n)
			return c.buf[:n], nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, u.RequestURI(), err)
		}
	}
}

// object sends a request whose response is an object of ours. The resource version
// must be there, and not be smaller than those before it; with grows it must be
// larger.
func (c *client) object(ctx context.Context, method string, u *url.URL, body []byte, grows bool) error {
	_, err := c.response(ctx, method, u, body, grows)
	return err
}

// response returns the object in the response, checked as object does. It is valid until the
// next request.
func (c *client) response(ctx context.Context, method string, u *url.URL, body []byte, grows bool) ([]byte, error) {
	response, err := c.small(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(response, markBytes) {
		return nil, fmt.Errorf("%s %s: the response is not the object that was meant: %.200s", method, u.RequestURI(), response)
	}
	c.items++
	return response, c.advance(method+" "+u.RequestURI(), response, grows)
}

// change is response for a write. The object that it returns must contain wrote.
func (c *client) change(ctx context.Context, method string, u *url.URL, body []byte, wrote string) ([]byte, error) {
	response, err := c.response(ctx, method, u, body, true)
	if err == nil {
		err = holds(response, wrote)
	}
	return response, err
}

// holds requires that an object has a member that was written.
func holds(object []byte, wrote string) error {
	if bytes.Contains(object, []byte(wrote)) {
		return nil
	}
	return fmt.Errorf("the object does not have what was written, %s: %.200s", wrote, object)
}

// advance checks the resource version in a response against the largest one seen so far.
func (c *client) advance(request string, response []byte, grows bool) error {
	rv, ok := revisionIn(response)
	if !ok {
		return fmt.Errorf("%s: there is no resource version in the response", request)
	}
	if rv < c.revision || grows && rv == c.revision {
		return fmt.Errorf("%s: the resource version %d came after %d", request, rv, c.revision)
	}
	c.revision = rv
	return nil
}

// scanned has the results of scanning a body that was not kept.
type scanned struct {
	bytes int64
	marks int64 // objects of ours
	head  []byte
	tail  [8]byte
}

// headBytes is how much of the beginning of a list is kept: its metadata.
const headBytes = 4 << 10

// scan reads a body to its end, and counts.
func (c *client) scan(body io.Reader) (scanned, error) {
	if len(c.buf) < readSize {
		c.buf = make([]byte, readSize)
	}
	var s scanned
	carry := 0 // bytes of the last piece at the beginning of buf: a mark can lie across
	for {
		n, err := body.Read(c.buf[carry:])
		piece := c.buf[:carry+n]
		s.bytes += int64(n)
		if room := headBytes - len(s.head); room > 0 {
			s.head = append(s.head, piece[carry:carry+min(n, room)]...)
		}
		s.marks += int64(bytes.Count(piece, markBytes))
		if n > 0 {
			last := piece[max(0, len(piece)-len(s.tail)):]
			copy(s.tail[len(s.tail)-len(last):], last)
			carry = copy(c.buf, piece[max(0, len(piece)-len(markBytes)+1):])
		}
		if err == io.EOF {
			c.bytes += s.bytes
			c.items += s.marks
			return s, nil
		}
		if err != nil {
			return s, err
		}
	}
}

var (
	revisionKey = []byte(`"resourceVersion":"`)
	continueKey = []byte(`"continue":"`)
)

// revisionIn returns the first resource version in a piece of JSON.
func revisionIn(b []byte) (uint64, bool) {
	text, ok := textAfter(b, revisionKey)
	if !ok {
		return 0, false
	}
	rv, err := strconv.ParseUint(string(text), 10, 64)
	return rv, err == nil && rv > 0
}

// textAfter returns the string that begins behind a key, up to its quote.
func textAfter(b, key []byte) ([]byte, bool) {
	i := bytes.Index(b, key)
	if i < 0 {
		return nil, false
	}
	b = b[i+len(key):]
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		return nil, false
	}
	return b[:end], true
}
