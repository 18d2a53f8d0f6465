package inprocess

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
)

// exchange is a request and its response. Three goroutines take part: the client's, the handler's,
// and, if there is a body, the one that sends it.
type exchange struct {
	t        *Transport
	client   *http.Request
	upload   *pipe // the request's body; after an upgrade, what the client sends
	download *pipe // the response's body; after an upgrade, what the handler sends

	cancel    context.CancelFunc // of the handler's context
	unlink    func() bool        // the client's context has no effect any more
	closeBody func()             // closes the body of the client's request, once

	// responded is closed when the client has a response: result or failure.
	responded chan struct{}
	result    *http.Response
	failure   error
	// trailer is set before download is finished.
	trailer http.Header

	mu    sync.Mutex
	ended bool // the client has the whole response, or the exchange was broken off
	cut   bool // the exchange was broken off
	began bool // responded is closed, or is about to be
}

func newExchange(t *Transport, r *http.Request) *exchange {
	return &exchange{
		t: t, client: r, upload: newPipe(), download: newPipe(), responded: make(chan struct{}),
		closeBody: sync.OnceFunc(func() { closeBody(r) }),
	}
}

// run starts the handler.
func (x *exchange) run(to *http.Request) {
	ctx, cancel := context.WithCancel(to.Context())
	x.cancel = cancel
	to = to.WithContext(ctx)
	x.download.limit = x.t.s.WriteTimeout
	client := x.client.Context()
	x.mu.Lock() // end waits until unlink is set
	x.unlink = context.AfterFunc(client, func() { x.end(context.Cause(client)) })
	x.mu.Unlock()
	switch {
	case to.ProtoMajor == 1: // an upgrade: upload is not the body
		x.closeBody()
	case to.ContentLength == 0:
		x.upload.finish(io.EOF)
		x.closeBody()
	default:
		to.Body = requestBody{x}
		go x.send(x.client, to)
	}
	go x.serve(to)
}

// serve calls the handler.
func (x *exchange) serve(r *http.Request) {
	w := newResponse(x, r)
	returned := false
	defer func() {
		v := recover()
		if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // it is not wrapped
			x.t.s.panicked(v, debug.Stack())
		}
		if returned {
			w.finish()
		} else {
			x.end(errAborted)
		}
		if !returned || !w.hijacked {
			x.leave()
		}
	}()
	if size(r) > cmp.Or(x.t.s.HeaderBytes, DefaultHeaderBytes) {
		http.Error(w, "the request's headers are too large", http.StatusRequestHeaderFieldsTooLarge)
	} else {
		x.t.s.Handler.ServeHTTP(w, r)
	}
	returned = true
}

// leave ends the exchange for the handler.
func (x *exchange) leave() {
	x.upload.cut(http.ErrBodyReadAfterClose, errUnread)
	x.closeBody()
	x.cancel()
	x.t.s.done(x)
}

// errAborted ends an exchange whose handler has panicked, or did not write as many bytes as it
// declared.
var errAborted = errors.New("inprocess: the handler has broken the response off")

// errClosed is the error of reads of a body that the client has closed; its text is that of net/http.
var errClosed = errors.New("http: read on closed response body")

// errGone is the error of a handler's writes when the client is gone.
var errGone = errors.New("inprocess: the client has ended the request")

// end breaks the exchange off, unless it is over. err is the reason; the client gets it, or the
// error that a lost connection has.
func (x *exchange) end(err error) {
	x.mu.Lock()
	over, began, cut := x.ended, x.began, x.cut
	x.ended, x.began, x.cut = true, true, cut || !over
	x.mu.Unlock()
	if cut {
		return // another call has done the rest, or does it
	}
	// The handler is notified last, by its context and by the request's body. If it returned before
	// the response is broken off, the client would take a part of the response for the whole.
	defer x.cancel()
	if over {
		return
	}
	shown := err
	if errors.Is(err, errAborted) || errors.Is(err, errStopped) {
		shown = io.ErrUnexpectedEOF
		if !began {
			shown = io.EOF // as of a connection that is closed before the response
		}
	}
	if !began {
		x.failure = shown
		close(x.responded)
	}
	if shown == err { //nolint:errorlint // it was not replaced
		x.download.cut(shown, errGone)
	} else {
		x.download.finish(shown) // after the written bytes
	}
	x.upload.cut(io.ErrUnexpectedEOF, errUnread)
	x.unlink()
	x.closeBody()
}

// response gives the client the response's headers, and reports false if the exchange is over.
func (x *exchange) respond(resp *http.Response) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.began {
		return false
	}
	x.began = true
	x.result = resp
	close(x.responded)
	return true
}

// read notes that the client has read the whole response.
func (x *exchange) read() {
	x.mu.Lock()
	x.ended = true
	x.mu.Unlock()
	x.unlink()
}

// responseBody is the body of the response for the client.
type responseBody struct{ x *exchange }

// Read implements io.Reader.
func (b responseBody) Read(p []byte) (int, error) {
	n, err := b.x.download.read(p)
	if err == io.EOF { //nolint:errorlint // it is not wrapped
		b.x.read()
		for name, values := range b.x.trailer {
			b.x.result.Trailer = addTrailer(b.x.result.Trailer, name, values)
		}
	}
	return n, err
}

// Close implements io.Closer. The handler is cancelled if it still runs.
func (b responseBody) Close() error {
	b.x.end(errClosed)
	b.x.download.cut(errClosed, errGone)
	return nil
}
