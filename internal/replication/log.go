package replication

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/serverclient"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	// responseTime limits all requests but streams and heads.
	responseTime = 10 * time.Second
	// headTime limits a request for the newest revision, and lostTime one while there is no stream.
	headTime, lostTime = silence, time.Second
	// silence is when a stream without a message counts as lost.
	silence = 5 * heartbeat
	// longestPause is the longest pause before another try, and shortestPause the first one.
	shortestPause, longestPause = 50 * time.Millisecond, 2 * time.Second
	// warnPause is the pause between two log messages about a stream that cannot be had.
	warnPause = time.Minute
	// loadPatience is how long Load waits for changes of the server.
	loadPatience = 10 * time.Second
	// runPatience is how long a request waits for a stream of another run of the server.
	runPatience = 2 * time.Second
	// maxResponse limits a response that is no stream.
	maxResponse = 1 << 20
)

// call decodes a response.
func call(ctx context.Context, c *serverclient.Client, limit time.Duration, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	response, err := c.Do(ctx, method, Path+path, "application/octet-stream", body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(io.LimitReader(response.Body, maxResponse)).Decode(into)
}

// Compare asks the server whether a copy can be continued.
func Compare(ctx context.Context, c *serverclient.Client, copied store.Log, at store.Revision) (Copy, error) {
	query, err := claimAt(ctx, copied, "revision", at)
	if err != nil {
		return "", err
	}
	var head Head
	err = call(ctx, c, responseTime, http.MethodGet, "/head?"+query.Encode(), nil, &head)
	return head.Copy, err
}

// Facts returns the settings that the followers of the server must have, too.
func (l *Log) Facts(ctx context.Context) (map[string]string, error) {
	var head Head
	if err := call(ctx, l.client, responseTime, http.MethodGet, "/head?facts", nil, &head); err != nil {
		return nil, err
	}
	return head.Facts, nil
}

// Log is the log of a follower. It implements store.Shared on a copy of the objects of a server, which it
// keeps up to date.
type Log struct {
	client *serverclient.Client
	copied store.Log
	log    *slog.Logger

	opened     store.Revision // newest revision of the copy when it was opened
	compacting sync.WaitGroup
	ctx        context.Context // ends with Close
	stop       context.CancelFunc
	floors     chan store.Revision

	mu       sync.Mutex
	through  store.Revision // newest revision of the copy
	head     store.Revision // the newest revision of the server that is known
	caughtUp time.Time      // when the copy last had all that the server had
	lost     error          // why there is no stream; nil: there is one
	run      string         // of the server, as of the newest stream; empty: there was none
	began    chan struct{}  // closed when a stream begins
	warned   time.Time      // when the log of the process named the reason
}

// NewLog returns a log on a copy that ends with a revision, and can be continued. It owns the copy.
func NewLog(c *serverclient.Client, copied store.Log, head store.Revision, log *slog.Logger) *Log {
	l := &Log{client: c, copied: copied, log: log, opened: head, through: head, head: head, floors: make(chan store.Revision, 1), began: make(chan struct{}), caughtUp: time.Now(), lost: errNoStream}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.compacting.Go(l.compact)
	return l
}

// Lag is how far a follower is behind its server.
type Lag struct {
	// Revisions is the number of revisions that the server is known to be ahead.
	Revisions store.Revision
	// Time is for how long the follower has not had all that the server had.
	Time time.Duration
	// Connected is true while the server sends its changes.
	Connected bool
}

// Lag returns how far the copy is behind.
func (l *Log) Lag() Lag {
	l.mu.Lock()
	defer l.mu.Unlock()
	lag := Lag{Revisions: l.head - l.through, Connected: l.lost == nil}
	if since := time.Since(l.caughtUp); !lag.Connected || lag.Revisions > 0 || since > 2*heartbeat {
		lag.Time = since
	}
	return lag
}

// Load implements store.Shared. It first copies the changes that the server has acknowledged, if
// the server can be reached.
func (l *Log) Load(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	newest, err := l.anyHead(ctx) // a stream begins with a comparison
	if err != nil && !errors.As(err, new(*store.UnavailableError)) {
		return store.Bounds{}, err
	}
	l.mu.Lock()
	after := l.through
	l.mu.Unlock()
	if after < newest.Revision {
		if err := l.catchUp(ctx, after, newest.Revision); err != nil {
			return store.Bounds{}, err
		}
	}
	b, err := l.copied.Replay(ctx, load)
	b.Marks, b.InMemory = nil, false
	return b, err
}

// catchUp follows the server up to a revision, or until it sends nothing any more.
func (l *Log) catchUp(ctx context.Context, after, head store.Revision) error {
	patient, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(loadPatience, cancel)
	defer timer.Stop()
	for b, err := range l.Follow(patient, after) {
		if err != nil && patient.Err() != nil {
			return ctx.Err() // nil: the copy is as it is
		}
		if err != nil || b.Through >= head {
			return err
		}
		timer.Reset(loadPatience)
	}
	return nil
}

// Follow implements store.Shared. A batch is in the copy before it is yielded.
func (l *Log) Follow(ctx context.Context, after store.Revision) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		l.mu.Lock()
		l.through = after
		l.mu.Unlock()
		for pause := shortestPause; ; pause = min(2*pause, longestPause) {
			began := time.Now()
			goOn, err := l.follow(ctx, &after, yield)
			switch {
			case !goOn:
				return
			case ctx.Err() != nil:
				yield(store.Batch{}, ctx.Err())
				return
			case OfCopy(err):
				yield(store.Batch{}, err)
				return
			case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
				yield(store.Batch{}, fmt.Errorf("the history of the server %s does not reach back to the copy any more; the next start makes the copy again: %w", l.client.URL, err))
				return
			case apierrors.IsConflict(err):
				yield(store.Batch{}, fmt.Errorf("%w: %w", store.ErrReset, err))
				return
			case err != nil:
				l.disconnected(err)
			}
			if err == nil || time.Since(began) > longestPause { // the server ends each stream some time
				pause = shortestPause
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

// copyError is an error of the copy.
type copyError struct{ err error }

// OfCopy reports whether an error is one of the copy, not of the server.
func OfCopy(err error) bool { return errors.As(err, new(*copyError)) }

func (e *copyError) Error() string { return "the copy: " + e.err.Error() }
func (e *copyError) Unwrap() error { return e.err }

func (l *Log) disconnected(err error) {
	l.mu.Lock()
	warn := l.lost == nil || time.Since(l.warned) > warnPause
	if l.lost = err; warn {
		l.warned = time.Now()
	}
	l.mu.Unlock()
	if warn {
		l.log.Warn("the stream of changes ended; the state is as of then until the server can be reached", "server", l.client.URL, "err", err)
	}
}

var errSilent = fmt.Errorf("the server has sent nothing for %v", silence)

// follow reads one stream of changes. It returns false if yield did, and no error if the server has ended the stream.
func (l *Log) follow(ctx context.Context, after *store.Revision, yield func(store.Batch, error) bool) (bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(responseTime, func() { cancel(errSilent) })
	defer silent.Stop()
	query, err := claimAt(ctx, l.copied, "after", *after)
	if err != nil {
		return true, err
	}
	response, err := l.client.Do(ctx, http.MethodGet, Path+"/changes?"+query.Encode(), "", nil)
	if err != nil {
		return true, err
	}
	defer response.Body.Close()
	l.noteRun(response.Header.Get(runHeader))
	r := bufio.NewReaderSize(readerFunc(func(b []byte) (int, error) {
		n, err := response.Body.Read(b)
		if n > 0 { // a part of a message counts, on a slow line
			silent.Reset(silence)
		}
		return n, err
	}), 64<<10)
	var h held
	for n := 0; ; n++ {
		m, err := readMessage(r)
		if n > 0 && err == io.EOF {
			return true, nil
		}
		if err == nil {
			err = m.check(l.newest())
		}
		if err == nil {
			err = h.add(&m)
		}
		if err != nil {
			return true, cmp.Or(context.Cause(ctx), err)
		}
		if !h.whole(m.through) {
			continue
		}
		b := store.Batch{Entries: h.entries, Through: m.through}
		h = held{}
		if err := l.copy(ctx, *after, &b); err != nil {
			return true, err
		}
		*after = b.Through
		l.noteMessage(&m)
		if b.Floor = l.copied.Floor(); !yield(b, nil) {
			return false, nil
		}
	}
}

// noteRun records the run of the server with which a stream begins.
func (l *Log) noteRun(run string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run = run
	close(l.began)
	l.began = make(chan struct{})
}

// inRun calls a function with the run of the newest stream. If the server is in another run, nothing was done: inRun waits
// for a stream of that, for a moment, and calls the function again. The error is a *notDone if the function was not
// called, or did nothing.
func (l *Log) inRun(ctx context.Context, f func(run string) error) error {
	var patience <-chan time.Time // nil: it has not waited yet
	for {
		l.mu.Lock()
		run, began, lost := l.run, l.began, l.lost
		l.mu.Unlock()
		switch {
		case run != "":
			if err := f(run); !isOtherRun(err) {
				return err
			}
		case lost != nil && lost != errNoStream: //nolint:errorlint // it is set as it is
			return &notDone{l.unavailable(lost)} // there was no stream at all
		}
		if patience == nil {
			patience = time.After(runPatience)
		}
		select {
		case <-began:
		case <-patience:
			return &notDone{l.unavailable(errOtherRun)}
		case <-ctx.Done():
			return &notDone{ctx.Err()}
		}
	}
}

// notDone is the error of a request that the server did not get, or refused as one for another run.
type notDone struct{ err error }

func (e *notDone) Error() string { return e.err.Error() }
func (e *notDone) Unwrap() error { return e.err }

// errNoStream is Log.lost before the first try.
var errNoStream = errors.New("not connected yet")

// errOtherRun means that the server is in another run than the stream, or that there was no stream
// yet.
var errOtherRun error = newStatus(http.StatusConflict, reasonOtherRun, "it was restarted, and does not send its changes yet")

func isOtherRun(err error) bool { return err != nil && apierrors.ReasonForError(err) == reasonOtherRun }

// readerFunc is an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// held are the entries that wait for the rest of their transactions.
type held struct {
	entries []store.Entry
	bytes   int
}

// add adds a message.
func (h *held) add(m *message) error {
	h.entries = append(h.entries, m.entries...)
	h.bytes += m.bytes
	if len(h.entries) > 2*heldChanges || h.bytes > heldBytes+maxMessage {
		return fmt.Errorf("the server sent %d changes in %d bytes without the end of a transaction", len(h.entries), h.bytes)
	}
	return nil
}

// whole reports whether nothing waits for a later revision.
func (h *held) whole(through store.Revision) bool {
	return len(h.entries) == 0 || h.entries[len(h.entries)-1].Revision <= through
}

// noteMessage records the revisions of a message.
func (l *Log) noteMessage(m *message) {
	l.mu.Lock()
	again := l.lost != nil
	l.through, l.head, l.lost = m.through, max(m.head, m.through), nil
	if l.through == l.head {
		l.caughtUp = time.Now()
	}
	l.mu.Unlock()
	if again {
		l.log.Info("following", "server", l.client.URL, "revision", m.through)
	}
	select {
	case l.floors <- min(m.floor, max(m.through, 1)-1): // the newest change stays: see claim
	default: // a compaction is under way; a later floor follows
	}
}

// copy appends the changes of a batch to the copy.
func (l *Log) copy(ctx context.Context, after store.Revision, b *store.Batch) error {
	if len(b.Entries) == 0 {
		b.Through = after // the head of the copy is the revision of a change
		return nil
	}
	type place struct{ collection, key string }
	made := map[place]*store.Object{}
	for i := range b.Entries {
		e := &b.Entries[i]
		at := place{e.Collection, e.Key}
		before, ok := made[at]
		if !ok {
			var err error
			if before, err = l.copied.Current(e.Collection, e.Key); err != nil {
				return &copyError{err}
			}
		}
		e.Before, e.Deleting = before, e.Object == nil
		made[at] = e.Object
	}
	err := l.copied.Append(context.WithoutCancel(ctx), b.Entries, nil)
	if errors.Is(err, store.ErrEncrypt) { // a KMS plugin does not respond; the changes are sent again
		return fmt.Errorf("the copy: %w", err)
	}
	if err != nil {
		return &copyError{err}
	}
	for i := range b.Entries {
		b.Entries[i].Before = nil // the store knows it
	}
	return nil
}

// reclaimPause is the pause between two attempts to give space back to a disk that is nearly full.
const reclaimPause = time.Minute

// compact drops history that the server does not have any more, until Close.
func (l *Log) compact() {
	var reclaimed time.Time
	for {
		var floor store.Revision
		select {
		case floor = <-l.floors:
		case <-l.ctx.Done():
			return
		}
		err := error(nil)
		if floor > l.copied.Floor() {
			err = l.copied.Compact(l.ctx, floor)
		}
		if err == nil && l.copied.Short() > 0 && time.Since(reclaimed) > reclaimPause {
			reclaimed = time.Now()
			err = l.copied.Reclaim(l.ctx)
		}
		if err != nil && l.ctx.Err() == nil && !errors.Is(err, store.ErrNoSpace) {
			l.log.Warn("the history of the copy was not compacted", "err", err)
		}
	}
}

// isLost reports whether there is no stream of changes.
func (l *Log) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost != nil
}

// Head implements store.Shared. The revision is one in the run of the stream.
func (l *Log) Head(ctx context.Context) (store.Revision, error) {
	var head Head
	err := l.inRun(ctx, func(run string) (err error) {
		if head, err = l.anyHead(ctx); err == nil && head.Run != run {
			err = errOtherRun
		}
		return err
	})
	if refused := (*notDone)(nil); errors.As(err, &refused) {
		err = refused.err
	}
	return head.Revision, err
}

// anyHead returns the newest revision of the server in its run.
func (l *Log) anyHead(ctx context.Context) (head Head, err error) {
	limit := headTime
	if l.isLost() {
		limit = lostTime
	}
	err = call(ctx, l.client, limit, http.MethodGet, "/head", nil, &head)
	if err != nil && ctx.Err() != nil {
		return head, ctx.Err()
	}
	if err != nil {
		return head, l.unavailable(err)
	}
	return head, nil
}

// unavailable returns the error of a request that got no response, or was rejected.
func (l *Log) unavailable(err error) error {
	return &store.UnavailableError{RetryAfter: time.Second, Err: fmt.Errorf("the server %s, which this one follows: %w", l.client.URL, err)}
}

// Propose implements store.Shared. It makes one try, and none while the server does not respond.
func (l *Log) Propose(ctx context.Context, t *store.Txn) (store.Decision, error) {
	b := encodeTxn(t)
	if len(b) > MaxTransaction {
		return store.Decision{}, &store.UnfitError{Key: t.Writes[0].Key, Why: fmt.Sprintf("the transaction has %d bytes: want at most %d", len(b), MaxTransaction), Size: true}
	}
	if l.isLost() {
		if _, err := l.Head(ctx); err != nil {
			return store.Decision{}, err
		}
	}
	l.mu.Lock()
	had := l.through
	l.mu.Unlock()
	var d Decision
	send := func(run string) error {
		return call(ctx, l.client, responseTime, http.MethodPost, "/transactions?run="+url.QueryEscape(run), b, &d)
	}
	err := l.inRun(ctx, send)
	if refused := (*notDone)(nil); errors.As(err, &refused) {
		return store.Decision{}, refused.err
	}
	if err != nil {
		return store.Decision{}, l.proposeError(ctx, t, err)
	}
	if err := d.check(t, had, l.newest()); err != nil {
		return store.Decision{}, fmt.Errorf("%w: the server %s, which this one follows: %w", store.ErrUnknown, l.client.URL, err)
	}
	return store.Decision{Made: d.Made, First: d.First, Revision: d.Last}, nil
}

// maxAhead limits how far the revisions of a server are beyond the time in microseconds since 1970, and beyond those of the copy
// when it was opened. A server makes fewer than a million in a second, and a restored one continues at the time. Without
// a limit, a server could use up the revisions of the copy.
const maxAhead = 1 << 40

// newest is the largest revision that a server can have reached.
func (l *Log) newest() store.Revision {
	return max(l.opened, store.Revision(max(time.Now().UnixMicro(), 0))) + maxAhead
}

// check returns an error unless a server can have made the decision. Had is the revision of the
// copy when the server got the transaction: each write has a revision of its own after that. Newest
// is the largest possible revision.
func (d *Decision) check(t *store.Txn, had, newest store.Revision) error {
	switch {
	case d.Last > newest:
		return fmt.Errorf("it decided the transaction at the impossible revision %d", d.Last)
	case d.Made && (d.First <= had || d.Last-d.First != store.Revision(len(t.Writes)-1)):
		return fmt.Errorf("it made a transaction of %d writes at the revisions %d to %d, and the copy had %d before", len(t.Writes), d.First, d.Last, had)
	}
	return nil
}

// proposeError returns the error of a transaction whose response is no decision.
func (l *Log) proposeError(ctx context.Context, t *store.Txn, err error) error {
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) {
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
			return l.unavailable(err) // it was not sent
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	s := refused.Status()
	switch {
	case s.Reason == reasonUnfit:
		return &store.UnfitError{Key: t.Writes[0].Key, Why: s.Message, Size: s.Code == http.StatusRequestEntityTooLarge}
	case s.Reason == reasonNoSpace, s.Reason == reasonQuota:
		return fmt.Errorf("%w: the server that this one follows: %s", store.ErrNoSpace, s.Message)
	case s.Code >= 500 && s.Reason != metav1.StatusReasonServiceUnavailable: // also 503 of a load balancer that lost the response
		// The server may have reported the unknown outcome itself.
		return fmt.Errorf("%w: %s", store.ErrUnknown, strings.TrimPrefix(s.Message, store.ErrUnknown.Error()+": "))
	case s.Code == http.StatusTooManyRequests:
		return store.ErrOverloaded
	}
	return l.unavailable(err) // it was refused
}

// Changes implements store.Shared.
func (l *Log) Changes(ctx context.Context, collection string, after, upTo store.Revision) iter.Seq2[store.Entry, error] {
	return l.copied.Changes(ctx, collection, after, upTo)
}

// ObjectsAt implements store.Shared.
func (l *Log) ObjectsAt(ctx context.Context, collection string, at store.Revision, prefix, after string) iter.Seq2[*store.Object, error] {
	return l.copied.ObjectsAt(ctx, collection, at, prefix, after)
}

// Usage implements store.Shared.
func (l *Log) Usage() store.Usage { return l.copied.Usage() }

// Close implements store.Shared.
func (l *Log) Close() error {
	l.stop()
	l.compacting.Wait()
	return l.copied.Close()
}
