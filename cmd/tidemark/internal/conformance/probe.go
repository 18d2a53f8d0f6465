package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/resourceversion"
)

// probe makes the requests of a check. As in a test, the first failure ends the check: methods that
// fail do not return. They panic with a verdict, which the run (or try, in another goroutine)
// recovers.
type probe struct {
	ctx      context.Context
	bed      *bed
	resource *resourceType
	// prefix begins the names of all objects of this check.
	prefix string
	rand   *rand.Rand
	conn   *conn
	log    journal

	mu   sync.Mutex
	made []created // guarded by mu
}

// created is an object to be removed in the end.
type created struct {
	resource *resourceType
	name     string
}

// verdict ends a check.
type verdict struct {
	outcome Outcome
	message string
	noRight bool // it is skipped for the lack of a right
}

// Error implements error.
func (v *verdict) Error() string { return v.message }

func (p *probe) failf(format string, args ...any) {
	panic(&verdict{outcome: Failed, message: fmt.Sprintf(format, args...)})
}

func (p *probe) absentf(format string, args ...any) {
	panic(&verdict{outcome: Absent, message: fmt.Sprintf(format, args...)})
}

func (p *probe) skipf(format string, args ...any) {
	panic(&verdict{outcome: Skipped, message: fmt.Sprintf(format, args...)})
}

// interrupted ends the check if its context has ended.
func (p *probe) interrupted() {
	switch {
	case p.ctx.Err() == nil:
	case context.Cause(p.ctx) == errTooLong:
		p.failf("%v", errTooLong)
	default:
		p.skipf("interrupted")
	}
}

// checkTimeout bounds a check whose single waits never last too long.
const checkTimeout = 5 * time.Minute

var errTooLong = fmt.Errorf("the check did not end within %v", checkTimeout)

// try runs a part of a check and returns the verdict that ended it, or nil. Each goroutine
// of a check runs inside its own try. A check that panics has failed, and its objects are
// removed like those of other checks.
func try(part func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *verdict:
			err = v
		default:
			stack := debug.Stack()
			err = &verdict{outcome: Failed, message: fmt.Sprintf("the check itself broke, which is a mistake of this program: %v\n%s", v, stack[:min(len(stack), maxStackBytes)])}
		}
	}()
	part()
	return nil
}

// maxStackBytes is how much is shown of where a check broke.
const maxStackBytes = 3 << 10

// together runs parts at once, and ends the check with the first verdict.
func (p *probe) together(parts ...func()) {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() { errs[i] = try(part) })
	}
	wg.Wait()
	for _, err := range errs {
		var v *verdict
		if errors.As(err, &v) {
			panic(v)
		}
	}
}

// race runs parts at once. The first verdict ends them all, and the check: parts that
// wait for one another would do so in vain. It is not called inside of itself.
func (p *probe) race(parts ...func()) {
	whole := p.ctx
	ctx, cancel := context.WithCancel(whole)
	defer cancel()
	p.ctx = ctx
	defer func() { p.ctx = whole }()
	var first *verdict
	var once sync.Once
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() {
			err := try(part)
			if v, ended := errors.AsType[*verdict](err); ended {
				once.Do(func() { first = v; cancel() })
			}
		})
	}
	wg.Wait()
	if first != nil {
		panic(first)
	}
}

// send sends a request, and returns its response, whatever it is.
func (p *probe) send(r request) *response {
	if r.conn == nil {
		r.conn = p.conn
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.bed.options.Timeout)
	defer cancel()
	a, err := p.bed.endpoint.send(ctx, r.conn, r, &p.log)
	if err != nil {
		p.interrupted()
		p.failf("%s %s: %v", r.method, r.path, err)
	}
	if r.method == http.MethodPost && noRight(a.code) {
		p.forget(r.makes)
	}
	return a
}

// noRight reports whether a response is a denial.
func noRight(code int) bool {
	return code == http.StatusForbidden || code == http.StatusUnauthorized
}

