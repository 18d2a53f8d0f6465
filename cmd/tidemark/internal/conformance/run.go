package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"k8s.io/client-go/rest"
)

// Run checks the server of a config, and returns the results so far when the context ends. It
// removes the objects that it made. An error is why the server could not be checked; the report
// then is nil.
func Run(ctx context.Context, config *rest.Config, o Options, progress progress.Progress) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	b := &bed{options: o, progress: progress.Shared(), suffix: fmt.Sprintf("%05x", rand.Uint32N(1<<20))}
	began := time.Now()
	if err := b.open(ctx, config); err != nil {
		b.cleanup(ctx)
		return nil, err
	}
	defer b.conn.close()
	report := &Report{
		Format: Format, Date: began.UTC(), Server: b.endpoint.base.String(), Version: b.version,
		Resource: b.resource.String(), Namespace: b.namespace, Seed: o.Seed,
	}
	report.Results = b.all(ctx)
	report.Interrupted = ctx.Err() != nil
	report.Unable = b.unable
	report.Left = b.cleanup(ctx)
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// bed is a server with the namespace that was made in it.
type bed struct {
	options  Options
	progress progress.Progress
	endpoint *endpoint
	conn     *conn // for preparations
	version  string
	// suffix is part of the names of objects outside the namespace.
	suffix    string
	namespace string
	made      bool // the namespace
	types     []resourceType
	resource  *resourceType
	given     object // a template of its objects; nil: the body that bodies has for the type

	mu      sync.Mutex
	left    []string // guarded by mu: objects that could not be removed
	unable  string   // guarded by mu: requested operation that could not be done
	waiting []Check  // guarded by mu: those that run now and wait
}

func (b *bed) open(ctx context.Context, config *rest.Config) (err error) {
	if b.endpoint, err = newEndpoint(config); err != nil {
		return err
	}
	if b.conn, err = b.endpoint.dial(); err != nil {
		return err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := b.fetch(ctx, "/version", &v); err == nil { // an aggregated server may have none
		b.version = printable([]byte(clip(v.GitVersion)))
	}
	if b.types, err = b.discover(ctx); err != nil {
		if len(b.types) == 0 {
			return err
		}
		b.progress.Done("discovery is not complete: %v", err)
	}
	name, err := parseResource(b.options.Resource)
	if err != nil {
		return err
	}
	if b.resource, err = find(b.types, name); err != nil {
		return err
	}
	if !b.resource.namespaced {
		return fmt.Errorf("%s are not namespaced: the checks need a type that is", b.resource)
	}
	if err := b.giveTemplate(); err != nil {
		return err
	}
	if b.namespace = b.options.Namespace; b.namespace == "" {
		if err := b.makeNamespace(ctx); err != nil {
			return err
		}
	}
	return b.tryTemplate(ctx)
}

func (b *bed) makeNamespace(ctx context.Context) error {
	name := "conformance-" + b.suffix
	body := object{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": name}}
	a, err := b.plain(ctx, request{method: http.MethodPost, path: "/api/v1/namespaces", body: body.encode()})
	if err != nil {
		b.namespace, b.made = name, true // it may have been
	}
	if err == nil && a.code != http.StatusCreated {
		err = fmt.Errorf("%s; a namespace that is there can be named with --namespace", a.describe())
	}
	if err != nil {
		return fmt.Errorf("making the namespace %s: %w", name, err)
	}
	b.namespace, b.made = name, true
	// Pods want this account where admission checks it; a controller may be faster.
	account := object{"kind": "ServiceAccount", "apiVersion": "v1", "metadata": map[string]any{"name": "default"}}
	b.plain(ctx, request{method: http.MethodPost, path: "/api/v1/namespaces/" + name + "/serviceaccounts", body: account.encode()})
	return nil
}

// plain sends a request of no check.
func (b *bed) plain(ctx context.Context, r request) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	return b.endpoint.send(ctx, b.conn, r, &journal{})
}

// all runs the chosen checks, some at once. Those that wait come first; those that
// restart the server come last, alone.
func (b *bed) all(ctx context.Context) []Result {
	checks := b.expand(b.options.selected())
	results := make([]Result, len(checks))
	var waiting, quick, last []int
	for i, c := range checks {
		switch {
		case c.Area() == "restart":
			last = append(last, i)
		case c.Waits != "":
			waiting = append(waiting, i)
		default:
			quick = append(quick, i)
		}
	}
	var done atomic.Int64
	one := func(i int) {
		b.progress.Step("%d of %d: %s", done.Load(), len(checks), checks[i].ID)
		b.waits(checks[i], true)
		results[i] = b.check(ctx, checks[i], i)
		b.waits(checks[i], false)
		b.tell(results[i], done.Add(1), len(checks))
	}
	var wg sync.WaitGroup
	for _, i := range waiting {
		wg.Go(func() { one(i) })
	}
	queue := make(chan int)
	for range b.options.Parallel {
		wg.Go(func() {
			for i := range queue {
				one(i)
			}
		})
	}
	for _, i := range quick {
		queue <- i
	}
	close(queue)
	wg.Wait()
	for _, i := range last {
		one(i)
	}
	b.progress.Step("")
	return results
}

// tell writes a line for a check that did not pass.
func (b *bed) tell(r Result, done int64, of int) {
	if r.Outcome != Passed {
		b.progress.Done("%s %s: %s", r.ID, r.Outcome, clip(r.Message))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.progress.Step("%d of %d", done, of)
		return
	}
	b.progress.Step("%d of %d; %s waits for %s", done, of, b.waiting[0].ID, b.waiting[0].Waits)
}

// waits notes that a check which waits begins or ends.
func (b *bed) waits(c Check, begins bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case c.Waits == "":
	case begins:
		b.waiting = append(b.waiting, c)
	default:
		b.waiting = slices.DeleteFunc(b.waiting, func(w Check) bool { return w.ID == c.ID })
	}
}

