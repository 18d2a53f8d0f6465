package controller

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/clock"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// object identifies a stored object.
type object struct{ collection, key string }

func (o object) compare(other object) int {
	return cmp.Or(strings.Compare(o.collection, other.collection), strings.Compare(o.key, other.key))
}

// item is an object that a loop has to sync. Some loops also set the revision that the object must
// have.
type item struct {
	object
	revision store.Revision
}

const (
	// firstRetry is the pause after an item's first failure. Each further failure doubles
	// it, up to lastRetry.
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
	// mostKept is the largest map that an idle queue keeps.
	mostKept = 1024
	// slowAfter is how long a worker may take for an item before another one takes its place: it
	// waits for a webhook. Work that waits for nothing is done within milliseconds.
	slowAfter = 250 * time.Millisecond
	// mostSlow bounds the workers that are slow with items of one collection. The other items
	// of the collection wait for them, and hold up no other collection.
	mostSlow = 128
)

// queueBuckets are those of kube-apiserver.
var queueBuckets = exposition.Seconds(1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05, 0.001, 0.01, 0.1, 1, 10)

// queue holds the items that a loop has to sync, each once. Workers sync several items at a
// time, an item never twice at a time. Workers end when nothing is left: an idle queue has
// no goroutine, and a timer only for items that are due later.
type queue struct {
	name  string
	width int // how many workers there are at most
	sync  func(context.Context, item) error
	log   *slog.Logger
	idle  func() // called when nothing is left to do now
	kick  func() // called instead of starting workers: the caller of step is one; nil: there are workers

	ctx context.Context // of the workers; ends when the queue closes
	end context.CancelFunc
	all sync.WaitGroup // the workers

	slowAfter time.Duration // the constant, unless a test changes it

	mu          sync.Mutex
	paused      bool
	halted      bool // items are dropped, and none starts
	closed      bool
	workers     int            // those that are not slow
	slow        map[string]int // slow workers by collection, slowWorkers of all
	slowWorkers int
	parked      map[string][]item
	due         []item             // in the order in which they came
	waiting     map[item]time.Time // those of due, since when
	most        int                // how many there were
	working     map[item]bool      // whether to sync it again
	began       map[item]time.Time // when the work on those of working began
	fails       map[item]int       // consecutive failures
	later       laterHeap
	at          map[item]*later // those of the heap
	counted     int             // those of the heap that hold up Settled
	timer       *time.Timer     // for the first of later
	points      map[item]*point // those that are due at a time of a clock

	adds, errors uint64

	waits, works *exposition.Histogram
}

// later is an item that is due at a time.
type later struct {
	item
	due     time.Time
	counted bool // a caller waits for it
	place   int
}

func newQueue(name string, width int, do func(context.Context, item) error, log *slog.Logger) *queue {
	q := &queue{name: name, width: width, sync: do, log: log, idle: func() {},
		slowAfter: slowAfter, slow: map[string]int{}, parked: map[string][]item{}, waiting: map[item]time.Time{}, working: map[item]bool{}, began: map[item]time.Time{}, fails: map[item]int{}, at: map[item]*later{}}
	q.ctx, q.end = context.WithCancel(context.Background())
	q.waits, q.works = queueBuckets.New(), queueBuckets.New()
	return q
}

// add queues an item. An item that is queued already is synced once; one that is being
// synced is synced once more.
func (q *queue) add(i item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(i)
}

func (q *queue) addLocked(i item) {
	if l := q.at[i]; l != nil {
		q.forget(l)
	}
	if p := q.points[i]; p != nil {
		p.timer.Stop()
		delete(q.points, i)
	}
	if _, there := q.waiting[i]; there || q.closed || q.halted {
		return
	}
	if _, busy := q.working[i]; busy {
		q.working[i] = true
		return
	}
	q.adds++
	q.waiting[i] = time.Now()
	q.due = append(q.due, i)
	q.most = max(q.most, len(q.waiting))
	q.start()
}

// addAfter queues an item once a while has passed, unless it is queued earlier. Settled
// waits for an item that is counted.
func (q *queue) addAfter(i item, wait time.Duration, counted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addAfterLocked(i, wait, counted)
}

func (q *queue) addAfterLocked(i item, wait time.Duration, counted bool) {
	due := time.Now().Add(wait)
	if _, there := q.waiting[i]; there || q.closed || q.halted {
		return
	}
	if l := q.at[i]; l != nil {
		if !l.due.After(due) {
			return
		}
		q.forget(l)
	}
	l := &later{item: i, due: due, counted: counted}
	q.at[i] = l
	if counted {
		q.counted++
	}
	heap.Push(&q.later, l)
	q.setTimer()
}