// want holds a response to some codes. A response that says that there is no such
// verb makes the feature absent; one that says that we may not, skips the check.
func (p *probe) want(a *response, codes ...int) {
	for _, code := range codes {
		if a.code == code {
			return
		}
	}
	switch {
	case a.code == http.StatusMethodNotAllowed, a.code == http.StatusNotImplemented:
		p.absentf("%s", a.describe())
	case noRight(a.code):
		panic(&verdict{outcome: Skipped, message: "no right: " + a.describe(), noRight: true})
	}
	var names []string
	for _, code := range codes {
		names = append(names, strconv.Itoa(code))
	}
	p.failf("got %s, want %s", a.describe(), strings.Join(names, " or "))
}

// wantRefusal holds a response to be a mistake of the client: 400 to 499.
func (p *probe) wantRefusal(a *response) {
	if a.code < 400 || a.code >= 500 {
		p.failf("got %s, want a refusal (400 to 499)", a.describe())
	}
}

// describe summarizes a response in one line.
func (a *response) describe() string {
	text := fmt.Sprintf("%d %s", a.code, http.StatusText(a.code))
	if a.code >= 400 {
		if m := a.status().text("message"); m != "" {
			text += ": " + m
		}
	}
	return clip(text)
}

// clip shortens a message of a server.
func clip(text string) string {
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "..."
	}
	return strings.Join(strings.Fields(text), " ")
}

// status is the body, if it is an object.
func (a *response) status() object {
	var o object
	json.Unmarshal(a.body, &o)
	return o
}

// object reads the object that a response holds.
func (p *probe) object(a *response) object {
	var o object
	if err := json.Unmarshal(a.body, &o); err != nil || o == nil {
		p.failf("the response is no JSON object: %v", err)
	}
	return o
}

// path returns the path of an object of the resource.
func (p *probe) path(name string) string {
	return p.resource.collection(p.bed.namespace) + "/" + url.PathEscape(name)
}

// all is the path of the collection in the namespace.
func (p *probe) all() string { return p.resource.collection(p.bed.namespace) }

// named makes a name of this check's own.
func (p *probe) named(name string) string { return p.prefix + name }

// markLabel is the label that updates change.
const markLabel = "conformance.tidemark.dev/mark"

// fresh returns an object to be created, with a mark.
func (p *probe) fresh(name, mark string) object {
	o := p.bed.template(p.resource)
	o.metadata()["name"] = p.named(name)
	o.label(markLabel, mark)
	return o
}

// create creates an object, and returns it as the server returned it.
func (p *probe) create(name, mark string) object { return p.post(p.fresh(name, mark), "") }

// post creates an object.
func (p *probe) post(o object, query string) object {
	a := p.send(p.posting(o, query))
	p.want(a, http.StatusCreated)
	return p.object(a)
}

// posting is the request that creates an object, which is removed in the end.
func (p *probe) posting(o object, query string) request {
	p.remember(p.resource, o.name())
	return request{method: http.MethodPost, path: p.all(), query: query, body: o.encode(), makes: created{p.resource, o.name()}}
}

func (p *probe) remember(r *resourceType, name string) {
	if name == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = append(p.made, created{r, name})
}

// forget takes back that an object may have been made.
func (p *probe) forget(c created) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.made, c); i >= 0 {
		p.made = slices.Delete(p.made, i, i+1)
	}
}

// read gets an object by its short name.
func (p *probe) read(name, query string) object {
	a := p.send(request{method: http.MethodGet, path: p.path(p.named(name)), query: query})
	p.want(a, http.StatusOK)
	return p.object(a)
}

// update changes the mark of an object, and returns the server's object.
func (p *probe) update(o object, mark string) object {
	o = o.copied()
	o.label(markLabel, mark)
	return p.put(o, "")
}

// put updates an object.
func (p *probe) put(o object, query string) object {
	a := p.send(request{method: http.MethodPut, path: p.path(o.name()), query: query, body: o.encode()})
	p.want(a, http.StatusOK)
	return p.object(a)
}