// expand puts the types that the server has in the place of the sweep's row.
func (b *bed) expand(checks []Check) []Check {
	var all []Check
	for _, c := range checks {
		if c.ID != sweepTypes {
			all = append(all, c)
			continue
		}
		for i := range b.types {
			if t := &b.types[i]; t.allows("create") && t.allows("update") && t.allows("delete") {
				row := c
				row.ID += "." + t.String()
				row.run = func(p *probe) { p.sweep(t) }
				all = append(all, row)
			}
		}
	}
	return all
}

// check runs one check.
func (b *bed) check(ctx context.Context, c Check, number int) Result {
	began := time.Now()
	r := Result{Check: c, Outcome: Passed}
	conn, err := b.endpoint.dial()
	if err != nil {
		r.Outcome, r.Message = Failed, err.Error()
		return r
	}
	defer conn.close()
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, errTooLong)
	defer cancel()
	h := fnv.New64a()
	h.Write([]byte(c.ID))
	p := &probe{
		ctx: ctx, bed: b, resource: b.resource, conn: conn,
		prefix: fmt.Sprintf("c%03d-%s-", number, b.suffix), rand: rand.New(rand.NewPCG(b.options.Seed, h.Sum64())),
	}
	err = try(func() { c.run(p) })
	var v *verdict
	if errors.As(err, &v) {
		r.Outcome, r.NoRight = v.outcome, v.noRight
		r.Message = printable([]byte(b.endpoint.hidden.hide(v.message)))
		r.Exchanges = p.log.show(&b.endpoint.hidden)
	}
	if err := try(p.tidy); err != nil {
		b.leave(fmt.Sprintf("what %s made: %v", c.ID, err))
	}
	r.Seconds = time.Since(began).Seconds()
	return r
}

// cleanupTimeout limits the removal of the objects of one check, and of the namespace.
const cleanupTimeout = 30 * time.Second

// tidy removes the objects of a check, also when the run was interrupted.
func (p *probe) tidy() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), cleanupTimeout)
	defer cancel()
	slices.Reverse(p.made)
	seen := map[created]bool{}
	for _, c := range p.made {
		if seen[c] {
			continue
		}
		seen[c] = true
		if err := p.bed.erase(ctx, c); err != nil {
			p.bed.leave(fmt.Sprintf("%s %s (%v)", c.resource, c.name, err))
		}
	}
}

// cannot notes why something that was asked for could not be done.
func (b *bed) cannot(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unable = printable([]byte(b.endpoint.hidden.hide(err.Error())))
}

func (b *bed) leave(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = append(b.left, printable([]byte(b.endpoint.hidden.hide(what))))
}

// erase deletes an object, and removes its finalizers if necessary.
func (b *bed) erase(ctx context.Context, c created) error {
	path := c.resource.collection(b.namespace) + "/" + c.name
	refused := ""
	for range 3 { // there may be concurrent writes
		a, err := b.plain(ctx, request{method: http.MethodDelete, path: path, query: "gracePeriodSeconds=0&propagationPolicy=Background"})
		if err != nil || a.code == http.StatusNotFound {
			return err
		}
		if refused = ""; a.code >= 300 {
			refused = a.describe()
		}
		if a, err = b.plain(ctx, request{method: http.MethodGet, path: path}); err != nil {
			return err
		}
		var o object
		if a.code == http.StatusNotFound || json.Unmarshal(a.body, &o) != nil {
			return nil
		}
		if len(o.finalizers()) == 0 {
			break // it goes by itself, or not at all
		}
		delete(o.metadata(), "finalizers")
		if _, err := b.plain(ctx, request{method: http.MethodPut, path: path, body: o.encode()}); err != nil {
			return err
		}
	}
	if refused != "" {
		return errors.New(refused)
	}
	return nil
}

// eraseLate deletes the remaining objects of this run in the namespace: an interrupted create may
// be executed after its object was to be deleted.
func (b *bed) eraseLate(ctx context.Context) {
	if b.resource == nil {
		return
	}
	a, err := b.plain(ctx, request{method: http.MethodGet, path: b.resource.collection(b.namespace), query: "limit=500&labelSelector=" + url.QueryEscape(markLabel)})
	if err != nil || a.code != http.StatusOK {
		return
	}
	l, err := parseList(a.body)
	if err != nil {
		return
	}
	for _, o := range l.items {
		if ctx.Err() == nil && o.mark() != "" && strings.Contains(o.name(), "-"+b.suffix) {
			b.erase(ctx, created{b.resource, url.PathEscape(o.name())})
		}
	}
}

// cleanup removes the namespace, and returns the objects that it could not remove.
func (b *bed) cleanup(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if b.namespace != "" {
		b.eraseLate(ctx)
	}
	if b.made {
		b.erase(ctx, created{&resourceType{version: "v1", resource: "serviceaccounts", namespaced: true}, "default"})
		a, err := b.plain(ctx, request{method: http.MethodDelete, path: "/api/v1/namespaces/" + b.namespace})
		if err == nil && a.code >= 300 && a.code != http.StatusNotFound {
			err = errors.New(a.describe())
		}
		if err != nil {
			b.leave(fmt.Sprintf("the namespace %s, empty: the server does not delete it (%v)", b.namespace, err))
		}
	}
	if len(b.left) > 0 {
		b.progress.Done("left behind: %s", strings.Join(b.left, "; "))
	}
	return b.left
}
