package http2

import (
	"slices"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// reader is what the goroutine that reads a connection knows.
type reader struct {
	framer   *h2.Framer
	largest  uint32 // payload that the framer has read
	hpack    *hpack.Decoder
	controls controlLimiter

	// The header block that is being read.
	id       uint32 // of its stream
	end      bool   // no body follows
	open     bool   // more of it will come
	parts    []byte // what came in earlier frames
	frames   int    // that it came in
	fields   []hpack.HeaderField
	size     int // of the fields
	tooLarge bool
}

func (r *reader) start(c *conn) {
	r.newFramer(c)
	r.hpack = hpack.NewDecoder(tableBytes, func(f hpack.HeaderField) {
		r.size += int(f.Size())
		if r.size > c.s.HeaderBytes {
			r.tooLarge = true
			r.forgetFields()
			r.hpack.SetEmitEnabled(false)
			return
		}
		r.fields = append(r.fields, f)
	})
	r.hpack.SetMaxStringLength(c.s.HeaderBytes)
}

func (r *reader) newFramer(c *conn) {
	r.framer, r.largest = h2.NewFramer(nil, c.tls), 0
	r.framer.SetMaxReadFrameSize(firstSize)
	r.framer.SetReuseFrames()
}

// forgetFields lets go of the fields. A connection keeps room for those of a usual
// request.
func (r *reader) forgetFields() {
	if cap(r.fields) > keptFields {
		r.fields = nil
		return
	}
	clear(r.fields)
	r.fields = r.fields[:0]
}

// shrink lets go of a large payload that the framer has room for, unless more of them
// will follow. The payload must have been used.
func (c *conn) shrink(f h2.Frame) {
	h := f.Header()
	if c.largest = max(c.largest, h.Length); c.largest <= keptBytes || c.open {
		return
	}
	if h.Type == h2.FrameData && !h.Flags.Has(h2.FlagDataEndStream) {
		return
	}
	c.newFramer(c)
}

// take deals with a frame.
func (c *conn) take(f h2.Frame) error {
	switch f := f.(type) {
	case *h2.HeadersFrame:
		c.id, c.end, c.frames, c.size, c.tooLarge = f.StreamID, f.StreamEnded(), 0, 0, false
		c.hpack.SetEmitEnabled(true)
		if f.HasPriority() && f.Priority.StreamDep == f.StreamID {
			return h2.ConnectionError(h2.ErrCodeProtocol) // its headers were not read: the tables differ
		}
		return c.takeBlock(f.HeaderBlockFragment(), f.HeadersEnded())
	case *h2.ContinuationFrame: // the framer has seen that it follows its HEADERS
		return c.takeBlock(f.HeaderBlockFragment(), f.HeadersEnded())
	case *h2.DataFrame:
		return c.takeData(f)
	case *h2.SettingsFrame:
		return c.takeSettings(f)
	case *h2.WindowUpdateFrame:
		return c.takeWindow(f)
	case *h2.RSTStreamFrame:
		return c.takeReset(f)
	case *h2.PushPromiseFrame:
		return h2.ConnectionError(h2.ErrCodeProtocol)
	}
	if err := c.controls.add(1); err != nil {
		return err
	}
	switch f := f.(type) {
	case *h2.PingFrame:
		if !f.IsAck() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.frame(h2.FramePing, h2.FlagPingAck, 0, len(f.Data))
			c.out = append(c.out, f.Data[:]...)
			return c.control()
		}
	case *h2.GoAwayFrame:
		c.shutdown()
	case *h2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return h2.StreamError{StreamID: f.StreamID, Code: h2.ErrCodeProtocol}
		}
	}
	return nil // what is unknown is ignored
}

// control has what the reader appended leave. The lock is held.
func (c *conn) control() error {
	c.flushLater()
	return c.bounded()
}