// remove deletes an object by its short name.
func (p *probe) remove(name string) *response {
	a := p.send(request{method: http.MethodDelete, path: p.path(p.named(name))})
	p.want(a, http.StatusOK, http.StatusAccepted)
	return a
}

// list lists the collection.
func (p *probe) list(query string) list { return p.listOn(nil, query) }

func (p *probe) listOn(c *conn, query string) list {
	a := p.send(request{method: http.MethodGet, path: p.all(), query: query, conn: c})
	p.want(a, http.StatusOK)
	return p.listIn(a)
}

// listIn decodes a list, and checks the rules of all lists.
func (p *probe) listIn(a *response) list {
	l, err := parseList(a.body)
	switch {
	case err != nil:
		p.failf("%v", err)
	case !l.hasItems:
		p.failf("the response has no items")
	case l.version == "":
		p.failf("the list has no resourceVersion")
	}
	return l
}

// maxPages bounds a list in chunks, whose server may send the same one for ever.
const maxPages = 2000

// pages follows a list in chunks to its end, and returns all of it as one.
func (p *probe) pages(query string, limit int) list {
	var whole list
	next := ""
	for n := range maxPages {
		q := joinQuery(query, "limit="+strconv.Itoa(limit))
		if n > 0 {
			q = joinQuery(selectorOf(query), "limit="+strconv.Itoa(limit), "continue="+url.QueryEscape(next))
		}
		l := p.list(q)
		if n == 0 {
			whole = l
		} else {
			if l.version != whole.version {
				p.failf("chunk %d is of version %s, the first of %s: want one version", n+1, l.version, whole.version)
			}
			whole.items = append(whole.items, l.items...)
		}
		if next = l.next; next == "" {
			return whole
		}
	}
	p.failf("the list in chunks of %d did not end after %d chunks", limit, maxPages)
	return list{}
}

func joinQuery(parts ...string) string {
	var some []string
	for _, part := range parts {
		if part != "" {
			some = append(some, part)
		}
	}
	return strings.Join(some, "&")
}

// selectorOf is the part of a query that each chunk has to repeat.
func selectorOf(query string) string {
	var some []string
	for part := range strings.SplitSeq(query, "&") {
		if strings.HasPrefix(part, "labelSelector=") || strings.HasPrefix(part, "fieldSelector=") {
			some = append(some, part)
		}
	}
	return strings.Join(some, "&")
}

// exact, atLeast write the parameters of a list.
func exact(version string) string {
	return "resourceVersion=" + version + "&resourceVersionMatch=Exact"
}

func atLeast(version string) string {
	return "resourceVersion=" + version + "&resourceVersionMatch=NotOlderThan"
}

// mine are the objects of a list that this check made.
func (p *probe) mine(l list) state { return l.state(p.prefix) }

// states of objects, by their names.
func states(objects ...object) state {
	s := state{}
	for _, o := range objects {
		s[o.name()] = o.version()
	}
	return s
}

// wantState compares objects of this check with the expected state.
func (p *probe) wantState(what string, got, want state) {
	if d := got.difference(want); d != "" {
		p.failf("%s: %s", what, d)
	}
}

// compare orders two versions. Where they are no integers, whatever needs their
// order is skipped: the checks of the area comparable say that.
func (p *probe) compare(a, b string) int {
	order, err := resourceversion.Compare(a, b)
	if err != nil {
		p.skipf("needs versions that can be compared: %v", err)
	}
	return order
}

// wantNotOlder holds a version to be at or past another one.
func (p *probe) wantNotOlder(what, version, than string) {
	if p.compare(version, than) < 0 {
		p.failf("%s is of version %s, which is older than %s", what, version, than)
	}
}

// wantNewer holds a version to be past another one.
func (p *probe) wantNewer(what, version, than string) {
	if p.compare(version, than) <= 0 {
		p.failf("%s is of version %s, want one past %s", what, version, than)
	}
}
