package http2client

import (
	"bufio"
	"errors"
	"net/http"
	"strconv"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxInfos bounds the informational responses to a request.
	maxInfos = 5
	// maxSettings bounds the settings of a frame; net/http has the same bound.
	maxSettings = 100
)

// errFromPeer is the cause of a reset by the server. The words are those of net/http, which users of webhooks see.
var errFromPeer = errors.New("received from peer")

// readAll takes frames until the connection ends.
func (c *Conn) readAll() {
	framer := h2.NewFramer(nil, &credited{r: bufio.NewReaderSize(c.conn, 4<<10), credit: &c.credit})
	framer.SetReuseFrames()
	framer.SetMaxReadFrameSize(maxFrame)
	framer.ReadMetaHeaders = hpack.NewDecoder(tableBytes, nil)
	framer.MaxHeaderListSize = c.config.HeaderBytes
	for first := true; ; first = false {
		f, err := framer.ReadFrame()
		c.mu.Lock()
		c.read = time.Now()
		switch {
		case err != nil:
			err = closed(err)
		case first && f.Header().Type != h2.FrameSettings:
			err = h2.ConnectionError(h2.ErrCodeProtocol)
		default:
			err = c.take(f)
		}
		if err != nil {
			err = c.survive(err)
		}
		if len(c.out) > controlBytes {
			err = errStalled
		}
		c.mu.Unlock()
		if err != nil {
			c.end(err)
			return
		}
	}
}

// survive ends only the stream if the error is that of a stream. The lock is held.
func (c *Conn) survive(err error) error {
	var failed h2.StreamError
	if !errors.As(err, &failed) {
		return err
	}
	if s := c.streams[failed.StreamID]; s != nil {
		s.fail(failed)
		c.reset(s, failed.Code)
	}
	return nil
}

// take handles a frame. The lock is held.
func (c *Conn) take(f h2.Frame) error {
	switch f := f.(type) {
	case *h2.MetaHeadersFrame:
		return c.takeHeaders(f)
	case *h2.DataFrame:
		return c.takeData(f)
	case *h2.SettingsFrame:
		return c.takeSettings(f)
	case *h2.WindowUpdateFrame:
		return c.takeWindow(f)
	case *h2.RSTStreamFrame:
		return c.takeReset(f)
	case *h2.GoAwayFrame:
		c.takeGoAway(f)
	case *h2.PingFrame:
		if !f.IsAck() {
			c.frame(h2.FramePing, h2.FlagPingAck, 0, len(f.Data))
			c.out = append(c.out, f.Data[:]...)
			c.notify()
		}
	case *h2.PushPromiseFrame:
		return h2.ConnectionError(h2.ErrCodeProtocol)
	}
	return nil // other frames have no meaning, and are allowed
}

// stream returns a stream that is under way, nil for one that has ended. It is an error if the client has never
// started it. The lock is held.
func (c *Conn) stream(id uint32) (*stream, error) {
	if id%2 == 0 || id >= c.nextID {
		return nil, h2.ConnectionError(h2.ErrCodeProtocol)
	}
	return c.streams[id], nil
}

// takeHeaders handles the headers or the trailers of a response.
func (c *Conn) takeHeaders(f *h2.MetaHeadersFrame) error {
	s, err := c.stream(f.StreamID)
	if s == nil {
		return err
	}
	if f.Truncated {
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeEnhanceYourCalm}
	}
	malformed := h2.StreamError{StreamID: s.id, Code: h2.ErrCodeProtocol}
	if s.response != nil { // trailers, which no caller sees
		if !f.StreamEnded() || len(f.PseudoFields()) > 0 {
			return malformed
		}
		s.finish()
		return nil
	}
	code, err := strconv.Atoi(f.PseudoValue("status"))
	if err != nil || code < 100 || code > 999 || len(f.PseudoFields()) != 1 {
		return malformed
	}
	if code < 200 {
		if s.infos++; f.StreamEnded() || s.infos > maxInfos || code == http.StatusSwitchingProtocols {
			return malformed
		}
		return nil
	}
	fields := f.RegularFields()
	header, values := make(http.Header, len(fields)), make([]string, len(fields)) // most names have one value
	for i, field := range fields {
		values[i] = field.Value
		if name := http.CanonicalHeaderKey(field.Name); header[name] == nil {
			header[name] = values[i : i+1 : i+1]
		} else {
			header[name] = append(header[name], field.Value)
		}
	}
	s.declared = declaredLength(header)
	s.response = &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code, Proto: "HTTP/2.0", ProtoMajor: 2, Header: header, ContentLength: s.declared,
	}
	if f.StreamEnded() {
		s.finish()
	}
	return nil
}

