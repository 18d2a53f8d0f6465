package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// The types of events.
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failure  = "ERROR"
)

// event is an event of a watch.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// String is the event in a few words.
func (e event) String() string {
	return fmt.Sprintf("%s %s@%s", e.Type, e.Object.name(), e.Object.version())
}

// code returns the code of the Status in an ERROR event.
func (e event) code() int {
	n, _ := e.Object.at("code").(float64)
	return int(n)
}

// stream is a watch that goes on. It is used by one goroutine.
type stream struct {
	p      *probe
	what   string
	header http.Header
	events chan event
	err    error // why it ended; valid once events is closed
	count  int   // events that were taken
	cancel context.CancelFunc
}

// watch opens a watch of the collection. The caller closes it.
func (p *probe) watch(query string) *stream {
	s, a := p.openWatch(nil, p.all(), query)
	if s == nil {
		p.want(a, http.StatusOK)
	}
	return s
}

// openWatch opens a watch, or returns the response that refuses it.
func (p *probe) openWatch(c *conn, path, query string) (*stream, *response) {
	return p.openStream(request{method: http.MethodGet, path: path, query: joinQuery("watch=1", query), conn: c})
}

func (p *probe) openStream(r request) (*stream, *response) {
	s, a, err := p.dialStream(r)
	if err != nil {
		p.interrupted()
		p.failf("the watch did not begin: %v", err)
	}
	return s, a
}

// dialStream returns a stream, or the response that rejects it, or the error.
func (p *probe) dialStream(r request) (*stream, *response, error) {
	if r.conn == nil {
		r.conn = p.conn
	}
	ctx, cancel := context.WithCancel(p.ctx)
	// The head has to come in time; the rest may take as long as the watch does.
	late := time.AfterFunc(p.bed.options.Timeout, cancel)
	resp, x, err := p.bed.endpoint.open(ctx, r.conn, r, &p.log)
	if !late.Stop() && err == nil {
		resp.Body.Close()
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel()
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxEventBytes))
		x.keep(body)
		return nil, &response{x: x, code: resp.StatusCode, header: resp.Header, body: body}, nil
	}
	s := &stream{p: p, what: r.query, header: resp.Header, events: make(chan event, 256), cancel: cancel}
	go s.read(ctx, resp.Body, x)
	return s, nil, nil
}

// read sends events to the channel until the stream ends. It blocks while the check does
// not receive, which makes it a slow reader for the server.
func (s *stream) read(ctx context.Context, body io.ReadCloser, x *exchange) {
	defer close(s.events)
	defer body.Close()
	limited := &io.LimitedReader{R: body}
	d := json.NewDecoder(limited)
	for {
		limited.N = maxEventBytes
		var raw json.RawMessage
		err := d.Decode(&raw)
		if err == nil {
			x.keep(append(raw, '\n'))
			var e event
			if err = json.Unmarshal(raw, &e); err == nil {
				select {
				case s.events <- e:
					continue
				case <-ctx.Done():
					return
				}
			}
		}
		if limited.N == 0 {
			err = errors.New("an event is larger than 8 MiB")
		}
		if !errors.Is(err, io.EOF) && ctx.Err() == nil {
			s.err = err
			x.fail(err)
		}
		return
	}
}

// close ends the watch, and waits for its reader.
func (s *stream) close() {
	s.cancel()
	for range s.events { // until it is closed
	}
}

// maybe returns the next event, or false when none comes in time or the stream ends.
func (s *stream) maybe(within time.Duration) (event, bool) {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case e, ok := <-s.events:
		if s.count++; s.count > maxEvents {
			s.p.failf("the watch with %s told more than %d events", s.what, maxEvents)
		}
		return e, ok
	case <-t.C:
		return event{}, false
	case <-s.p.ctx.Done():
		s.p.interrupted()
		return event{}, false
	}
}

// next returns the next event of any kind, which has to come.
func (s *stream) next(waitingFor string) event {
	e, ok := s.maybe(s.p.bed.options.Timeout)
	if ok {
		return e
	}
	select {
	case _, open := <-s.events:
		if !open && s.err != nil {
			s.p.failf("the watch broke (%v) before %s came", s.err, waitingFor)
		}
		if !open {
			s.p.failf("the watch ended before %s came", waitingFor)
		}
	default:
	}
	s.p.failf("%s did not come within %v", waitingFor, s.p.bed.options.Timeout)
	return event{}
}

// change returns the next change of an object of this check. It skips bookmarks and changes of
// others; an ERROR ends the check.
func (s *stream) change(waitingFor string) event {
	for {
		switch e := s.next(waitingFor); {
		case e.Type == failure:
			s.p.failf("an ERROR came instead of %s: %d %s", waitingFor, e.code(), clip(e.Object.text("message")))
		case e.Type != bookmark && s.p.owns(e):
			return e
		}
	}
}

func (p *probe) owns(e event) bool { return strings.HasPrefix(e.Object.name(), p.prefix) }

// want holds the next change to a type and to an object at a version; an empty
// version is any.
func (s *stream) want(kind, name, version string) event {
	want := event{kind, object{"metadata": map[string]any{"name": s.p.named(name), "resourceVersion": version}}}
	e := s.change(want.String())
	if e.Type != kind || e.Object.name() != s.p.named(name) || version != "" && e.Object.version() != version {
		s.p.failf("got the event %s, want %s", e, want)
	}
	return e
}

// until returns the changes up to and with the one that is the last.
func (s *stream) until(waitingFor string, last func(event) bool) []event {
	var all []event
	for {
		e := s.change(waitingFor)
		if all = append(all, e); last(e) {
			return all
		}
	}
}

// maxEvents bounds the number of events that are read from one watch.
const maxEvents = 100_000

// rest returns everything until the server ends the stream, which it has to within
// some time.
func (s *stream) rest(within time.Duration) []event {
	var all []event
	deadline := time.Now().Add(within)
	for {
		e, ok := s.maybe(time.Until(deadline))
		if ok {
			all = append(all, e)
			continue
		}
		if !time.Now().Before(deadline) {
			s.p.failf("the watch with %s did not end within %v", s.what, within)
		}
		if s.err != nil {
			s.p.failf("the watch with %s broke: %v", s.what, s.err)
		}
		return all
	}
}

// apply advances the state by an event, and returns an error if the event does not fit.
func (s state) apply(e event) error {
	old, there := s[e.Object.name()]
	switch {
	case e.Type == added && there:
		return fmt.Errorf("%s, but the object is there already, at %s", e, old)
	case (e.Type == modified || e.Type == deleted) && !there:
		return fmt.Errorf("%s, but the object is not there", e)
	case e.Type != added && e.Type != modified && e.Type != deleted:
		return fmt.Errorf("%s: no such type of event", e)
	}
	if e.Type == deleted {
		delete(s, e.Object.name())
	} else {
		s[e.Object.name()] = e.Object.version()
	}
	return nil
}