// bounded fails when a client sends requests and does not read the answers. The lock is
// held.
func (c *conn) bounded() error {
	most := controlBytes
	if !c.isKnown() {
		most = strangerControlBytes
	}
	if len(c.out) > most {
		return h2.ConnectionError(h2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

// takeBlock reads a part of a header block. The parts are decoded together: hpack would
// decode a field again with each part of it.
func (c *conn) takeBlock(part []byte, last bool) error {
	c.frames++
	bytes := len(c.parts) + len(part)
	if bytes > 2*c.s.HeaderBytes || c.frames > 2*c.s.HeaderBytes/firstSize+spareFrames {
		return h2.ConnectionError(h2.ErrCodeEnhanceYourCalm)
	}
	if c.frames == 1 && last {
		return c.decode(part)
	}
	c.parts = append(c.parts, part...)
	if c.frames == 1 || last {
		c.openBlock(!last)
	}
	if !last {
		c.mu.Lock()
		c.keep(len(part))
		c.mu.Unlock()
		return nil
	}
	block := c.parts
	c.parts = nil
	c.mu.Lock()
	c.keep(len(part) - len(block))
	c.mu.Unlock()
	return c.decode(block)
}

// openBlock begins the time that a client has for a header block, or ends it.
func (c *conn) openBlock(open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.blockUntil = open, time.Time{}
	if open {
		c.blockUntil = time.Now().Add(c.s.headerTimeout())
	}
	c.setReadDeadline()
}

// noField is a field that changes no table: hpack keeps what it was given last.
var noField = []byte{0x82}

// decode takes a whole header block.
func (c *conn) decode(block []byte) error {
	defer c.forgetFields()
	if _, err := c.hpack.Write(block); err != nil {
		return h2.ConnectionError(h2.ErrCodeCompression)
	}
	if err := c.hpack.Close(); err != nil {
		return h2.ConnectionError(h2.ErrCodeCompression)
	}
	if len(block) > keptBytes {
		c.hpack.SetEmitEnabled(false)
		_, _ = c.hpack.Write(noField)
		_ = c.hpack.Close()
	}
	return c.takeHeaders()
}

// takeHeaders begins a request, or ends one by its trailers. The lock is not held while
// it looks at the fields: there may be many.
func (c *conn) takeHeaders() error {
	s, is, err := c.accept()
	switch {
	case s == nil:
		return err
	case is:
		return c.takeTrailers(s)
	}
	handler := c.handler
	if c.tooLarge {
		s.request, handler = s.newRequest(), tooLarge
	} else if s.request = c.request(s); s.request == nil {
		return h2.StreamError{StreamID: c.id, Code: h2.ErrCodeProtocol}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil { // no stream of it will be ended any more
		s.cancel()
		return nil
	}
	c.streams[c.id] = s
	c.running++
	s.headerBytes = c.size
	c.keep(s.headerBytes)
	c.s.workers.run(job{s, handler})
	return c.bounded()
}

// accept returns the stream that the headers are of, and reports whether it is there
// already. The stream is nil if they are of none.
func (c *conn) accept() (s *stream, is bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id%2 == 0 {
		return nil, false, h2.ConnectionError(h2.ErrCodeProtocol)
	}
	if s := c.streams[c.id]; s != nil {
		return s, true, nil
	}
	switch {
	case c.id <= c.lastID && slices.Contains(c.resets[:], c.id):
		return nil, false, c.controls.add(1) // the client did not know yet
	case c.id <= c.lastID:
		return nil, false, h2.ConnectionError(h2.ErrCodeStreamClosed)
	case c.away:
		return nil, false, c.controls.add(1) // the client was told that it would not be taken
	}
	c.lastID = c.id
	// What was reset is no stream any more, but its handler may run still.
	if len(c.streams) >= c.s.MaxStreams || c.running >= 2*c.s.MaxStreams || !c.hasRoom(c.size) {
		return nil, false, h2.StreamError{StreamID: c.id, Code: h2.ErrCodeRefusedStream}
	}
	return newStream(c, c.id, c.end), false, nil
}

func (c *conn) takeTrailers(s *stream) error {
	switch {
	case s.bodyEnded: // the reader alone changes it
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeStreamClosed}
	case !c.end:
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeProtocol}
	}
	for _, f := range c.fields {
		if f.IsPseudo() || !validField(f) {
			return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeProtocol}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[s.id] != s { // it was reset meanwhile
		return nil
	}
	return s.endBody()
}

// takeData takes a part of a body.
func (c *conn) takeData(f *h2.DataFrame) error {
	size := int(f.Length) // padding counts too
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID > c.lastID && !c.away {
		return h2.ConnectionError(h2.ErrCodeProtocol)
	}
	if c.uploads -= size; c.uploads < 0 {
		return h2.ConnectionError(h2.ErrCodeFlowControl)
	}
	s := c.streams[f.StreamID]
	if s == nil || s.bodyEnded {
		if c.grant(size); slices.Contains(c.resets[:], f.StreamID) || c.away && f.StreamID > c.lastID {
			return c.control()
		}
		return h2.StreamError{StreamID: f.StreamID, Code: h2.ErrCodeStreamClosed}
	}
	if s.uploads -= size; s.uploads < 0 {
		c.grant(size)
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeFlowControl}
	}
	data := f.Data()
	if len(data) == 0 && !f.StreamEnded() {
		if err := c.controls.add(1); err != nil {
			return err
		}
	}
	if s.unread(data) {
		c.grant(size - len(data))
		s.grant(size - len(data))
	} else {
		c.grant(size) // the handler will not read it
	}
	if s.received += int64(len(data)); s.declared >= 0 && s.received > s.declared {
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeProtocol}
	}
	if f.StreamEnded() {
		if err := s.endBody(); err != nil {
			return err
		}
	}
	return c.control()
}

// grant lets the client send as many bytes of bodies again, and a client that has become
// known more than before. Over the server's budget it has to wait. The lock is held.
func (c *conn) grant(n int) {
	c.owed += n
	if c.s.overBudget.Load() {
		return
	}
	if c.allowed < c.s.UploadBytes && c.isKnown() {
		c.owed += c.s.UploadBytes - c.allowed
		c.allowed = c.s.UploadBytes
	}
	if c.owed >= c.allowed/2 {
		c.windowUpdate(0, c.owed)
		c.uploads += c.owed
		c.owed = 0
	}
}

// maxSettings is more than there are; net/http has the same bound.
const maxSettings = 100

// takeSettings learns what the client takes.
func (c *conn) takeSettings(f *h2.SettingsFrame) error {
	cost := settingsCost
	if f.IsAck() {
		cost = 1
	}
	if err := c.controls.add(cost); err != nil || f.IsAck() {
		return err
	}
	if f.NumSettings() > maxSettings {
		return h2.ConnectionError(h2.ErrCodeProtocol)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	window := c.firstWindow
	err := f.ForeachSetting(func(s h2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case h2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSize(min(s.Val, tableBytes))
		case h2.SettingMaxFrameSize:
			c.maxFrame = min(int(s.Val), frameBytes)
		case h2.SettingInitialWindowSize:
			window = int64(s.Val) // the last one counts
		}
		return nil
	})
	if err == nil && window != c.firstWindow {
		err = c.setFirstWindow(window)
	}
	if err != nil {
		return err
	}
	c.frame(h2.FrameSettings, h2.FlagSettingsAck, 0, 0)
	return c.control()
}

// setFirstWindow changes the window that streams begin with, and by as much those
// of the streams there are (RFC 9113, 6.9.2). The lock is held.
func (c *conn) setFirstWindow(n int64) error {
	more := n - c.firstWindow
	c.firstWindow = n
	for _, s := range c.streams {
		before := s.window
		if s.window += more; s.window > maxWindow {
			return h2.ConnectionError(h2.ErrCodeFlowControl)
		}
		if before <= 0 && s.window > 0 {
			c.resume(s)
		}
	}
	return nil
}

func (c *conn) takeWindow(f *h2.WindowUpdateFrame) error {
	if f.Increment < minWindowIncrement {
		if err := c.controls.add(1); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	more := int64(f.Increment)
	if f.StreamID == 0 {
		if c.window += more; c.window > maxWindow {
			return h2.ConnectionError(h2.ErrCodeFlowControl)
		}
		c.next()
		return nil
	}
	s := c.streams[f.StreamID]
	switch {
	case s != nil:
		if s.window += more; s.window > maxWindow {
			return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeFlowControl}
		}
		c.resume(s)
	case f.StreamID > c.lastID && !c.away:
		return h2.ConnectionError(h2.ErrCodeProtocol)
	}
	return nil
}

func (c *conn) takeReset(f *h2.RSTStreamFrame) error {
	if err := c.controls.add(1); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID > c.lastID && !c.away {
		return h2.ConnectionError(h2.ErrCodeProtocol)
	}
	if s := c.streams[f.StreamID]; s != nil {
		s.fail(h2.StreamError{StreamID: s.id, Code: f.ErrCode})
		c.remove(s)
	}
	return c.control()
}

// resetStream ends a stream from here. The lock is held.
func (c *conn) resetStream(id uint32, code h2.ErrCode) {
	c.frame(h2.FrameRSTStream, 0, id, 4)
	c.uint32(uint32(code))
	c.resets[c.reset%len(c.resets)] = id
	c.reset++
	if s := c.streams[id]; s != nil {
		s.fail(h2.StreamError{StreamID: id, Code: code})
		c.remove(s)
	}
}

// remove forgets a stream that has ended. The lock is held.
func (c *conn) remove(s *stream) {
	delete(c.streams, s.id)
	if len(c.streams) == 0 {
		c.idle = time.Now()
		c.endIfDone()
	}
}
