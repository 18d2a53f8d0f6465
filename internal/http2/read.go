package http2

import (
	"slices"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// reader is the state of the goroutine that reads a connection.
type reader struct {
	framer   *h2.Framer
	largest  uint32 // the largest payload that the framer has read
	hpack    *hpack.Decoder
	controls controlLimiter

	// The header block that is being read.
	id       uint32 // of its stream
	end      bool   // no body follows
	open     bool   // more frames follow
	parts    []byte // of earlier frames
	frames   int    // how many there were
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

// memory returns the memory that the fields take while a handler has them.
func (r *reader) memory() int { return r.size + fieldBytes*len(r.fields) }

// forgetFields clears the fields. The connection keeps a buffer of the size that most
// requests need.
func (r *reader) forgetFields() {
	if cap(r.fields) > keptFields {
		r.fields = nil
		return
	}
	clear(r.fields)
	r.fields = r.fields[:0]
}

// shrink frees a large buffer of the framer, unless more large frames will follow. The last
// payload must not be in use.
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

// take handles a frame.
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
	return nil // unknown frames are ignored
}

// control has the frames sent that the reader appended. The lock is held.
func (c *conn) control() error {
	c.flushLater()
	return c.bounded()
}

// bounded returns an error if the send buffer is over its bound: the client sends and does not
// read. The lock is held.
func (c *conn) bounded() error {
	most := controlBytes
	if !c.isAuthenticated() {
		most = unauthenticatedControlBytes
	}
	if len(c.out) > most {
		return h2.ConnectionError(h2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

// takeBlock handles a part of a header block. The parts are decoded together, because hpack
// decodes an incomplete field again with each part.
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

// openBlock sets or clears the deadline for a header block.
func (c *conn) openBlock(open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.blockUntil = open, time.Time{}
	if open {
		c.blockUntil = time.Now().Add(c.s.headerTimeout())
	}
	c.setReadDeadline()
}

// noField is an encoded field that changes no table. hpack keeps its last input: this one is
// small.
var noField = []byte{0x82}

// decode handles a whole header block.
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

// takeHeaders begins a request, or ends one by its trailers. It does not hold the lock while
// it reads the fields: there may be many.
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
	if c.err != nil { // the streams have been ended
		s.cancel()
		return nil
	}
	c.streams[c.id] = s
	c.running++
	s.headerBytes = c.memory()
	c.keep(s.headerBytes)
	c.s.workers.run(job{s, handler})
	return c.bounded()
}

// accept returns the stream of the header block, and reports whether it exists already. The
// stream is nil if the headers are ignored or wrong.
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
		return nil, false, c.controls.add(1) // the client sent it before it knew
	case c.id <= c.lastID:
		return nil, false, h2.ConnectionError(h2.ErrCodeStreamClosed)
	case c.away:
		return nil, false, c.controls.add(1) // after GOAWAY
	}
	c.lastID = c.id
	// The handlers of streams that were reset may still run.
	if len(c.streams) >= c.s.MaxStreams || c.running >= 2*c.s.MaxStreams || !c.hasRoom(c.memory()) {
		return nil, false, h2.StreamError{StreamID: c.id, Code: h2.ErrCodeRefusedStream}
	}
	return newStream(c, c.id, c.end), false, nil
}

func (c *conn) takeTrailers(s *stream) error {
	switch {
	case s.bodyEnded: // only the reader changes it
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

// takeData handles a part of a body.
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

// grant lets the client send n bytes of bodies more, in large steps. A client that has
// authenticated since gets the whole window. While the server is over its budget, clients get
// nothing. The lock is held.
func (c *conn) grant(n int) {
	c.owed += n
	if c.s.overBudget.Load() {
		return
	}
	if c.allowed < c.s.UploadBytes && c.isAuthenticated() {
		c.owed += c.s.UploadBytes - c.allowed
		c.allowed = c.s.UploadBytes
	}
	if c.owed >= c.allowed/2 {
		c.windowUpdate(0, c.owed)
		c.uploads += c.owed
		c.owed = 0
	}
}

// maxSettings bounds the settings of a frame; net/http has the same bound.
const maxSettings = 100

// takeSettings handles SETTINGS.
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

// setFirstWindow changes the initial window of streams, and the windows of the open streams by
// the same amount (RFC 9113, 6.9.2). The lock is held.
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

// resetStream resets a stream. The lock is held.
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

// remove removes a stream that has ended. The lock is held.
func (c *conn) remove(s *stream) {
	delete(c.streams, s.id)
	if len(c.streams) == 0 {
		c.idle = time.Now()
		c.endIfDone()
	}
}
