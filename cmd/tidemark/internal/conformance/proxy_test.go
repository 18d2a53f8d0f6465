package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// step is a part of a proxy in front of a server: it changes requests and
// responses on their way.
type step func(req *http.Request, next http.RoundTripper) (*http.Response, error)

// through is a step and the next transport.
type through struct {
	step step
	next http.RoundTripper
}

func (t through) RoundTrip(req *http.Request) (*http.Response, error) { return t.step(req, t.next) }

// behind returns a config whose requests go through some steps, the first one first.
func behind(config *rest.Config, steps ...step) *rest.Config {
	config = rest.CopyConfig(config)
	for _, s := range slices.Backward(steps) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return through{s, next} })
	}
	return config
}

// when reports whether a step applies to a request.
type when func(req *http.Request) bool

// on matches requests by their verbs, written with spaces between.
func on(verbs string) when {
	return func(req *http.Request) bool { return slices.Contains(strings.Fields(verbs), verbOf(req)) }
}

// and is both.
func (w when) and(other when) when {
	return func(req *http.Request) bool { return w(req) && other(req) }
}

// having matches requests with a parameter.
func having(name string) when {
	return func(req *http.Request) bool { return req.URL.Query().Has(name) }
}

// from matches the nth match and those after it.
func from(n int64, w when) when {
	var count atomic.Int64
	return func(req *http.Request) bool { return w(req) && count.Add(1) >= n }
}

// third matches every third match.
func third(w when) when {
	var count atomic.Int64
	return func(req *http.Request) bool { return w(req) && count.Add(1)%3 == 0 }
}

// verbOf is the verb of a request for objects, "" for any other.
func verbOf(req *http.Request) string {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	one := len(parts) > 1
	switch req.Method {
	case http.MethodGet:
		if req.URL.Query().Has("watch") {
			return "watch"
		}
		return map[bool]string{true: "get", false: "list"}[one]
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		if strings.Contains(req.Header.Get("Content-Type"), "apply") {
			return "apply"
		}
		return "patch"
	case http.MethodDelete:
		return map[bool]string{true: "delete", false: "deletecollection"}[one]
	}
	return ""
}

// query changes the parameters of requests.
func query(w when, edit func(q url.Values)) step {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if w(req) {
			req = req.Clone(req.Context())
			q := req.URL.Query()
			edit(q)
			req.URL.RawQuery = q.Encode()
		}
		return next.RoundTrip(req)
	}
}

// without drops parameters.
func without(w when, names ...string) step {
	return query(w, func(q url.Values) {
		for _, name := range names {
			q.Del(name)
		}
	})
}

// with sets a parameter.
func with(w when, name, value string) step {
	return query(w, func(q url.Values) { q.Set(name, value) })
}

// header changes the header of requests.
func header(w when, name, value string) step {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if w(req) {
			req = req.Clone(req.Context())
			req.Header.Set(name, value)
		}
		return next.RoundTrip(req)
	}
}

// sent changes the objects that are sent.
func sent(w when, edit func(o object)) step {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if w(req) && req.Body != nil {
			b, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			var o object
			if json.Unmarshal(b, &o) == nil {
				edit(o)
				b = o.encode()
			}
			req = req.Clone(req.Context())
			req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		}
		return next.RoundTrip(req)
	}
}

// responded changes responses.
func responded(w when, edit func(req *http.Request, resp *http.Response)) step {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		matches := w(req)
		resp, err := next.RoundTrip(req)
		if err == nil && matches {
			edit(req, resp)
		}
		return resp, err
	}
}

// code turns one status code into another.
func code(w when, from, to int) step {
	return responded(w, func(_ *http.Request, resp *http.Response) {
		if resp.StatusCode == from {
			resp.StatusCode = to
		}
	})
}

// body changes the bytes of responses.
func body(w when, edit func(b []byte) []byte) step {
	return responded(w, func(_ *http.Request, resp *http.Response) {
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			panic(err)
		}
		b = edit(b)
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		resp.Header.Del("Content-Length")
	})
}

// got changes the objects, lists and statuses in responses. Edits come one
// after the other, so that they can have a memory.
func got(w when, edit func(o object)) step {
	var mu sync.Mutex
	return body(w, func(b []byte) []byte {
		var o object
		if json.Unmarshal(b, &o) != nil {
			return b
		}
		mu.Lock()
		defer mu.Unlock()
		edit(o)
		return o.encode()
	})
}

// field sets the field at a path of the response; nil removes it.
func field(w when, value any, path ...string) step {
	return got(w, func(o object) { set(o, value, path...) })
}

func set(o object, value any, path ...string) {
	m := map[string]any(o)
	for _, key := range path[:len(path)-1] {
		m = child(m, key)
	}
	if value == nil {
		delete(m, path[len(path)-1])
		return
	}
	m[path[len(path)-1]] = value
}

// version sets the version in responses.
func version(w when, value string) step { return field(w, value, "metadata", "resourceVersion") }

// itemsOf are the items of a list, as they are kept.
func itemsOf(o object) []any {
	all, _ := o["items"].([]any)
	return all
}

