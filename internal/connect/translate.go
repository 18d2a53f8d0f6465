package connect

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/moby/spdystream/spdy"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// A client of v5.channel.k8s.io sends and gets messages that begin with the number of a channel. The kubelet has a
// stream of SPDY for each of them, with the protocol v4.channel.k8s.io. Two goroutines translate: one reads messages and
// writes frames, the other one reads frames and writes messages. Neither reads ahead: a slow side slows down the other
// one, and only one frame is buffered.

const (
	translatable = "v5.channel.k8s.io"
	streamed     = "v4.channel.k8s.io"

	// frameBytes bounds a frame of the kubelet, statusBytes the status at the end of a process.
	frameBytes  = 1 << 20
	statusBytes = 64 << 10
	// headerCount and headerBytes bound the headers of a frame of the kubelet: their number, and a name or a value. They are
	// compressed, so that the size of the frame is no bound. Kubelets send none.
	headerCount = 16
	headerBytes = 4 << 10
	// replyTimeout is the time of a kubelet to accept the streams, farewell that of a client to take the last message.
	replyTimeout = 30 * time.Second
	farewell     = 10 * time.Second
)

// The channels of a client.
const (
	stdin = iota
	stdout
	stderr
	status
	resize
	channels
	closing = 255 // the next byte is the number of a channel that ends
)

// names are the header Streamtype of the stream of each channel.
var names = [channels]string{"stdin", "stdout", "stderr", "error", "resize"}

// order is the order in which the streams of channels are opened.
var order = [channels]int{status, stdin, stdout, stderr, resize}

// translation translates one connection.
type translation struct {
	ws      *websocket.Conn
	backend *upgrade.Backend
	in      *bufio.Reader
	reader  *spdy.Framer

	mu     sync.Mutex // guards out and writer
	out    *bufio.Writer
	writer *spdy.Framer

	ids     [channels]spdy.StreamId // zero: the channel has none
	ended   [channels]bool          // by the kubelet
	replies int                     // that are missing
	status  []byte
	fed     chan struct{} // closed when no more messages of the client are read; nil before
}

// translate connects a client of v5.channel.k8s.io. Errors of the kubelet are sent as messages.
func (c *Connector) translate(w http.ResponseWriter, r *http.Request, p *upgrade.Proxy, s *Stream) {
	ws, err := accept(w, r, translatable)
	if err != nil { // accept has responded
		c.translated.WithLabelValues("400").Inc()
		return
	}
	t := &translation{ws: ws}
	defer func() {
		ws.CloseNow() //nolint:errcheck // it is closed or gone
		if t.fed != nil {
			<-t.fed
		}
	}()
	defer context.AfterFunc(r.Context(), func() { ws.CloseNow() })()
	result, err := t.run(r, p, s)
	code := http.StatusOK
	if err != nil {
		var known apierrors.APIStatus
		if !errors.As(err, &known) {
			known = apierrors.NewInternalError(err)
		}
		e := known.Status()
		code = int(e.Code)
		result, _ = json.Marshal(&e)
	}
	c.translated.WithLabelValues(strconv.Itoa(code)).Inc()
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if ws.Write(ctx, websocket.MessageBinary, append([]byte{status}, result...)) == nil {
		_ = ws.Close(websocket.StatusNormalClosure, "")
	}
}

