package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/coder/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// watchWebSocket streams events as text or binary messages, one each. It responds to pings.
func (q *request) watchWebSocket() error {
	conn, gone, err := q.acceptWebSocket()
	if conn == nil {
		return err
	}
	defer func() {
		conn.CloseNow() //nolint:errcheck // it is closed or gone
		<-gone.Done()
	}()
	defer context.AfterFunc(gone, q.cancel)()
	q.to = &socketStream{q: q, conn: conn}
	err = q.pull()
	q.to = nil
	if err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	_ = conn.Close(websocket.StatusNormalClosure, "") // the client may be gone by now
	return nil
}

// acceptWebSocket opens the WebSocket that the client requests. The context ends when the client
// closes it. The client's messages are discarded. The connection is nil if the handshake failed; the response has
// been sent then, unless there is an error.
//
// As in kube-apiserver, a page of any origin may connect: "kubectl proxy" forwards the origin of
// the page. A sandboxed page, whose origin is "null", may not.
func (q *request) acceptWebSocket() (*websocket.Conn, context.Context, error) {
	if origin := q.r.Header.Get("Origin"); origin != "" {
		if _, err := url.ParseRequestURI(origin); err != nil {
			return nil, nil, apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("the Origin %.100q of the WebSocket is not a URL", origin))
		}
	}
	conn, err := websocket.Accept(&countingWriter{q.w, q}, q.r, &websocket.AcceptOptions{
		CompressionMode:    websocket.CompressionDisabled,
		Subprotocols:       authn.Subprotocols(q.r), // a browser wants one of those that it offers
		InsecureSkipVerify: true,                    // any origin
	})
	if err != nil {
		return nil, nil, nil //nolint:nilerr // Accept has responded
	}
	q.wrote, q.code = true, http.StatusSwitchingProtocols
	// The reader must outlive the watch: cancelling a read drops the connection without a close
	// message.
	gone, end := context.WithCancel(context.Background())
	go func() {
		defer end()
		discard(conn)
	}()
	return conn, gone, nil
}

// discard reads and drops the messages of the client, and so responds to its pings, until the connection ends.
func discard(conn *websocket.Conn) {
	conn.SetReadLimit(-1) // nothing is kept
	for {
		_, message, err := conn.Reader(context.Background())
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, message); err != nil {
			return
		}
	}
}

// socketStream writes events as WebSocket messages.
type socketStream struct {
	q    *request
	conn *websocket.Conn
}

func (s *socketStream) send(events []byte, ends []int) error {
	if !s.q.seat.Suspend(int64(len(events))) {
		return errNoRoom
	}
	if err := s.write(events, ends); err != nil {
		return err
	}
	return s.q.seat.Resume(s.q.ctx)
}

func (s *socketStream) write(events []byte, ends []int) error {
	from := 0
	kind, skip := websocket.MessageText, 0
	if s.q.shape != nil && s.q.shape.binary != nil {
		// A message has a length of its own.
		kind, skip = websocket.MessageBinary, s.q.shape.binary.Prefix
	}
	for _, end := range ends {
		ctx, cancel := context.WithTimeout(context.Background(), s.q.h.c.Limits.WriteTimeout)
		err := s.conn.Write(ctx, kind, events[from+skip:end])
		cancel()
		if err != nil {
			return err
		}
		s.q.bytes += int64(end - from)
		from = end
	}
	return nil
}

func (s *socketStream) flush() error { return nil }