// own reports whether an item was made by a check.
func own(item any) bool {
	m, _ := item.(map[string]any)
	return strings.HasPrefix(object(m).name(), "c0") || strings.HasPrefix(object(m).name(), "c1")
}

// dropItem drops the last item of lists that a check made.
func dropItem(w when) step {
	return got(w, func(o object) {
		all := itemsOf(o)
		for i, item := range slices.Backward(all) {
			if own(item) {
				o["items"] = slices.Delete(all, i, i+1)
				return
			}
		}
	})
}

// says responds to requests in place of the server.
func says(w when, code int, text string) step {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !w(req) {
			return next.RoundTrip(req)
		}
		if req.Body != nil {
			req.Body.Close()
		}
		return &http.Response{
			StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
			Header: http.Header{"Content-Type": {asJSON}}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
		}, nil
	}
}

// replay responds to requests for a path as the first one was.
func replay(w when) step {
	var mu sync.Mutex
	first := map[string][]byte{}
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !w(req) {
			return next.RoundTrip(req)
		}
		mu.Lock()
		kept := first[req.URL.Path]
		mu.Unlock()
		if kept != nil {
			return says(always, http.StatusOK, string(kept))(req, next)
		}
		return body(func(*http.Request) bool { return true }, func(b []byte) []byte {
			mu.Lock()
			defer mu.Unlock()
			first[req.URL.Path] = b
			return b
		})(req, next)
	}
}

// rewind makes the lists that match be exactly of the version of the first list.
func rewind(w when) step {
	var first atomic.Pointer[string]
	remember := got(on("list"), func(o object) {
		v := o.version()
		first.CompareAndSwap(nil, &v)
	})
	back := query(w, func(q url.Values) {
		if v := first.Load(); v != nil && !q.Has("continue") {
			q.Set("resourceVersion", *v)
			q.Set("resourceVersionMatch", "Exact")
		}
	})
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		return back(req, through{remember, next})
	}
}

// events changes the events of watches. begin makes a function for each watch. The function
// gets each event, and nil at the end, and returns the events to send instead.
func events(w when, begin func() func(e *event) []event) step {
	return responded(w, func(_ *http.Request, resp *http.Response) {
		if resp.StatusCode != http.StatusOK {
			return
		}
		edit, source := begin(), resp.Body
		pr, pw := io.Pipe()
		resp.Body = pr
		go func() {
			defer source.Close()
			out := json.NewEncoder(pw)
			tell := func(e *event) error {
				for _, x := range edit(e) {
					if err := out.Encode(x); err != nil {
						return err
					}
				}
				return nil
			}
			for d := json.NewDecoder(source); ; {
				var e event
				if err := d.Decode(&e); err != nil {
					if err == io.EOF {
						tell(nil)
					}
					pw.CloseWithError(err)
					return
				}
				if err := tell(&e); err != nil {
					return
				}
			}
		}()
	})
}

// each changes events one by one: edit returns the events to send instead.
func each(w when, edit func(e event) []event) step {
	return events(w, func() func(*event) []event {
		return func(e *event) []event {
			if e == nil {
				return nil
			}
			return edit(*e)
		}
	})
}

// onType changes events of a type.
func onType(w when, kind string, edit func(e event) []event) step {
	return each(w, func(e event) []event {
		if e.Type != kind {
			return []event{e}
		}
		return edit(e)
	})
}

// drop and double change the copies of an event.
func drop(event) []event     { return nil }
func double(e event) []event { return []event{e, e} }

// become gives an event another type.
func become(kind string) func(e event) []event {
	return func(e event) []event { return []event{{kind, e.Object}} }
}

// edited changes the object of an event.
func edited(value any, path ...string) func(e event) []event {
	return func(e event) []event {
		set(e.Object, value, path...)
		return []event{e}
	}
}

// nth changes the nth change of each watch, from 1.
func nth(w when, n int, edit func(e event) []event) step {
	return events(w, func() func(*event) []event {
		count := 0
		return func(e *event) []event {
			if e == nil {
				return nil
			}
			if e.Type != bookmark && own(map[string]any(e.Object)) && !isLast(*e) {
				count++
			}
			if count == n && !isLast(*e) {
				count++
				return edit(*e)
			}
			return []event{*e}
		}
	})
}

// isLast reports whether the event is for the object that ends a storm. Watches wait for it.
func isLast(e event) bool { return strings.HasSuffix(e.Object.name(), "-end") }

// swap sends the nth change of each watch after the next one.
func swap(w when, n int) step {
	return events(w, func() func(*event) []event {
		var held *event
		count := 0
		return func(e *event) []event {
			switch count++; {
			case e == nil:
				return nil
			case count == n && !isLast(*e):
				held = e
				return nil
			case held != nil:
				both := []event{*e, *held}
				held = nil
				return both
			}
			return []event{*e}
		}
	})
}

// both is one step behind the other.
func both(a, b step) step {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		return a(req, through{b, next})
	}
}

func always(*http.Request) bool { return true }
