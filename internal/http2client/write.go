package http2client

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// notify wakes the writer.
func (c *Conn) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write sends queued frames until the connection ends.
func (c *Conn) write() {
	var spare []byte
	for {
		c.mu.Lock()
		c.fill()
		out := c.out
		if len(out) == 0 {
			done := c.away && len(c.streams) == 0
			c.mu.Unlock()
			if done {
				c.end(errIdle)
			}
			select {
			case <-c.wake:
				continue
			case <-c.done:
				return
			}
		}
		c.out, c.writing = spare[:0], time.Now()
		c.mu.Unlock()
		_, err := c.conn.Write(out)
		if spare = out; cap(spare) > 2*sendBytes {
			spare = nil
		}
		c.mu.Lock()
		c.writing = time.Time{}
		c.mu.Unlock()
		if err != nil {
			c.end(err)
			return
		}
	}
}

// fill appends bodies of requests, as far as flow control allows. Streams take turns. The lock is held.
func (c *Conn) fill() {
	for len(c.queue) > 0 && c.window > 0 && len(c.out) < sendBytes {
		s := c.queue[0]
		c.queue = c.queue[1:]
		s.queued = false
		if !c.send(s) && s.window > 0 {
			c.enqueue(s)
		}
	}
}

// send appends one frame of a request's body, and reports whether it was the last one. A body that is shorter than
// the request says resets the stream. The lock is held.
func (c *Conn) send(s *stream) (last bool) {
	n := int(min(s.unsent, maxFrame, c.window, s.window))
	if n <= 0 {
		return false // the window of the stream is empty, or less: the server has made it smaller
	}
	at := len(c.out)
	c.frame(h2.FrameData, 0, s.id, n)
	c.out = slices.Grow(c.out, n)
	if _, err := io.ReadFull(s.source, c.out[len(c.out):len(c.out)+n]); err != nil {
		c.out = c.out[:at]
		s.fail(closed(err))
		c.reset(s, h2.ErrCodeCancel)
		return true
	}
	c.out = c.out[:len(c.out)+n]
	c.window -= int64(n)
	s.window -= int64(n)
	if s.unsent -= int64(n); s.unsent > 0 {
		return false
	}
	c.out[at+4] |= byte(h2.FlagDataEndStream)
	s.sent = true
	return true
}

// enqueue lets a stream send its body when it is its turn. The lock is held.
func (c *Conn) enqueue(s *stream) {
	if !s.queued && !s.sent {
		s.queued = true
		c.queue = append(c.queue, s)
	}
}

// leave removes a stream from the queue. The lock is held.
func (c *Conn) leave(s *stream) {
	if i := slices.Index(c.queue, s); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
	}
	s.queued = false
}

// frame appends the head of a frame. The caller appends its bytes.
func (c *Conn) frame(t h2.FrameType, flags h2.Flags, id uint32, size int) {
	c.out = append(c.out, byte(size>>16), byte(size>>8), byte(size), byte(t), byte(flags))
	c.uint32(id)
}

func (c *Conn) uint32(v uint32) {
	c.out = append(c.out, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func (c *Conn) setting(id h2.SettingID, value uint32) {
	c.out = append(c.out, byte(id>>8), byte(id))
	c.uint32(value)
}

func (c *Conn) windowUpdate(id uint32, more int) {
	c.frame(h2.FrameWindowUpdate, 0, id, 4)
	c.uint32(uint32(more))
}

// headers appends the headers of a request. The lock is held.
func (c *Conn) headers(s *stream, r *http.Request) error {
	host, err := httpguts.PunycodeHostPort(r.Host)
	if err != nil {
		return err
	}
	c.field(":authority", host)
	c.field(":method", r.Method)
	c.field(":path", r.URL.RequestURI())
	c.field(":scheme", r.URL.Scheme)
	for name, values := range r.Header {
		if name = lower(name); hopByHop[name] {
			continue
		}
		for _, v := range values {
			c.field(name, v)
		}
	}
	c.field("content-length", strconv.FormatInt(s.unsent, 10))
	kind, flags := h2.FrameHeaders, h2.Flags(0)
	if s.sent {
		flags = h2.FlagHeadersEndStream
	}
	for {
		part := c.block.Next(maxFrame)
		if c.block.Len() == 0 {
			flags |= h2.FlagHeadersEndHeaders // as of CONTINUATION
		}
		c.frame(kind, flags, s.id, len(part))
		c.out = append(c.out, part...)
		if c.block.Len() == 0 {
			c.block.Reset()
			return nil
		}
		kind, flags = h2.FrameContinuation, 0
	}
}

// field encodes a header field. It writes to memory, so it has no error.
func (c *Conn) field(name, value string) {
	_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: name == "authorization"})
}

// hopByHop are headers that HTTP/2 does not have, or that the client makes itself.
var hopByHop = map[string]bool{
	"host": true, "content-length": true, "connection": true, "proxy-connection": true, "transfer-encoding": true, "upgrade": true, "keep-alive": true,
}

// lowered has the lower case of headers that most requests have.
var lowered = map[string]string{
	"Accept": "accept", "Authorization": "authorization", "Content-Type": "content-type", "User-Agent": "user-agent", "Traceparent": "traceparent",
}

func lower(name string) string {
	if l, ok := lowered[name]; ok {
		return l
	}
	return strings.ToLower(name)
}