// point is when an item is due.
type point struct {
	at    time.Time
	timer *clock.Timer
}

// addAt queues an item when the clock shows a time, unless it is queued earlier.
func (q *queue) addAt(c *clock.Clock, i item, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, there := q.waiting[i]; there || q.closed || q.halted {
		return
	}
	if p := q.points[i]; p != nil {
		if !p.at.After(at) {
			return
		}
		p.timer.Stop()
	}
	if q.points == nil {
		q.points = map[item]*point{}
	}
	p := &point{at: at}
	q.points[i] = p
	p.timer = c.At(at, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.points[i] == p {
			q.addLocked(i)
		}
	})
}

// step syncs the item with the least name, and reports whether there is one. Which one it is does not depend on the
// order in which the items came.
func (q *queue) step() bool {
	q.mu.Lock()
	if q.paused || q.halted || q.closed || len(q.due) == 0 {
		q.mu.Unlock()
		return false
	}
	i := slices.MinFunc(q.due, func(a, b item) int { return cmp.Or(a.compare(b.object), cmp.Compare(a.revision, b.revision)) })
	q.due = slices.DeleteFunc(q.due, func(other item) bool { return other == i })
	q.begin(i)
	q.mu.Unlock()
	q.done(i, q.look(i))
	return true
}

func (q *queue) forget(l *later) {
	heap.Remove(&q.later, l.place)
	delete(q.at, l.item)
	if l.counted {
		q.counted--
	}
}

// setTimer sets the timer to the first of later.
func (q *queue) setTimer() {
	if len(q.later) == 0 || q.closed {
		return
	}
	wait := max(0, time.Until(q.later[0].due))
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.ripe)
	} else {
		q.timer.Reset(wait)
	}
}

// ripe queues the items that are due.
func (q *queue) ripe() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for len(q.later) > 0 && !q.later[0].due.After(now) {
		q.addLocked(q.later[0].item)
	}
	q.setTimer()
}

// start starts one more worker, if there is work for it.
func (q *queue) start() {
	if q.kick != nil {
		q.kick()
		return
	}
	if q.paused || q.halted || q.closed || q.workers >= min(q.width, len(q.due)+len(q.working)-q.slowWorkers) {
		return
	}
	q.workers++
	q.all.Go(q.work)
}

func (q *queue) work() {
	for {
		i, ok := q.next()
		if !ok {
			q.idle()
			return
		}
		s := &slowness{queue: q, collection: i.collection}
		timer := time.AfterFunc(q.slowAfter, s.begin)
		err := q.look(i)
		timer.Stop()
		s.end()
		q.done(i, err)
	}
}

// slowness is whether a worker has given up its place, since its item takes long.
type slowness struct {
	queue       *queue
	collection  string
	slow, ended bool // under the queue's lock
}

// begin gives up the place of the worker.
func (s *slowness) begin() {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.ended {
		return
	}
	s.slow = true
	q.slow[s.collection]++
	q.slowWorkers++
	q.workers--
	q.start()
}

// end takes the place back. There may be more workers than the width for a while.
func (s *slowness) end() {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	s.ended = true
	if !s.slow {
		return
	}
	q.workers++
	q.slowWorkers--
	if q.slow[s.collection]--; q.slow[s.collection] == 0 {
		delete(q.slow, s.collection)
	}
	all := q.parked[s.collection]
	if n := len(all); n > 0 && q.slow[s.collection] > 0 {
		q.due, q.parked[s.collection] = append(q.due, all[0]), all[1:]
	} else if n > 0 {
		q.due = append(q.due, all...)
		delete(q.parked, s.collection)
	}
}

// next returns the first item; without one the worker ends.
func (q *queue) next() (item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.slow) > 0 {
		q.park()
	}
	if q.paused || q.halted || q.closed || len(q.due) == 0 || q.workers > q.width {
		if q.workers--; q.workers == 0 && len(q.due) == 0 && q.most > mostKept {
			// Maps do not become smaller by themselves.
			q.most, q.waiting = 0, map[item]time.Time{}
		}
		return item{}, false
	}
	i := q.pop()
	q.begin(i)
	return i, true
}

