package http2client

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// FuzzServer sends any bytes as the frames of a server. Each call returns, and nothing is left of it.
func FuzzServer(f *testing.F) {
	status := []byte{0x80 | 8} // :status 200
	seed := func(write func(w *h2.Framer)) {
		var b bytes.Buffer
		write(h2.NewFramer(&b, nil))
		f.Add(b.Bytes())
	}
	seed(func(w *h2.Framer) {
		_ = w.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: status, EndHeaders: true})
		_ = w.WriteDataPadded(1, false, []byte("answer"), make([]byte, 3))
		_ = w.WriteData(1, true, nil)
		_ = w.WriteRSTStream(3, h2.ErrCodeRefusedStream)
	})
	seed(func(w *h2.Framer) {
		_ = w.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0}, h2.Setting{ID: h2.SettingHeaderTableSize, Val: 0})
		_ = w.WriteWindowUpdate(3, 1<<31-1)
		_ = w.WriteHeaders(h2.HeadersFrameParam{StreamID: 3, BlockFragment: status, PadLength: 2})
		_ = w.WriteContinuation(3, true, status)
		_ = w.WritePing(false, [8]byte{})
		_ = w.WriteGoAway(1, h2.ErrCodeNo, nil)
	})
	seed(func(w *h2.Framer) {
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: "103"})
		_ = w.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = w.WritePushPromise(h2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: block.Bytes(), EndHeaders: true})
	})
	f.Fuzz(func(t *testing.T, frames []byte) {
		c, s := dial(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, b := call(c, post(ctx, "a")), call(c, post(ctx, strings.Repeat("b", 100_000)))
		go func() { _, _ = io.Copy(io.Discard, s.conn) }()
		_, _ = s.conn.Write(frames)
		cancel()
		<-a
		<-b
		c.mu.Lock()
		left := len(c.streams) + len(c.queue)
		c.mu.Unlock()
		if left > 0 {
			t.Errorf("%d streams and bodies are left", left)
		}
	})
}
