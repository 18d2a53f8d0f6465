package httpapi

import (
	"context"
	"net/http"

	"github.com/coder/websocket"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// watchWebSocket streams events as text or binary messages, one each. It answers pings. A web
// page may open a WebSocket only from the server's own origin, because the browser would
// send a client certificate with it.
func (q *request) watchWebSocket() error {
	conn, err := websocket.Accept(&counter{q.w, q}, q.r, &websocket.AcceptOptions{
		CompressionMode: websocket.CompressionDisabled,
		Subprotocols:    authn.Subprotocols(q.r), // a browser wants one of those that it offers
	})
	if err != nil {
		return nil //nolint:nilerr // Accept has answered
	}
	q.wrote, q.code = true, http.StatusSwitchingProtocols
	defer conn.CloseNow() //nolint:errcheck // it is closed or gone
	// The reader answers pings and notices when the client closes. It must outlive the watch:
	// cancelling a read drops the connection without a close message.
	gone := conn.CloseRead(context.Background())
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