// run translates until the process has ended. It returns the Status of the kubelet.
func (t *translation) run(r *http.Request, p *upgrade.Proxy, s *Stream) ([]byte, error) {
	wanted := [channels]bool{stdin: boolean(s.Options, "stdin"), stdout: boolean(s.Options, "stdout"), stderr: boolean(s.Options, "stderr"), status: true, resize: boolean(s.Options, "tty")}
	first := byte(status) // an empty message tells the client that it is connected
	for _, channel := range []byte{stdout, stderr} {
		if wanted[channel] {
			first = channel
			break
		}
	}
	if err := t.ws.Write(context.Background(), websocket.MessageBinary, []byte{first}); err != nil {
		return nil, err
	}
	backend, err := p.Connect(spdyRequest(r, streamed))
	if err != nil {
		return nil, err
	}
	defer backend.Close()
	if err := refusal(backend); err != nil {
		return nil, err
	}
	t.backend, t.in, t.out = backend, bufio.NewReaderSize(backend, 4<<10), bufio.NewWriterSize(backend, 4<<10)
	if err := t.open(wanted); err != nil {
		return nil, fmt.Errorf("error opening the streams of the kubelet: %w", err)
	}
	t.fed = make(chan struct{})
	go func() {
		defer close(t.fed)
		defer backend.Close() // without its client, the process ends
		t.fromClient()
	}()
	for !t.complete() && err == nil {
		err = t.next()
	}
	if !t.ended[status] && len(t.status) == 0 {
		return nil, fmt.Errorf("the connection to the kubelet ended: %w", err)
	}
	if len(t.status) == 0 {
		return json.Marshal(&metav1.Status{Status: metav1.StatusSuccess})
	}
	return t.status, nil
}

// refusal returns the error of a kubelet that refuses the upgrade, or another protocol than the requested one.
func refusal(b *upgrade.Backend) error {
	if b.Response.StatusCode == http.StatusSwitchingProtocols {
		if got := b.Response.Header.Get("X-Stream-Protocol-Version"); got != streamed {
			return fmt.Errorf("the kubelet speaks %.40q, not %s", got, streamed)
		}
		return nil
	}
	defer b.Response.Body.Close()
	_ = b.SetReadDeadline(time.Now().Add(farewell))
	text, err := io.ReadAll(io.LimitReader(b.Response.Body, errorBytes))
	if err != nil && len(text) == 0 {
		return fmt.Errorf("unable to upgrade connection: %w", err)
	}
	s := metav1.Status{}
	if json.Unmarshal(text, &s) == nil && s.Kind == "Status" && s.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: s}
	}
	return fmt.Errorf("unable to upgrade connection: %s", text)
}

// open opens the streams. The headers of their frames are compressed, and no later ones are: the
// framers that hold the state of the compression, a mebibyte, are not kept.
func (t *translation) open(wanted [channels]bool) (err error) {
	if err := t.frame(); err != nil {
		return err
	}
	id := spdy.StreamId(1)
	for _, channel := range order {
		if t.ended[channel] = !wanted[channel]; !wanted[channel] {
			continue
		}
		frame := &spdy.SynStreamFrame{StreamId: id, Headers: http.Header{"Streamtype": {names[channel]}}}
		if err := t.writer.WriteFrame(frame); err != nil {
			return err
		}
		t.ids[channel] = id
		id += 2
		t.replies++
	}
	if err := t.out.Flush(); err != nil {
		return err
	}
	_ = t.backend.SetReadDeadline(time.Now().Add(replyTimeout))
	for t.replies > 0 {
		if err := t.next(); err != nil {
			return err
		}
	}
	if err := t.backend.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.frame()
}

// frame makes new framers.
func (t *translation) frame() (err error) {
	t.writer, err = spdy.NewFramerWithOptions(t.out, t.in, spdy.WithMaxHeaderCount(headerCount), spdy.WithMaxHeaderFieldSize(headerBytes))
	t.reader = t.writer
	return err
}

// complete reports whether the kubelet has sent all.
func (t *translation) complete() bool { return t.ended[status] && t.ended[stdout] && t.ended[stderr] }

// next reads a frame of the kubelet, and acts on it.
func (t *translation) next() error {
	head, err := t.in.Peek(8)
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(head[4:]) & 0xffffff)
	if size > frameBytes {
		return fmt.Errorf("the kubelet sent a frame of %d bytes: %d are allowed", size, frameBytes)
	}
	if id, flags := spdy.StreamId(binary.BigEndian.Uint32(head)), spdy.DataFlags(head[4]); id&controlBit == 0 {
		return t.data(id, flags, size)
	}
	frame, err := t.reader.ReadFrame()
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *spdy.SynReplyFrame:
		t.replies--
	case *spdy.RstStreamFrame:
		if t.replies > 0 {
			return fmt.Errorf("the kubelet refused a stream: %d", f.Status)
		}
		if f.StreamId == t.ids[status] && len(t.status) == 0 {
			return errors.New("it ended the stream of the status")
		}
		t.end(f.StreamId)
	case *spdy.PingFrame:
		t.pong(f)
	}
	return nil
}

