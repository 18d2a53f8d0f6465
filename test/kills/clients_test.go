package kills

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The objects are ConfigMaps with one value.
const (
	collection = "/api/v1/namespaces/default/configmaps"
	objects    = 5
	namePrefix = "register-"
)

// objectJSON is the part of an object or a list that the test reads.
type objectJSON struct {
	Metadata struct{ Name, ResourceVersion string }
	Data     struct{ Value string }
	Items    []objectJSON
}

func (o *objectJSON) version() int64 {
	n, _ := strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64)
	return n
}

type kind string

const (
	create kind = "create"
	update kind = "update" // with a resourceVersion
	patch  kind = "patch"  // without one
	remove kind = "delete" // with a resourceVersion as precondition, or without one
	get    kind = "get"
	list   kind = "list"
)

type outcome string

const (
	made     outcome = "made"
	absent   outcome = "absent"   // 404
	exists   outcome = "exists"   // 409 to a create
	conflict outcome = "conflict" // 409 to an update or a delete
	unknown  outcome = "unknown"
	refused  outcome = "refused" // nothing was written
)

// op is a request and its outcome. Times are nanoseconds since the start of the recorder.
type op struct {
	server    string
	kind      kind
	key       string
	value     string // that it writes or, for a get, has read; no two writes have the same
	condition int64  // the resourceVersion that it requires; zero: none
	call, ret int64
	outcome   outcome
	version   int64 // of the object that was written or read, or of the list
	items     map[string]version
}

// version is one version of an object.
type version struct {
	revision int64
	value    string
}

func (o *op) String() string {
	return fmt.Sprintf("%s %s %s value %q if %d: %s, version %d, %v..%v", o.server, o.kind, o.key, o.value, o.condition, o.outcome, o.version, time.Duration(o.call), time.Duration(o.ret))
}

// recorder has the operations of all clients.
type recorder struct {
	w     *world
	began time.Time

	mu    sync.Mutex
	next  int
	ops   []*op
	odd   []string // responses that no server should give
	codes map[string]int
}

func (r *recorder) now() int64 { return int64(time.Since(r.began)) }

func (r *recorder) value() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return fmt.Sprint("v", r.next)
}

func (r *recorder) record(o *op, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, o)
	r.codes[what]++
}

// client sends requests until stop is closed.
func (r *recorder) client(chance *rand.Rand, stop <-chan struct{}) {
	known := map[string]int64{} // a version that each object had
	for {
		select {
		case <-stop:
			return
		default:
		}
		s := r.w.servers[chance.IntN(len(r.w.servers))]
		o := &op{kind: choose(chance), key: fmt.Sprint(namePrefix, chance.IntN(objects))}
		switch o.kind {
		case update:
			o.condition = known[o.key]
			if o.condition == 0 {
				o.kind = get
			}
		case remove:
			if chance.IntN(4) > 0 {
				o.condition = known[o.key]
			}
		}
		sent := r.send(s, o)
		if sent && o.outcome == made && o.version > 0 && o.kind != list {
			known[o.key] = o.version
		}
		for name, v := range o.items {
			known[name] = v.revision
		}
		pause := time.Duration(chance.IntN(15)) * time.Millisecond
		if !sent {
			pause += 50 * time.Millisecond
		}
		time.Sleep(pause)
	}
}

func choose(chance *rand.Rand) kind {
	switch n := chance.IntN(100); {
	case n < 20:
		return get
	case n < 32:
		return list
	case n < 50:
		return create
	case n < 72:
		return update
	case n < 90:
		return patch
	}
	return remove
}

// requestTimeout is more than a server needs to give up.
const requestTimeout = 25 * time.Second

// send makes a request and records it. It reports false if the request was not sent.
func (r *recorder) send(s *server, o *op) bool {
	o.server = s.name
	method, path, contentType, body := r.request(o)
	o.call = r.now()
	code, text, err := s.do(requestTimeout, method, path, contentType, body)
	o.ret = r.now()
	dial := (*net.OpError)(nil)
	if err != nil && errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	if err != nil {
		o.outcome = unknown
		r.record(o, "no response")
		return true
	}
	r.responded(o, code, text)
	r.record(o, fmt.Sprint(o.kind, " ", code))
	return true
}

func (r *recorder) request(o *op) (method, path, contentType string, body []byte) {
	path = collection + "/" + o.key
	switch o.kind {
	case create, update, patch:
		o.value = r.value()
	}
	object := func(metadata string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{%s},"data":{"value":%q}}`, metadata, o.value)
	}
	switch o.kind {
	case create:
		return http.MethodPost, collection, "", object(fmt.Sprintf(`"name":%q`, o.key))
	case update:
		return http.MethodPut, path, "", object(fmt.Sprintf(`"name":%q,"resourceVersion":"%d"`, o.key, o.condition))
	case patch:
		return http.MethodPatch, path, "application/merge-patch+json", fmt.Appendf(nil, `{"data":{"value":%q}}`, o.value)
	case remove:
		if o.condition > 0 {
			body = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"%d"}}`, o.condition)
		}
		return http.MethodDelete, path, "", body
	case list:
		o.key = ""
		return http.MethodGet, collection, "", nil
	}
	return http.MethodGet, path, "", nil
}

// responded sets the outcome of a request.
func (r *recorder) responded(o *op, code int, text []byte) {
	retry := strings.Contains(string(text), `"retryAfterSeconds"`)
	switch {
	case code == http.StatusOK || code == http.StatusCreated:
		var got objectJSON
		if err := json.Unmarshal(text, &got); err != nil {
			r.strange(o, code, text)
		}
		o.outcome = made
		r.read(o, &got)
	case code == http.StatusNotFound && o.kind != create && o.kind != list:
		o.outcome = absent
	case code == http.StatusConflict && o.kind == create:
		o.outcome = exists
	case code == http.StatusConflict && (o.kind == update || o.kind == remove && o.condition > 0):
		o.outcome = conflict
	case code == http.StatusServiceUnavailable && retry, code == http.StatusInsufficientStorage, code == http.StatusTooManyRequests:
		o.outcome = refused
	case code == http.StatusGatewayTimeout:
		o.outcome = unknown
	default:
		o.outcome = unknown
		r.strange(o, code, text)
	}
}

func (r *recorder) read(o *op, got *objectJSON) {
	switch o.kind {
	case list:
		o.version, o.items = got.version(), map[string]version{}
		for i := range got.Items {
			if item := &got.Items[i]; strings.HasPrefix(item.Metadata.Name, namePrefix) {
				o.items[item.Metadata.Name] = version{item.version(), item.Data.Value}
			}
		}
	case get:
		o.version, o.value = got.version(), got.Data.Value
	case create, update, patch:
		o.version = got.version()
		if got.Data.Value != o.value {
			r.strange(o, http.StatusOK, []byte("it shows the value "+got.Data.Value))
		}
	}
}

func (r *recorder) strange(o *op, code int, text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.odd = append(r.odd, fmt.Sprintf("%s %s %s: %d %.300s", o.server, o.kind, o.key, code, text))
}
