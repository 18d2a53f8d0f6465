package connect

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// tunnelPrefix begins the subprotocols of WebSockets whose messages are the bytes of a connection of SPDY. The rest
// is the protocol of its streams.
const tunnelPrefix = "SPDY/3.1+"

// tunnel unpacks SPDY from a WebSocket.
func (c *Connector) tunnel(w http.ResponseWriter, r *http.Request, p *upgrade.Proxy) error {
	protocol := offers(r, tunnelPrefix)
	backend, err := p.Connect(spdyRequest(r, strings.TrimPrefix(protocol, tunnelPrefix)))
	if err != nil {
		c.tunneled.WithLabelValues("500").Inc()
		return err
	}
	defer backend.Close()
	c.tunneled.WithLabelValues(strconv.Itoa(backend.Response.StatusCode)).Inc()
	if backend.Response.StatusCode != http.StatusSwitchingProtocols {
		return backend.Refuse(w)
	}
	ws, err := accept(w, r, protocol)
	if err != nil {
		return nil //nolint:nilerr // accept has responded
	}
	defer ws.CloseNow() //nolint:errcheck // it is closed or gone
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	upgrade.Pipe(r.Context(), backend, &tunneled{websocket.NetConn(ctx, ws, websocket.MessageBinary), ws, r.Context()})
	return nil
}

// tunneled is the side of the client. It says goodbye unless the request has to end.
type tunneled struct {
	net.Conn
	ws  *websocket.Conn
	ctx context.Context
}

// Close implements net.Conn.
func (t *tunneled) Close() error {
	if t.ctx.Err() != nil {
		return t.ws.CloseNow()
	}
	return t.Conn.Close()
}