// controlBit is set in the first four bytes of a frame that is no data.
const controlBit = 1 << 31

// end notes that the kubelet has ended a stream.
func (t *translation) end(id spdy.StreamId) {
	for channel, of := range t.ids {
		if of == id {
			t.ended[channel] = true
		}
	}
}

// pong responds to a ping of the kubelet, unless it is slow to take the input of the client: then the ping is not worth
// waiting for.
func (t *translation) pong(f *spdy.PingFrame) {
	if f.Id%2 == 1 || !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	if t.writer.WriteFrame(f) == nil {
		_ = t.out.Flush()
	}
}

// data reads a frame of data in pieces: if the client is slow, the rest of the frame stays with the kubelet.
func (t *translation) data(id spdy.StreamId, flags spdy.DataFlags, size int) error {
	if id == 0 {
		return errors.New("the kubelet sent data without a stream")
	}
	if _, err := t.in.Discard(8); err != nil {
		return err
	}
	room := rooms.Get().(*[1 + piece]byte)
	defer rooms.Put(room)
	for size > 0 {
		n, err := io.ReadFull(t.in, room[1:1+min(size, piece)])
		if err != nil {
			return err
		}
		if err := t.take(id, room[:1+n]); err != nil {
			return err
		}
		size -= n
	}
	if flags&spdy.DataFlagFin != 0 {
		t.end(id)
	}
	return nil
}

// take takes bytes of a stream. The first byte of the message is for the number of the channel.
func (t *translation) take(id spdy.StreamId, message []byte) error {
	switch id {
	case t.ids[status]:
		if len(t.status)+len(message)-1 > statusBytes {
			return fmt.Errorf("the kubelet sent a status of more than %d bytes", statusBytes)
		}
		t.status = append(t.status, message[1:]...)
		return nil
	case t.ids[stdout]:
		message[0] = stdout
	case t.ids[stderr]:
		message[0] = stderr
	default:
		return nil
	}
	return t.ws.Write(context.Background(), websocket.MessageBinary, message)
}

// fromClient reads messages, until the client or the kubelet ends.
func (t *translation) fromClient() {
	closed := false
	for {
		_, message, err := t.ws.Reader(context.Background())
		if err != nil {
			return
		}
		channel := []byte{0}
		if _, err := io.ReadFull(message, channel); err == nil {
			var failed error
			switch {
			case channel[0] == closing:
				if _, err := io.ReadFull(message, channel); err == nil && channel[0] == stdin && !closed {
					closed = true
					failed = t.write(stdin, nil, spdy.DataFlagFin)
				}
			case channel[0] == stdin && !closed, channel[0] == resize:
				failed = t.copyTo(int(channel[0]), message)
			}
			if failed != nil {
				return
			}
		}
		if _, err := io.Copy(io.Discard, message); err != nil {
			return
		}
	}
}

// copyTo sends the rest of a message to a stream of the kubelet.
func (t *translation) copyTo(channel int, message io.Reader) error {
	room := rooms.Get().(*[1 + piece]byte)
	defer rooms.Put(room)
	for {
		n, err := message.Read(room[:chunk])
		if n > 0 {
			if err := t.write(channel, room[:n], 0); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// piece is how many bytes of a frame of the kubelet become a message.
const piece = 2 * chunk

var rooms = sync.Pool{New: func() any { return new([1 + piece]byte) }}

// write sends a frame to the kubelet; to a channel without a stream it is a no-op.
func (t *translation) write(channel int, data []byte, flags spdy.DataFlags) error {
	if t.ids[channel] == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.writer.WriteFrame(&spdy.DataFrame{StreamId: t.ids[channel], Flags: flags, Data: data}); err != nil {
		return err
	}
	return t.out.Flush()
}