// takeData handles a part of a response's body.
func (c *Conn) takeData(f *h2.DataFrame) error {
	size := int(f.Length) // padding counts too
	if c.owed += size; c.owed >= connWindow/2 {
		c.windowUpdate(0, c.owed)
		c.owed = 0
		c.notify()
	}
	s, err := c.stream(f.StreamID)
	if s == nil {
		return err
	}
	if s.response == nil {
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeProtocol}
	}
	if s.grant -= size; s.grant < 0 {
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeFlowControl}
	}
	data := f.Data()
	if padding := size - len(data); padding > 0 {
		c.windowUpdate(s.id, padding)
		s.grant += padding
		c.notify()
	}
	s.received += int64(len(data))
	if s.declared >= 0 && s.received > s.declared {
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeProtocol}
	}
	if s.taken > 0 && len(s.body)+len(data) > cap(s.body) { // move the unread bytes to the beginning
		s.body, s.taken = s.body[:copy(s.body, s.body[s.taken:])], 0
	}
	s.body = append(s.body, data...)
	switch {
	case f.StreamEnded():
		s.finish()
	case s.returned || s.waiting() >= enough:
		s.wake()
	}
	return nil
}

// takeSettings handles SETTINGS.
func (c *Conn) takeSettings(f *h2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if f.NumSettings() > maxSettings {
		return h2.ConnectionError(h2.ErrCodeProtocol)
	}
	window := c.firstWindow
	err := f.ForeachSetting(func(s h2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case h2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSize(min(s.Val, tableBytes))
		case h2.SettingMaxConcurrentStreams:
			c.maxStreams = int(s.Val)
		case h2.SettingInitialWindowSize:
			window = int64(s.Val) // the last one counts
		}
		return nil
	})
	if err != nil {
		return err
	}
	more := window - c.firstWindow
	c.firstWindow = window
	for _, s := range c.streams { // RFC 9113, 6.9.2
		if s.window += more; s.window > maxWindow {
			return h2.ConnectionError(h2.ErrCodeFlowControl)
		}
		if more > 0 {
			c.enqueue(s)
		}
	}
	c.frame(h2.FrameSettings, h2.FlagSettingsAck, 0, 0)
	c.notify()
	return nil
}

// takeWindow lets the client send more of bodies.
func (c *Conn) takeWindow(f *h2.WindowUpdateFrame) error {
	more := int64(f.Increment)
	if f.StreamID == 0 {
		if c.window += more; c.window > maxWindow {
			return h2.ConnectionError(h2.ErrCodeFlowControl)
		}
		c.notify()
		return nil
	}
	s, err := c.stream(f.StreamID)
	if s == nil {
		return err
	}
	if s.window += more; s.window > maxWindow {
		return h2.StreamError{StreamID: s.id, Code: h2.ErrCodeFlowControl}
	}
	c.enqueue(s)
	c.notify()
	return nil
}

// takeReset ends a stream that the server resets.
func (c *Conn) takeReset(f *h2.RSTStreamFrame) error {
	s, err := c.stream(f.StreamID)
	if s == nil {
		return err
	}
	if f.ErrCode == h2.ErrCodeRefusedStream {
		s.fail(ErrUnprocessed)
	} else {
		s.fail(h2.StreamError{StreamID: s.id, Code: f.ErrCode, Cause: errFromPeer})
	}
	c.remove(s)
	return nil
}

// takeGoAway ends the requests that the server will not process. Others go on.
func (c *Conn) takeGoAway(f *h2.GoAwayFrame) {
	c.away = true
	for id, s := range c.streams {
		if id <= f.LastStreamID {
			continue
		}
		s.fail(ErrUnprocessed)
		c.remove(s)
	}
	if len(c.streams) == 0 {
		c.notify() // the writer closes the connection
	}
}