// begin begins the work on an item that has waited.
func (q *queue) begin(i item) {
	now := time.Now()
	q.waits.Observe(int64(now.Sub(q.waiting[i])))
	delete(q.waiting, i)
	q.working[i], q.began[i] = false, now
}

// pop returns the first item.
func (q *queue) pop() item {
	i := q.due[0]
	q.due[0] = item{}
	if q.due = q.due[1:]; len(q.due) == 0 {
		q.due = nil
	}
	return i
}

// park sets the first items aside while too many workers are slow with their collections.
func (q *queue) park() {
	for len(q.due) > 0 && q.slow[q.due[0].collection] >= mostSlow {
		i := q.pop()
		q.parked[i.collection] = append(q.parked[i.collection], i)
	}
}

// look calls sync. A panic in a loop must not end the server.
func (q *queue) look(i item) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return q.sync(q.ctx, i)
}

// errPanic is the error of a function that panicked. safely logs the reason.
var errPanic = errors.New("the server panicked, and its log has the reason")

// safely calls f and recovers from its panic. It is for goroutines that a loop starts: the queue recovers from panics of
// the loop's own goroutine alone.
func (l *Loops) safely(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			l.c.Log.Error("a controller panicked", "panic", r, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return f()
}

// done queues an item again that failed, or that was added meanwhile.
func (q *queue) done(i item, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := q.working[i]
	q.works.Observe(int64(time.Since(q.began[i])))
	delete(q.working, i)
	delete(q.began, i)
	if q.closed || q.halted || q.ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
		return
	}
	if err == nil {
		delete(q.fails, i)
		if again {
			q.addLocked(i)
		}
		return
	}
	n := q.fails[i]
	q.fails[i] = n + 1
	q.errors++
	wait := lastRetry
	if n < 16 {
		wait = min(lastRetry, firstRetry<<n)
	}
	q.log.Warn("a controller failed, and tries again", "controller", q.name, "collection", i.collection, "key", i.key, "err", plain(err), "after", wait)
	q.addAfterLocked(i, wait, true)
}

// plain is the text of an error for the log. The text of a validation error quotes values
// of the object, so the names of the invalid fields replace it. Joined errors are treated
// one by one.
func plain(err error) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var texts []string
		for _, one := range joined.Unwrap() {
			texts = append(texts, plain(one))
		}
		return strings.Join(texts, "; ")
	}
	var s apierrors.APIStatus
	if !errors.As(err, &s) || s.Status().Reason != metav1.StatusReasonInvalid {
		return err.Error()
	}
	text := "the object is not valid"
	if d := s.Status().Details; d != nil {
		for _, c := range d.Causes {
			text += " " + c.Field
		}
	}
	return text
}

// pause stops or resumes the start of further items. Items in progress continue.
func (q *queue) pause(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = on
	for range q.due {
		q.start()
	}
}

// halt drops all items, those that come later too, or ends that. Items in progress continue.
func (q *queue) halt(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.halted = on; !on {
		return
	}
	for _, p := range q.points {
		p.timer.Stop()
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	q.due, q.later, q.points, q.counted = nil, nil, nil, 0
	clear(q.parked)
	clear(q.waiting)
	clear(q.fails)
	clear(q.at)
}

// settled reports whether nothing is left to do now. The items of a paused queue are left
// to kube-controller-manager.
func (q *queue) settled() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.working) == 0 && (q.paused || len(q.due) == 0 && len(q.parked) == 0 && q.counted == 0)
}

// close ends the queue, and waits for the items in progress.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	for _, p := range q.points {
		p.timer.Stop()
	}
	q.mu.Unlock()
	q.end()
	q.all.Wait()
}

// laterHeap is ordered by time.
type laterHeap []*later

func (h laterHeap) Len() int           { return len(h) }
func (h laterHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h laterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *laterHeap) Push(x any) {
	l := x.(*later)
	l.place = len(*h)
	*h = append(*h, l)
}
func (h *laterHeap) Pop() any {
	old := *h
	n := len(old) - 1
	l := old[n]
	old[n] = nil
	*h = old[:n]
	return l
}

// itemHeap is ordered by revision.
type itemHeap []item

func (h itemHeap) Len() int           { return len(h) }
func (h itemHeap) Less(i, j int) bool { return h[i].revision < h[j].revision }
func (h itemHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *itemHeap) Push(x any)        { *h = append(*h, x.(item)) }
func (h *itemHeap) Pop() any {
	old := *h
	last := len(old) - 1
	i := old[last]
	old[last] = item{}
	*h = old[:last]
	return i
}
